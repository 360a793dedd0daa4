"""SQLite's driver and connections of it with our settings; what its errors mean to a caller.

WAL with synchronous=FULL is the one setting in which no acknowledged commit is lost at a power cut.
SQLite before 3.51.3 can corrupt a store when two connections write and checkpoint at once: there
the driver `pysqlite3` takes the place of the interpreter's own.
"""

import os
import sqlite3
from contextlib import suppress
from types import ModuleType
from typing import Any, Literal
from urllib.parse import quote

from loom_audit.errors import AuditError, AuditUnavailable, Corrupt, StorageFailed
from loom_audit.model.text.display import size_text
from loom_audit.sql.ground.authorizer import answer

SAFE_SQLITE = (3, 51, 3)
BUSY_MS = 10_000
COMPILED = 512
"""Statements that a connection keeps compiled: those that make a store and all that follow."""

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
HINTS: dict[Cause, str] = {
    "full": "Free some space there, or move the store to another disk and name it with --store.",
    "io": "The disk reported an error. Run `loom-audit doctor`, then `loom-audit verify`.",
    "busy": "Another program holds the database open for writing. Close it, then try again.",
    "damaged": "`loom-audit salvage --to DIR` saves what is readable.",
    "read-only": "Give this user write permission on the store and its folder.",
    "missing": "See that the store's folder is there and may be entered.",
    "other": "Run `loom-audit doctor`.",
}

_SMALLEST = 512
"""Bytes of the smallest database that SQLite makes."""
_NO_SPACE = 1 << 20
"""Where fewer bytes are free, an error of the disk is taken for a lack of room: SQLite cannot
always tell the two apart."""
_SHARED_MEMORY = 32 * 1024
"""Bytes of the smallest file of shared memory that SQLite makes beside a database."""


def driver() -> ModuleType:
    """The SQLite driver: the interpreter's own where it is recent enough, else pysqlite3."""
    if sqlite3.sqlite_version_info < SAFE_SQLITE:
        with suppress(ImportError):
            import pysqlite3

            module: ModuleType = pysqlite3
            return module
    return sqlite3


def connect(path: str, mode: Literal["ro", "rw"], *, busy_ms: int = BUSY_MS) -> Any:
    """A driver's connection with our settings, in autocommit; with `ro` it cannot write.

    It waits `busy_ms` for another program that holds the store, also while it is opened.
    Where there is no space for the file of shared memory, a reader locks others out while its
    connection is open: see `has_shared_memory`.
    AuditUnavailable for what is left of a file that was cut off.
    """
    refuse_cut_off(path)
    try:
        return _open(path, mode, f"mode={mode}", busy_ms)
    except driver().OperationalError as error:
        if mode == "rw" or not os.path.exists(path) or _cause(error, path) != "full":
            raise
        return _open_alone(path, error)


def has_shared_memory(path: str) -> bool:
    """Whether an open store shares its index of the write-ahead log, as others may open it too."""
    try:
        return os.path.getsize(path + "-shm") >= _SHARED_MEMORY
    except OSError:
        return False


def _open_alone(path: str, reason: Exception) -> Any:
    """A reader that keeps the index of the write-ahead log to itself, and the others out.

    Raises the reason where that cannot be had either, as while others have the store open.
    """
    try:
        connection = _open(path, "ro", "mode=rw&vfs=unix-excl", BUSY_MS)
        connection.execute("PRAGMA temp_store=MEMORY")
    except driver().OperationalError:
        raise reason from None
    return connection


def _open(path: str, mode: Literal["ro", "rw"], parameters: str, busy_ms: int) -> Any:
    module: Any = driver()
    connection = module.connect(
        f"file:{quote(os.path.abspath(path))}?{parameters}",
        uri=True,
        check_same_thread=False,
        isolation_level=None,
        timeout=busy_ms / 1000,
        cached_statements=COMPILED,
    )
    try:
        _set_up(connection, mode)
    except UnicodeDecodeError as error:
        connection.close()
        # SQLite names what it cannot make sense of in the schema, as it lies there
        raise module.DatabaseError(_said(error)) from error
    except BaseException:
        connection.close()
        raise
    return connection


