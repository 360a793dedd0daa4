"""Keyframes: a full listing of the tree every 10,000 events and where its hash is on record.

Each keyframe has the latest time up to it. An earlier tree is a keyframe and the changes since.
"""

import sys
from array import array
from collections.abc import Iterable
from itertools import accumulate

from backports.zstd import ZstdError, compress, decompress

from loom_audit.errors import Corrupt, NotFound
from loom_audit.model.events import TreeListed
from loom_audit.sql.ground.connection import LARGEST, Connection
from loom_audit.sql.ground.statements import prepare
from loom_audit.sql.projections import tree
from loom_audit.sql.projections.rows import FollowedEvent, Rows
from loom_audit.sql.projections.tree import Listed

TABLES = ("keyframe", "reach")
FACTS = ()

KEYFRAME_EVENTS = 10_000

_REACHED = prepare(
    "INSERT INTO reach (log, latest) VALUES (:log, :latest) ON CONFLICT (log) DO UPDATE "
    "SET latest = excluded.latest WHERE excluded.latest > reach.latest"
)
STATEMENTS = (_REACHED,)

_INSERT = prepare(
    "INSERT INTO keyframe (log, seq, latest, listing) SELECT :log, :seq, latest, :listing "
    "FROM reach WHERE log = :log ON CONFLICT (log, seq) DO NOTHING"
)
_AT = prepare("SELECT seq FROM keyframe WHERE log = :log AND seq = :seq")
_ALL = prepare("SELECT seq, listing FROM keyframe WHERE log = :log ORDER BY seq")
_POINTS = prepare("SELECT seq FROM keyframe WHERE log = :log AND seq <= :at ORDER BY seq DESC")
_BEFORE = prepare(
    "SELECT seq, listing FROM keyframe WHERE log = :log AND seq <= :at ORDER BY seq DESC LIMIT 1"
)


def apply(event: FollowedEvent, rows: Rows) -> None:
    """Keep the latest time of any event so far; clocks can go back."""
    reached = rows.kept(_REACHED, None)
    if reached is None:
        rows.keep(_REACHED, None, latest=event.at)
    elif event.at > reached["latest"]:
        reached["latest"] = event.at


def is_due(event: FollowedEvent) -> bool:
    """Whether a keyframe is kept when this event has been followed."""
    return event.seq % KEYFRAME_EVENTS == 0 or isinstance(event.fact, TreeListed)


def follow(connection: Connection, log: int, event: FollowedEvent) -> None:
    """Keep the tree after an event, and after the one that it lists, where that is due."""
    points = {event.seq} if event.seq % KEYFRAME_EVENTS == 0 else set()
    if isinstance(event.fact, TreeListed) and 0 < event.fact.point <= event.seq:
        points.add(event.fact.point)
    for point in sorted(points):
        if _AT.first(connection, log=log, seq=point) is None:
            changed = tree.is_changed(connection, log, point)
            entries = tree_at(connection, log, point) if changed else tree.listed(connection, log)
            listing = pack(sorted(entries))
            _INSERT.run(connection, log=log, seq=point, listing=listing)


def agrees(store: Connection, log: int) -> bool:
    """Whether each keyframe, and the tree at the head, is what the changes before it make."""
    start, known = 0, dict[int, Listed]()
    for seq, listing in _ALL.rows(store, log=log):
        tree.advance(store, log, known, start, seq)
        if known != {entry[0]: entry for entry in unpack(listing)}:
            return False
        start = seq
    tree.advance(store, log, known, start, LARGEST)
    return known == {entry[0]: entry for entry in tree.listed(store, log)}


def tree_at(connection: Connection, log: int, at: int) -> list[Listed]:
    """The tree after event `at`: the last keyframe not after it, and the changes since."""
    found = _BEFORE.first(connection, log=log, at=at)
    start, listing = (0, ()) if found is None else (found[0], unpack(found[1]))
    entries = {entry[0]: entry for entry in listing}
    tree.advance(connection, log, entries, start, at)
    return list(entries.values())


def points(connection: Connection, log: int, at: int) -> list[int]:
    """The events up to `at` after which a keyframe was written, newest first."""
    return [row[0] for row in _POINTS.rows(connection, log=log, at=at)]


def listed_at(connection: Connection, log: int, point: int) -> list[Listed]:
    """The listing of a keyframe. NotFound where there is none at the point."""
    found = _BEFORE.first(connection, log=log, at=point)
    if found is None or found[0] != point:
        raise NotFound(f"There is no keyframe of event {point}")
    return unpack(found[1])


def pack(entries: Iterable[Listed]) -> bytes:
    """A listing as bytes: columns of 64-bit little-endian integers, compressed with zstd.

    The columns are path, mode, size, blob; paths as differences, which zstd makes short.
    """
    columns = [array("q") for _ in range(4)]
    before = 0
    for path, mode, size, blob in entries:
        for column, value in zip(columns, (path - before, mode, size, blob or 0), strict=True):
            column.append(value)
        before = path
    if sys.byteorder == "big":
        for column in columns:
            column.byteswap()
    return compress(b"".join(column.tobytes() for column in columns))


def unpack(listing: bytes) -> list[Listed]:
    """The listing that was packed. Corrupt when it is damaged."""
    try:
        data = decompress(listing)
    except (TypeError, ZstdError) as error:
        raise Corrupt(f"A keyframe cannot be read: {error}") from error
    length = len(data) // 4
    if length % 8 or len(data) != 4 * length:
        raise Corrupt("A keyframe has the wrong length")
    columns = [array("q", data[n * length : (n + 1) * length]) for n in range(4)]
    if sys.byteorder == "big":
        for column in columns:
            column.byteswap()
    steps, modes, sizes, blobs = columns
    return [*zip(accumulate(steps), modes, sizes, [blob or None for blob in blobs], strict=True)]
