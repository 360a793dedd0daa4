"""A store's open database: its logs, contents and projections over shared connections."""

import os
import re
import secrets
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from shutil import copyfile, rmtree
from weakref import finalize

from msgspec import Struct

from loom_audit.errors import AuditUnavailable, InvalidArguments, NotFound, StorageFailed
from loom_audit.model.events import WorkspaceForgotten
from loom_audit.ports import Clock, Lock
from loom_audit.sql import schema
from loom_audit.sql.contents.blobs import SqlBlobStore
from loom_audit.sql.contents.large_objects import sync_folder
from loom_audit.sql.ground.clock import SystemClock
from loom_audit.sql.ground.connections import Connections
from loom_audit.sql.ground.packing import corrupt_on_mismatch, unpack_path
from loom_audit.sql.ground.reading import RowReading
from loom_audit.sql.ground.statements import prepare
from loom_audit.sql.projections.queries import SqlProjections
from loom_audit.sql.store.ballast import Ballast
from loom_audit.sql.store.event_log import SqlEventLog
from loom_audit.sql.store.marks import SqlMarks, begin_marks

_COPY_TRIES = 5
_URL = re.compile(r"(\w+)(?:\+\w+)?://[^/?]*(?:/([^?]*))?(?:\?.*)?", re.DOTALL)
"""A database URL as SQLAlchemy writes them: which database it is, and its file or name."""

_LOGS = prepare("SELECT id FROM log ORDER BY number")
_NEW_LOG = prepare("INSERT INTO log (id) VALUES (:id)")
_EMPTY = prepare(
    "SELECT id FROM log l WHERE NOT EXISTS (SELECT 1 FROM event e WHERE e.log = l.number) "
    "ORDER BY number"
)
_LOG = prepare("SELECT number FROM log WHERE id = :id")


class WorkspaceEntry(Struct, frozen=True):
    """A workspace of the store as lists show it; `head` is the seq of its last event."""

    id: str
    root: str
    attached_at: datetime
    head: int
    baseline_done: bool
    ignore: str
    max_file_bytes: int


_LAST_KIND = (
    "coalesce((SELECT kind FROM event e WHERE e.log = l.number AND e.seq <= 9223372036854775807 "
    "ORDER BY e.seq DESC LIMIT 1), '')"
)

_LAST_KIND_OF = prepare(
    "SELECT kind FROM event WHERE log = :log AND seq <= 9223372036854775807 "
    "ORDER BY seq DESC LIMIT 1"
)

_READ = RowReading(
    WorkspaceEntry,
    "w",
    packed={"root": unpack_path, "baseline_done": bool},
    id="l.id",
    head="coalesce((SELECT max(seq) FROM event e WHERE e.log = l.number "
    "AND e.seq <= 9223372036854775807), 0)",
    baseline_done="w.baseline IS NOT NULL",
)
_WORKSPACES = prepare(
    f"SELECT {_READ.columns} FROM workspace w JOIN log l ON l.number = w.log "
    f"WHERE {_LAST_KIND} <> '{WorkspaceForgotten.kind}' ORDER BY l.number"
)
_FORGOTTEN = prepare(
    f"SELECT id FROM log l WHERE {_LAST_KIND} = '{WorkspaceForgotten.kind}' ORDER BY number"
)


