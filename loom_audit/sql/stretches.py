"""Whole stretches of one log, checked as they are read, and what tree heads prove of them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from loom_audit.errors import Corrupt
from loom_audit.model.codec import PREV_DIGITS, read_envelope
from loom_audit.model.events import Event, TreeHead
from loom_audit.model.merkle import node_hash, root_at
from loom_audit.ports import Wanted
from loom_audit.sql.connection import Connection
from loom_audit.sql.connections import Connections
from loom_audit.sql.event_reader import EventReader
from loom_audit.sql.event_rows import damage_error, read_leaf
from loom_audit.sql.merkle_tree import TILE, stored_nodes
from loom_audit.sql.statements import prepare

_AT_ONCE = 1000
_LEAVES = prepare(
    "SELECT seq, leaf, leaf_hash FROM event WHERE log = :log AND seq >= :first AND seq <= :last "
    "ORDER BY seq"
)


def read_stretch(
    connections: Connections,
    reader: EventReader,
    place: tuple[str, int],
    span: tuple[int, int],
    wanted: Wanted,
) -> Iterator[Event]:
    """The wanted events after the first seq of the span up to the second, as `ports.log` says.

    `place` is the log's id and its number.
    """
    after, until = span
    # with the event before and the one behind, so that both ends are linked too
    last, before = until + 1, None if after < 1 else after
    prev: bytes | None = None
    start = after + 1 if before is None else before
    while start <= last:
        end = min(start + _AT_ONCE - 1, last)
        with connections.reading() as connection:
            rows = _LEAVES.rows(connection, log=place[1], first=start, last=end)
            _check_gapless(rows, start, min(end, until))
            chosen: list[tuple[int, bytes]] = []
            for seq, packed, hashed in rows:
                leaf = read_leaf(seq, packed, hashed)
                envelope = read_envelope(leaf)
                _check_place(place[0], seq, envelope)
                if prev is not None:
                    _check_link(seq, envelope, prev)
                prev = hashed
                if after < seq <= until and wanted(envelope):
                    chosen.append((seq, leaf))
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


def _check_place(log: str, seq: int, envelope: Mapping[str, Any]) -> None:
    if (envelope.get("log"), envelope.get("seq")) != (log, seq):
        said = f"event {envelope.get('seq')} of log {envelope.get('log')}"
        raise damage_error(seq, f"its leaf says {said}")


def _check_link(seq: int, envelope: Mapping[str, Any], prev: bytes) -> None:
    said = envelope.get("prev")
    if not isinstance(said, str) or len(said) < PREV_DIGITS or not prev.hex().startswith(said):
        raise damage_error(seq - 1, f"event {seq} was recorded after another one than this")


def prove_stretch(connection: Connection, log: int, after: int, until: int, head: TreeHead) -> None:
    """Corrupt unless the leaf hashes of these events lead to the root of this head of the log.

    Read are those of the events themselves, and of the others as many as the proof needs.
    """
    nodes = stored_nodes(connection, log)
    wrong = Corrupt(
        f"Events {after + 1} to {until} are not those of which the head over {head.size} events "
        "was kept",
        hint="Run `loom-audit verify`: it says what differs.",
        details={"seq": after + 1, "head": head.size},
    )
    level = TILE
    while (last := head.size >> level) and until > after:
        for index in range(after >> level, min(((until - 1) >> level) + 1, last)):
            below = nodes(level - 1, 2 * index), nodes(level - 1, 2 * index + 1)
            if node_hash(*below) != nodes(level, index):
                raise wrong
        level += TILE
    if root_at(head.size, nodes) != head.root:
        raise wrong
