"""Checks that every change on record applies to the tree before it, and lists what does not."""

from collections.abc import Sequence

from msgspec import Struct, field

from loom_audit.history.log_check import Findings
from loom_audit.model.continuity import TREE_FACTS, TreeFold
from loom_audit.model.events import TreeRelisted, WorkspaceAttached
from loom_audit.model.imported import is_imported
from loom_audit.ports import EventRow
from loom_audit.ports.evidence import CheckedEvent

MOST_NAMED = 100
"""Of the events that do not apply; one that was forged makes many others."""


class ContinuityChecker(Struct):
    """Follows the events of one log in order; memory grows with the tree.

    What cannot be read is told elsewhere, and from there on the tree is not known until it is
    listed anew.
    """

    findings: Findings
    tree: TreeFold = field(default_factory=TreeFold)
    named: int = 0
    _known: bool = True
    _of_folder: bool = True
    _last: int = 0

    def check(self, rows: Sequence[EventRow], decoded: Sequence[CheckedEvent]) -> None:
        """Follow the next events, of which those that can be read are decoded."""
        facts = {seq: fact for seq, _, fact in decoded}
        for row in rows:
            if row.seq not in facts or row.seq != self._last + 1:
                self._known = False
            self._last = row.seq
            fact = facts.get(row.seq)
            if row.seq == 1 and isinstance(fact, WorkspaceAttached):
                self._of_folder = not is_imported(fact.root)
            if not isinstance(fact, TREE_FACTS) or not self._of_folder:
                continue
            if isinstance(fact, TreeRelisted) and fact.part == 1:
                self._known = True
            if self._known:
                self.tree.follow(fact)
                self._report(row.seq)

    def _report(self, seq: int) -> None:
        if (broken := self.tree.broken) is None:
            return
        self.tree.broken = None
        self.named += 1
        if self.named <= MOST_NAMED:
            message = f"event {seq} says of {broken.path!a} what cannot be: {broken.why}"
            self.findings.add(seq, "tree.impossible", message, "inconsistent")

    def finish(self) -> None:
        """Say how many more there are than were named."""
        if (more := self.named - MOST_NAMED) > 0:
            message = f"{more} more events say what cannot be"
            self.findings.add(None, "tree.impossible", message, "inconsistent")
