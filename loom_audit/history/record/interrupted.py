"""What calls did whose process ended before they did."""

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
from loom_audit.history.record.carrying_out import Seen, as_left_out, settled_seen
from loom_audit.history.record.preconditions import Preconditions
from loom_audit.model.coverage import Origin
from loom_audit.model.events import OPENED, ChangeIntended, FilesChanged, OpenedFolder
from loom_audit.model.files import FileChange, FileState, Move, is_directory, moves_among
from loom_audit.model.plans.applicable import in_applicable_order
from loom_audit.model.plans.links import without_group
from loom_audit.model.plans.opening import UNREADABLE, seen_when_opened
from loom_audit.model.records import Call
from loom_audit.ports import IndexEntry

PathOutcome = Literal["happened", "did not happen", "unknown"]
SOURCE = "recovery"


class Comparison(Struct, frozen=True):
    """A call's intended changes against disk: what came of each path.

    `made` and `foreign` lead from the log's tree to the disk, where those two differ; `moves` are
    the intended ones of which both ends were made. `left` lead from the disk to what was intended.
    `unrecorded` are paths out of scope, `unseen` those that cannot be looked at, each with why.
    """

    made: tuple[FileChange, ...]
    foreign: tuple[FileChange, ...]
    outcomes: Mapping[str, PathOutcome]
    entries: Mapping[str, IndexEntry | None]
    moves: tuple[Move, ...] = ()
    left: tuple[FileChange, ...] = ()
    unrecorded: tuple[str, ...] = ()
    unseen: Mapping[str, str] = MappingProxyType({})

    @property
    def unknown(self) -> list[str]:
        """The paths that are neither as they were nor as they were meant to be."""
        return [path for path, outcome in self.outcomes.items() if outcome == "unknown"]


def writer_of(attachment: Attachment, call: Call) -> Writer:
    """What recovery records about a call is recorded as its session's and actor's."""
    return Writer(attachment, call.session, call.actor, SOURCE)


def intended(stored: StoredLog, call: Call) -> tuple[tuple[FileChange, ...], tuple[Move, ...]]:
    """The changes that a call intended, the last one per path, and the moves among them."""
    changes: dict[str, FileChange] = {}
    moves: list[Move] = []
    for fact in intentions(stored, call):
        changes.update({change.path: change for change in fact.changes})
        moves += fact.moves
    return tuple(changes.values()), tuple(dict.fromkeys(moves))


def intentions(stored: StoredLog, call: Call, *, first: bool = False) -> Iterator[ChangeIntended]:
    """What a call said that it would do, in order; `first` without what it says when it goes on.

    Read from the log alone, where no event may be missing since its request.
    """

    def is_wanted(envelope: Mapping[str, Any]) -> bool:
        named = envelope.get("session", ""), envelope.get("call_id", "")
        return envelope.get("kind") == ChangeIntended.kind and named == (call.session, call.call_id)

    after, head = call.requested - 1, stored.log.head()
    for event in stored.log.stretch(after, head, is_wanted):
        if isinstance(event.fact, ChangeIntended) and not (first and event.source == SOURCE):
            yield event.fact


def close_opened(attachment: Attachment, call: Call) -> bool:
    """Close the folders that a call, which does not go on, had opened; the lock is held.

    Each gets the mode that it had, or, once that is on record, the one that it was to have. One
    that the call meant to be open stays so. False where it had opened none.
    """
    after = {change.path: change.after for change in intended(attachment.stored, call)[0]}
    folders = _opened(attachment.stored, call)
    for path, one in sorted(folders.items(), reverse=True):
        wanted, recorded = after.get(path), attachment.stored.reading.state(path)
        closed = is_directory(wanted) and (wanted == recorded or recorded is None)
        mode = wanted.mode if wanted and closed else one.mode
        if not (is_directory(wanted) and wanted and wanted.mode == one.mode | OPENED):
            attachment.on_disk.workspace.close_opened(one, mode)
    return bool(folders)


def _opened(stored: StoredLog, call: Call) -> dict[str, OpenedFolder]:
    """The folders that a call said that it opens, as they were before, by path."""
    return {one.path: one for fact in intentions(stored, call) for one in fact.opened}


def compare_with_disk(attachment: Attachment, call: Call, *, keep: bool = True) -> Comparison:
    """Compare a call's intended changes with disk; the lock is held.

    Without `keep` nothing is stored, and folders that it had opened may be open.
    """
    made: list[FileChange] = []
    foreign: list[FileChange] = []
    left: list[FileChange] = []
    outcomes: dict[str, PathOutcome] = {}
    entries: dict[str, IndexEntry | None] = {}
    changes, moves = intended(attachment.stored, call)
    unrecorded: list[str] = []
    is_recorded = Preconditions(attachment).is_recorded
    opened = _opened(attachment.stored, call)
    seen, unseen = _look_at(attachment, changes, keep=keep)
    for change in changes:
        if change.path in unseen:
            outcomes[change.path] = "unknown"
            continue
        now, entry = seen[change.path]
        change = as_left_out(change, now)
        recorded = attachment.stored.reading.state(change.path)
        outcome = _outcome(change, now)
        if outcome == "unknown" and change.path in opened and _is_left_open(change, now):
            outcome = "did not happen"
        outcomes[change.path] = outcome
        # equal states, of which the intended ones say which folder it is
        if now != change.after:
            there = change.before if now == change.before else now
            left.append(FileChange(change.path, there, change.after))
        if not is_recorded(change.path, now or recorded):
            unrecorded.append(change.path)
            continue
        entries[change.path] = entry
        if now != recorded:
            was = change.before if recorded == change.before else recorded
            found = FileChange(change.path, was, now)
            (made if outcome == "happened" else foreign).append(found)
    around = _around(attachment, [*made, *foreign], keep=keep)
    foreign += around.drift
    entries.update({one.path: around.entries.get(one.path) for one in around.drift})
    listed = moves_among(made, moves)
    return Comparison(
        tuple(made),
        tuple(foreign),
        outcomes,
        entries,
        listed,
        tuple(left),
        tuple(unrecorded),
        unseen,
    )


