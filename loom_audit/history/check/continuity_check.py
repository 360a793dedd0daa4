"""Checks that every change on record applies to the tree before it.

For each listing of the tree on record it also gives the hash of the tree that the log makes.
"""

from collections.abc import Sequence

from msgspec import Struct, field

from loom_audit.history.check.log_check import Findings
from loom_audit.model.continuity import TREE_FACTS, TreeFold
from loom_audit.model.events import TreeListed, TreeRelisted, WorkspaceAttached
from loom_audit.model.imported import is_imported
from loom_audit.model.stored.listing import listing_hash
from loom_audit.ports import EventRow
from loom_audit.ports.evidence import CheckedEvent

MOST_NAMED = 100
"""Most findings of events that do not apply: one forged event makes many others not apply."""


class ContinuityChecker(Struct):
    """Follows the events of one log in order; memory grows with the tree.

    After an event that cannot be read the tree is not known until it is listed anew, and nothing is
    a finding here: that event is one of `ContentChecker` or `LogChecker`.
    """

    findings: Findings
    tree: TreeFold = field(default_factory=TreeFold)
    named: int = 0
    listed: list[tuple[int, TreeListed, str | None]] = field(default_factory=list)
    """The seqs and facts of listings, each with the hash of the tree; None where not known."""

    _known: bool = True
    """Whether the tree is known: every event was read, from the start or from a whole listing."""

    _of_folder: bool = True
    """Whether the log is of a folder; in an imported one changes need not fit together."""

    _last: int = 0
    """The seq of the event that was seen last."""

    _changed: int = 0
    """The seq of the last event that changed the tree."""

    def check(self, rows: Sequence[EventRow], decoded: Sequence[CheckedEvent]) -> None:
        """Follow the next events; `decoded` are those of them that could be read."""
        facts = {seq: fact for seq, _, fact in decoded}
        for row in rows:
            if row.seq not in facts or row.seq != self._last + 1:
                self._known = False
            self._last = row.seq
            fact = facts.get(row.seq)
            if row.seq == 1 and isinstance(fact, WorkspaceAttached):
                self._of_folder = not is_imported(fact.root)
            if isinstance(fact, TREE_FACTS):
                states = self.tree.states
                self.tree.follow(fact)
                if isinstance(fact, TreeRelisted) and self.tree.states is not states:
                    self._known = True  # it was the last part of a whole listing
                self._changed = row.seq
                self._note_broken(row.seq)
            elif isinstance(fact, TreeListed):
                here = self._known and self._changed <= fact.point < row.seq
                tree = self.tree
                hashed = listing_hash(tree.states, tree.untracked) if here else None
                self.listed.append((row.seq, fact, hashed))

    def _note_broken(self, seq: int) -> None:
        """Add a finding where the event that was just followed does not apply."""
        broken, self.tree.broken = self.tree.broken, None
        if broken is None or not self._known or not self._of_folder:
            return
        self.named += 1
        if self.named <= MOST_NAMED:
            message = f"event {seq} says of {broken.path!a} what cannot be: {broken.why}"
            self.findings.add(seq, "tree.impossible", message, "inconsistent")

    def finish(self) -> None:
        """Add a finding of how many more events do not apply than were named."""
        if (more := self.named - MOST_NAMED) > 0:
            message = f"{more} more events say what cannot be"
            self.findings.add(None, "tree.impossible", message, "inconsistent")
