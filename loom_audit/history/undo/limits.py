"""The paths that a request is limited to, and what moved from there or to there."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from loom_audit.errors import NotFound
from loom_audit.history.ground.attachment import StoredLog
from loom_audit.history.read.timeline import Timeline
from loom_audit.model.files import Move, is_within
from loom_audit.model.records import Call, RecordedChange
from loom_audit.model.text.display import visible


def is_below_any(paths: Sequence[str], path: str) -> bool:
    """Whether a path is one of some, or below one; True where there are none."""
    return not paths or "" in paths or is_within(path, paths)


def changes_of(
    stored: StoredLog, calls: Iterable[Call], events: Iterable[int]
) -> list[RecordedChange]:
    """All changes of the calls, and of the events that are of no call."""
    found = list(stored.reading.changes(calls=[call.requested for call in calls]))
    for seq in events:
        found += stored.reading.changes(after=seq - 1, until=seq)
    return found


def paths_with_moves(
    asked: tuple[str, ...], timeline: Timeline, changes: Sequence[RecordedChange]
) -> tuple[str, ...]:
    """The paths that a revert of changes is limited to, with the other end of each move of what is
    there.

    NotFound for one at and below which nothing was changed; Corrupt.
    """
    if not asked:
        return ()
    for path in asked:
        if not any(is_below_any((path,), one.change.path) for one in changes):
            raise NotFound(
                f"nothing that is to be reverted changed {visible(path)}",
                hint="`loom-audit show CALL`, and the call's page, list what a call changed.",
            )
    return all_names(asked, timeline, changes)


def all_names(
    paths: Iterable[str], timeline: Timeline, changes: Iterable[RecordedChange]
) -> tuple[str, ...]:
    """Some paths, and the other end of each move among changes of what is there. Corrupt."""
    found = dict.fromkeys(paths)
    return names_by(found, _moves(timeline, changes)) if found else ()


def names_by(paths: Iterable[str], moves: Iterable[Move]) -> tuple[str, ...]:
    """Some paths, and the other end of each of these moves of what is there."""
    found, ends = dict.fromkeys(paths), [(move.source, move.target) for move in moves]
    for path in (queue := [*found]):
        for source, target in ends:
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
    chosen: Iterable[str], timeline: Timeline, changes: Iterable[RecordedChange]
) -> frozenset[str]:
    """Some paths, and the other end of each move of just these among changes. Corrupt."""
    found = {*chosen}
    if not found:
        return frozenset()
    for move in _moves(timeline, changes):
        if not found.isdisjoint((move.source, move.target)):
            found |= {move.source, move.target}
    return frozenset(found)


class MovedSince:
    """The moves after an event, whoever made them, by which files have the names that they have."""

    def __init__(self, timeline: Timeline, after: int) -> None:
        self._timeline, self._after = timeline, after

    @cached_property
    def _by_target(self) -> Mapping[str, Sequence[tuple[int, str]]]:
        found: dict[str, list[tuple[int, str]]] = {}
        for seq, move in self._timeline.verified.moves(self._after):
            found.setdefault(move.target, []).append((seq, move.source))
        return found

    @cached_property
    def _other_ends(self) -> Mapping[str, set[str]]:
        ends: dict[str, set[str]] = {}
        for target, came in self._by_target.items():
            for _, source in came:
                ends.setdefault(source, set()).add(target)
                ends.setdefault(target, set()).add(source)
        return ends

    def names(self, path: str, until: int) -> frozenset[str]:
        """The names up to an event of the file that is at a path after it. Corrupt."""
        found, name = [path], path
        while came := [one for one in self._by_target.get(name, ()) if one[0] <= until]:
            until, name = came[-1][0] - 1, came[-1][1]
            found.append(name)
        return frozenset(found)

    def all_names(self, paths: Iterable[str]) -> frozenset[str]:
        """Some paths, and all names that what was at one of them had before or since. Corrupt."""
        found = {*paths}
        for path in (queue := [*found]):
            new = self._other_ends.get(path, set()) - found
            found |= new
            queue += new
        return frozenset(found)


def _moves(timeline: Timeline, changes: Iterable[RecordedChange]) -> list[Move]:
    """The moves that the events of some changes tell, in log order."""
    facts = timeline.verified.files_changed({one.seq for one in changes})
    return [move for _, fact in sorted(facts.items()) for move in fact.moves]
