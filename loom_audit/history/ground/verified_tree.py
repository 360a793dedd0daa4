"""The tree at any point, folded from the log; a listing kept beside it only where it is proven."""

from collections.abc import Callable, Iterable, Mapping

from loom_audit.errors import Corrupt, NotFound
from loom_audit.history.ground.proven_log import ProvenLog
from loom_audit.model.continuity import TreeFold, Violation
from loom_audit.model.events import Event, TreeListed
from loom_audit.model.files import FileState
from loom_audit.model.stored.listing import listing_hash
from loom_audit.ports import EventFilter, Projections

Folded = Callable[[int, int], Iterable[Event]]


class VerifiedTree:
    """Folds what says how trees change, from the last listing whose hash is in the log, or from the
    start; each change must apply to the tree before it.

    The tree that was asked for last is kept, so that the next one need not begin so far back.
    """

    def __init__(
        self, proven: ProvenLog, suggested: Projections, folded: Folded | None = None
    ) -> None:
        """`folded` gives the events of a stretch that trees are folded from, by default read."""
        self._proven = proven
        self._suggested = suggested
        self._folded = folded or proven.folded
        self._last: tuple[int, TreeFold] = 0, TreeFold()
        self.begun = 0
        """The point of the listing that the last fold began from; 0 where it began at the start."""
        self.listed: Mapping[str, FileState] = {}
        """What was listed there."""
        self.folded_changes = 0
        """How many changes it followed since."""
        self._broken = 0
        """The event that broke the tree that is kept, if one did."""

    def at(self, at: int | None = None) -> Mapping[str, FileState]:
        """The tree after event `at`, by default the head's. NotFound past the end; Corrupt."""
        return self.fold(at).states

    def untracked(self, at: int | None = None) -> frozenset[str]:
        """The paths that had left that tree."""
        return frozenset(self.fold(at).untracked)

    def fold(self, at: int | None = None, *, may_be_broken: bool = False) -> TreeFold:
        """The same as a fold, which is nobody else's where nothing more is asked here."""
        head = self._proven.head()
        until = head if at is None else at
        if not 0 <= until <= head:
            raise NotFound(f"There is no event {until}: the log ends at {head}")
        start, tree, broken = self._nearest(until)
        self._last, self._broken = (0, TreeFold()), 0
        if start < until:
            for event in self._folded(start, until):
                tree.follow(event.fact)
                self.folded_changes += len(getattr(event.fact, "changes", ()))
                broken = (broken or event.seq) if tree.broken else 0
        self._last, self._broken = (until, tree), broken
        if tree.broken and self._proven.continuous and not may_be_broken:
            raise impossible_error(broken, tree.broken)
        return tree

    def _nearest(self, until: int) -> tuple[int, TreeFold, int]:
        """A point up to `until` and its tree: the one asked for last, or one that is listed."""
        known, tree = self._last
        broken = self._broken
        if known > until:
            known, tree, broken = 0, TreeFold(), 0
        later = head = self._proven.head()
        for point in self._suggested.keyframes(head):
            if point <= known:
                break
            if point <= until and (listed := self._listed_in_log(point, later)):
                self.begun, self.folded_changes = point, 0
                return point, self._listing(point, listed), 0
            later = point
        return known, tree, broken

    def _listed_in_log(self, point: int, later: int) -> tuple[int, TreeListed] | None:
        """The event up to `later` that says what the tree was after this one, if there is one.

        None where it does not say that all changes up to it were compared with the tree.
        """
        soon = EventFilter(after=point, before=later + 1, kinds=(TreeListed.kind,), limit=1)
        for event in self._proven.log.read(soon):
            fact = self._proven.event(event.seq).fact
            if isinstance(fact, TreeListed) and fact.point == point and fact.continuous:
                return event.seq, fact
        return None

    def _listing(self, point: int, listed: tuple[int, TreeListed]) -> TreeFold:
        seq, fact = listed
        tree, untracked = self._suggested.keyframe(point)
        if listing_hash(tree, untracked) != fact.listing:
            raise Corrupt(
                f"The listing of the tree after event {point} is not the one that event {seq} says",
                hint="Run `loom-audit verify`, then `loom-audit db rebuild`, which makes it anew.",
                details={"seq": seq},
            )
        self.listed = tree
        return TreeFold(tree, untracked)


def impossible_error(seq: int, violation: Violation) -> Corrupt:
    """The error for every tree after an event that does not apply to the one before."""
    return Corrupt(
        f"Event {seq} says of {violation.path} what cannot be: {violation.why}; what the tree is "
        "after it is not known",
        hint="Points before it are read as ever; `loom-audit recover --relist` lists what is on "
        "disk now, from where trees begin anew.",
        details={"seq": seq, "path": violation.path},
    )