class Database:
    """An open store. Logs, blobs and projections share its connections.

    `notice` says in words what a person should know about how it was opened, or is empty.
    """

    def __init__(
        self, connections: Connections, folder: str, clock: Clock, *, notice: str = ""
    ) -> None:
        self.connections = connections
        self.folder = folder
        self.notice = notice
        self.blobs = SqlBlobStore(connections, os.path.join(folder, "blobs"))
        self._clock = clock
        self._ballast = Ballast(connections.path + ".ballast")
        self._logs: dict[str, SqlEventLog] = {}
        if connections.writable:
            self._ballast.hold()

    def create_log(self) -> str:
        """The id of a new, empty log; no id is ever given twice."""
        id = secrets.token_hex(8)
        with self.connections.writing() as connection:
            _NEW_LOG.run(connection, id=id)
            begin_marks(connection, _LOG.value(connection, id=id))
        return id

    def empty_logs(self) -> Sequence[str]:
        """The ids of the logs without events, as a kill leaves one that was being made."""
        with self.connections.reading() as connection:
            return [id for (id,) in _EMPTY.rows(connection)]

    def logs(self) -> Sequence[str]:
        """The ids of all logs, oldest first."""
        with self.connections.reading() as connection:
            return [id for (id,) in _LOGS.rows(connection)]

    def forgotten(self) -> Sequence[str]:
        """The ids of the logs that end with being forgotten, oldest first."""
        with self.connections.reading() as connection:
            return [id for (id,) in _FORGOTTEN.rows(connection)]

    def is_forgotten(self, id: str) -> bool:
        """Whether the log of this id ends with being forgotten."""
        with self.connections.reading() as connection:
            number = _LOG.value(connection, id=id)
            kind = _LAST_KIND_OF.value(connection, log=number)
        return bool(kind == WorkspaceForgotten.kind)

    def event_log(self, id: str) -> SqlEventLog:
        """The log of this id. NotFound when there is none."""
        if id not in self._logs:
            self._logs[id] = SqlEventLog(
                self.connections,
                self.blobs,
                id=id,
                number=self.number(id),
                clock=self._clock,
                ballast=self._ballast,
            )
        return self._logs[id]

    def projections(self, id: str) -> SqlProjections:
        """The projections of this log. NotFound when there is none."""
        log = self.event_log(id)
        return SqlProjections(self.connections, log, log.reader, number=self.number(id))

    def marks(self, id: str) -> SqlMarks:
        """What people noted of this log while they read it. NotFound when there is none."""
        return SqlMarks(self.connections, self.number(id), self._clock)

    def number(self, id: str) -> int:
        """The log's number in the tables. NotFound when there is none."""
        with self.connections.reading() as connection:
            number = _LOG.value(connection, id=id)
        if number is None:
            raise NotFound(
                f"There is no workspace {id} in this store",
                hint="Run `loom-audit status` to see the workspaces.",
            )
        return int(number)

    def workspaces(self) -> Sequence[WorkspaceEntry]:
        """All workspaces that are not forgotten, oldest first."""
        with self.connections.reading() as connection:
            rows = _WORKSPACES.rows(connection)
        with corrupt_on_mismatch():
            return [_READ.read(row) for row in rows]

    def close(self) -> None:
        """Close all connections. Contents put since the last append are lost."""
        self.connections.close()


def database_path(url: str) -> str:
    """The file of a store's URL (`sqlite:///…`), or a plain path, made absolute.

    InvalidArguments for the URL of another database.
    """
    if "://" not in url:
        return os.path.abspath(Path(url).expanduser())
    parsed = _URL.fullmatch(url)
    if parsed is None:
        raise InvalidArguments(f"{url!r} is not a database URL", hint="Write sqlite:///PATH.")
    kind, file = parsed.groups()
    if kind != "sqlite" or file in (None, "", ":memory:"):
        raise InvalidArguments(
            f"The store {url!r} is not a SQLite file",
            hint="Give a URL like sqlite:////home/me/audit.db, or a path.",
        )
    return os.path.abspath(Path(file).expanduser())


def open_database(url: str, *, lock: Lock, clock: Clock | None = None) -> Database:
    """Open the store, make it where there is none, and upgrade it (after a backup) if older.

    Where the file or its folder cannot be written, a private copy is read and `notice` says
    so. AuditUnavailable when it is newer than this program, no store, or cannot be opened;
    InvalidArguments for a folder.
    """
    path = database_path(url)
    if os.path.isdir(path):
        raise InvalidArguments(
            f"{path} is a folder, and a store is a file", hint=f"Name a file in it: {path}/audit.db"
        )
    folder = os.path.dirname(path)
    present = os.path.exists(path)
    if present and not (_may_write(path) and _may_write(folder)):
        return _open_copy(path, lock, clock or SystemClock())
    _make_store(path, lock)
    connections = Connections(path, lock)
    try:
        _bring_up_to_date(connections)
    except BaseException:
        connections.close()
        raise
    return Database(connections, folder, clock or SystemClock())


