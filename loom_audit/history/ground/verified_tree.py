"""The tree at any point, folded from the log; a kept listing is used where the log proves it."""

from collections.abc import Callable, Iterable, Mapping

from loom_audit.errors import Corrupt, NotFound
from loom_audit.history.ground.proven_listings import ProvenListings
from loom_audit.history.ground.proven_log import ProvenLog
from loom_audit.model.continuity import TreeFold, Violation
from loom_audit.model.events import Event, TreeListed
from loom_audit.model.files import FileState
from loom_audit.model.stored.listing import listing_hash
from loom_audit.ports import EventFilter, Projections

_POINTS = 8
"""The number of points of which it is kept what had left their trees."""

Folded = Callable[[int, int], Iterable[Event]]
"""Gives the events with `after < seq <= until` from which trees are folded."""


class VerifiedTree:
    """Folds trees from the last listing whose hash is in the log, or from the log's start.

    Each change must apply to the tree before it. The tree that was asked for last is kept, so that
    the next fold need not begin so far back.
    """

    def __init__(
        self,
        proven: ProvenLog,
        suggested: Projections,
        folded: Folded | None = None,
        listings: ProvenListings | None = None,
    ) -> None:
        """`suggested` has the listings. `folded` gives the events of a stretch from which trees are
        folded; by default they are read from the log. Those of `listings` are not compared again.
        """
        self._listings = listings or ProvenListings(0)
        self._proven = proven
        self._suggested = suggested
        self._folded = folded or proven.folded
        self._last: tuple[int, TreeFold] = 0, TreeFold()
        self._untracked: dict[int, frozenset[str]] = {}
        """What had left the trees that were folded last, by their points."""
        self.begun = 0
        """The point of the listing that the last fold began from; 0 where it began at the start."""
        self.listed: Mapping[str, FileState] = {}
        """The tree as it was listed there."""
        self.folded_changes = 0
        """How many changes were folded since that listing."""
        self._broken = 0
        """The event that broke the tree that is kept, if one did."""

    def at(self, at: int | None = None) -> Mapping[str, FileState]:
        """The tree after event `at`, by default after the last. NotFound past the end; Corrupt."""
        return self.fold(at).states

    def untracked(self, at: int | None = None) -> frozenset[str]:
        """The paths that had left that tree; told of some points without folding it again, which
        goes back to a listing for the earlier of two. NotFound, Corrupt.
        """
        known = self._untracked.get(at) if at is not None else None
        if at is None or known is None or at > self._proven.head():
            known = frozenset(self.fold(at).untracked)
            if len(self._untracked) >= _POINTS:
                self._untracked.clear()
            if at is not None:
                self._untracked[at] = known
        return known

    def fold(self, at: int | None = None, *, may_be_broken: bool = False) -> TreeFold:
        """As `at`, as the fold itself, which the next question asked here may change.

        NotFound past the end. Corrupt where a listing is not the one that its event says, and where
        a change does not apply, unless the tree `may_be_broken`.
        """
        head = self._proven.head()
        until = head if at is None else at
        if not 0 <= until <= head:
            raise NotFound(f"There is no event {until}: the log ends at {head}")
        start, tree, broken = self._nearest(until)
        # what fails below leaves no tree behind that has followed half of the events
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
        """The nearest point up to `until` whose tree is at hand, with that tree.

        It is the tree that was asked for last, or one that was listed. The third value is the event
        that broke it, 0 for none.
        """
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
        """The event up to `later` that says what the tree was after event `point`, with its seq.

        None where there is none, or where it does not say that every change up to the point was
        compared with the tree before it.
        """
        soon = EventFilter(after=point, before=later + 1, kinds=(TreeListed.kind,), limit=1)
        for event in self._proven.log.read(soon):
            fact = self._proven.event(event.seq).fact
            if isinstance(fact, TreeListed) and fact.point == point and fact.continuous:
                return event.seq, fact
        return None

    def _listing(self, point: int, listed: tuple[int, TreeListed]) -> TreeFold:
        seq, fact = listed
        if known := self._listings.get(fact.listing):
            self.listed = dict(known.states)
            return known
        tree, untracked = self._suggested.keyframe(point)
        if listing_hash(tree, untracked) != fact.listing:
            raise Corrupt(
                f"The listing of the tree after event {point} is not the one that event {seq} says",
                hint="Run `loom-audit verify`, then `loom-audit db rebuild`, which makes it anew.",
                details={"seq": seq},
            )
        self.listed = tree
        found = TreeFold(tree, untracked)
        self._listings.keep(fact.listing, found)
        return found


def impossible_error(seq: int, violation: Violation) -> Corrupt:
    """The error for any tree after an event `seq` that does not apply to the tree before it."""
    return Corrupt(
        f"Event {seq} says of {violation.path} what cannot be: {violation.why}; what the tree is "
        "after it is not known",
        hint="Points before it are read as ever; `loom-audit recover --relist` lists what is on "
        "disk now, from where trees begin anew.",
        details={"seq": seq, "path": violation.path},
    )
