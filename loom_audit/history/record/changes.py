"""Makes the changes of a call itself: the intention on record, the disk, what is there then."""

from collections.abc import Callable, Mapping, Sequence

from loom_audit.errors import Conflict, PermissionDenied, TooLarge
from loom_audit.history.ground.attachment import StoredLog
from loom_audit.history.record.call_record import CallRecord
from loom_audit.history.record.carrying_out import (
    Outcome,
    Step,
    in_safe_order,
    is_link_source,
    need_two_phases,
)
from loom_audit.history.record.interrupted import record_interrupted
from loom_audit.history.record.preconditions import Preconditions
from loom_audit.model.coverage import Origin
from loom_audit.model.events import ChangeIntended, FilesChanged
from loom_audit.model.files import (
    FileChange,
    FileState,
    Move,
    folder_renames,
    is_within,
    moves_among,
)
from loom_audit.model.text.display import first_few

MOST_NAMED = 1_000
"""Most paths that an error names in its details."""

States = Mapping[str, FileState | None]
"""States by path; None for what is absent."""


def make_changes(
    record: CallRecord,
    preconditions: Preconditions,
    changes: Sequence[FileChange],
    moves: tuple[Move, ...] = (),
    reverts: tuple[int, ...] = (),
    *,
    origin: Origin = "tool",
    first: Callable[[], None] | None = None,
) -> None:
    """Record the drift and the intention, change the disk, and collect what came of it.

    `first` is done once the intention is durable, before the disk is changed. The outcome waits for
    the next commit. The lock is held. When a change fails, those before it are recorded, and its
    error is raised. With nothing changed: Conflict for a path that was not approved as it is,
    TooLarge for content that could not be brought back.
    """
    folders = renamed_folders(changes, moves)
    renamed = {change.path for inside in folders.values() for change in inside}
    copied = [change for change in changes if change.path not in renamed]
    if changes:
        _check_approved(record.approved, changes)
        _check_recoverable(record.attachment.stored, copied)
    # what others did at these paths goes on record before the intention, whose changes would not
    # apply to the log's tree otherwise; also where nothing is to be changed, as it was seen
    record.entries.update(preconditions.entries)
    record.add_changes_of_others(_drift_of_others(record, preconditions.drift))
    if not changes:
        if first is not None:
            record.commit(ChangeIntended(record.call_id, (), (), reverts))
            first()
        return
    if origin == "undo" and record.has_facts:
        # the request before any temporary: should the process die before the intention, recovery
        # finds an undo without an intention and looks for temporaries everywhere
        record.commit()
    # the temporaries are made, still empty, before the intention: it names each by its identity
    steps = preconditions.replacements(in_safe_order(copied), moves)
    reserved = record.attachment.on_disk.workspace.reserve(
        [one for one in steps if not is_link_source(one)], tuple(folders)
    )
    # folders are opened only where the steps are made in two phases, so an undo and the rename of a
    # whole folder are made so; one write of a tool fails in such a folder, as a program's does
    opens = bool(reserved.opened) and (origin == "undo" or bool(folders))
    in_two_phases = opens or need_two_phases(steps)
    opened = reserved.opened if in_two_phases else ()
    try:
        intended = ChangeIntended(
            record.call_id, tuple(changes), moves, reverts, reserved.temporaries, opened
        )
        # from here on the contents before and after are durable; only now the disk is changed
        intention = record.commit_intention(intended)
        if first is not None:
            first()
        step = Step(preconditions, reserved, in_two_phases=in_two_phases)
        outcome = step.carry_out(steps, folders, intention)
    finally:
        reserved.release()
    _collect(record, intended, intention, outcome, origin)
    if outcome.error is not None:
        record.commit_and_index()
        raise outcome.error
    if opened:
        # deleting the displaced files opens their folders once more: committed here, they go while
        # the call is open, and after a crash somebody closes the folders that its intention names
        record.commit_and_index()


def _collect(
    record: CallRecord,
    intended: ChangeIntended,
    intention: int,
    outcome: Outcome,
    origin: Origin,
) -> None:
    """Collect what came of a step, whose intention has that seq."""
    # in the order in which things happened, so that each change applies to the tree before it
    record.entries.update(outcome.entries)
    record.add_changes_of_others(outcome.others_before)
    if made := _in_order_of(intended.changes, outcome.changes):
        record.add_changes(_fact_of(made, intended, intention, tuple(outcome.arrived), origin))
    record.add_changes_of_others(outcome.others_after)
    if record.approved is not None:
        # what the call made itself is approved for its next step
        record.approved.update((change.path, change.after) for change in outcome.changes)
    record.lower_coverage(*outcome.reasons)
    record.displaced += outcome.displaced


