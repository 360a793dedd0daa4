"""Connections to a store: one writer under the store lock, and readers that cannot write.

What is SQLite's alone is here and in `schema`. WAL with synchronous=FULL is the one setting in
which no acknowledged commit is lost at a power cut. Every write, every checkpoint and the close
that may be the last happen under one OS lock, because SQLite before 3.51.3 can corrupt a store
when two connections write and checkpoint at once; there the driver `pysqlite3` takes the place
of the interpreter's own.
"""

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import ModuleType
from typing import Any, Literal
from urllib.parse import quote
from weakref import finalize

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool, QueuePool

from loom_audit.errors import (
    AuditError,
    AuditUnavailable,
    Conflict,
    Corrupt,
    NotFound,
    StorageFailed,
)
from loom_audit.ports import Lock
from loom_audit.sql.remains import refuse_remains
from loom_audit.sql.statements import Prepared, Row

SAFE_SQLITE = (3, 51, 3)
BUSY_MS = 10_000
LOCK_SECONDS = 60.0

Cause = Literal["full", "io", "busy", "damaged", "read-only", "missing", "other"]
"""Why the database refused, as `details["cause"]` of the error says."""

_CAUSES: dict[int, Cause] = {
    13: "full",
    10: "io",
    5: "busy",
    6: "busy",
    11: "damaged",
    26: "damaged",
    8: "read-only",
    14: "missing",
}
_HINTS: dict[Cause, str] = {
    "full": "Free some space where the store lies, then try again.",
    "io": "The disk reported an error. Run `loom-audit doctor`, then `loom-audit verify`.",
    "busy": "Another program holds the database open for writing. Close it, then try again.",
    "damaged": "`loom-audit salvage --to DIR` saves what is readable.",
    "read-only": "Give this user write permission on the store and its folder.",
    "missing": "See that the store's folder is there and may be entered.",
    "other": "Run `loom-audit doctor`.",
}

_DROP_TABLE, _DROP_TRIGGER, _ATTACH, _ALTER_TABLE, _DELETE, _UPDATE = 11, 16, 24, 26, 9, 23
APPEND_ONLY = frozenset({"log", "event", "tree_node"})


def driver() -> ModuleType:
    """The SQLite driver: the interpreter's own where it is recent enough, else pysqlite3."""
    if sqlite3.sqlite_version_info < SAFE_SQLITE:
        with suppress(ImportError):
            import pysqlite3

            module: ModuleType = pysqlite3
            return module
    return sqlite3


def connect(path: str, mode: Literal["ro", "rw"]) -> Any:
    """A driver's connection with our settings, in autocommit; `ro` cannot write or checkpoint.

    AuditUnavailable for what is left of a file that was cut off.
    """
    refuse_remains(path)
    module: Any = driver()
    connection = module.connect(
        f"file:{quote(os.path.abspath(path))}?mode={mode}",
        uri=True,
        check_same_thread=False,
        isolation_level=None,
        timeout=BUSY_MS / 1000,
    )
    try:
        _set_up(connection, mode)
    except BaseException:
        connection.close()
        raise
    return connection


def _set_up(connection: Any, mode: Literal["ro", "rw"]) -> None:
    for setting in (
        f"busy_timeout={BUSY_MS}",
        "trusted_schema=OFF",
        "cell_size_check=ON",
        "mmap_size=0",
        "cache_size=-8000",
    ):
        connection.execute(f"PRAGMA {setting}")
    if mode == "ro":
        connection.execute("PRAGMA query_only=ON")
        return
    journal = connection.execute("PRAGMA journal_mode=WAL").fetchone()[0]
    if journal != "wal":
        raise AuditUnavailable(
            f"The store's file system does not allow WAL (it stays in {journal} mode)",
            hint="Keep the store on a local file system: set LOOM_AUDIT_STORE.",
        )
    for setting in ("synchronous=FULL", "foreign_keys=ON", "recursive_triggers=ON"):
        connection.execute(f"PRAGMA {setting}")


