"""Connections to a store: one writer under the store lock, and readers that cannot write.

Every write, every checkpoint and the close that may be the last happen under one OS lock,
because not every SQLite is safe when two connections write and checkpoint at once (`driver`).
"""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from weakref import finalize

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool, QueuePool

from loom_audit.errors import AuditError, AuditUnavailable, Conflict, NotFound
from loom_audit.ports import Lock
from loom_audit.sql.driver import HINTS, connect, connect_writer, driver, read_error, write_error
from loom_audit.sql.statements import Prepared, Row

LOCK_SECONDS = 60.0


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
        self._quick_lock = threading.Lock()
        self._open_engines()

    def _open_engines(self) -> None:
        path = self.path  # not self: the finalizer holds the engines, and must not hold us
        self._readers = _engine(lambda: connect(path, "ro"), "BEGIN", pooled=True)
        self._writers = _engine(lambda: connect_writer(path), "BEGIN IMMEDIATE", pooled=False)
        self._quick_readers: list[Any] = []
        self._finalizer = self._finalize([])

    def _finalize(self, writers: list[Connection]) -> Any:
        return finalize(
            self, _close, self._pid, self._quick_readers, self._readers, writers, self.lock
        )

    def _check_process(self) -> None:
        """SQLite's connections do not survive a fork: leave the parent's alone, open our own."""
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._mutex, self._quick_lock = threading.RLock(), threading.Lock()
            self._finalizer.detach()
            self._of_the_parent = (
                self._connection,
                self._quick_readers,
                self._readers,
                self._writers,
            )
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
            raise read_error(error) from error
        except OverflowError as error:
            raise _too_large_number() from error

    def rows(self, statement: Prepared, /, **values: Any) -> list[Row]:
        """All rows that one statement finds now, with nothing else that must fit to them.

        For short queries between a call's writes: a transaction costs more than most of them.
        """
        self._check_open()
        sql, bind = statement.on(self._readers.dialect)
        if self._mutex.acquire(blocking=False):
            try:
                # The writer has the pages it wrote last; a reader reads them after each commit.
                raw = None if self._connection is None else raw_connection(self._connection)
                if raw is not None and not raw.in_transaction:
                    return _fetch(raw, sql, bind(values), self._drop)
            finally:
                self._mutex.release()
        with self._quick_lock:
            if not self._quick_readers:
                try:
                    self._quick_readers.append(connect(self.path, "ro"))
                except driver().Error as error:
                    raise read_error(error) from error
            return _fetch(self._quick_readers[0], sql, bind(values), self._drop_quick_readers)

    def _drop_quick_readers(self) -> None:
        while self._quick_readers:
            self._quick_readers.pop().close()

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
                raise write_error(error) from error

    def _store_lock(self) -> Any:
        if not self.writable:
            raise AuditUnavailable(
                "The audit store is open for reading only", hint=HINTS["read-only"],
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
        """Close all, for good; the last to close copies the write-ahead log into the database."""
        self._check_process()
        self._closed = True
        with self._mutex:
            self._connection = None
            self._finalizer()


def raw_connection(connection: Connection) -> Any:
    """The driver's connection behind SQLAlchemy's."""
    return connection.connection.dbapi_connection


def _fetch(raw: Any, sql: str, values: Any, drop: Callable[[], None]) -> list[Row]:
    try:
        found: list[Row] = raw.execute(sql, values).fetchall()
    except driver().Error as error:
        drop()
        raise read_error(error) from error
    except OverflowError as error:
        raise _too_large_number() from error
    return found


def _too_large_number() -> NotFound:
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
            f"The store lock cannot be taken: {error}", hint=HINTS["read-only"],
            details={"cause": "io"},
        ) from error  # fmt: skip
    try:
        yield
    finally:
        held.__exit__(None, None, None)


def _close(
    pid: int, quick_readers: list[Any], readers: Engine, writers: list[Connection], lock: Lock
) -> None:
    """Readers first: only a writer can copy the write-ahead log back, and it needs the lock.

    In a forked child that never used them they are the parent's, and are left alone.
    """
    if pid != os.getpid():
        return
    while quick_readers:
        quick_readers.pop().close()
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
