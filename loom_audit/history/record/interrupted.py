"""Finds out what calls did whose process ended before they did, and puts it on record.

An intention on record and the states on disk tell it: a path is as it was before, as it was
intended, or as somebody else made it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from loom_audit.errors import AuditError, InvalidPath, PermissionDenied, TooLarge
from loom_audit.history.ground.attachment import Attachment, StoredLog, is_undo
from loom_audit.history.ground.writer import Writer
from loom_audit.history.look.attribution import outside_draft
from loom_audit.history.look.observation import observe
from loom_audit.history.record.call_record import CallRecord
from loom_audit.history.record.carrying_out import Seen, as_left_out, seen_with_groups
from loom_audit.history.record.out_of_scope import outside_scope
from loom_audit.history.record.preconditions import Preconditions
from loom_audit.model.applicable import in_applicable_order
from loom_audit.model.coverage import Origin
from loom_audit.model.events import OPENED, ChangeIntended, Event, FilesChanged, OpenedFolder
from loom_audit.model.files import FileChange, FileState, Move, is_directory, moves_among
from loom_audit.model.plans.links import without_group
from loom_audit.model.plans.opening import UNREADABLE, seen_when_opened
from loom_audit.model.records import Call
from loom_audit.ports import IndexEntry

PathOutcome = Literal["happened", "did not happen", "unknown"]
"""What came of an intended change of a path; "unknown" where somebody else changed the path."""

SOURCE = "recovery"
"""The source of the events that recovery records about a call."""


class Comparison(Struct, frozen=True):
    """The intended changes of a call compared with the disk.

    `outcomes` says by path what came of each change. `made` and `by_others` are the changes from
    the log's tree to the disk where those two differ: those that the call intended, and others.
    `remaining` are the changes from the disk to what was intended. `moves` are the intended moves
    of which both ends were made. `entries` are for the index. `unrecorded` are the paths that are
    out of scope; `unseen` has the paths that cannot be looked at, each with the reason.
    """

    made: tuple[FileChange, ...]
    by_others: tuple[FileChange, ...]
    outcomes: Mapping[str, PathOutcome]
    entries: Mapping[str, IndexEntry | None]
    moves: tuple[Move, ...] = ()
    remaining: tuple[FileChange, ...] = ()
    unrecorded: tuple[str, ...] = ()
    unseen: Mapping[str, str] = MappingProxyType({})

    @property
    def unknown(self) -> list[str]:
        """The paths that are in neither the state before their change nor the intended one."""
        return [path for path, outcome in self.outcomes.items() if outcome == "unknown"]


def writer_of(attachment: Attachment, call: Call) -> Writer:
    """A writer by which recovery records events of a call: of its session and actor."""
    return Writer(attachment, call.session, call.actor, SOURCE)


def intended(stored: StoredLog, call: Call) -> tuple[tuple[FileChange, ...], tuple[Move, ...]]:
    """The changes that a call intended, for each path the last one, and the moves among them."""
    changes: dict[str, FileChange] = {}
    moves: list[Move] = []
    for fact in intentions(stored, call):
        changes.update({change.path: change for change in fact.changes})
        moves += fact.moves
    return tuple(changes.values()), tuple(dict.fromkeys(moves))


def intentions(stored: StoredLog, call: Call, *, first: bool = False) -> Iterator[ChangeIntended]:
    """The intentions of a call in the order of the log.

    With `first` those are left out that were recorded when an interrupted undo was finished.
    Corrupt as `_intention_events`.
    """
    for event, fact in _intention_events(stored, call):
        if not (first and event.source == SOURCE):
            yield fact


def _intention_events(stored: StoredLog, call: Call) -> Iterator[tuple[Event, ChangeIntended]]:
    """The events of a call's intentions, with their facts.

    They are read from the log alone, in which no event since the request may be missing: Corrupt.
    """

    def is_wanted(envelope: Mapping[str, Any]) -> bool:
        named = envelope.get("session", ""), envelope.get("call_id", "")
        return envelope.get("kind") == ChangeIntended.kind and named == (call.session, call.call_id)

    after, head = call.requested - 1, stored.log.head()
    for event in stored.log.stretch(after, head, is_wanted):
        if isinstance(event.fact, ChangeIntended):
            yield event, event.fact


def close_opened(attachment: Attachment, call: Call) -> bool:
    """Close the folders that an interrupted call had opened; the lock is held.

    Each gets the mode that it had before, or the intended one where that is on record already. A
    folder that was intended to have the open mode keeps it. Returns whether the call had opened
    any.
    """
    after = {change.path: change.after for change in intended(attachment.stored, call)[0]}
    folders = _opened_folders(attachment.stored, call)
    # the innermost first: a folder above that is closed would forbid the way to the others
    for path, one in sorted(folders.items(), reverse=True):
        wanted, recorded = after.get(path), attachment.stored.reading.state(path)
        closed = is_directory(wanted) and (wanted == recorded or recorded is None)
        mode = wanted.mode if wanted and closed else one.mode
        if not (is_directory(wanted) and wanted and wanted.mode == one.mode | OPENED):
            attachment.on_disk.workspace.close_opened(one, mode)
    return bool(folders)


def _opened_folders(stored: StoredLog, call: Call) -> dict[str, OpenedFolder]:
    """The folders that the intentions of a call open, by path, as they were before."""
    return {one.path: one for fact in intentions(stored, call) for one in fact.opened}


def compare_with_disk(attachment: Attachment, call: Call, *, keep: bool = True) -> Comparison:
    """Compare the intended changes of a call with the disk; the lock is held.

    Without `keep` no content is stored, and folders that the call had opened may still be open.
    """
    made: list[FileChange] = []
    by_others: list[FileChange] = []
    remaining: list[FileChange] = []
    outcomes: dict[str, PathOutcome] = {}
    entries: dict[str, IndexEntry | None] = {}
    changes, moves = intended(attachment.stored, call)
    unrecorded: list[str] = []
    is_recorded = Preconditions(attachment).is_recorded
    opened = _opened_folders(attachment.stored, call)
    seen, unseen = _look_at(attachment, changes, keep=keep)
    for change in changes:
        if change.path in unseen:
            outcomes[change.path] = "unknown"
            continue
        now, entry = seen[change.path]
        change = as_left_out(change, now)
        recorded = attachment.stored.reading.state(change.path)
        outcome = _outcome(change, now)
        # the open mode of a folder is of the call's own making, and no change of somebody else
        if outcome == "unknown" and change.path in opened and _is_left_open(change, now):
            outcome = "did not happen"
        outcomes[change.path] = outcome
        # where states are equal the intended one is taken: it has the identity of the folder
        if now != change.after:
            there = change.before if now == change.before else now
            remaining.append(FileChange(change.path, there, change.after))
        if not is_recorded(change.path, now or recorded):
            unrecorded.append(change.path)
            continue
        entries[change.path] = entry
        if now != recorded:
            was = change.before if recorded == change.before else recorded
            found = FileChange(change.path, was, now)
            (made if outcome == "happened" else by_others).append(found)
    # what somebody did above and below these paths: without it the changes would not apply
    around = _looked_around(attachment, [*made, *by_others], keep=keep)
    by_others += around.drift
    entries.update({one.path: around.entries.get(one.path) for one in around.drift})
    listed = moves_among(made, moves)
    return Comparison(
        tuple(made),
        tuple(by_others),
        outcomes,
        entries,
        listed,
        tuple(remaining),
        tuple(unrecorded),
        unseen,
    )


def _look_at(
    attachment: Attachment, changes: Sequence[FileChange], *, keep: bool
) -> tuple[Seen, Mapping[str, str]]:
    """What is at the paths of the changes, and for paths that cannot be looked at the reason.

    With `keep` the contents are stored. Where a path is to be made in a folder that the changes
    open, and that folder is still closed, the path counts as absent.
    """
    found: dict[str, tuple[FileState | None, IndexEntry | None]] = {}
    unseen: dict[str, str] = {}
    for change in changes:
        try:
            found[change.path] = observe(attachment, change.path, change.after, keep=keep)
        except PermissionDenied:
            unseen[change.path] = UNREADABLE
        except (InvalidPath, TooLarge) as error:
            unseen[change.path] = error.message
    wanted = {change.path: change.after for change in changes}
    seen = seen_with_groups(attachment, found, wanted)
    closed = {one for one in seen_when_opened(changes) if unseen.get(one) == UNREADABLE}
    unseen = {path: why for path, why in unseen.items() if path not in closed}
    return {**seen, **dict.fromkeys(closed, (None, None))}, unseen


def _outcome(change: FileChange, now: FileState | None) -> PathOutcome:
    """What came of a change, by the state that is at its path now.

    An interruption may leave some names of one file changed and others not, so that they are two
    files. Their groups then differ from both states, so states without a group are compared, too.
    """
    for before, after in (
        (change.before, change.after),
        (without_group(change.before), without_group(change.after)),
    ):
        if now == after:
            return "happened"
        if now == before:
            return "did not happen"
        now = without_group(now)
    return "unknown"


def add_outcome(record: CallRecord, call: Call, comparison: Comparison) -> None:
    """Let what a comparison gave wait for the call's next commit: its own changes and others."""
    record.entries.update(comparison.entries)
    if unrecorded := comparison.unrecorded[:10]:
        stored, reasons = record.attachment.stored, dict[str, str]()
        for event, fact in _intention_events(stored, call):
            for change in fact.changes:
                reasons.setdefault(change.path, outside_scope(change, event.seq))
        record.lower_coverage(*(reasons[path] for path in unrecorded))
    _add(record, call, comparison.made, comparison.by_others, comparison.moves)


