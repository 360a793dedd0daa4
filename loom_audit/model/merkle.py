"""The Merkle tree over a log's leaves, as RFC 9162 §2.1 defines it.

Hashes are 32 bytes (SHA-256). Node `(level, index)` covers the leaves from `index << level` to
before `(index + 1) << level`; level 0 are the leaf hashes. Only complete nodes are ever stored,
so a stored node never changes: whatever is asked of an earlier size is answered from them.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import NamedTuple

EMPTY_ROOT = sha256().digest()
"""The root over no leaves."""

NodeAt = Callable[[int, int], bytes]
"""The hash of the complete node at (level, index)."""


class Node(NamedTuple):
    """A complete node of level 1 or higher."""

    level: int
    index: int  # type: ignore[assignment]
    hash: bytes


def leaf_hash(leaf: bytes) -> bytes:
    """SHA-256(0x00 ‖ leaf)."""
    return sha256(b"\x00" + leaf).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """SHA-256(0x01 ‖ left ‖ right)."""
    return sha256(b"\x01" + left + right).digest()


def root(leaf_hashes: Iterable[bytes]) -> bytes:
    """The root over a sequence of leaf hashes, in memory of its logarithm."""
    frontier = Frontier()
    for hashed in leaf_hashes:
        frontier.append(hashed)
    return frontier.root()


@dataclass(slots=True)
class Frontier:
    """The complete nodes that together cover the first `size` leaves, largest first.

    It is all that appending needs: one hash for each set bit of `size`.
    """

    size: int = 0
    hashes: list[bytes] = field(default_factory=list)

    def append(self, hashed: bytes, level: int = 0) -> list[Node]:
        """Add a leaf hash, or the root of 2**level leaves; the nodes above that it completes.

        Lowest level first. A subtree is added where one of its size may stand: `size` is a
        multiple of 2**level.
        """
        completed: list[Node] = []
        index, current = self.size >> level, hashed
        self.size += 1 << level
        while index & 1:
            current = sha256(b"\x01" + self.hashes.pop() + current).digest()
            index >>= 1
            level += 1
            completed.append(Node(level, index, current))
        self.hashes.append(current)
        return completed

    def root(self) -> bytes:
        """The root over the leaves so far."""
        return _fold(self.hashes)


def subtree_root(hashes: Sequence[bytes]) -> bytes:
    """The root over 2**n hashes, quicker than appending them one by one."""
    row = list(hashes)
    while len(row) > 1:
        pairs = iter(row)
        row = [
            sha256(b"\x01" + left + right).digest()
            for left, right in zip(pairs, pairs, strict=True)
        ]
    return row[0]


def frontier_at(size: int, node: NodeAt) -> Frontier:
    """The frontier of an earlier (or the current) size, read from complete nodes."""
    return Frontier(size, [node(level, index) for level, index in _cover(0, size)])


def root_at(size: int, node: NodeAt) -> bytes:
    """The root over the first `size` leaves, read from complete nodes."""
    return _range_root(0, size, node)


def inclusion_proof(index: int, size: int, node: NodeAt) -> tuple[bytes, ...]:
    """The audit path of leaf `index` in the tree of `size` leaves (RFC 9162 §2.1.3.1).

    ValueError when there is no such leaf.
    """
    if not 0 <= index < size:
        raise ValueError(f"no leaf {index} in a tree of {size}")
    path: list[bytes] = []
    start, end = 0, size
    while end - start > 1:
        middle = start + _split(end - start)
        if index < middle:
            path.append(_range_root(middle, end, node))
            end = middle
        else:
            path.append(_range_root(start, middle, node))
            start = middle
    return tuple(reversed(path))


def verify_inclusion(
    leaf: bytes, index: int, size: int, proof: Sequence[bytes], expected: bytes
) -> bool:
    """Whether the proof shows the leaf hash at `index` under the root (RFC 9162 §2.1.3.2)."""
    if not 0 <= index < size:
        return False
    position, last, current = index, size - 1, leaf
    for sibling in proof:
        if last == 0:
            return False
        if position & 1 or position == last:
            current = node_hash(sibling, current)
            while not position & 1 and position:
                position >>= 1
                last >>= 1
        else:
            current = node_hash(current, sibling)
        position >>= 1
        last >>= 1
    return last == 0 and current == expected


def consistency_proof(old: int, new: int, node: NodeAt) -> tuple[bytes, ...]:
    """The proof that the tree of `old` leaves is a prefix of that of `new` (RFC 9162 §2.1.4.1).

    Empty when both are equal; ValueError when `old` is 0 or over `new`.
    """
    if not 0 < old <= new:
        raise ValueError(f"no consistency proof from {old} to {new}")
    path: list[bytes] = []
    start, end, whole = 0, new, True
    while old != end:
        middle = start + _split(end - start)
        if old <= middle:
            path.append(_range_root(middle, end, node))
            end = middle
        else:
            path.append(_range_root(start, middle, node))
            start, whole = middle, False
    if not whole:
        path.append(_range_root(start, end, node))
    return tuple(reversed(path))


def verify_consistency(
    old: int, old_root: bytes, new: int, new_root: bytes, proof: Sequence[bytes]
) -> bool:
    """Whether the proof shows the old tree as a prefix of the new (RFC 9162 §2.1.4.2).

    A proof from size 0 shows nothing and is refused.
    """
    if not 0 < old <= new:
        return False
    if old == new:
        return not proof and old_root == new_root
    path = list(proof) if old & (old - 1) else [old_root, *proof]
    if not path:
        return False
    position, last = old - 1, new - 1
    while position & 1:
        position >>= 1
        last >>= 1
    before = after = path[0]
    for sibling in path[1:]:
        if last == 0:
            return False
        if position & 1 or position == last:
            before = node_hash(sibling, before)
            after = node_hash(sibling, after)
            while not position & 1 and position:
                position >>= 1
                last >>= 1
        else:
            after = node_hash(after, sibling)
        position >>= 1
        last >>= 1
    return last == 0 and before == old_root and after == new_root


def _fold(hashes: Sequence[bytes]) -> bytes:
    if not hashes:
        return EMPTY_ROOT
    current = hashes[-1]
    for left in reversed(hashes[:-1]):
        current = node_hash(left, current)
    return current


def _split(count: int) -> int:
    """The largest power of two below the count."""
    return 1 << ((count - 1).bit_length() - 1)


def _cover(start: int, end: int) -> list[tuple[int, int]]:
    """The complete nodes over a range that starts where one of its size may, largest first."""
    nodes = []
    while start < end:
        level = (end - start).bit_length() - 1
        nodes.append((level, start >> level))
        start += 1 << level
    return nodes


def _range_root(start: int, end: int, node: NodeAt) -> bytes:
    return _fold([node(level, index) for level, index in _cover(start, end)])
