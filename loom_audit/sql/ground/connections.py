"""Connections to a store: one writer under the store lock, and readers that cannot write.

In WAL mode (https://www.sqlite.org/wal.html) readers see the state of their begin while one writer
appends. Every write, every checkpoint and the close that may be the last happen under one OS lock,
because not every SQLite is safe when two connections write and checkpoint at once (`driver`).
"""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any
from weakref import finalize

from msgspec import Struct, field

from loom_audit.errors import AuditError, AuditUnavailable, Conflict, NotFound
from loom_audit.ports import Lock
from loom_audit.sql.ground.connection import Connection, Row
from loom_audit.sql.ground.driver import (
    HINTS,
    connect,
    connect_writer,
    driver,
    has_shared_memory,
    read_error,
    write_error,
)
from loom_audit.sql.ground.statements import Prepared

LOCK_SECONDS = 60.0

_IDLE_READERS = 4
"""Readers that stay open between uses; as many more are opened as are in use at once. One that
keeps others out, as there is no room for the shared memory, is closed after each use."""


class _Pool(Struct):
    """The driver's connections of one process: the readers not in use, the writer if there is one.

    What is discarded is closed when the store lock is held next.
    """

    pid: int = field(default_factory=os.getpid)
    readers: list[Any] = field(default_factory=list)
    writer: list[Any] = field(default_factory=list)
    discarded: list[Any] = field(default_factory=list)


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
        self._closed = False
        self._start()

    def _start(self) -> None:
        self._mutex = threading.RLock()
        self._pool = _Pool()
        self._kept = _IDLE_READERS
        # the finalizer holds the pool, and must not hold us
        self._finalizer = finalize(self, _close, self._pool, self.lock)

    def _check_process(self) -> None:
        """SQLite's connections do not survive a fork: leave the parent's alone, open our own."""
        if self._pool.pid != os.getpid():
            self._finalizer.detach()
            self._of_the_parent = self._pool
            self._start()

    def _check_open(self) -> None:
        if self._closed:
            raise AuditUnavailable(
                "The audit store is closed", hint="Open it again with `open_store`."
            )
        self._check_process()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection that sees one state of the store to the end of the block."""
        with self._reader() as raw:
            raw.execute("BEGIN")
            try:
                yield Connection(raw)
            finally:
                raw.commit()

    def rows(self, statement: Prepared, /, **values: Any) -> list[Row]:
        """All rows that one statement finds now, with nothing else that must fit to them.

        For short queries between a call's writes: a transaction costs more than most of them.
        StorageFailed, Corrupt; NotFound for a number that no column can hold.
        """
        self._check_open()
        if self._mutex.acquire(blocking=False):
            try:
                # The writer has the pages it wrote last; a reader reads them after each commit.
                for raw in self._pool.writer:
                    if not raw.in_transaction:
                        with _read_errors(self.path, self._discard_writer):
                            return statement.rows(Connection(raw), **values)
            finally:
                self._mutex.release()
        with self._reader() as raw:
            return statement.rows(Connection(raw), **values)

    @contextmanager
    def _reader(self) -> Iterator[Any]:
        """A connection that nobody else uses, for the block; an error of the database closes it."""
        self._check_open()
        pool, used = self._pool, list[Any]()
        try:
            with _read_errors(self.path, lambda: _close_all(used)):
                try:
                    used.append(pool.readers.pop())
                except IndexError:
                    used.append(connect(self.path, "ro"))
                    self._kept = _IDLE_READERS if has_shared_memory(self.path) else 0
                yield used[0]
        finally:
            pool.readers += used
            _close_all(pool.readers, but=0 if self._closed else self._kept)

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """One durable transaction under the store lock: committed at the end of the block.

        AuditUnavailable when it cannot be begun or committed; then nothing of it is stored,
        unless a crash of the machine follows within the same instant. After an error of the
        database the connection is closed, so that the next one starts afresh.
        """
        self._check_open()
        with self._mutex, self.hold_store():
            try:
                raw = self._writer()
                # at once a writer: a reader that becomes one later may find that it read too early
                raw.execute("BEGIN IMMEDIATE")
                try:
                    yield Connection(raw)
                    raw.commit()
                except BaseException:
                    raw.rollback()
                    raise
            except driver().Error as error:
                self._discard_writer()
                _close_all(self._pool.discarded)
                raise write_error(error, self.path) from error

    def hold_store(self) -> AbstractContextManager[None]:
        """Hold the store lock for the block. AuditUnavailable, also for what may only be read."""
        if not self.writable:
            raise AuditUnavailable(
                "The audit store is open for reading only",
                hint=HINTS["read-only"],
                details={"cause": "read-only"},
            )
        return store_lock(self.lock)

    def _writer(self) -> Any:
        _close_all(self._pool.discarded)
        if not self._pool.writer:
            self._pool.writer.append(connect_writer(self.path))
            self.generation += 1
        return self._pool.writer[0]

    def _discard_writer(self) -> None:
        while self._pool.writer:
            self._pool.discarded.append(self._pool.writer.pop())

    def close(self) -> None:
        """Close all, for good; the last to close copies the write-ahead log into the database."""
        self._check_process()
        self._closed = True
        with self._mutex:
            self._finalizer()


@contextmanager
def _read_errors(path: str, drop: Callable[[], None]) -> Iterator[None]:
    """Errors as who reads gets them; `drop` lets go of the connection that the database failed."""
    try:
        yield
    except (driver().Error, UnicodeDecodeError) as error:
        drop()
        raise read_error(error, path) from error
    except OverflowError as error:
        raise NotFound(
            "no event has so large a number", hint="`loom-audit log --events` lists them."
        ) from error


@contextmanager
def store_lock(lock: Lock) -> Iterator[None]:
    """Hold the store lock for the block.

    AuditUnavailable when it cannot be had within LOCK_SECONDS: then the log cannot be written.
    """
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
            f"The store lock cannot be taken: {error}",
            hint=HINTS["read-only"],
            details={"cause": "io"},
        ) from error
    try:
        yield
    finally:
        held.__exit__(None, None, None)


def _close(pool: _Pool, lock: Lock) -> None:
    """Close readers, then the writer: only a writer can copy the write-ahead log back.

    That needs the lock. In a forked child that never used the connections they are the parent's,
    and are left alone.
    """
    if pool.pid != os.getpid():
        return
    _close_all(pool.readers)
    if pool.writer or pool.discarded:
        with suppress(AuditError, OSError), lock.hold("store", timeout=LOCK_SECONDS):
            _close_all(pool.discarded)
            _close_all(pool.writer)


def _close_all(connections: list[Any], *, but: int = 0) -> None:
    while len(connections) > but:
        with suppress(driver().Error, IndexError):  # another thread may take the last
            connections.pop().close()
