"""Reading a store that may be damaged, locked or not ours to write, without changing it.

Opened in place where SQLite can; else database and write-ahead log are copied into a private
folder and read there. When not even the schema can be read, the first page of the copy is
replaced by that of a new store, which has the same tables at the same places.
"""

import os
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import closing
from hashlib import sha256
from shutil import copyfile
from types import ModuleType
from typing import Any

from sqlalchemy import create_engine
from sqlalchemy.pool import StaticPool

from loom_audit.errors import AuditError, Corrupt, NotFound, StorageFailed
from loom_audit.sql.encodings import decompress
from loom_audit.sql.engine import connect, driver
from loom_audit.sql.large_objects import CHUNK, LargeObjects
from loom_audit.sql.schema import create_all

_CACHE_BYTES = 16 * 1024 * 1024
_MAX_CHAIN = 128
_MAX_STEPS = 40
_MAX_POINTS = 20_000
"""Most rows that are asked for one by one where a table has a hole."""

_PAGE = 4096
_LOST = "SQLite cannot read it"

Failed = Callable[[str], None]


def sqlite_error() -> type[Exception]:
    """What the driver raises."""
    module: ModuleType = driver()
    error: type[Exception] = module.Error
    return error


def open_source(path: str, private: str) -> tuple[Any, str]:
    """A connection that reads the store, and a notice when it reads a copy in `private`.

    StorageFailed when there is nothing to read.
    """
    try:
        return _begin(path), ""
    except sqlite_error() as error:
        reason = str(error)
    copy = os.path.join(private, os.path.basename(path))
    try:
        copyfile(path, copy)
        if os.path.exists(path + "-wal"):
            copyfile(path + "-wal", copy + "-wal")
    except OSError as error:
        raise StorageFailed(
            f"The store {path} cannot be read: {error.strerror}",
            hint="Ask its owner for permission, or for a copy.",
        ) from error
    notice = f"the store cannot be read in place ({reason}): a private copy was read"
    try:
        return _begin(copy), notice
    except sqlite_error():
        _replace_first_page(copy, private)
    try:
        return _begin(copy), f"{notice}, its first page replaced"
    except sqlite_error() as error:
        raise StorageFailed(
            f"The store {path} cannot be read at all: {error}",
            hint="Restore it from a backup; contents in the folder `blobs` are zstd files.",
        ) from error


def _begin(path: str) -> Any:
    raw = connect(path, "ro")
    try:
        raw.execute("PRAGMA busy_timeout=500")
        raw.execute("BEGIN")
        tables = {row[0] for row in raw.execute("SELECT name FROM sqlite_master")}
        if not {"log", "event", "payload", "blob"} <= tables:
            raise sqlite_error()("it has no tables of ours")
        raw.execute("SELECT count(*) FROM log").fetchall()
    except BaseException:
        raw.close()
        raise
    return raw


def _replace_first_page(copy: str, private: str) -> None:
    """Give a database without a readable header the first page of a new store."""
    fresh = os.path.join(private, "fresh.db")
    raw = driver().connect(fresh, isolation_level=None)
    engine = create_engine("sqlite://", creator=lambda: raw, poolclass=StaticPool, module=driver())
    with closing(raw):
        with engine.connect() as connection:
            create_all(connection)
        engine.dispose()
    with open(fresh, "rb") as file:
        page = bytearray(file.read(_PAGE))
    page[18:20] = b"\x02\x02"
    page[28:32] = (os.path.getsize(copy) // _PAGE).to_bytes(4, "big")
    page[32:40] = bytes(8)
    page[92:96] = page[24:28]
    with open(copy, "r+b") as file:
        file.write(page)


def rows_by_key(
    raw: Any, sql: str, values: tuple[Any, ...], failed: Failed, what: str
) -> Iterator[Any]:
    """Every row that can be had of a table, in order of its integer key.

    `sql` selects the key first and ends in two parameters: the key is over the one and at
    most the other. Around what cannot be read rows are asked for one by one.
    """
    error_class = sqlite_error()
    after, step = 0, 1
    hole: int | None = None
    while step <= 1 << _MAX_STEPS:
        try:
            for row in raw.execute(sql, (*values, after, 2**62)):
                if hole is not None:
                    yield from _points(raw, sql, values, hole, row[0], failed, what)
                    hole = None
                after, step = row[0], 1
                yield row
            if hole is not None:
                failed(f"{what} after {hole}: {_LOST}, or there are none")
            return
        except error_class as error:
            if hole is None:
                hole = after
                failed(f"{what} after {after}: {error}")
            after = hole + step
            step *= 2


def _points(
    raw: Any, sql: str, values: tuple[Any, ...], low: int, high: int, failed: Failed, what: str
) -> Iterator[Any]:
    """The rows between two keys that can be had one by one."""
    if high - low > _MAX_POINTS:
        failed(f"{what} {low + 1} to {high - 1}: not looked for one by one")
        return
    for key in range(low + 1, high):
        try:
            yield from raw.execute(sql, (*values, key - 1, key)).fetchall()
        except sqlite_error():
            failed(f"{what} {key}: {_LOST}")


class Contents:
    """Contents of a damaged store by their number, each checked against its hash."""

    def __init__(self, raw: Any, folder: str) -> None:
        self._raw = raw
        self._large = LargeObjects(folder)
        self._cache: OrderedDict[int, bytes] = OrderedDict()

    def entry(self, number: int) -> tuple[bytes, int, str, int | None, int]:
        """SHA-256, size, encoding, base and whether it is a file. NotFound, Corrupt."""
        try:
            row = self._raw.execute(
                "SELECT sha256, size, encoding, base, large FROM blob WHERE number = ?", (number,)
            ).fetchone()
        except sqlite_error() as error:
            raise Corrupt(str(error)) from error
        if row is None:
            raise NotFound(f"there is no content number {number}")
        digest, size, encoding, base, large = row
        return digest, size, encoding, base, large

    def parts(self, number: int) -> Iterator[bytes]:
        """The content in parts; Corrupt after the last one when it does not match its hash."""
        digest, size, encoding, _, large = self.entry(number)
        if encoding == "absent":
            raise NotFound("only its hash was recorded")
        if not large:
            content = self._decoded(number, 0)
            if sha256(content).digest() != digest:
                raise Corrupt("it does not match its hash")
            yield content
            return
        with self._large.open(digest, size) as stream:
            while part := stream.read(CHUNK):
                yield part

    def _decoded(self, number: int, depth: int) -> bytes:
        found = self._cache.get(number)
        if found is not None:
            self._cache.move_to_end(number)
            return found
        digest, size, encoding, base, large = self.entry(number)
        if depth > _MAX_CHAIN:
            raise Corrupt("its deltas go in a circle")
        if large:
            with self._large.open(digest, size) as stream:
                return stream.read()
        try:
            row = self._raw.execute(
                "SELECT content FROM blob_content WHERE blob = ?", (number,)
            ).fetchone()
        except sqlite_error() as error:
            raise Corrupt(str(error)) from error
        if row is None:
            raise NotFound("its bytes are gone")
        prefix = None if base is None else self._decoded(base, depth + 1)
        content = decompress(encoding, row[0], size, prefix)
        self._cache[number] = content
        while sum(map(len, self._cache.values())) > _CACHE_BYTES and len(self._cache) > 1:
            self._cache.popitem(last=False)
        return content


def explained(error: AuditError | Exception) -> str:
    """An error in one line."""
    return " ".join(str(error).split()) or type(error).__name__
