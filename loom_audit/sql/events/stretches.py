"""Whole stretches of one log, checked as they are read, and what tree heads prove of them."""

from collections.abc import Iterator, Sequence
from typing import Any

from loom_audit.errors import Corrupt
from loom_audit.model.events import Event, TreeHead
from loom_audit.model.stored.codec import PREV_DIGITS
from loom_audit.model.stored.merkle import NodeAt, node_hash, root_at
from loom_audit.ports import BLOCK, Wanted
from loom_audit.sql.events.event_reader import EventReader
from loom_audit.sql.events.event_rows import CheckedLeaf, damage_error
from loom_audit.sql.events.merkle_tree import TILE, leaf_hashes, stored_nodes
from loom_audit.sql.ground.connection import Connection
from loom_audit.sql.ground.connections import Connections
from loom_audit.sql.ground.statements import prepare

_AT_ONCE = 1000
_NEAR = 2 * _AT_ONCE
"""Leaves and hashes of a stretch are kept where it has at most so many events."""
_KEPT = 8 * _AT_ONCE
"""Most proven hashes that are kept."""
_LEAVES = prepare(
    "SELECT seq, leaf, leaf_hash FROM event WHERE log = :log AND seq >= :first AND seq <= :last "
    "ORDER BY seq"
)


def read_stretch(
    connections: Connections,
    reader: EventReader,
    number: int,
    span: tuple[int, int],
    wanted: Wanted,
) -> Iterator[Event]:
    """The wanted events after the first seq of the span up to the second, as `ports.log` says.

    `number` is the log's. Corrupt names the event that is damaged or missing.
    """
    after, until = span
    # with the event before and the one behind, so that both ends are linked too
    last, before = until + 1, None if after < 1 else after
    prev = ""
    start = after + 1 if before is None else before
    keep = last - start < _NEAR
    while start <= last:
        end = min(start + _AT_ONCE - 1, last)
        with connections.reading() as connection:
            rows = _LEAVES.rows(connection, log=number, first=start, last=end)
            _check_gapless(rows, start, min(end, until))
            chosen: list[CheckedLeaf] = []
            for row in rows:
                leaf = reader.leaves.read(row, keep=keep)
                said = leaf.envelope.get("prev", "")
                if prev and (len(said) < PREV_DIGITS or not prev.startswith(said)):
                    raise _unlinked_error(leaf.seq)
                prev = leaf.hexed
                if after < leaf.seq <= until and wanted(leaf.envelope):
                    chosen.append(leaf)
            events = reader.decode(connection, chosen)
        yield from events
        start = end + 1


def _check_gapless(rows: Sequence[Any], start: int, end: int) -> None:
    """Corrupt unless the rows are those from `start` to `end`, and perhaps one more."""
    for expected, row in zip(range(start, end + 1), rows, strict=False):
        if row[0] != expected:
            raise damage_error(expected, "it is missing from the log")
    if len(rows) < end + 1 - start:
        raise damage_error(start + len(rows), "it is missing from the log")


def _unlinked_error(seq: int) -> Corrupt:
    return damage_error(seq - 1, f"event {seq} was recorded after another one than this")


class ProvenHashes:
    """Proves stretches of one log by its heads; what a head was seen to hold is not proven again.

    Kept are hashes of leaves. That the log has them still is looked at each time.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self._known: dict[TreeHead, dict[int, bytes]] = {}

    def prove(self, connection: Connection, after: int, until: int, head: TreeHead) -> None:
        """Raise Corrupt unless these events' leaf hashes lead to the root of this head."""
        known = self._known.get(head, {})
        if after + 1 in known and until in known:
            hashes = leaf_hashes(connection, self._number, after, until)
            if all(known.get(seq) == one for seq, one in enumerate(hashes, after + 1)):
                return
        prove_stretch(connection, self._number, after, until, head)
        # whole nodes were hashed, so their other leaves are proven as well
        start = after >> TILE << TILE
        end = min(head.size, ((until - 1 >> TILE) + 1) << TILE)
        if end - start > _NEAR:
            return
        if sum(map(len, [*self._known.values()])) > _KEPT:
            self._known.clear()
        hashes = leaf_hashes(connection, self._number, start, end)
        self._known[head] = known | dict(enumerate(hashes, start + 1))


def prove_stretch(connection: Connection, log: int, after: int, until: int, head: TreeHead) -> None:
    """Raise Corrupt unless these events' leaf hashes lead to the root of this head of the log.

    The hashes that are read are those of the events themselves, and of the others as many as the
    proof needs (RFC 9162 section 2.1.3).
    """
    _check_nodes(stored_nodes(connection, log), TILE, after, until, head)


def prove_blocks(
    connection: Connection, log: int, first: int, until: int, head: TreeHead
) -> Sequence[bytes]:
    """The hashes of the whole blocks `first <= n < until`. Corrupt unless they lead to the root of
    this head; of events no more is read than what the head has behind its last whole block.
    """
    nodes = stored_nodes(connection, log)
    _check_nodes(nodes, 2 * TILE, first * BLOCK, until * BLOCK, head)
    return [nodes(TILE, n) for n in range(first, until)]


def _check_nodes(nodes: NodeAt, level: int, after: int, until: int, head: TreeHead) -> None:
    """Corrupt unless the nodes over these events, from those that are made of stored ones at the
    `level`, lead to the root of a head.
    """
    wrong = Corrupt(
        f"Events {after + 1} to {until} are not those of which the head over {head.size} events "
        "was kept",
        hint="Run `loom-audit verify`: it says what differs.",
        details={"seq": after + 1, "head": head.size},
    )
    while (last := head.size >> level) and until > after:
        for index in range(after >> level, min(((until - 1) >> level) + 1, last)):
            below = nodes(level - 1, 2 * index), nodes(level - 1, 2 * index + 1)
            if node_hash(*below) != nodes(level, index):
                raise wrong
        level += TILE
    if root_at(head.size, nodes) != head.root:
        raise wrong
