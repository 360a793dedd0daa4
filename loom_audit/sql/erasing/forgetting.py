"""Erasing all that a log's events say: their payloads, and contents that no other log names.

The log ends with the event that says so before anything goes. Contents go first, some lines at a
time, and are named by the payloads until all are gone; then everything else goes in one
transaction. So what was interrupted is done again from the beginning. The caller holds the locks of
all workspaces: between what another log has put and its event that names it there is no other lock.
What is recorded without that lock, such as results, may name any content until the store lock is
held too; so what goes is asked once more then.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from loom_audit.errors import Conflict, Corrupt, NotFound
from loom_audit.model.events import WorkspaceForgotten
from loom_audit.sql.contents.large_objects import LargeObjects, sync_folder
from loom_audit.sql.erasing import lines
from loom_audit.sql.erasing.named import check_complete, contents_named
from loom_audit.sql.events.event_rows import HEAD, KIND
from loom_audit.sql.ground.conditions import chunks, in_values
from loom_audit.sql.ground.connection import Connection
from loom_audit.sql.ground.driver import connect_writer, driver, write_error
from loom_audit.sql.ground.statements import prepare
from loom_audit.sql.store import places
from loom_audit.sql.store.database import Database

LARGEST_VACUUM = 1 << 30
"""Bytes of a database that is written anew, without the pages that became free: while it is, others
wait."""

_AT_ONCE = 2000
_DEARER = 10
"""The number of contents that go which count as much as one that is encoded anew."""

_PAYLOADS = prepare("SELECT count(*) FROM payload WHERE log = :log AND seq < :last")
_ROWS = "SELECT number, sha256, stored, large FROM blob WHERE sha256 IN ({listed})"
_MAKE_ABSENT = (
    "UPDATE blob SET encoding = 'absent', base = NULL, version = 0, stored = 0, large = 0 "
    "WHERE number IN ({listed})"
)
_DROP_CONTENT = "DELETE FROM blob_content WHERE blob IN ({listed})"
_DROP_ROW = "DELETE FROM blob WHERE number IN ({listed})"
_IS_LARGE = prepare("SELECT large FROM blob WHERE sha256 = :sha256")
_KEYS = prepare(
    "SELECT b.sha256 FROM payload p JOIN blob b ON b.number = p.blob "
    "WHERE p.log = :log AND p.role = 'keys'"
)
_DROP_PAYLOADS = prepare("DELETE FROM payload WHERE log = :log AND seq < :last")
_LEADS_NOWHERE = (
    "SELECT 1 FROM payload WHERE blob IS NOT NULL AND blob NOT IN (SELECT number FROM blob)",
    "SELECT 1 FROM blob WHERE base IS NOT NULL AND base NOT IN (SELECT number FROM blob)",
)


class Amount(Struct, frozen=True):
    """How much goes: payloads, contents, and the bytes of these as they are stored."""

    payloads: int
    contents: int
    size: int


class Going(Struct, frozen=True):
    """A content that goes: the number of its row, its SHA-256, its stored bytes, in a file or not.

    Nothing is stored of one that has gone already.
    """

    number: int
    sha256: bytes
    stored: int
    large: bool


class Forgetting:
    """Erases one log of an open store. Corrupt where a log cannot be read; no more goes then."""

    def __init__(self, database: Database, id: str) -> None:
        self._database = database
        self._number = database.number(id)
        self._large = LargeObjects(os.path.join(database.folder, "blobs"))
        self._path = database.connections.path
        self._note = Path(database.folder, "index", f"{id}.forgetting")
        self._named: set[bytes] | None = None
        self._read_to: dict[int, int] = {}

    # --- what goes ------------------------------------------------------------------------

    def amount(self) -> Amount:
        """How much goes, or is still to go."""
        with self._database.connections.reading() as connection:
            last = self._last(connection)
            payloads = _PAYLOADS.value(connection, log=self._number, last=last)
            going = self._going(connection)
        kept = [one for one in going if one.stored]
        return Amount(payloads, len(kept), sum(one.stored for one in kept))

    @property
    def is_finished(self) -> bool:
        """Whether the log is forgotten, and all its rows are gone."""
        with self._database.connections.reading() as connection:
            last = self._last(connection)
            left = _PAYLOADS.value(connection, log=self._number, last=last)
            return self._is_forgotten(connection) and not left and not self._note.exists()

    def _is_forgotten(self, connection: Connection) -> bool:
        head = HEAD.value(connection, log=self._number) or 0
        kind = KIND.value(connection, log=self._number, seq=head)
        return bool(kind == WorkspaceForgotten.kind)

    def _last(self, connection: Connection) -> int:
        """The seq of the event that says that the log is forgotten, or that it will have."""
        head = HEAD.value(connection, log=self._number) or 0
        return head if self._is_forgotten(connection) else head + 1

    def _going(self, connection: Connection) -> list[Going]:
        """The contents that this log names and no other does now."""
        named = sorted(self._names(connection))
        return [row for some in chunks(named) for row in _rows(connection, some)]

    def _names(self, connection: Connection) -> set[bytes]:
        """The SHA-256 of what this log names and no other does now."""
        blobs = self._database.blobs
        if self._named is None:
            last = self._last(connection)
            self._named = {*contents_named(connection, blobs, self._number, 0, last - 1)}
        for id, log, head in self._other_logs(connection):
            after = self._read_to.get(log, 0)
            try:
                check_complete(connection, log, after, head)
                self._named.difference_update(contents_named(connection, blobs, log, after, head))
            except (Corrupt, NotFound) as error:
                raise Corrupt(
                    f"what log {id} names cannot be read, so that nothing is erased that it may "
                    f"name: {error.message}",
                    hint=f"`loom-audit verify --workspace {id}` says what is wrong.",
                ) from error
            self._read_to[log] = head
        return self._named

    def _other_logs(self, connection: Connection) -> Iterator[tuple[str, int, int]]:
        """The ids and numbers of the other logs that have new events, with their last seq."""
        for id in self._database.logs():
            number = self._database.number(id)
            head = HEAD.value(connection, log=number) or 0
            if number != self._number and head > self._read_to.get(number, 0):
                yield id, number, head

    # --- erasing --------------------------------------------------------------------------

    def erase_some(self) -> int | None:
        """Erase some contents; how many bytes were stored of them, None where nothing is left.

        Not the keys of manifests, by which the others are known: they go with the rows. What leans
        on a content is asked anew each time: another log may have had its next version stored.
        """
        with self._database.connections.reading() as connection:
            going, some = self._next(connection)
            encoded = [
                one
                for line in some
                for one in lines.encode_anew(
                    connection, self._database.blobs, self._large, line.staying
                )
            ]
        gone = [going[number] for line in some for number in line.gone]
        if not gone:
            return None
        self._note_files([one.sha256.hex() for one in gone if one.large])
        with self._erasing() as connection:
            # others may have recorded what names one of them, or leans on one
            if any(self._other_logs(connection)) and self._next(connection)[1] != some:
                return 0
            lines.store(connection, encoded)
            for part in chunks([one.number for one in gone]):
                for sql in (_MAKE_ABSENT, _DROP_CONTENT):
                    _run_among(connection, sql, part)
        return sum(one.stored for one in gone)

    def _next(self, connection: Connection) -> tuple[dict[int, Going], Sequence[lines.ContentLine]]:
        """What goes, by number, and the lines of it that go next."""
        keys = {digest for (digest,) in _KEYS.rows(connection, log=self._number)}
        going = {
            one.number: one
            for one in self._going(connection)
            if one.stored and one.sha256 not in keys
        }
        return going, _first(lines.lines_of(connection, going))

    def erase_rows(self) -> None:
        """Erase all rows of the log but those that proofs rest on; its contents are gone by now.

        Conflict where the log is not forgotten on record; Corrupt, and nothing is done, where a row
        would lead nowhere then.
        """
        with self._erasing() as connection:
            if not self._is_forgotten(connection):
                raise Conflict("the log is not forgotten on record")
            last, going = self._last(connection), self._going(connection)
            self._note_files([one.sha256.hex() for one in going if one.large])
            _DROP_PAYLOADS.run(connection, log=self._number, last=last)
            for table in places.OF_LOG:
                connection.execute(f"DELETE FROM {table} WHERE log = ?", (self._number,))
            full_text = places.FULL_TEXT
            connection.execute(f"INSERT INTO {full_text} ({full_text}) VALUES ('delete-all')")
            connection.execute("DELETE FROM searched")
            for part in chunks([one.number for one in going]):
                for sql in (_DROP_CONTENT, _DROP_ROW):
                    _run_among(connection, sql, part)
            for query in _LEADS_NOWHERE:
                if connection.execute(f"{query} LIMIT 1").fetchone() is not None:
                    raise Corrupt(
                        "a row of the store would name a content that is not there",
                        hint="Run `loom-audit verify`: the store may have been damaged before.",
                    )
            self._large.remove_unfinished()

    # --- files of large contents ------------------------------------------------------------

    def _note_files(self, names: Sequence[str]) -> None:
        """Note which files go with the next commit, and that all of it is not done.

        No row tells of them any more afterwards, should the process die before they are deleted.
        """
        self._note.parent.mkdir(mode=0o700, exist_ok=True)
        unfinished = self._note.with_suffix(".unfinished")
        with unfinished.open("w", encoding="ascii") as file:
            file.write(" ".join({*self._noted(), *names}))
            file.flush()
            os.fsync(file.fileno())
        unfinished.rename(self._note)
        sync_folder(str(self._note.parent))

    def _noted(self) -> Sequence[str]:
        with suppress(FileNotFoundError):
            return self._note.read_text("ascii").split()
        return ()

    def _unlink_noted(self, connection: Connection) -> None:
        """Delete the noted files that are of no content now; the store lock is held."""
        for name in self._noted():
            digest = bytes.fromhex(name)
            if not _IS_LARGE.value(connection, sha256=digest):
                self._unlink(digest)
        if self._note.exists():
            self._note.write_text("", "ascii")

    def _unlink(self, digest: bytes) -> None:
        path = self._large.path(digest)
        with suppress(FileNotFoundError):
            os.unlink(path)
            sync_folder(os.path.dirname(path))

    # --- the end ----------------------------------------------------------------------------

    def finish(self) -> None:
        """Let it be known that nothing is left."""
        self._note.unlink(missing_ok=True)

    def write_anew(self) -> bool:
        """Let nothing of it stay in free pages and in the write-ahead log; False where that stays.

        A large database keeps its size, and the pages, which hold zeros, are used again.
        AuditUnavailable where there is no room to write it anew.
        """
        with self._raw() as raw:
            size = os.path.getsize(self._path)
            room = os.statvfs(os.path.dirname(self._path))
            if size <= LARGEST_VACUUM and room.f_bavail * room.f_frsize > 3 * size:
                raw.set_authorizer(None)
                raw.execute("VACUUM")
            busy, _, _ = raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        return not busy

    @contextmanager
    def _raw(self) -> Iterator[Any]:
        """A connection of its own, under the store lock, that writes zeros over what it deletes.

        Rows of contents have no index over what names them, so what that is compared with is all
        of it, once, before the transaction ends.
        """
        with self._database.connections.hold_store():
            try:
                with closing(connect_writer(self._path)) as raw:
                    raw.execute("PRAGMA foreign_keys=OFF")
                    raw.execute("PRAGMA secure_delete=ON")
                    yield raw
            except driver().Error as error:
                raise write_error(error, self._path) from error

    @contextmanager
    def _erasing(self) -> Iterator[Connection]:
        """One durable transaction, and the files of the contents that went with it."""
        with self._raw() as raw:
            raw.execute("BEGIN IMMEDIATE")
            connection = Connection(raw)
            try:
                yield connection
                raw.execute("COMMIT")
            except BaseException:
                raw.execute("ROLLBACK")
                raise
            # before anybody stores one of them anew
            self._unlink_noted(connection)


def _first(every: Sequence[lines.ContentLine]) -> Sequence[lines.ContentLine]:
    """The lines that are erased in one transaction, at least one of them if there is any."""
    count = 0
    for n, line in enumerate(every):
        count += len(line.gone) + _DEARER * len(line.staying)
        if count > _AT_ONCE:
            return every[: n + 1]
    return every


def _rows(connection: Connection, digests: Sequence[bytes]) -> Iterator[Going]:
    text, values = in_values("n", digests)
    query = prepare(_ROWS.format(listed=text))
    for number, digest, stored, large in query.rows(connection, **values):
        yield Going(number, bytes(digest), stored, bool(large))


def _run_among(connection: Connection, sql: str, numbers: Sequence[int]) -> None:
    listed, values = in_values("n", numbers)
    prepare(sql.format(listed=listed)).run(connection, **values)
