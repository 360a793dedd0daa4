"""Trees and changes as the projections hold them.

The head's tree is a table. Every 10,000 events a full listing of the tree is kept (a keyframe),
so that an earlier tree is a keyframe and the changes since.
"""

import json
import stat
import sys
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from backports.zstd import ZstdError, compress, decompress
from sqlalchemy import Select, func, select

from loom_audit.errors import Corrupt
from loom_audit.model.events import Origin, RecordedChange
from loom_audit.model.files import BlobId, FileChange, FileState, Kind
from loom_audit.sql.clock import from_micros
from loom_audit.sql.connection import Connection
from loom_audit.sql.connections import Connections
from loom_audit.sql.packing import check_numbers, check_texts, corrupt_on_mismatch, unpack_id
from loom_audit.sql.statements import Prepared, prepare
from loom_audit.sql.tables import BLOB, CALL, CHANGE_SET, FILE_CHANGE, PATH, SESSION

KEYFRAME_EVENTS = 10_000

Listed = tuple[int, int, int, int | None]
"""A path's number, its st_mode, size, and its blob's number."""

_MANY = 500
_LAST = 2**63 - 1
_KINDS: Mapping[int, Kind] = {
    stat.S_IFREG: "file",
    stat.S_IFLNK: "symlink",
    stat.S_IFDIR: "directory",
}

_HEAD_TREE = prepare("SELECT path, mode, size, blob FROM tree_entry WHERE log = :log ORDER BY path")
_INSERT_KEYFRAME = prepare(
    "INSERT INTO keyframe (log, seq, latest, listing) SELECT :log, :seq, latest, :listing "
    "FROM reach WHERE log = :log ON CONFLICT (log, seq) DO NOTHING"
)
_KEYFRAME = prepare(
    "SELECT seq, listing FROM keyframe WHERE log = :log AND seq <= :at ORDER BY seq DESC LIMIT 1"
)
_TAIL = prepare(
    "SELECT path, new_mode, new_size, new_blob FROM file_change "
    "WHERE log = :log AND seq > :after AND seq <= :until ORDER BY seq, n"
)
_STATE = prepare(
    "SELECT f.new_mode, f.new_size, b.sha256 FROM file_change f "
    "LEFT JOIN blob b ON b.number = f.new_blob WHERE f.log = :log AND f.seq <= :at "
    "AND f.path = (SELECT number FROM path WHERE log = :log AND path = :path) "
    "ORDER BY f.seq DESC, f.n DESC LIMIT 1"
)
_NUMBERS = ", ".join(f":n{n}" for n in range(_MANY))
_PATHS = prepare(f"SELECT number, path FROM path WHERE number IN ({_NUMBERS})")
_HASHES = prepare(f"SELECT number, sha256 FROM blob WHERE number IN ({_NUMBERS})")

_OLD, _NEW = BLOB.alias("old"), BLOB.alias("new")


def to_state(mode: int | None, size: int | None, sha256: bytes | None) -> FileState | None:
    """A state from its columns; None when the path was absent."""
    if mode is None:
        return None
    check_numbers(size)
    blob = None if sha256 is None else _blob_id(sha256)
    return FileState(_KINDS[stat.S_IFMT(mode)], blob, stat.S_IMODE(mode), size or 0)


def _blob_id(sha256: bytes) -> BlobId:
    if len(sha256) != 32:
        raise ValueError(f"{sha256!a} is not a hash")
    return BlobId(sha256.hex())


def tree(connection: Connection, log: int, at: int | None) -> dict[str, FileState]:
    """The tree after event `at`; None for the head."""
    if at is None:
        rows = _HEAD_TREE.rows(connection, log=log)
        listed: list[Listed] = [(path, mode, size, blob) for path, mode, size, blob in rows]
    else:
        listed = _listed_at(connection, log, at)
    found: dict[str, FileState] = {}
    with corrupt_on_mismatch():
        paths = _load_by_number(connection, _PATHS, (entry[0] for entry in listed))
        hashes = _load_by_number(
            connection, _HASHES, (entry[3] for entry in listed if entry[3] is not None)
        )
        names = {number: _blob_id(hash) for number, hash in hashes.items()}
        shapes = {mode: (_KINDS[stat.S_IFMT(mode)], stat.S_IMODE(mode)) for _, mode, _, _ in listed}
        check_numbers(*{size for _, _, size, _ in listed})
        for path, mode, size, blob in listed:
            kind, bits = shapes[mode]
            found[paths[path].decode("utf-8", "surrogateescape")] = FileState(
                kind, None if blob is None else names[blob], bits, size
            )
    return found


