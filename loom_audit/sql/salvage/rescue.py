"""Reading a store that may be damaged, locked or not ours to write, without changing it.

Opened in place where SQLite can and finds it sound; else, where it can only not be opened,
database and write-ahead log are copied into a private folder and read there. Of a damaged
store the rows are taken from its pages one by one and put into a new database, without its
constraints: what they hold is to be checked by its hashes.
"""

import os
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from hashlib import sha256
from itertools import groupby
from shutil import copyfile
from typing import Any

from loom_audit.errors import AuditError, AuditUnavailable, Corrupt, NotFound, StorageFailed
from loom_audit.sql.contents.encodings import decompress
from loom_audit.sql.contents.large_objects import CHUNK, LargeObjects
from loom_audit.sql.ground.driver import connect, driver
from loom_audit.sql.salvage.pages import DatabasePages, PageRow

_CACHE_BYTES = 16 * 1024 * 1024
_MAX_CHAIN = 128

_NULL = type(None)
_SHAPES: tuple[tuple[str, str, tuple[type | tuple[type, ...], ...]], ...] = (
    ("log", "table", (_NULL, str)),
    ("event", "index", (int, int, bytes, str, bytes, bytes)),
    ("payload", "index", (int, int, str, int, bytes, (bytes, _NULL), (int, _NULL))),
    ("blob", "table", (_NULL, bytes, int, int, str, (int, _NULL), int, int)),
    ("blob_content", "table", (_NULL, bytes)),
)
"""The columns of our tables in a record; that of an integer primary key is null there."""

_RECOVERED = """
CREATE TABLE log (number INTEGER PRIMARY KEY, id);
CREATE TABLE event (log, seq, id, kind, leaf, leaf_hash, PRIMARY KEY (log, seq)) WITHOUT ROWID;
CREATE TABLE payload (log, seq, role, n, salt, content, blob, PRIMARY KEY (log, seq, role, n))
    WITHOUT ROWID;
CREATE TABLE blob (number INTEGER PRIMARY KEY, sha256, size, stored, encoding, base, version,
    large);
CREATE TABLE blob_content (blob, content);
"""

Failed = Callable[[str], None]


def open_source(path: str, private: str, failed: Failed) -> tuple[Any, str]:
    """A connection that reads the store, and a notice when it reads something in `private`.

    StorageFailed when there is nothing to read.
    """
    try:
        try:
            return _sound(path), ""
        except (driver().Error, AuditUnavailable) as error:
            reason = str(error)
        copy = os.path.join(private, os.path.basename(path))
        copyfile(path, copy)
        if os.path.exists(path + "-wal"):
            copyfile(path + "-wal", copy + "-wal")
        try:
            return _sound(copy), f"the store cannot be read in place ({reason}): a copy was read"
        except (driver().Error, AuditUnavailable):
            recovered = os.path.join(private, "recovered.db")
            _recover(copy, recovered, failed)
    except OSError as error:
        raise StorageFailed(
            f"The store {path} cannot be read: {error.strerror}",
            hint="Ask its owner for permission, or for a copy.",
        ) from error
    raw = connect(recovered, "ro")
    if not raw.execute("SELECT EXISTS (SELECT 1 FROM event UNION SELECT 1 FROM blob)").fetchone()[
        0
    ]:
        raw.close()
        raise StorageFailed(
            f"The store {path} cannot be read at all: {reason}",
            hint="Restore it from a backup; contents in the folder `blobs` are zstd files.",
        )
    return raw, f"the store is damaged ({reason}): a copy was read page by page"


def _sound(path: str) -> Any:
    """A connection to a store in which SQLite finds nothing amiss."""
    raw = connect(path, "ro", busy_ms=500)
    try:
        raw.execute("BEGIN")
        tables = {row[0] for row in raw.execute("SELECT name FROM sqlite_master")}
        if not {"log", "event", "payload", "blob"} <= tables:
            raise driver().Error("it has no tables of ours")
        (found,) = raw.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            raise driver().Error(" ".join(found.split()))
    except BaseException:
        raw.close()
        raise
    return raw