def _look_at(
    attachment: Attachment, changes: Sequence[FileChange], *, keep: bool
) -> tuple[Seen, Mapping[str, str]]:
    """What is at the changes' paths, stored where it is to be kept, and why others cannot be seen.

    What is made in a folder that is opened for it counts as absent until it is opened.
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
    seen = settled_seen(attachment, found, wanted)
    closed = {one for one in seen_when_opened(changes) if unseen.get(one) == UNREADABLE}
    unseen = {path: why for path, why in unseen.items() if path not in closed}
    return {**seen, **dict.fromkeys(closed, (None, None))}, unseen


def _outcome(change: FileChange, now: FileState | None) -> PathOutcome:
    """What came of a change; of names of one file some may be changed, so that they are apart."""
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


def add_outcome(record: CallRecord, call: Call, found: Comparison) -> None:
    """Collect what a comparison found, as the call's or from outside."""
    record.entries.update(found.entries)
    record.lower_coverage(*(f"outside the scope: {path}" for path in found.unrecorded[:10]))
    _add(record, call, found.made, found.foreign, found.moves)


def _add(
    record: CallRecord,
    call: Call,
    made: Sequence[FileChange],
    foreign: Sequence[FileChange],
    moves: Sequence[Move],
) -> None:
    """Collect changes that a call made and others, each where it applies."""
    origin: Origin = "undo" if is_undo(call) else "tool"
    for own, part in in_applicable_order({True: made, False: foreign}):
        if own and part:
            fact = FilesChanged((*part,), origin, call.call_id, moves_among(part, moves))
            record.add_changes(fact)
        elif part:
            record.add_drafts([outside_draft(part)])


def _around(
    attachment: Attachment, changes: Sequence[FileChange], *, keep: bool = True
) -> Preconditions:
    """What is above and below these paths, as far as it follows from them; in its drift."""
    seen = Preconditions(attachment, keep=keep)
    for change in changes:
        seen.look(change.path)
    known = {change.path for change in changes}
    seen.drift = [one for one in seen.drift if one.path not in known]
    return seen


def record_interrupted(attachment: Attachment, open_calls: Iterable[Call]) -> None:
    """Put on record, as theirs, what calls whose process is gone made of what they intended.

    The lock is held. A look would find it as somebody else's; the calls stay open.
    """
    for call in _interrupted(attachment, open_calls):
        close_opened(attachment, call)
        found = compare_with_disk(attachment, call)
        if found.made:
            record = CallRecord(writer_of(attachment, call), call.call_id)
            made = {change.path for change in found.made}
            record.entries.update({p: entry for p, entry in found.entries.items() if p in made})
            around = _around(attachment, found.made)
            record.entries.update({one.path: around.entries.get(one.path) for one in around.drift})
            _add(record, call, found.made, around.drift, found.moves)
            record.commit_and_index()


def without_interrupted(
    attachment: Attachment, drift: Iterable[FileChange]
) -> tuple[list[FileChange], list[FileChange]]:
    """A drift without what interrupted calls made of what they intended, and that."""
    begun: dict[str, FileChange] = {}
    opened: set[str] = set()
    for call in _interrupted(attachment, attachment.stored.tables.open_calls()):
        begun.update((change.path, change) for change in intended(attachment.stored, call)[0])
        opened.update(_opened(attachment.stored, call))
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
    """The moves that a call intended and of which nothing is at either path now."""
    changes, moves = intended(attachment.stored, call)
    there = {change.path for change in changes if change.after is not None}

    def is_absent(path: str) -> bool:
        with suppress(AuditError):  # what lies where nobody may look may be there
            return attachment.on_disk.workspace.stamp(path) is None
        return False

    return tuple(
        one
        for one in moves
        if one.target in there and is_absent(one.source) and is_absent(one.target)
    )


def _is_opening(change: FileChange, meant: FileChange | None) -> bool:
    """Whether a folder of those that were opened differs only in that, from what it is or will be.

    `meant` is the call's change of it.
    """
    was = change.before if is_directory(change.before) or meant is None else meant.after
    return was is not None and change.after == replace(was, mode=was.mode | OPENED)


def _is_left_open(change: FileChange, now: FileState | None) -> bool:
    """Whether a folder is as it was or as it was meant to be, but for being open."""
    sides = [side for side in (change.before, change.after) if side and is_directory(side)]
    return any(now == replace(side, mode=side.mode | OPENED) for side in sides)


def _interrupted(attachment: Attachment, open_calls: Iterable[Call]) -> list[Call]:
    """Those of the open calls of processes that are gone, as far as they say what they change."""
    return [
        call
        for call in open_calls
        if call.effect == "write"
        and (call.session, call.call_id) not in attachment.process.unfinished
        and not attachment.is_alive(call)
    ]
