"""The log that all of `history` appends to: a change is taken only where it applies to the tree.

Without that, one event that does not fit would make every later tree unreadable. As the log grows,
its tree is listed and its heads are kept outside the store.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress

from msgspec.structs import replace

from loom_audit.errors import AuditError, Corrupt
from loom_audit.history.ground.log_end import LogEnd, check_end, cut_error, last_kept
from loom_audit.history.ground.proven_log import ProvenLog
from loom_audit.history.ground.roots import root_of
from loom_audit.history.ground.verified_tree import VerifiedTree
from loom_audit.history.ground.without_gc import without_gc
from loom_audit.model.actors import OUTSIDE
from loom_audit.model.continuity import TREE_FACTS, TreeFold, Violation
from loom_audit.model.events import (
    ChangeIntended,
    Draft,
    Event,
    SessionEnded,
    TreeListed,
    TreeRelisted,
)
from loom_audit.model.imported import is_imported
from loom_audit.model.stored.listing import listing_hash
from loom_audit.ports import EventLog, Heads, Projections

HEAD_EVENTS = 256
"""A head is kept whenever the log grows past a multiple of so many events."""

EVENT_COST, CHANGE_COST, PATH_COST = 20, 10, 2
"""About how many microseconds it takes to read an event, to fold a change, to list a path."""

MOST_BEHIND = 10_000
"""About how many microseconds of folding make a listing of the tree due. In a large tree it is as
many as the listing takes, so that listings add about a twentieth to the time of recording."""


class DoesNotApply(Corrupt):
    """What would be recorded does not apply to the tree, on which log and tables agree.

    So the store is sound: the disk was changed during the look, or the look saw wrongly.
    """


class ContinuousLog:
    """An `EventLog` over another one: reading is the other's, appending is checked.

    The tree is folded from the log once, from its last listing on, and then follows what this
    process and others append. Facts from which trees are folded are appended under the workspace
    lock, and only where they apply to that tree. Corrupt, with nothing stored, where they do not,
    and where the log is shorter than a head that was kept of it or than its tables have followed.
    A head is kept at each session's end and every 256 events.
    """

    def __init__(
        self,
        log: EventLog,
        heads: Heads,
        projections: Projections,
        *,
        keyframe: int,
        one_by_one: AbstractContextManager[object],
    ) -> None:
        """The tree is listed at least once in every `keyframe` events.

        `one_by_one` is a lock among the threads of this process: all of them share the tree, and
        not all of them hold the workspace lock.
        """
        self.id = log.id
        self.read = log.read
        self.picked = log.picked
        self.stretch = log.stretch
        self.prove = log.prove
        self.blocks = log.blocks
        self.head = log.head
        self.newest = log.newest
        self.tree_head = log.tree_head
        self.listed_before = log.listed_before
        self._log = log
        self._heads = heads
        self._projections = projections
        self._keyframe = keyframe
        self._proven = ProvenLog(log, heads, LogEnd(log, projections))
        self._is_of_folder: bool | None = None
        """Whether changes must fit together; None before it is known, which counts as yes. An
        imported log is of no folder: what transcripts tell need not fit together."""
        self._one_by_one = one_by_one
        self._tree: TreeFold | None = None
        self._seq = 0
        self._behind = 0
        """How long it would take to fold the tree from its last listing, in microseconds."""

    def append(self, drafts: Sequence[Draft]) -> Sequence[Event]:
        """As the other log's. Corrupt, with nothing stored, for a change that does not apply, and
        where nothing may be recorded.
        """
        with self._one_by_one:
            checked = drafts and self._is_checked()
            if drafts and not checked and self._seq == 0:
                self._seq = self._end()
            events = self._append_checked(drafts) if checked else self._log.append(drafts)
            if events:
                self._record_listing_when_due(events)
        if events:
            self._keep_head_when_due(events)
        return events

    def check(self) -> None:
        """Raise Corrupt where nothing may be recorded, as an append would."""
        if not self._is_checked():
            self._end()
            return
        with self._one_by_one:
            self._current(may_be_broken=False)

    def _is_checked(self) -> bool:
        if self._is_of_folder is None and (root := root_of(self._log)) is not None:
            self._is_of_folder = not is_imported(root)
            if not self._is_of_folder:
                self._tree = None
        return self._is_of_folder is not False

    def _append_checked(self, drafts: Sequence[Draft]) -> Sequence[Event]:
        facts = [draft.fact for draft in drafts if isinstance(draft.fact, TREE_FACTS)]
        listed = bool(facts) and all(isinstance(fact, TreeRelisted) for fact in facts)
        tree = self._current(may_be_broken=listed)
        try:
            events = self._append_to(tree, drafts, listed=listed)
        except DoesNotApply as error:
            # where the tables have another tree, the store is damaged and not what was seen
            if self._projections.tree() != tree.states:
                raise Corrupt(error.message, hint=error.hint, details=error.details) from error
            raise
        if events[0].seq <= self._seq:
            self._tree = None  # it was on record already
            return events
        if facts or events[0].seq == self._seq + 1:  # what others say of trees waits for the lock
            self._seq = events[-1].seq
        self._behind += CHANGE_COST * sum(len(getattr(fact, "changes", ())) for fact in facts)
        return events

    def _append_to(
        self, tree: TreeFold, drafts: Sequence[Draft], *, listed: bool
    ) -> Sequence[Event]:
        with tree.attempt():
            for draft in drafts:
                tree.follow(draft.fact)
                if isinstance(draft.fact, ChangeIntended):
                    tree.expect(draft.fact.changes)
            last = drafts[-1].fact
            if tree.broken and not (listed and isinstance(last, TreeRelisted) and not last.last):
                raise _refusal(tree.broken)
            if tree.left_out:
                raise _refusal(Violation(min(tree.left_out), "what it lies in is not known"))
            return self._log.append(drafts)

    def _current(self, *, may_be_broken: bool) -> TreeFold:
        """The tree after the last event. Corrupt where the log lost its end, or the tree is broken
        and `may_be_broken` is not said: a relisting mends it.
        """
        if self._tree is None:
            self._load()
        head = self._log.head()
        if head < self._seq:
            raise cut_error(head, self._seq)
        # what fails below leaves no tree behind that has followed half of the events
        tree, self._tree = self._tree or TreeFold(), None
        if head > self._seq:
            for event in self._proven.folded(self._seq, head):
                tree.follow(event.fact)
            self._behind += EVENT_COST * (head - self._seq)
            self._seq = head
        if tree.broken and not may_be_broken:
            VerifiedTree(self._proven, self._projections).at()  # names the event
        self._tree = tree
        return tree

    def _end(self) -> int:
        """The seq of the last event. Corrupt where a kept head or a table knows of a later one."""
        return check_end(self._log, self._projections, last_kept(self._log, self._heads))

    @without_gc()
    def _load(self) -> None:
        """Fold the tree from its last listing."""
        head = self._end()
        verified = VerifiedTree(self._proven, self._projections)
        tree = verified.fold(head, may_be_broken=True)
        self._compare(tree, verified, head)  # what is not compared is not kept either
        self._tree, self._seq = tree, head
        self._behind = EVENT_COST * (head - verified.begun) + CHANGE_COST * verified.folded_changes

    def _compare(self, tree: TreeFold, verified: VerifiedTree, head: int) -> None:
        """Refuse tables that have another tree: Corrupt.

        Compared are the paths that changed since the listing, by the log or by the tables. At all
        others both trees are as they were listed.
        """
        if tree.broken:
            return
        listed, states = verified.listed, tree.states
        moved = {path for path, state in states.items() if listed.get(path) is not state}
        moved |= listed.keys() - states.keys()
        now = self._projections.tree_since(verified.begun, moved)
        unlike = any(states.get(path) != state for path, state in now.items())
        if unlike and self._log.head() == head:  # nobody has recorded more meanwhile
            raise Corrupt(
                "the tables have another tree than the log makes",
                hint="Somebody altered the store. `loom-audit db rebuild` makes the tables anew "
                "from the log; then run `loom-audit verify`.",
            )

    # --- listing --------------------------------------------------------------------------

    def _record_listing_when_due(self, events: Sequence[Event]) -> None:
        before, head = events[0].seq - 1, events[-1].seq
        self._behind += EVENT_COST * len(events)
        past = before // self._keyframe != head // self._keyframe
        if not past and self._tree is None:
            return
        # what fails is tried again later, and told by who reads or verifies
        with suppress(AuditError):
            if past:
                self._record_listing(head // self._keyframe * self._keyframe)
            elif self._tree is not None and self._behind > max(
                MOST_BEHIND, PATH_COST * len(self._tree.states)
            ):
                self._record_listing(self._seq)

    def _record_listing(self, point: int) -> None:
        """Put on record what the tree was after an event, with all changes up to it compared."""
        if self._tree is None or self._tree.broken or point != self._seq:
            proven = replace(self._proven, continuous=self._is_checked())
            tree = VerifiedTree(proven, self._projections).fold(point)
        else:
            tree = self._tree
        fact = TreeListed(point, listing_hash(tree.states, tree.untracked), continuous=True)
        [event] = self._log.append([Draft(fact, "", OUTSIDE)])
        self._behind = EVENT_COST * (event.seq - point)
        if event.seq == self._seq + 1:
            self._seq = event.seq

    def _keep_head_when_due(self, events: Sequence[Event]) -> None:
        due = (events[0].seq - 1) // HEAD_EVENTS != events[-1].seq // HEAD_EVENTS
        # what fails is tried again at the next multiple, and told by who reads or verifies
        if due or any(isinstance(event.fact, SessionEnded) for event in events):
            with suppress(AuditError):
                self._heads.keep(self._log.tree_head())


def _refusal(violation: Violation) -> DoesNotApply:
    return DoesNotApply(
        f"what would be recorded of {violation.path} cannot be: {violation.why}; nothing was "
        "recorded",
        hint="The tables are not what the log makes. Run `loom-audit verify`, then "
        "`loom-audit db rebuild`.",
        details={"path": violation.path},
    )
