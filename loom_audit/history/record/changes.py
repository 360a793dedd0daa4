"""Changes that a call makes itself: intended on record, carried out, recorded as they are."""

from collections.abc import Mapping, Sequence

from loom_audit.errors import Conflict, PermissionDenied, TooLarge
from loom_audit.history.ground.attachment import StoredLog
from loom_audit.history.record.call_record import CallRecord
from loom_audit.history.record.carrying_out import (
    Step,
    in_safe_order,
    is_done_together,
    is_staying,
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
"""Of the paths that an error names."""

States = Mapping[str, FileState | None]


def make_changes(
    record: CallRecord,
    preconditions: Preconditions,
    changes: Sequence[FileChange],
    moves: tuple[Move, ...] = (),
    reverts: tuple[int, ...] = (),
    *,
    origin: Origin = "tool",
) -> None:
    """Record drift and intention, change the disk, collect the outcome for the next commit.

    When a change fails, those before it are recorded, and its error is raised. Conflict for
    what was not approved. The lock is held.
    """
    folders = renamed_folders(changes, moves)
    renamed = {change.path for inside in folders.values() for change in inside}
    copied = [change for change in changes if change.path not in renamed]
    if changes:
        _check_approved(record.approved, changes)
        _check_recoverable(record.attachment.stored, copied)
    record.entries.update(preconditions.entries)
    record.add_foreign(_of_others(record, preconditions.drift))
    if not changes:
        return
    if origin == "undo" and record.has_facts:
        record.commit()  # so that temporaries without an intention are looked for
    steps = preconditions.replacements(in_safe_order(copied), moves)
    reserved = record.attachment.on_disk.workspace.reserve(
        [one for one in steps if not is_staying(one)], tuple(folders)
    )
    opens = bool(reserved.opened) and (origin == "undo" or bool(folders))
    together = opens or is_done_together(steps)
    opened = reserved.opened if together else ()
    try:
        intended = ChangeIntended(
            record.call_id, tuple(changes), moves, reverts, reserved.temporaries, opened
        )
        intention = record.commit_intention(intended)
        step = Step(preconditions, reserved, together=together)
        outcome = step.carry_out(steps, folders)
    finally:
        reserved.release()
    record.entries.update(outcome.entries)
    record.add_foreign(outcome.foreign)
    if made := _in_order_of(intended.changes, outcome.changes):
        if made == intended.changes and not outcome.arrived:
            fact = FilesChanged(
                made, origin, record.call_id, intended.moves, reverts, intention=intention
            )
        else:
            fact = FilesChanged(
                made,
                origin,
                record.call_id,
                moves_among(made, moves),
                reverts,
                arrived=tuple(outcome.arrived),
            )
        record.add_changes(fact)
    record.add_foreign(outcome.later)
    if record.approved is not None:
        record.approved.update((change.path, change.after) for change in outcome.changes)
    record.lower_coverage(*outcome.reasons)
    record.displaced += outcome.displaced
    if outcome.error is not None:
        record.commit_and_index()
        raise outcome.error
    if opened:
        record.commit_and_index()  # what was displaced goes from there while the call is open


def _of_others(record: CallRecord, drift: Sequence[FileChange]) -> Sequence[FileChange]:
    """The drift without what interrupted calls made of what they intended, which goes on record."""
    if not drift:
        return drift
    stored = record.attachment.stored
    record_interrupted(record.attachment, stored.tables.open_calls())
    return [change for change in drift if stored.reading.state(change.path) != change.after]


def _in_order_of(
    intended: tuple[FileChange, ...], made: Sequence[FileChange]
) -> tuple[FileChange, ...]:
    """What was made, in the order of the intention when it is the same."""
    same = len(made) == len(intended) and {c.path: c for c in made} == {c.path: c for c in intended}
    return intended if same else tuple(made)


def renamed_folders(
    changes: Sequence[FileChange], moves: Sequence[Move]
) -> dict[Move, list[FileChange]]:
    """The opaque folders that are renamed as a whole, each with the changes that this makes."""
    return {
        move: [c for c in changes if is_within(c.path, (move.source, move.target))]
        for move in folder_renames(changes, moves)
    }


def check_planned(preconditions: Preconditions, changes: Sequence[FileChange]) -> None:
    """Conflict when paths are not in the states that their changes begin with."""
    preconditions.expect_paths([change.path for change in changes])
    preconditions.overlooks_special = True  # it is moved aside
    unlike = [one.path for one in changes if not _begins_with(preconditions, one)]
    if unlike:
        raise Conflict(
            f"{first_few(unlike, 1)} changed since the plan was made",
            hint="Make the plan again.",
            details={"path": unlike[0], "paths": unlike[:MOST_NAMED]},
        )


def _begins_with(preconditions: Preconditions, change: FileChange) -> bool:
    """Whether a path is as it was planned; what is made where nobody may look is seen then."""
    try:
        return preconditions.look(change.path) == change.before
    except PermissionDenied:
        if change.before is not None:
            raise
        return True


def _check_approved(approved: States | None, changes: Sequence[FileChange]) -> None:
    """Conflict when a path to be changed is not in the state that was approved, if any was."""
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
    """TooLarge when a content that a change replaces or writes is not in the store."""
    sides = [(c.path, state) for c in changes for state in (c.before, c.after) if state]
    missing = stored.blobs.missing({state.blob for _, state in sides if state.blob})
    for path, state in sides:
        if state.blob in missing:
            raise TooLarge(
                f"{path} is over the limit for recorded content and could not be brought back",
                hint="Use a shell command; the limit is set by `init` and stays.",
                details={"path": path, "size": state.size},
            )
