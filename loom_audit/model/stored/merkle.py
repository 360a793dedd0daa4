"""The Merkle tree over a log's leaves, as RFC 9162 §2.1 defines it.

Hashes are 32 bytes (SHA-256). Node `(level, index)` covers the leaves from `index << level` to
before `(index + 1) << level`; level 0 are the leaf hashes. Only complete nodes are ever stored,
so a stored node never changes, and roots and proofs of earlier sizes are computed from them.
"""

from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from typing import NamedTuple

from msgspec import Struct, field

EMPTY_ROOT = sha256().digest()
"""The root of an empty tree."""

NodeAt = Callable[[int, int], bytes]
"""The hash of the complete node at (level, index)."""


class Node(NamedTuple):
    """A complete node of level 1 or higher."""

    level: int
    index: int  # type: ignore[assignment]
    hash: bytes


def leaf_hash(leaf: bytes) -> bytes:
    """Return SHA-256(0x00 ‖ leaf)."""
    return sha256(b"\x00" + leaf).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return SHA-256(0x01 ‖ left ‖ right)."""
    return sha256(b"\x01" + left + right).digest()


def root(leaf_hashes: Iterable[bytes]) -> bytes:
    """Return the root over a sequence of leaf hashes; memory grows with its logarithm."""
    frontier = Frontier()
    for hashed in leaf_hashes:
        frontier.append(hashed)
    return frontier.root()


class Frontier(Struct):
    """The complete nodes that together cover the first `size` leaves, largest first.

    It is all that appending needs: one hash for each set bit of `size`.
    """

    size: int = 0
    hashes: list[bytes] = field(default_factory=list)

    def append(self, hashed: bytes, level: int = 0) -> list[Node]:
        """Add a leaf hash, or the root of 2**level leaves; return the nodes it completes.

        Lowest level first, of the levels above. A subtree is added where one of its size may stand:
        `size` is a multiple of 2**level.
        """
        completed: list[Node] = []
        index, current = self.size >> level, hashed
        self.size += 1 << level
        # the node before this one is complete too, so that both make the node above
        while index & 1:
            current = sha256(b"\x01" + self.hashes.pop() + current).digest()
            index >>= 1
            level += 1
            completed.append(Node(level, index, current))
        self.hashes.append(current)
        return completed

    def root(self) -> bytes:
        """Return the root over the leaves so far."""
        return _fold(self.hashes)


def subtree_root(hashes: Sequence[bytes]) -> bytes:
    """Return the root over 2**n hashes, quicker than by appending them one by one."""
    row = list(hashes)
    while len(row) > 1:
        pairs = iter(row)
        row = [
            sha256(b"\x01" + left + right).digest()
            for left, right in zip(pairs, pairs, strict=True)
        ]
    return row[0]


def frontier_at(size: int, node: NodeAt) -> Frontier:
    """Return the frontier of an earlier (or the current) size, read from complete nodes."""
    return Frontier(size, [node(level, index) for level, index in _cover(0, size)])


def root_at(size: int, node: NodeAt) -> bytes:
    """Return the root over the first `size` leaves, read from complete nodes."""
    return _fold(frontier_at(size, node).hashes)


def _fold(hashes: Sequence[bytes]) -> bytes:
    if not hashes:
        return EMPTY_ROOT
    current = hashes[-1]
    for left in reversed(hashes[:-1]):
        current = node_hash(left, current)
    return current


def _cover(start: int, end: int) -> list[tuple[int, int]]:
    """The complete nodes over a range that starts where one of its size may, largest first."""
    nodes = []
    while start < end:
        level = (end - start).bit_length() - 1
        nodes.append((level, start >> level))
        start += 1 << level
    return nodes