def _add(
    record: CallRecord,
    call: Call,
    made: Sequence[FileChange],
    by_others: Sequence[FileChange],
    moves: Sequence[Move],
) -> None:
    """Let a call's changes and those of others wait, in an order in which each applies."""
    origin: Origin = "undo" if is_undo(call) else "tool"
    for own, part in in_applicable_order({True: made, False: by_others}):
        if own and part:
            fact = FilesChanged((*part,), origin, call.call_id, moves_among(part, moves))
            record.add_changes(fact)
        elif part:
            record.add_drafts([outside_draft(part)])


def _looked_around(
    attachment: Attachment, changes: Sequence[FileChange], *, keep: bool = True
) -> Preconditions:
    """The preconditions of these paths; their drift is what others did above and below them."""
    seen = Preconditions(attachment, keep=keep)
    for change in changes:
        seen.look(change.path)
    known = {change.path for change in changes}
    seen.drift = [one for one in seen.drift if one.path not in known]
    return seen


def record_interrupted(attachment: Attachment, open_calls: Iterable[Call]) -> None:
    """Put on record which of their intended changes interrupted calls have made, as their own.

    The lock is held, and the calls stay open. It comes before every look, which would take these
    changes for somebody else's.
    """
    for call in _interrupted_calls(attachment, open_calls):
        close_opened(attachment, call)
        found = compare_with_disk(attachment, call)
        # what others did at the other paths is left to the next look
        if found.made:
            record = CallRecord(writer_of(attachment, call), call.call_id)
            made = {change.path for change in found.made}
            record.entries.update({p: entry for p, entry in found.entries.items() if p in made})
            around = _looked_around(attachment, found.made)
            record.entries.update({one.path: around.entries.get(one.path) for one in around.drift})
            _add(record, call, found.made, around.drift, found.moves)
            record.commit_and_index()


