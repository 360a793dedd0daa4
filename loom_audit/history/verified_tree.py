"""The tree at any point, folded from the log; a listing kept beside it only where it is proven."""

from collections.abc import Callable, Iterable, Mapping

from loom_audit.errors import Corrupt, NotFound
from loom_audit.history.proven_log import ProvenLog
from loom_audit.model.events import Event, FilesChanged, TreeListed
from loom_audit.model.files import FileState, follow
from loom_audit.model.listing import listing_hash
from loom_audit.ports import EventFilter, Projections

Changes = Callable[[int, int], Iterable[tuple[Event, FilesChanged]]]


class VerifiedTree:
    """Folds `files.changed`, from the last listing whose hash is in the log, or from the start.

    The tree that was asked for last is kept, so that the next one need not begin so far back.
    """

    def __init__(
        self, proven: ProvenLog, suggested: Projections, changes: Changes | None = None
    ) -> None:
        """`changes` gives the events of a stretch that changed files, by default read for it."""
        self._proven = proven
        self._suggested = suggested
        self._changes = changes or proven.changes
        self._last: tuple[int, Mapping[str, FileState]] = 0, {}

    def at(self, at: int | None = None) -> Mapping[str, FileState]:
        """The tree after event `at`, by default the head's. NotFound past the end; Corrupt."""
        head = self._proven.log.head()
        until = head if at is None else at
        if not 0 <= until <= head:
            raise NotFound(f"There is no event {until}: the log ends at {head}")
        start, known = self._nearest(until)
        if start == until:
            return known
        tree = dict(known)
        for _, fact in self._changes(start, until):
            follow(tree, fact.changes)
        self._last = until, tree
        return tree

    def _nearest(self, until: int) -> tuple[int, Mapping[str, FileState]]:
        """A point up to `until` and its tree: the one asked for last, or one that is listed."""
        known, tree = self._last
        if known > until:
            known, tree = 0, {}
        later = head = self._proven.log.head()
        for point in self._suggested.keyframes(head):
            if point <= known:
                break
            if point <= until and (listed := self._listed_in_log(point, later)):
                return point, self._listing(point, listed)
            later = point
        return known, tree

    def _listed_in_log(self, point: int, later: int) -> tuple[int, TreeListed] | None:
        """The event up to `later` that says what the tree was after this one, if there is one."""
        soon = EventFilter(after=point, before=later + 1, kinds=(TreeListed.kind,), limit=1)
        for event in self._proven.log.read(soon):
            fact = self._proven.event(event.seq).fact
            if isinstance(fact, TreeListed) and fact.point == point:
                return event.seq, fact
        return None

    def _listing(self, point: int, listed: tuple[int, TreeListed]) -> Mapping[str, FileState]:
        seq, fact = listed
        tree = self._suggested.keyframe(point)
        if listing_hash(tree) != fact.listing:
            raise Corrupt(
                f"The listing of the tree after event {point} is not the one that event {seq} says",
                hint="Run `loom-audit verify`, then `loom-audit db rebuild`, which makes it anew.",
                details={"seq": seq},
            )
        return tree