def guard(connection: Any) -> None:
    """Refuse statements that no code of ours makes: a seat-belt, not evidence."""

    def allow(action: int, first: str | None, *_: str | None) -> int:
        refused = action in (_DROP_TABLE, _DROP_TRIGGER, _ATTACH, _ALTER_TABLE) or (
            action in (_DELETE, _UPDATE) and first in APPEND_ONLY
        )
        return 1 if refused else 0

    connection.set_authorizer(allow)


def _connect_writer(path: str) -> Any:
    connection = connect(path, "rw")
    guard(connection)
    return connection


def unavailable(error: DBAPIError | Exception) -> AuditUnavailable:
    """What a driver's error means to a caller; `details["cause"]` is a Cause."""
    original: Any = getattr(error, "orig", error)
    code = getattr(original, "sqlite_errorcode", None) or 0
    cause: Cause = _CAUSES.get(code & 0xFF, "other")
    if "decode to UTF-8" in str(original):
        cause = "damaged"  # bytes where we wrote text, or text where we wrote bytes
    return AuditUnavailable(
        f"The audit store cannot be used: {original}",
        hint=_HINTS[cause],
        details={"cause": cause, "error": str(getattr(original, "sqlite_errorname", ""))},
    )


def unreadable(error: DBAPIError | Exception) -> AuditError:
    """The same for who reads: Corrupt, or StorageFailed when it may go well the next time."""
    problem = unavailable(error)
    kind = Corrupt if problem.details["cause"] == "damaged" else StorageFailed
    return kind(problem.message, hint=problem.hint, details=problem.details)


