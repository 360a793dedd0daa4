"""What changed paths later: whether what a call changed is still as it left it, path by path.

The tables suggest which changes came; each is read from its event.
"""

from collections.abc import Sequence
from itertools import pairwise

from msgspec import Struct

from loom_audit.history.read.call_lookup import Whose
from loom_audit.history.read.lines.descent import change_at
from loom_audit.history.read.lines.recorded_steps import RecordedSteps
from loom_audit.history.read.timeline import Timeline
from loom_audit.history.read.verified import listed_error
from loom_audit.model.events import FilesChanged
from loom_audit.model.files import FileChange, FileState
from loom_audit.model.records import RecordedChange


class Aftermath(Struct, frozen=True):
    """A path that a call changed: which change of it came `next`, and which is the `last` of all.

    Both are None where nothing changed the path since. `lost`: it is not recorded any more, or was
    listed anew, and what is there now is another state than the last change left.
    """

    change: FileChange
    next: RecordedChange | None = None
    last: RecordedChange | None = None
    lost: bool = False

    @property
    def path(self) -> str:
        """The path that the call changed."""
        return self.change.path

    @property
    def stands(self) -> bool:
        """Whether the path is as the call left it, also where it was otherwise in between."""
        if self.lost:
            return False
        return self.last is None or self.last.change.after == self.change.after


class LaterReading:
    """Reads which changes of paths came after an event: each is made of its own event."""

    def __init__(self, timeline: Timeline) -> None:
        self._proven = timeline.proven
        self._projections = timeline.projections
        self._verified = timeline.verified
        self._steps = RecordedSteps(timeline.proven, timeline.projections)
        self._known: dict[int, Whose] = {}

    def read(self, listed: Sequence[RecordedChange]) -> None:
        """Read the events of these changes in one go, before each is asked for. Corrupt."""
        self._steps.read(listed)
        self._known.clear()

    def recorded(self, listed: RecordedChange) -> RecordedChange:
        """A change as its event says it. Corrupt where it says none of that path."""
        whose = self._known.get(listed.seq)
        if whose is None:
            event = self._steps.event(listed.seq)
            if not isinstance(event.fact, FilesChanged):
                raise listed_error(listed.seq)
            whose = self._known[listed.seq] = self._steps.lookup.of(event, event.fact)
        change = change_at(whose.fact, listed.change.path)
        if change is None:
            raise listed_error(listed.seq)
        return whose.recorded(change)

    def ends(
        self, path: str, after: int, was: FileState | None
    ) -> tuple[RecordedChange, RecordedChange] | None:
        """The first and the last change of a path after an event that left it as it `was`; None
        where there is none.

        Corrupt where they do not lead from there to the last tree, and the tables hide why.
        """
        listed = self._projections.ends([path], after).get(path)
        told = [self.recorded(one) for one in listed or ()]
        self._check_chain(path, after, was, told[:1], told[-1:])
        return (told[0], told[-1]) if told else None

    def all(
        self, path: str, after: int, was: FileState | None, listed: Sequence[RecordedChange]
    ) -> list[RecordedChange]:
        """As `ends`, all of them, which are `listed` oldest first. Corrupt."""
        self.read(listed)
        told = [self.recorded(one) for one in listed]
        for one, following in pairwise(told):
            if one.change.after != following.change.before:
                self._refuse_hidden(path, one.seq, following.seq)
        self._check_chain(path, after, was, told[:1], told[-1:])
        return told

    def became(
        self, change: FileChange, after: int, listed: tuple[RecordedChange, RecordedChange] | None
    ) -> Aftermath:
        """What became of a change that the event `after` made, by the first and last one `listed`
        since. Corrupt.

        That nothing changed it later, and what is there now, is as lists have it, unless they say
        that it is otherwise than the last change left it.
        """
        path = change.path
        ends = (self.recorded(listed[0]), self.recorded(listed[1])) if listed else None
        found = _became(change, ends, self._projections.state(path))
        if found.lost:
            found = _became(change, ends, self._verified.state(path, may_be_broken=True))
        if found.lost:
            self._refuse_hidden(path, ends[1].seq if ends else after, self._proven.head() + 1)
        return found

    def _check_chain(
        self,
        path: str,
        after: int,
        was: FileState | None,
        first: Sequence[RecordedChange],
        last: Sequence[RecordedChange],
    ) -> None:
        now, end = self._verified.state(path, may_be_broken=True), self._proven.head() + 1
        if (first[0].change.before if first else now) != was:
            self._refuse_hidden(path, after, first[0].seq if first else end)
        if last and last[0].change.after != now:
            self._refuse_hidden(path, last[0].seq, end)

    def _refuse_hidden(self, path: str, after: int, before: int) -> None:
        """Refuse tables that do not have a change of a path between two events: Corrupt."""
        for event, fact in self._proven.changes(after, before - 1):
            if change_at(fact, path) is not None:
                raise listed_error(event.seq)


def aftermath(
    timeline: Timeline, changes: Sequence[FileChange], recorded: Sequence[RecordedChange]
) -> list[Aftermath]:
    """What became of these changes of a call, in their order. Corrupt."""
    later = LaterReading(timeline)
    # while the call went on others may have changed what it had left already
    made = {one.change.path: one.seq for one in sorted(recorded, key=lambda one: one.seq)}
    ends: dict[str, tuple[RecordedChange, RecordedChange]] = {}
    for seq in {made[change.path] for change in changes}:
        paths = [change.path for change in changes if made[change.path] == seq]
        ends.update(timeline.projections.ends(paths, seq))
    later.read([one for pair in ends.values() for one in pair])
    return [later.became(one, made[one.path], ends.get(one.path)) for one in changes]


def _became(
    change: FileChange, ends: tuple[RecordedChange, RecordedChange] | None, now: FileState | None
) -> Aftermath:
    first, last = ends or (None, None)
    after = last.change.after if last else change.after
    lost = now is None if after is not None else now is not None
    if now is not None and after is not None:
        lost = (now.kind, now.blob, now.mode) != (after.kind, after.blob, after.mode)
    return Aftermath(change, first, last, lost)
