"""The recorded versions of one file up to a point, over its moves, the oldest first.

The tables suggest which events changed a path; each event is read from the log, what it says was
there before must be what the version before it left, and the last must be in the tree of the point.
Where they do not fit, all events between them are read.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec.structs import replace

from loom_audit.history.ground.proven_log import ProvenLog
from loom_audit.history.read.call_lookup import Whose
from loom_audit.history.read.lines.recorded_steps import RecordedSteps
from loom_audit.history.read.verified import listed_error
from loom_audit.model.authorship.versions import Version, Writer, has_same_content
from loom_audit.model.events import Event, Fact, FilesChanged, TreeRelisted
from loom_audit.model.files import FileChange, FileState, Move, is_directory
from loom_audit.model.records import RecordedChange

Suggest = Callable[[str, int], Iterator[Sequence[RecordedChange]]]
"""Gives the changes of a path before an event, as they are listed: pages, the newest first."""

NOT_RECORDED = "what happened before is not recorded"
RELISTED = "what is on disk was listed anew"


class Descent:
    """Reads the versions of files of one log; without `suggest` all its events are read for it."""

    def __init__(self, proven: ProvenLog, steps: RecordedSteps, suggest: Suggest | None) -> None:
        self._proven = proven
        self._steps = steps
        self._suggest = suggest
        self._all: list[tuple[Event, FilesChanged]] = []

    def versions(self, path: str, at: int, state: FileState | None) -> tuple[Version, ...]:
        """The versions that led to a `state`, which the tree of the point has at the path.

        Corrupt, naming the event, where log and tables differ.
        """
        newest_first: list[Version] = []
        name, before, then = path, at + 1, state
        changes = self._changes(name, before)
        while (one := next(changes, None)) is not None:
            whose, change = one
            if change.after != then:
                self._close(newest_first, name, whose.event.seq, change, (before, then))
            source = moved_from(whose.fact.changes, whose.fact.moves, change)
            old_path, old = (source.path, source.before) if source else (name, change.before)
            version = self._steps.version(whose, change, old_path, old)
            left = source is None and (old is None or _moved_away(whose.fact, change))
            replaced = self._replaced(version) if left else None
            if replaced is not None:
                newest_first += replace(version, before=None), replaced
                then, before = replaced.before, replaced.seq
                changes = self._changes(name, before)
                continue
            if source is None and _moved_away(whose.fact, change):
                newest_first.append(replace(version, before=None))
                then = None
                break
            newest_first.append(version)
            then, before = old, whose.event.seq
            if old_path != name:
                name = old_path
                changes = self._changes(name, before)
        if then is not None:
            self._close(newest_first, name, 0, None, (before, then))
        return tuple(reversed(newest_first))

    def brought_back(self, version: Version) -> tuple[Version, ...]:
        """The versions of the file that an undo brought back to where another had come, up to the
        one by which it was gone; none for another version. Corrupt.
        """
        last = self._replaced(version)
        if last is None:
            return ()
        return *self.versions(version.path, last.seq - 1, last.before), last

    def _replaced(self, version: Version) -> Version | None:
        """The step by which the file was gone that a version brought back: another one came to its
        path. None for another version.
        """
        taken, path = version.taken_back, version.path
        if taken is None or version.after is None:
            return None
        for seq, number, before in self._earlier(path, version.seq):
            if not taken.reaches_back_to(max(seq, number or 0)):
                return None
            event = self._steps.event(seq) if has_same_content(before, version.after) else None
            fact = event.fact if event else None
            if event is None or not isinstance(fact, FilesChanged):
                continue
            change = change_at(fact, path)
            if change is None or not has_same_content(change.before, version.after):
                continue
            if moved_from(fact.changes, fact.moves, change):
                whose = self._steps.lookup.of(event, fact)
                return replace(self._steps.version(whose, change, path, change.before), after=None)
        return None

    def _earlier(
        self, path: str, before: int
    ) -> Iterator[tuple[int, int | None, FileState | None]]:
        """Where a path was changed before an event, by which call, and from which state."""
        if self._suggest is None:
            for whose, change in self._all_changes(path, before):
                yield whose.event.seq, whose.number, change.before
            return
        for page in self._suggest(path, before):
            for listed in page:
                yield listed.seq, listed.number, listed.change.before

    def _changes(self, name: str, before: int) -> Iterator[tuple[Whose, FileChange]]:
        """The changes of a path before an event, the newest first, each with whose it is."""
        if self._suggest is None:
            yield from self._all_changes(name, before)
            return
        for page in self._suggest(name, before):
            self._steps.read(page)
            for listed in page:
                event = self._steps.event(listed.seq)
                change = change_at(event.fact, name)
                if not isinstance(event.fact, FilesChanged) or change is None:
                    raise listed_error(listed.seq)
                yield self._steps.lookup.of(event, event.fact), change

    def _all_changes(self, name: str, before: int) -> Iterator[tuple[Whose, FileChange]]:
        if not self._all:
            self._all = [*self._proven.changes(0, before - 1)]
        for event, fact in reversed(self._all):
            change = change_at(fact, name) if event.seq < before else None
            if change is not None:
                yield self._steps.lookup.of(event, fact), change

    def _close(
        self,
        newest_first: list[Version],
        name: str,
        older: int,
        change: FileChange | None,
        newer: tuple[int, FileState | None],
    ) -> None:
        """Say of the version at hand that what was before it is not the version before it.

        `newer` is the event of the version at hand, or the one after the point, and what was there
        before it; `change` is the one of the event `older` that should have led to it. Corrupt
        where an event between the two changed the path, which the tables do not say.
        """
        before, then = newer
        relisted: Event | None = None
        for event in self._proven.folded(older, before - 1):
            if isinstance(event.fact, TreeRelisted):
                relisted = event
            elif change_at(event.fact, name) is not None:
                raise listed_error(event.seq)
        was = change.after if change else None
        reason = RELISTED if relisted else NOT_RECORDED
        if not newest_first:
            # no event led to it: it was listed anew, with all that was on disk
            at = relisted or self._steps.event(max(older, 1))
            writer = Writer("unknown", at.seq, at.at, reason=reason)
            newest_first.append(Version(at.seq, name, then, name, was, writer, gap=reason))
            return
        last = newest_first[-1]
        if change is not None and (last.before, last.after) == (change.before, change.after):
            newest_first.pop()  # an interruption recorded it twice
        elif was is not None and last.after is not None and was.blob == last.after.blob:
            newest_first[-1] = replace(last, before=was)  # it is again what it was
        else:
            newest_first[-1] = replace(last, gap=reason)


def change_at(fact: Fact, path: str) -> FileChange | None:
    """The change of a path that a fact says; None for none."""
    changes: Iterable[FileChange] = fact.changes if isinstance(fact, FilesChanged) else ()
    return next((one for one in changes if one.path == path), None)


def _moved_away(fact: FilesChanged, change: FileChange) -> bool:
    """Whether the file that was at the path of a change is at another since, so that what is at the
    path now is a new one.
    """
    targets = {move.target for move in fact.moves if move.source == change.path}
    others = (one for one in fact.changes if one.path in targets)
    return any(moved_from(fact.changes, fact.moves, one) is change for one in others)


def moved_from(
    changes: Iterable[FileChange], moves: Iterable[Move], change: FileChange
) -> FileChange | None:
    """Return the change at the path from which the file came that is at the path of a change."""
    after = change.after
    source = next((move.source for move in moves if move.target == change.path), None)
    if source is None or after is None or is_directory(after):
        return None
    for one in changes:
        if one.path == source and one.before is not None and one.before.kind == after.kind:
            return one
    return None