def without_interrupted(
    attachment: Attachment, drift: Iterable[FileChange]
) -> tuple[list[FileChange], list[FileChange]]:
    """A drift in two lists: changes of others, and those that interrupted calls had intended.

    Nothing is stored. Folders that such calls opened and left open are in the second list.
    """
    begun: dict[str, FileChange] = {}
    opened: set[str] = set()
    for call in _interrupted_calls(attachment, attachment.stored.tables.open_calls()):
        begun.update((change.path, change) for change in intended(attachment.stored, call)[0])
        opened.update(_opened_folders(attachment.stored, call))
    rest: list[FileChange] = []
    theirs: list[FileChange] = []
    for change in drift:
        meant = begun.get(change.path)
        known = meant is not None and _outcome(as_left_out(meant, change.after), change.after)
        is_theirs = known not in (False, "unknown")
        is_theirs = is_theirs or (change.path in opened and _is_opening(change, meant))
        (theirs if is_theirs else rest).append(change)
    return rest, theirs


def half_moves(attachment: Attachment, call: Call) -> tuple[Move, ...]:
    """The moves that a call intended and of which nothing is at the old or the new path now.

    A crash between the deletion at the one and the creation at the other leaves that; the content
    is in the store.
    """
    changes, moves = intended(attachment.stored, call)
    there = {change.path for change in changes if change.after is not None}

    def is_absent(path: str) -> bool:
        with suppress(AuditError):  # where nobody may look, it may be there
            return attachment.on_disk.workspace.stamp(path) is None
        return False

    return tuple(
        one
        for one in moves
        if one.target in there and is_absent(one.source) and is_absent(one.target)
    )


def _is_opening(change: FileChange, meant: FileChange | None) -> bool:
    """Whether a change is nothing but the opening of a folder by a call.

    `meant` is the change of the folder that the call intended, None where it intended none.
    """
    was = change.before if is_directory(change.before) or meant is None else meant.after
    return was is not None and change.after == replace(was, mode=was.mode | OPENED)


def _is_left_open(change: FileChange, now: FileState | None) -> bool:
    """Whether a folder has the state before its change, or the intended one, with the open mode."""
    sides = [side for side in (change.before, change.after) if side and is_directory(side)]
    return any(now == replace(side, mode=side.mode | OPENED) for side in sides)


def _interrupted_calls(attachment: Attachment, open_calls: Iterable[Call]) -> list[Call]:
    """The open calls of effect write whose process is gone.

    A call whose finish this process could not record is not among them: this process closes it.
    """
    return [
        call
        for call in open_calls
        if call.effect == "write"
        and (call.session, call.call_id) not in attachment.process.unfinished
        and not attachment.is_alive(call)
    ]
