"""The Merkle tree of a log (RFC 9162 section 2.1) as it is stored: every eighth level.

A row of `tree_node` is a node of level 8, 16, … (what tlog-tiles calls a full tile), inserted
once when its last leaf is. A node in between is hashed from at most 128 below it, so a proof
reads a few hundred rows at any size, and of 256 appends 255 write no node at all.
"""

from collections.abc import Sequence
from functools import lru_cache

from loom_audit.errors import Corrupt
from loom_audit.model.stored.merkle import Frontier, Node, NodeAt, frontier_at, subtree_root
from loom_audit.sql.ground.connection import Connection
from loom_audit.sql.ground.statements import insert_into, prepare

TILE = 8
"""Levels from one stored level to the next."""

_LEAVES = prepare(
    "SELECT seq, leaf_hash FROM event WHERE log = :log AND seq > :after AND seq <= :until "
    "ORDER BY seq"
)
_NODES = prepare(
    "SELECT position, hash FROM tree_node WHERE log = :log AND level = :level "
    "AND position >= :start AND position < :end ORDER BY position"
)
_INSERT = insert_into("tree_node", ("level", "position", "hash"))


def insert_nodes(connection: Connection, log: int, nodes: Sequence[Node]) -> None:
    """Store those of the completed nodes that are on a stored level."""
    rows = [
        {"log": log, "level": node.level, "position": node.index, "hash": node.hash}
        for node in nodes
        if node.level % TILE == 0
    ]
    _INSERT.insert(connection, rows)


def leaf_hashes(connection: Connection, log: int, after: int, until: int) -> list[bytes]:
    """The leaf hashes of the events after one seq up to another. Corrupt where one is missing."""
    rows = _LEAVES.rows(connection, log=log, after=after, until=until)
    if len(rows) != until - after or (rows and rows[0][0] != after + 1):
        there = {row[0] for row in rows}
        missing = next(seq for seq in range(after + 1, until + 1) if seq not in there)
        raise Corrupt(f"Event {missing} is missing from the log", details={"seq": missing})
    return _hashes(rows)


def stored_nodes(connection: Connection, log: int) -> NodeAt:
    """A function that gives a complete node's hash by (level, index).

    The rows are read within the transaction of the connection; Corrupt when a row is missing.
    """

    @lru_cache(maxsize=64)
    def row_of(level: int, tile: int) -> list[bytes]:
        """The up to 256 hashes on a stored level that lie under one node of the next."""
        start, end = tile << TILE, (tile + 1) << TILE
        if level == 0:
            rows = _LEAVES.rows(connection, log=log, after=start, until=end)
            return _check_gapless([(seq - 1, hash) for seq, hash in rows], start, level)
        rows = _NODES.rows(connection, log=log, level=level, start=start, end=end)
        return _check_gapless([(position, hash) for position, hash in rows], start, level)

    def node(level: int, index: int) -> bytes:
        base = level - level % TILE
        width = 1 << (level - base)
        start = index * width
        hashes = row_of(base, start >> TILE)
        first = start & ((1 << TILE) - 1)
        part = hashes[first : first + width]
        if len(part) < width:
            raise _missing_error(base, (start + len(part)) if base == 0 else index, level)
        return subtree_root(part)

    return node


def _check_gapless(rows: Sequence[tuple[int, bytes]], start: int, level: int) -> list[bytes]:
    for offset, (position, _) in enumerate(rows):
        if position != start + offset:
            raise _missing_error(level, start + offset, level)
    return _hashes(rows)


def _missing_error(base: int, position: int, level: int) -> Corrupt:
    """The error for a row that is not there, of the stored level `base`."""
    hint = "Run `loom-audit verify` to see what else is."
    if base == 0:
        seq = position + 1
        missing = f"Event {seq} is damaged: it is missing from the log"
        return Corrupt(missing, hint=hint, details={"seq": seq})
    return Corrupt(
        f"The Merkle tree lacks the node {position} of level {level}",
        hint=hint,
        details={"level": level, "position": position},
    )


def _hashes(rows: Sequence[tuple[int, bytes]]) -> list[bytes]:
    for at, hash in rows:
        if not isinstance(hash, bytes) or len(hash) != 32:
            raise Corrupt(f"A hash of the Merkle tree is not 32 bytes long: that of {at}")
    return [hash for _, hash in rows]


def load_frontier(connection: Connection, log: int, size: int) -> Frontier:
    """The frontier after `size` events: the roots of complete subtrees that appending needs."""
    return frontier_at(size, stored_nodes(connection, log))