class Connections:
    """The connections of one process to one store file. Safe to use from any thread.

    `generation` grows with every new writer connection: what was cached under an older one
    must be checked against the database again.
    """

    def __init__(self, path: str, lock: Lock, *, writable: bool = True) -> None:
        self.path = path
        self.lock = lock
        self.writable = writable
        self.generation = 0
        self._mutex = threading.RLock()
        self._pid = os.getpid()
        self._closed = False
        self._connection: Connection | None = None
        self._glancing = threading.Lock()
        self._open_engines()

    def _open_engines(self) -> None:
        path = self.path  # not self: the finalizer holds the engines, and must not hold us
        self._readers = _engine(lambda: connect(path, "ro"), "BEGIN", pooled=True)
        self._writers = _engine(lambda: _connect_writer(path), "BEGIN IMMEDIATE", pooled=False)
        self._glances: list[Any] = []
        self._finalizer = self._finalize([])

    def _finalize(self, writers: list[Connection]) -> Any:
        return finalize(self, _close, self._pid, self._glances, self._readers, writers, self.lock)

    def _check_process(self) -> None:
        """SQLite's connections do not survive a fork: leave the parent's alone, open our own."""
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._mutex, self._glancing = threading.RLock(), threading.Lock()
            self._finalizer.detach()
            self._left_behind = (self._connection, self._glances, self._readers, self._writers)
            self._connection = None
            self._open_engines()

    def _check_open(self) -> None:
        if self._closed:
            raise AuditUnavailable(
                "The audit store is closed", hint="Open it again with `open_store`."
            )
        self._check_process()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection that sees one state of the store to the end of the block."""
        self._check_open()
        try:
            with self._readers.connect() as connection, connection.begin():
                yield connection
        except (DBAPIError, driver().Error) as error:
            raise unreadable(error) from error
        except OverflowError as error:
            raise _no_such_event() from error

    def rows(self, statement: Prepared, /, **values: Any) -> list[Row]:
        """All rows that one statement finds now, with nothing else that must fit to them.

        For the short looks between a call's writes: a transaction costs more than most of them.
        """
        self._check_open()
        sql, bind = statement.on(self._readers.dialect)
        if self._mutex.acquire(blocking=False):
            try:
                # The writer has the pages it wrote last; a reader reads them after each commit.
                raw = None if self._connection is None else raw_connection(self._connection)
                if raw is not None and not raw.in_transaction:
                    return _fetched(raw, sql, bind(values), self._drop)
            finally:
                self._mutex.release()
        with self._glancing:
            if not self._glances:
                try:
                    self._glances.append(connect(self.path, "ro"))
                except driver().Error as error:
                    raise unreadable(error) from error
            return _fetched(self._glances[0], sql, bind(values), self._drop_glances)

    def _drop_glances(self) -> None:
        while self._glances:
            self._glances.pop().close()

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """One durable transaction under the store lock: committed at the end of the block.

        AuditUnavailable when it cannot be begun or committed; then nothing of it is stored,
        unless a crash of the machine follows within the same instant. After anything but a
        refused constraint the connection is closed, so that the next one starts afresh.
        """
        self._check_open()
        with self._mutex, self._store_lock():
            try:
                connection = self._writer()
                with _transaction(connection):
                    yield connection
            except (DBAPIError, driver().Error) as error:
                self._drop()
                raise unavailable(error) from error

    def _store_lock(self) -> Any:
        if not self.writable:
            raise AuditUnavailable(
                "The audit store is open for reading only", hint=_HINTS["read-only"],
                details={"cause": "read-only"},
            )  # fmt: skip
        return store_lock(self.lock)

    def _writer(self) -> Connection:
        if self._connection is None:
            self._connection = self._writers.connect()
            self.generation += 1
            self._finalizer.detach()
            self._finalizer = self._finalize([self._connection])
        return self._connection

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(DBAPIError):
                connection.invalidate()
            with suppress(DBAPIError):
                connection.close()

    def close(self) -> None:
        """Close all, for good; the last one out folds the write-ahead log into the database."""
        self._check_process()
        self._closed = True
        with self._mutex:
            self._connection = None
            self._finalizer()


def raw_connection(connection: Connection) -> Any:
    """The driver's connection behind SQLAlchemy's."""
    return connection.connection.dbapi_connection


def _fetched(raw: Any, sql: str, values: Any, drop: Callable[[], None]) -> list[Row]:
    try:
        found: list[Row] = raw.execute(sql, values).fetchall()
    except driver().Error as error:
        drop()
        raise unreadable(error) from error
    except OverflowError as error:
        raise _no_such_event() from error
    return found


def _no_such_event() -> NotFound:
    return NotFound("no event has so large a number", hint="`loom-audit log --events` lists them.")


@contextmanager
def _transaction(connection: Connection) -> Iterator[None]:
    """`connection.begin()` in a third of its time; SQLAlchemy joins it when a statement is its."""
    raw = raw_connection(connection)
    raw.execute("BEGIN IMMEDIATE")
    try:
        yield
        (connection if connection.in_transaction() else raw).commit()
    except BaseException:
        (connection if connection.in_transaction() else raw).rollback()
        raise


@contextmanager
def store_lock(lock: Lock) -> Iterator[None]:
    """Hold the store lock; that it cannot be had means that the log cannot be written."""
    try:
        held = lock.hold("store", timeout=LOCK_SECONDS)
        held.__enter__()
    except Conflict as error:
        raise AuditUnavailable(
            "The audit store is locked by another process",
            hint="Wait for it to finish, or end it.",
            details={"cause": "busy", **error.details},
        ) from error
    except OSError as error:
        raise AuditUnavailable(
            f"The store lock cannot be taken: {error}", hint=_HINTS["read-only"],
            details={"cause": "io"},
        ) from error  # fmt: skip
    try:
        yield
    finally:
        held.__exit__(None, None, None)


def _close(
    pid: int, glances: list[Any], readers: Engine, writers: list[Connection], lock: Lock
) -> None:
    """Readers first: only a writer can fold the write-ahead log in, and it needs the lock.

    In a forked child that never used them they are the parent's, and are left alone.
    """
    if pid != os.getpid():
        return
    while glances:
        glances.pop().close()
    readers.dispose()
    if writers:
        with suppress(AuditError, OSError), lock.hold("store", timeout=LOCK_SECONDS):
            for connection in writers:
                with suppress(DBAPIError):
                    connection.close()


def _engine(creator: Callable[[], Any], begin: str, *, pooled: bool) -> Engine:
    kind: dict[str, Any] = (
        {"poolclass": QueuePool, "pool_size": 4, "max_overflow": 60}
        if pooled
        else {"poolclass": NullPool}
    )
    engine = create_engine("sqlite://", creator=creator, module=driver(), **kind)

    @event.listens_for(engine, "begin")
    def start(connection: Connection) -> None:
        raw = raw_connection(connection)
        if not raw.in_transaction:
            raw.execute(begin)

    return engine