def refuse_cut_off(path: str) -> None:
    """Raise AuditUnavailable for a store whose file was cut off.

    SQLite would take the file for an empty database, and delete its write-ahead log with all that
    is committed there.
    """
    try:
        size = os.stat(path).st_size
        cut_off = 0 < size < _SMALLEST or (not size and os.stat(path + "-wal").st_size > 0)
    except OSError:
        return  # SQLite says what is the matter with a file that is not there
    if cut_off:
        raise AuditUnavailable(
            f"The store {path} was cut off: of its file {size} bytes are left",
            hint="Restore it from a backup. `loom-audit salvage --to DIR` saves what is readable.",
            details={"cause": "damaged"},
        )


def _set_up(connection: Any, mode: Literal["ro", "rw"]) -> None:
    # A forged schema must run nothing that does harm; a damaged page is found when it is read;
    # an error of the disk is an error, where a page that is mapped would end us by SIGBUS
    # (https://www.sqlite.org/pragma.html).
    for setting in ("trusted_schema=OFF", "cell_size_check=ON", "mmap_size=0", "cache_size=-8000"):
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
    # Only with recursive triggers a replacing INSERT fires those that refuse a DELETE.
    for setting in ("synchronous=FULL", "foreign_keys=ON", "recursive_triggers=ON"):
        connection.execute(f"PRAGMA {setting}")


def connect_writer(path: str) -> Any:
    """A connection for writing that refuses what no code of ours does."""
    connection = connect(path, "rw")
    connection.set_authorizer(answer)
    return connection


def write_error(error: Exception, path: str) -> AuditUnavailable:
    """The error of one who writes, of what the driver says; `details["cause"]` is a Cause."""
    cause = _cause(error, path)
    message = f"The audit store cannot be used: {_said(error)}"
    details = {"cause": cause, "error": str(getattr(error, "sqlite_errorname", ""))}
    if cause == "damaged" and not _begins_as_a_database(path):
        hint = "If it never was one, name yours with --store; `loom-audit salvage --to DIR` saves "
        return AuditUnavailable(message, hint=f"{hint}what is readable.", details=details)
    if cause != "full":
        return AuditUnavailable(message, hint=HINTS[cause], details=details)
    free = _free_bytes(path)
    return AuditUnavailable(
        f"The disk of the audit store is full: {size_text(free)} are free at {path}",
        hint=HINTS[cause],
        details=details | {"store": path, "free_bytes": free},
    )


def read_error(error: Exception, path: str) -> AuditError:
    """The error of one who reads: Corrupt, or StorageFailed when the next try may go well."""
    problem = write_error(error, path)
    kind = Corrupt if problem.details["cause"] == "damaged" else StorageFailed
    return kind(problem.message, hint=problem.hint, details=problem.details)


def _begins_as_a_database(path: str) -> bool:
    """Whether a file has the first bytes of every SQLite database (sqlite.org/fileformat.html)."""
    try:
        with open(path, "rb") as file:
            return file.read(16) == b"SQLite format 3\0"
    except OSError:
        return True  # not known: what the driver says stands


def _said(error: Exception) -> str:
    # what the schema says of a column, which the driver decodes without saying what it is about
    if isinstance(error, UnicodeDecodeError):
        return f"could not decode to UTF-8: {error.object!a}"
    return str(error)


def _cause(error: Exception, path: str) -> Cause:
    if "decode to UTF-8" in _said(error):
        return "damaged"  # bytes where we wrote text, or text where we wrote bytes
    cause: Cause = _CAUSES.get((getattr(error, "sqlite_errorcode", None) or 0) & 0xFF, "other")
    if cause in ("io", "missing") and os.path.exists(path) and _free_bytes(path) < _NO_SPACE:
        return "full"
    return cause


def _free_bytes(path: str) -> int:
    room = os.statvfs(os.path.dirname(os.path.abspath(path)))
    return room.f_bavail * room.f_frsize
