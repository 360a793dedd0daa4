"""Checks the order of events and the Merkle tree over them, recomputed leaf by leaf.

Damage is located as closely as possible. A changed leaf is found by its own hash. An event that was
replaced together with its hash is found by the hash that the next event has of its predecessor.
Events that were rewritten together are found by the stored nodes and by heads kept elsewhere.
"""

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Literal

from msgspec import Struct, field

from loom_audit.errors import Corrupt
from loom_audit.model.events import TreeHead
from loom_audit.model.stored.codec import PREV_DIGITS, read_envelope
from loom_audit.model.stored.merkle import Frontier, Node, subtree_root
from loom_audit.ports import EventRow

Grade = Literal["tampered", "inconsistent", "incomplete", "unreadable", "harmless"]
"""What a finding means; see `Finding`."""

SHORTER = "The store was cut off, or copied while it was written, or an older copy was put back"
"""Why a log may be shorter than what is known of it elsewhere."""

_MAX_GAP = 1 << 20
"""Most events that are taken for missing in one place; a larger gap is a wrong seq."""

_UNKNOWN = bytes(32)
"""Stands for the hash of a leaf or node that is not there."""


class Finding(Struct, frozen=True):
    """One thing that is wrong; `seq` is the event that it is about, None where it is about none.

    `tampered`: what is stored is not what was recorded. `inconsistent`: what was recorded does not
    fit together, so that trees after it are not known. `incomplete`: something was erased and
    cannot be checked. `unreadable`: the database could not read it. `harmless`: an earlier release
    recorded it oddly, and nothing is lost or doubtful by it.
    """

    seq: int | None
    code: str
    message: str
    grade: Grade = "tampered"


class Findings(Struct):
    """All findings so far, in the order in which they were made."""

    all: list[Finding] = field(default_factory=list)
    _codes: set[tuple[int | None, str]] = field(default_factory=set)

    def add(self, seq: int | None, code: str, message: str, grade: Grade = "tampered") -> None:
        """Add a finding about an event, or, with None, about the whole log or store."""
        self.all.append(Finding(seq, code, message, grade))
        self._codes.add((seq, code))

    def has(self, seq: int | None, code: str) -> bool:
        """Whether there is a finding of this code about an event."""
        return (seq, code) in self._codes