def _recover(path: str, to: str, failed: Failed) -> None:
    """Put all rows that look like ours into a new database."""
    new = driver().connect(to, isolation_level=None)
    with closing(new), DatabasePages(path) as pages:
        new.executescript("PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF;" + _RECOVERED)
        new.execute("BEGIN")
        for table, rows in groupby(pages.rows(), _table_of):
            if table:
                _insert(new, table, rows)
        new.execute("COMMIT")
        new.execute("CREATE INDEX content ON blob_content (blob)")
        if pages.broken:
            failed(f"{pages.broken} rows on damaged pages cannot be read")


def _table_of(row: PageRow) -> str:
    """The table whose rows look like this one; blob_content's may be another table's."""
    for table, tree, shape in _SHAPES:
        alike = row.tree == tree and len(row.values) == len(shape)
        if alike and all(map(isinstance, row.values, shape)):
            return table
    return ""


def _insert(new: Any, table: str, rows: Iterable[PageRow]) -> None:
    whole = (row.values if row.rowid is None else (row.rowid, *row.values[1:]) for row in rows)
    first = next(whole)
    sql = f"INSERT OR IGNORE INTO {table} VALUES ({', '.join('?' * len(first))})"
    new.execute(sql, first)
    new.executemany(sql, whole)


class RescuedContents:
    """Contents of a damaged store by their number, each checked against its hash."""

    def __init__(self, raw: Any, folder: str) -> None:
        self._raw = raw
        self._large = LargeObjects(folder)
        self._cache: OrderedDict[int, bytes] = OrderedDict()

    def row(self, number: int) -> tuple[bytes, int, str, int | None, int]:
        """SHA-256, size, encoding, base, and whether the content is a file. NotFound, Corrupt."""
        try:
            row = self._raw.execute(
                "SELECT sha256, size, encoding, base, large FROM blob WHERE number = ?", (number,)
            ).fetchone()
        except driver().Error as error:
            raise Corrupt(str(error)) from error
        if row is None:
            raise NotFound(f"there is no content number {number}")
        digest, size, encoding, base, large = row
        return digest, size, encoding, base, large

    def pieces(self, number: int) -> Iterator[bytes]:
        """The content piece by piece.

        Corrupt after the last piece when it does not match its hash; NotFound when only its hash is
        known.
        """
        digest, size, encoding, _, large = self.row(number)
        if encoding == "absent":
            raise NotFound("only its hash was recorded")
        if not large:
            yield self._decoded(number, 0)
            return
        with self._large.open(digest, size) as stream:
            while part := stream.read(CHUNK):
                yield part

    def _decoded(self, number: int, depth: int) -> bytes:
        found = self._cache.get(number)
        if found is not None:
            self._cache.move_to_end(number)
            return found
        digest, size, encoding, base, large = self.row(number)
        if depth > _MAX_CHAIN:
            raise Corrupt("its deltas go in a circle")
        if large:
            with self._large.open(digest, size) as stream:
                return stream.read()
        prefix = None if base is None else self._decoded(base, depth + 1)
        content = self._stored(
            number, digest, lambda part: decompress(encoding, part, size, prefix)
        )
        self._cache[number] = content
        while sum(map(len, self._cache.values())) > _CACHE_BYTES and len(self._cache) > 1:
            self._cache.popitem(last=False)
        return content

    def _stored(self, number: int, digest: bytes, decoded: Callable[[bytes], bytes]) -> bytes:
        """What is stored under the number and has this hash; pages may give more than one."""
        problem: AuditError = NotFound("its bytes are gone")
        try:
            rows = self._raw.execute("SELECT content FROM blob_content WHERE blob = ?", (number,))
            for (part,) in rows:
                if not isinstance(part, bytes):
                    problem = Corrupt("what is stored is not bytes")
                    continue
                try:
                    content = decoded(part)
                except (AuditError, TypeError) as error:
                    problem = Corrupt(str(error))
                    continue
                if sha256(content).digest() == digest:
                    return content
                problem = Corrupt("it does not match its hash")
        except driver().Error as error:
            raise Corrupt(str(error)) from error
        raise problem