def _drift_of_others(record: CallRecord, drift: Sequence[FileChange]) -> Sequence[FileChange]:
    """The changes of a drift that are not those of interrupted calls.

    What interrupted calls made of their intentions is put on record here, as theirs.
    """
    if not drift:
        return drift
    stored = record.attachment.stored
    record_interrupted(record.attachment, stored.tables.open_calls())
    return [change for change in drift if stored.reading.state(change.path) != change.after]


def _fact_of(
    made: tuple[FileChange, ...],
    intended: ChangeIntended,
    intention: int,
    arrived: tuple[str, ...],
    origin: Origin,
) -> FilesChanged:
    """The fact of what a step changed; it names the intention where exactly that happened.

    The changes are then stored once, with the intention, whose seq is `intention`.
    """
    if made == intended.changes and not arrived:
        return FilesChanged(
            made, origin, intended.call_id, intended.moves, intended.reverts, intention=intention
        )
    return FilesChanged(
        made,
        origin,
        intended.call_id,
        moves_among(made, intended.moves),
        intended.reverts,
        arrived=arrived,
    )


def _in_order_of(
    intended: tuple[FileChange, ...], made: Sequence[FileChange]
) -> tuple[FileChange, ...]:
    """The changes that were made, in the order of the intention where they are the intended ones.

    Only then they are equal to those of the intention, and need not be stored again.
    """
    same = len(made) == len(intended) and {c.path: c for c in made} == {c.path: c for c in intended}
    return intended if same else tuple(made)


def renamed_folders(
    changes: Sequence[FileChange], moves: Sequence[Move]
) -> dict[Move, list[FileChange]]:
    """The folders that are renamed as a whole, each with the changes that its rename makes."""
    return {
        move: [c for c in changes if is_within(c.path, (move.source, move.target))]
        for move in folder_renames(changes, moves)
    }


def check_planned(preconditions: Preconditions, changes: Sequence[FileChange]) -> None:
    """Conflict when paths are not in the states from which their changes start.

    The error's details name at most `MOST_NAMED` of these paths.
    """
    preconditions.expect_paths([change.path for change in changes])
    # a pipe, socket or device in the way is renamed, and not overwritten
    preconditions.overlooks_special = True
    unlike = [one.path for one in changes if not _begins_with(preconditions, one)]
    if unlike:
        raise Conflict(
            f"{first_few(unlike, 1)} changed since the plan was made",
            hint="Make the plan again.",
            details={"path": unlike[0], "paths": unlike[:MOST_NAMED]},
        )


def _begins_with(preconditions: Preconditions, change: FileChange) -> bool:
    """Whether a path is in the state from which its change starts."""
    try:
        return preconditions.look(change.path) == change.before
    except PermissionDenied:
        if change.before is not None:
            raise
        # made in a folder that the plan opens: what is there is seen when it is open, and stays
        return True


def _check_approved(approved: States | None, changes: Sequence[FileChange]) -> None:
    """Conflict when a path is not in the state that a person has seen and approved, if any was."""
    if approved is None:
        return
    for change in changes:
        if change.path not in approved or change.before != approved[change.path]:
            raise Conflict(
                f"{change.path} is not as it was when this call was approved",
                hint="Look at it and make the call again.",
                details={"path": change.path},
            )


def _check_recoverable(stored: StoredLog, changes: Sequence[FileChange]) -> None:
    """TooLarge when a content that a change replaces or writes is not in the store.

    It is on record by its hash only, so an undo could not bring it back.
    """
    sides = [(c.path, state) for c in changes for state in (c.before, c.after) if state]
    missing = stored.blobs.missing({state.blob for _, state in sides if state.blob})
    for path, state in sides:
        if state.blob in missing:
            raise TooLarge(
                f"{path} is over the limit for recorded content and could not be brought back",
                hint="Use a shell command; the limit is set by `init` and stays.",
                details={"path": path, "size": state.size},
            )