def _listed_at(connection: Connection, log: int, at: int) -> list[Listed]:
    """The nearest keyframe before, and what changed since."""
    start, entries = 0, dict[int, Listed]()
    keyframe = _KEYFRAME.first(connection, log=log, at=at)
    if keyframe is not None:
        start = keyframe[0]
        entries = {entry[0]: entry for entry in unpack_listing(keyframe[1])}
    for path, mode, size, blob in _TAIL.rows(connection, log=log, after=start, until=at):
        if mode is None:
            entries.pop(path, None)
        else:
            entries[path] = (path, mode, size, blob)
    return list(entries.values())


def _load_by_number(
    connection: Connection, query: Prepared, numbers: Iterable[int]
) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    wanted = sorted(set(numbers))
    wanted += wanted[-1:] * (-len(wanted) % _MANY)  # always the same statement
    for start in range(0, len(wanted), _MANY):
        chunk = {f"n{n}": number for n, number in enumerate(wanted[start : start + _MANY])}
        found.update(query.rows(connection, **chunk))
    return found


def state(connections: Connections, log: int, path: str, at: int | None) -> FileState | None:
    """One path after event `at`; None for the head."""
    raw = path.encode("utf-8", "surrogateescape")
    rows = connections.rows(_STATE, log=log, path=raw, at=_LAST if at is None else at)
    with corrupt_on_mismatch():
        return to_state(*rows[0]) if rows else None


# --- keyframes ----------------------------------------------------------------------------


def write_keyframe(connection: Connection, log: int, seq: int) -> None:
    """Keep the tree as the projections have it now as the tree after event `seq`."""
    rows = _HEAD_TREE.rows(connection, log=log)
    listing = pack_listing((path, mode, size, blob) for path, mode, size, blob in rows)
    _INSERT_KEYFRAME.run(connection, log=log, seq=seq, listing=listing)


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


# --- changes ------------------------------------------------------------------------------


def select_changes(log: int) -> Select[Any]:
    """All columns that a RecordedChange is made of, for the changes of a log."""
    return (
        select(
            FILE_CHANGE.c.seq,
            FILE_CHANGE.c.n,
            CHANGE_SET.c.at,
            SESSION.c.id.label("session"),
            CHANGE_SET.c.actor,
            CHANGE_SET.c.origin,
            CHANGE_SET.c.call,
            CHANGE_SET.c.causes,
            CALL.c.finished,
            PATH.c.path,
            FILE_CHANGE.c.old_mode,
            FILE_CHANGE.c.old_size,
            _OLD.c.sha256.label("old_hash"),
            FILE_CHANGE.c.new_mode,
            FILE_CHANGE.c.new_size,
            _NEW.c.sha256.label("new_hash"),
        )
        .select_from(FILE_CHANGE)
        .join(
            CHANGE_SET,
            (CHANGE_SET.c.log == FILE_CHANGE.c.log) & (CHANGE_SET.c.seq == FILE_CHANGE.c.seq),
        )
        .join(PATH, PATH.c.number == FILE_CHANGE.c.path)
        .outerjoin(SESSION, SESSION.c.number == CHANGE_SET.c.session)
        .outerjoin(
            CALL,
            (CALL.c.log == CHANGE_SET.c.log)
            & (CALL.c.call_id == CHANGE_SET.c.call)
            & (func.coalesce(CALL.c.session, 0) == func.coalesce(CHANGE_SET.c.session, 0)),
        )
        .outerjoin(_OLD, _OLD.c.number == FILE_CHANGE.c.old_blob)
        .outerjoin(_NEW, _NEW.c.number == FILE_CHANGE.c.new_blob)
        .where(FILE_CHANGE.c.log == log)
    )


def to_changes(rows: Sequence[Any]) -> Iterator[RecordedChange]:
    """The rows of `select_changes` as recorded changes."""
    for row in rows:
        with corrupt_on_mismatch():
            change = _to_change(row)
        yield change


def _to_change(row: Any) -> RecordedChange:
    check_texts(row.session, row.actor, row.origin)
    check_numbers(row.seq, row.finished)
    return RecordedChange(
        seq=row.seq,
        at=from_micros(row.at),
        session=row.session or "",
        actor=row.actor,
        origin=cast(Origin, row.origin),
        call_id=None if row.call is None else unpack_id(row.call),
        causes=tuple(json.loads(row.causes)) if row.causes else (),
        change=FileChange(
            row.path.decode("utf-8", "surrogateescape"),
            to_state(row.old_mode, row.old_size, row.old_hash),
            to_state(row.new_mode, row.new_size, row.new_hash),
        ),
        number=row.finished,
    )