class LogChecker:
    """Checks a log from its first event to its last, one batch of rows after the other.

    `frontier` is the Merkle tree over the events so far, up to the last whole node. `anchored` is
    how many events are under a matching head, `nodes_checked` how many stored nodes were compared.
    `broken` is set from outside where the rows behind some event cannot be read.
    """

    def __init__(self, log: str, step: int, heads: Iterable[TreeHead], findings: Findings) -> None:
        """Begin with no event. Nodes are stored at level `step` and at its multiples.

        `heads` are those that were kept elsewhere; one of another log is a finding.
        """
        self.frontier = Frontier()
        self.anchored = 0
        self.nodes_checked = 0
        self.broken = False
        self._log = log
        self._findings = findings
        self._step = step
        self._width = 1 << step
        self._nodes: dict[tuple[int, int], bytes] = {}
        self._doubtful: set[tuple[int, int]] = set()
        self._heads = sorted(self._heads_of_this_log(heads), key=lambda head: head.size)
        self._heads_wrong = 0
        self._next = 1
        self._leaves: list[bytes | None] = []
        self._prev: bytes | None = None

    @property
    def size(self) -> int:
        """How many events there are so far, including the missing ones between them."""
        return self._next - 1

    def _heads_of_this_log(self, heads: Iterable[TreeHead]) -> list[TreeHead]:
        """The heads of this log; a finding for each other one."""
        mine = []
        for head in heads:
            if head.log == self._log:
                mine.append(head)
            else:
                self._findings.add(
                    None,
                    "head.log",
                    f"a head kept elsewhere is of log {head.log}, this is {self._log}:"
                    " the log was started over, or the head is another workspace's",
                )
        return mine

    def expect_nodes(self, nodes: Iterable[Node]) -> None:
        """Take the stored nodes, which have to be those that are computed from the leaves."""
        for level, index, hashed in nodes:
            self._nodes[level, index] = hashed

    # --- leaves ---------------------------------------------------------------------------

    def check(self, rows: Sequence[EventRow]) -> None:
        """Check the next rows: the hash, place and predecessor of each leaf, and whole nodes."""
        log = f'"log":"{self._log}"'
        name = log.encode()
        leaves, width, prev, due = self._leaves, self._width, self._prev, self._next
        for seq, id, kind, leaf, stored in rows:
            if seq != due:
                self._next, self._prev = due, prev
                if not self._skip_to(seq):
                    continue
                leaves, prev = self._leaves, None
            if leaf is None:
                self._findings.add(seq, "leaf.unreadable", f"event {seq} cannot be unpacked")
            else:
                if sha256(b"\x00" + leaf).digest() != stored:
                    self._findings.add(
                        seq, "leaf.hash", f"event {seq} is not what its stored hash was made of"
                    )
                # looking for bytes is quicker than reading the envelope. In a canonical leaf these
                # fields stand together; a quote in one of them is escaped and does not match, so
                # that the envelope is read then
                given = f'"id":"{id}",' if id else ""
                columns = f',{given}"kind":"{kind}",{log},'.encode("utf-8", "replace")
                if columns not in leaf or (not id and b',"id":"' in leaf):
                    self._compare_columns(seq, id, kind, leaf)
                if b',"seq":%d,' % seq not in leaf or name not in leaf:
                    self._findings.add(
                        seq, "event.place", f"event {seq} was recorded at another place"
                    )
                if prev is not None and b'"prev":"' + prev.hex()[:PREV_DIGITS].encode() not in leaf:
                    self._findings.add(
                        seq - 1,
                        "event.prev",
                        f"event {seq} was recorded after another event {seq - 1} than this one",
                    )
            prev, due = stored, seq + 1
            leaves.append(stored)
            if len(leaves) == width:
                self._close_node()
                leaves = self._leaves
        self._prev, self._next = prev, due

    def _compare_columns(self, seq: int, id: str, kind: str, leaf: bytes) -> None:
        """Add a finding for each column that is not equal to the envelope's field."""
        try:
            envelope = read_envelope(leaf)
        except Corrupt:
            return  # `ContentChecker` has a finding for it, and a changed leaf shows by its hash
        for name, found in (("id", id), ("kind", kind)):
            if envelope.get(name, "") != found:
                message = f"event {seq} is filed under the {name} {found!a}, not its own"
                self._findings.add(seq, "event.column", message)

    def _skip_to(self, seq: int) -> bool:
        """Add a finding for the events that are missing before `seq`, and go on behind them.

        Returns false where `seq` is out of order, so that its row is passed over.
        """
        missing = seq - self._next
        if not 0 < missing <= _MAX_GAP or missing % 1:
            self._findings.add(seq, "event.place", f"there is an event {seq} out of order")
            return False
        which = f"events {self._next} to {seq - 1} are" if missing > 1 else f"event {seq - 1} is"
        self._findings.add(self._next, "event.missing", f"{which} missing")
        for _ in range(missing):
            self._leaves.append(None)
            if len(self._leaves) == self._width:
                self._close_node()
        self._next = seq
        return True

    # --- tree -----------------------------------------------------------------------------

    def _close_node(self) -> None:
        """Compute the node over the leaves that were collected, and those above it, and compare."""
        self._compare_heads()
        leaves, self._leaves = self._leaves, []
        key = self._step, self.frontier.size >> self._step
        stored = self._nodes.get(key)
        whole = [hashed for hashed in leaves if hashed is not None]
        if len(whole) == len(leaves):
            hashed = subtree_root(whole)
            self._compare_node(key, hashed)
        else:
            # a leaf is missing: with the stored hash of the node the ones above can be checked
            hashed = stored or _UNKNOWN
            self._nodes.pop(key, None)
            self._doubtful.add(key)
        for level, index, above in self.frontier.append(hashed, self._step):
            if level % self._step == 0:
                self._compare_node((level, index), above)

    def _compare_node(self, key: tuple[int, int], hashed: bytes) -> None:
        """Compare a computed node, by level and index, with the stored one.

        A node that does not match makes those above it not match either; only the lowest is a
        finding.
        """
        level, index = key
        self.nodes_checked += 1
        stored = self._nodes.pop(key, None)
        if stored == hashed:
            return
        below = range(index << self._step, (index + 1) << self._step)
        explained = any((level - self._step, child) in self._doubtful for child in below)
        self._doubtful.add(key)
        first, last = (index << level) + 1, (index + 1) << level
        where = f"the node {index} of level {level}, over events {first} to {last},"
        if stored is None:
            self._findings.add(first, "tree.missing", f"{where} is missing")
        elif not explained:
            self._findings.add(
                first, "tree.node", f"{where} does not match: it or one of them was changed"
            )

    def _compare_heads(self) -> None:
        """Compare the heads that end among the leaves since the last node."""
        start = self.frontier.size
        end = start + len(self._leaves)
        due = [head for head in self._heads if start < head.size <= end or head.size == 0]
        if not due:
            return
        self._heads = [head for head in self._heads if head.size > end]
        partial = Frontier(start, list(self.frontier.hashes))
        for head in due:
            for hashed in self._leaves[partial.size - start : max(0, head.size - start)]:
                partial.append(hashed or _UNKNOWN)
            expected = partial.root() if head.size else Frontier().root()
            if head.root == expected:
                self.anchored = max(self.anchored, head.size)
            else:
                self._note_head(head)

    def _note_head(self, head: TreeHead) -> None:
        """Add a finding for the first head that does not match; `finish` counts the others."""
        self._heads_wrong += 1
        if self._heads_wrong == 1:
            after = f"after {self.anchored} " if self.anchored else ""
            self._findings.add(
                head.size,
                "head.root",
                f"the head kept elsewhere of {head.size} events does not match:"
                f" an event {after}up to {head.size} was changed",
            )

    # --- the end --------------------------------------------------------------------------

    def finish(self) -> bytes:
        """Check the leaves after the last node, and return the root over all events.

        Where reading was `broken` off, later heads and nodes that are left over are not findings.
        """
        self._compare_heads()
        for hashed in self._leaves:
            self.frontier.append(hashed or _UNKNOWN)
        if self._heads_wrong > 1:
            more = self._heads_wrong - 1
            self._findings.add(None, "head.root", f"{more} later heads do not match either")
        if self._heads and not self.broken:
            size = self._heads[-1].size
            self._findings.add(
                self.size,
                "log.short",
                f"a head kept elsewhere is of {size} events, the log has {self.size}:"
                f" the last {size - self.size} are missing. {SHORTER}",
            )
        if self._nodes and not self.broken:
            self._findings.add(
                self.size,
                "tree.extra",
                f"the tree has {len(self._nodes)} nodes too many: the log ends at {self.size}",
            )
        return self.frontier.root()
