"""The paths that a request is limited to, and what moved from there or to there."""

from collections.abc import Iterable, Iterator, Sequence

from loom_audit.errors import NotFound
from loom_audit.history.ground.attachment import Attachment, StoredLog
from loom_audit.model.events import FilesChanged
from loom_audit.model.records import Call, RecordedChange
from loom_audit.model.text.display import visible_path
from loom_audit.ports import EventFilter


def is_below_any(paths: Sequence[str], path: str) -> bool:
    """Whether a path is one of some, or below one; True where there are none."""
    return not paths or any(not p or path == p or path.startswith(p + "/") for p in paths)


def changes_of(
    stored: StoredLog, calls: Iterable[Call], events: Iterable[int]
) -> list[RecordedChange]:
    """All changes of the calls, and of the events that are of no call."""
    found = list(stored.reading.changes(calls=[call.requested for call in calls]))
    for seq in events:
        found += stored.reading.changes(after=seq - 1, until=seq)
    return found


def paths_with_moves(
    asked: tuple[str, ...], attachment: Attachment, calls: Iterable[Call], events: Sequence[int]
) -> tuple[str, ...]:
    """The paths that a revert is limited to, with the other end of each move of what is there.

    NotFound for one at and below which the named calls and events changed nothing.
    """
    if not asked:
        return ()
    changes = changes_of(attachment.stored, calls, events)
    for path in asked:
        if not any(is_below_any((path,), one.change.path) for one in changes):
            raise NotFound(
                f"nothing that is to be reverted changed {visible_path(path)}",
                hint="`loom-audit show CALL`, and the call's page, list what a call changed.",
            )
    moves = [move for fact in _facts(attachment, changes) for move in fact.moves]
    found = dict.fromkeys(asked)
    for path in (queue := [*found]):
        for source, target in [(m.source, m.target) for m in moves]:
            for here, there in ((source, target), (target, source)):
                if is_below_any((here,), path):
                    other = there + path[len(here) :]
                elif is_below_any((path,), here):
                    other = there
                else:
                    continue
                if other not in found:
                    found[other] = None
                    queue.append(other)
    return tuple(found)


def moved_with(
    chosen: Iterable[str], attachment: Attachment, calls: Iterable[Call], events: Sequence[int]
) -> frozenset[str]:
    """Some paths, and the other end of each move that calls and events made of just these."""
    found = {*chosen}
    if not found:
        return frozenset()
    changes = changes_of(attachment.stored, calls, events)
    for move in [move for fact in _facts(attachment, changes) for move in fact.moves]:
        if not found.isdisjoint((move.source, move.target)):
            found |= {move.source, move.target}
    return frozenset(found)


def _facts(attachment: Attachment, changes: Iterable[RecordedChange]) -> Iterator[FilesChanged]:
    for seq in sorted({one.seq for one in changes}):
        for event in attachment.stored.log.read(EventFilter.only(seq)):
            if isinstance(event.fact, FilesChanged):
                yield event.fact