def _may_write(path: str) -> bool:
    wanted = os.R_OK | os.W_OK | (os.X_OK if os.path.isdir(path) else 0)
    return os.access(path, wanted, effective_ids=os.access in os.supports_effective_ids)


def _make_store(path: str, lock: Lock) -> None:
    """The file and its folder, private from the start; SQLite's own files follow its mode."""
    try:
        if not os.path.isdir(os.path.dirname(path)):
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            sync_folder(os.path.dirname(path))
    except OSError as error:
        raise AuditUnavailable(
            f"The store {path} cannot be made: {error.strerror}",
            hint="Name another place with --store or LOOM_AUDIT_STORE.",
            details={"cause": "io"},
        ) from error


def _bring_up_to_date(connections: Connections) -> None:
    if os.path.exists(connections.path + "-journal"):
        # Who made the store was stopped while it became WAL. A reader may not roll that back.
        with connections.writing() as connection:
            schema.revision(connection)
    with connections.reading() as connection:
        found = schema.revision(connection)
        empty = found is None and schema.is_empty(connection)
    if empty:
        with connections.writing() as connection:
            # another process may have been quicker
            if schema.is_empty(connection):
                schema.create_all(connection)
            found = schema.revision(connection)
    if not schema.check_revision(found, connections.path):
        from loom_audit.sql.store.upgrade import upgrade_locked

        upgrade_locked(connections)


def _open_copy(path: str, lock: Lock, clock: Clock) -> Database:
    """A read-only view of a store in a folder that we may not write.

    SQLite needs a place for its shared memory; `immutable=1` would leave out what is in the
    write-ahead log without a word.
    """
    private = tempfile.mkdtemp(prefix="loom-audit-copy-")
    copy = os.path.join(private, os.path.basename(path))
    try:
        _copy_both(path, copy)
        connections = Connections(copy, lock, writable=False)
        with connections.reading() as connection:
            found = schema.revision(connection)
        if not schema.check_revision(found, path):
            raise AuditUnavailable(
                f"The store is at revision {found} and cannot be written to upgrade it",
                hint="Copy the store to a place you may write, then open the copy.",
                details={"cause": "older", "revision": found},
            )
    except BaseException:
        rmtree(private, ignore_errors=True)
        raise
    notice = f"{path} may not be written: reading a private copy of it, made just now."
    database = Database(connections, os.path.dirname(path), clock, notice=notice)
    finalize(database, rmtree, private, ignore_errors=True)
    return database


def _copy_both(path: str, copy: str) -> None:
    """Database and write-ahead log of one moment, as far as their times can tell."""
    try:
        for _ in range(_COPY_TRIES):
            before = _file_times(path)
            copyfile(path, copy)
            if os.path.exists(path + "-wal"):
                copyfile(path + "-wal", copy + "-wal")
            if _file_times(path) == before:
                return
    except OSError as error:
        raise StorageFailed(
            f"The store {path} cannot be read: {error.strerror}",
            hint="Ask its owner for permission, or for a copy.",
        ) from error
    raise StorageFailed(
        f"The store {path} changes too quickly to be copied", hint="Try again in a moment."
    )


def _file_times(path: str) -> list[tuple[int, int] | None]:
    marks: list[tuple[int, int] | None] = []
    for name in (path, path + "-wal"):
        try:
            found = os.stat(name)
            marks.append((found.st_size, found.st_mtime_ns))
        except FileNotFoundError:
            marks.append(None)
    return marks
