"""Full listings of a tree every 10,000 events, so that any earlier tree is near to one."""

import sys
from array import array
from collections.abc import Iterable, Iterator

from backports.zstd import ZstdError, compress, decompress
from sqlalchemy import Connection

from loom_audit.errors import Corrupt
from loom_audit.sql.statements import prepare

KEYFRAME_EVENTS = 10_000

Listed = tuple[int, int, int, int | None]
"""A path's number, its st_mode, size, and its blob's number."""

_ENTRIES = prepare("SELECT path, mode, size, blob FROM tree_entry WHERE log = :log ORDER BY path")
_INSERT = prepare(
    "INSERT INTO keyframe (log, seq, latest, listing) SELECT :log, :seq, latest, :listing "
    "FROM reach WHERE log = :log ON CONFLICT (log, seq) DO NOTHING"
)


def write_keyframe(connection: Connection, log: int, seq: int) -> None:
    """Keep the tree as the projections have it now as the tree after event `seq`."""
    rows = _ENTRIES.rows(connection, log=log)
    listing = pack_listing((path, mode, size, blob) for path, mode, size, blob in rows)
    _INSERT.run(connection, log=log, seq=seq, listing=listing)


def pack_listing(entries: Iterable[Listed]) -> bytes:
    """Columns of 64-bit little-endian integers, paths as differences, compressed with zstd."""
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


def unpack_listing(listing: bytes) -> Iterator[Listed]:
    """What was packed. Corrupt when it is damaged."""
    try:
        data = decompress(listing)
    except ZstdError as error:
        raise Corrupt(f"A keyframe cannot be read: {error}") from error
    length = len(data) // 4
    if length % 8 or len(data) != 4 * length:
        raise Corrupt("A keyframe has the wrong length")
    columns = [array("q", data[n * length : (n + 1) * length]) for n in range(4)]
    if sys.byteorder == "big":
        for column in columns:
            column.byteswap()
    path = 0
    for step, mode, size, blob in zip(*columns, strict=True):
        path += step
        yield path, mode, size, blob or None
