"""Opening a store: a new one, an older one, a newer one, one that may not be written."""

import gc
import os
import random
import re
import sqlite3
import stat
import tempfile
import traceback
from pathlib import Path
from typing import Any

import pytest

from loom_audit.disk.machine.locks import DiskLock
from loom_audit.errors import (
    AuditError,
    AuditUnavailable,
    Corrupt,
    InvalidArguments,
    NotFound,
    StorageFailed,
)
from loom_audit.model.events import SessionStarted
from loom_audit.model.files import FileChange
from loom_audit.sql import schema
from loom_audit.sql.ground import connections
from loom_audit.sql.ground import driver as sqlite_driver
from loom_audit.sql.ground.connections import Connections
from loom_audit.sql.ground.driver import SAFE_SQLITE, connect, driver
from loom_audit.sql.ground.statements import prepare
from loom_audit.sql.projections import calls
from loom_audit.sql.store.ballast import Ballast
from loom_audit.sql.store.database import Database, database_path, open_database
from tests.contracts.stores import draft, logs_of, open_sqlite
from tests.places.temporary import MEMORY
from tests.sql.conftest import record

# --- a new store --------------------------------------------------------------------------


def test_a_new_store_is_private(database: Database, path: Path) -> None:
    record(database)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    files = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    assert set(files.values()) == {0o600}
    assert set(files) == {"audit.db", "audit.db-wal", "audit.db-shm", "audit.db.ballast"}


def test_connections_have_the_settings_that_keep_what_was_acknowledged(
    database: Database,
) -> None:
    def settings(connection: Any) -> dict[str, Any]:
        names = (
            "journal_mode synchronous foreign_keys recursive_triggers trusted_schema "
            "cell_size_check mmap_size query_only"
        )
        return {name: connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names.split()}

    with database.connections.writing() as connection:
        found = settings(connection)
    assert found == {
        "journal_mode": "wal",
        "synchronous": 2,
        "foreign_keys": 1,
        "recursive_triggers": 1,
        "trusted_schema": 0,
        "cell_size_check": 1,
        "mmap_size": 0,
        "query_only": 0,
    }
    with database.connections.reading() as connection:
        assert settings(connection)["query_only"] == 1
        with pytest.raises(Exception, match="readonly"):
            connection.execute("INSERT INTO searched VALUES (1, 1)")


def test_the_connection_that_made_a_store_compiles_each_statement_once(tmp_path: Path) -> None:
    opened = open_sqlite(tmp_path)
    assert opened.database
    compiled: list[int] = []
    with opened.database.connections.writing() as connection:

        def allow(action: int, *_: Any) -> int:
            compiled.append(action)
            return 0

        connection.raw.set_authorizer(allow)
    counts = []
    for n in range(5):
        compiled.clear()
        opened.call(FileChange(f"{n}", None, opened.file(b"%d" % n)))
        counts.append(len(compiled) - compiled.count(sqlite3.SQLITE_TRANSACTION))
    opened.database.close()
    assert counts[0] > 0 and counts[-1] == 0, counts


def test_the_driver_is_one_without_the_known_corruption() -> None:
    found = driver().sqlite_version_info
    assert found >= SAFE_SQLITE or "pysqlite3" not in driver().__name__
    if sqlite3.sqlite_version_info >= SAFE_SQLITE:
        assert driver() is sqlite3


def test_closing_folds_the_write_ahead_log_in(path: Path, lock: DiskLock) -> None:
    database = open_database(f"sqlite:///{path}", lock=lock)
    id = record(database, 300)
    assert Path(f"{path}-wal").exists()
    database.close()
    assert not Path(f"{path}-wal").exists()
    again = open_database(f"sqlite:///{path}", lock=lock)
    assert again.event_log(id).head() == 300
    again.close()


def test_a_database_that_was_dropped_closes_itself(path: Path, lock: DiskLock) -> None:
    database = open_database(str(path), lock=lock)
    record(database)
    del database
    gc.collect()
    assert not Path(f"{path}-wal").exists()


def test_log_ids_are_never_the_same(database: Database) -> None:
    ids = [database.create_log() for _ in range(50)]
    assert len(set(ids)) == 50
    assert all(re.fullmatch(r"[0-9a-f]{16}", id) for id in ids)
    assert logs_of(database) == ids
    with pytest.raises(NotFound):
        database.event_log("0" * 32)
    with pytest.raises(NotFound):
        database.projections("none")


def test_a_store_is_named_by_url_or_by_path() -> None:
    assert database_path("sqlite:////a/b.db") == "/a/b.db"
    assert database_path("/a/b.db") == "/a/b.db"
    assert database_path("b.db") == str(Path.cwd() / "b.db")
    assert database_path("~/b.db") == str(Path.home() / "b.db")
    for wrong in ("sqlite://", "sqlite:///:memory:", "postgresql://h/d", "no url://x y"):
        with pytest.raises(InvalidArguments):
            database_path(wrong)


def test_a_file_that_is_not_a_store_is_refused_and_left_alone(path: Path, lock: DiskLock) -> None:
    path.parent.mkdir()
    path.write_bytes(b"not a database, and long enough to be looked at " * 100)
    before = path.read_bytes()
    with pytest.raises(Corrupt):
        open_database(str(path), lock=lock)
    assert path.read_bytes() == before
    path.unlink()
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE somebody_elses (x)")
    other.close()
    with pytest.raises(AuditUnavailable, match="not a store"):
        open_database(str(path), lock=lock)


def test_a_locked_store_is_said_to_be_locked(
    database: Database, lock: DiskLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = record(database)
    monkeypatch.setattr(connections, "LOCK_SECONDS", 0.1)
    with lock.hold("store"), pytest.raises(AuditUnavailable, match="locked"):
        database.event_log(id).append([draft(SessionStarted("a"))])
    database.event_log(id).append([draft(SessionStarted("a"))])
    assert database.event_log(id).head() == 2


def test_a_database_that_another_program_writes_is_waited_for_and_then_refused(
    database: Database, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = record(database)
    database.close()
    monkeypatch.setattr(sqlite_driver.connect, "__kwdefaults__", {"busy_ms": 50})
    patient = open_database(str(path), lock=database.connections.lock)
    raw = connect(str(path), "rw")
    raw.execute("BEGIN IMMEDIATE")
    with pytest.raises(AuditUnavailable) as caught:
        patient.event_log(id).append([draft(SessionStarted("a"))])
    assert caught.value.details["cause"] == "busy"
    raw.execute("ROLLBACK")
    raw.close()
    patient.event_log(id).append([draft(SessionStarted("a"))])
    patient.close()


# --- room ---------------------------------------------------------------------------------


def test_the_ballast_is_laid_once_and_given_up_once(tmp_path: Path) -> None:
    ballast = Ballast(str(tmp_path / "b"), 100_000)
    assert ballast.hold() and ballast.hold()
    found = (tmp_path / "b").stat()
    assert found.st_size == 100_000 and found.st_blocks * 512 >= 100_000
    assert ballast.give_up() and not ballast.give_up()


def test_no_ballast_is_laid_where_there_is_no_room(tmp_path: Path) -> None:
    free = os.statvfs(tmp_path)
    ballast = Ballast(str(tmp_path / "b"), free.f_bavail * free.f_frsize // 2)
    assert not ballast.hold()
    assert not (tmp_path / "b").exists()
    assert not Ballast(str(tmp_path / "none" / "b"), 100).hold()


# --- a folder that may not be written -----------------------------------------------------


def as_nobody(work: Any) -> None:
    """Run in a child that has no special rights, and fail as it fails."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setegid(65534)
                os.seteuid(65534)
            work()
            status = 0
        except BaseException:  # noqa: BLE001 - the child's only way to say it
            os.write(2, traceback.format_exc().encode())
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def open_up(folder: Path, mode: int) -> None:
    """Let others read, and nobody write."""
    temporary = {MEMORY, Path(tempfile.gettempdir())}
    for above in folder.parents:
        if above.stat().st_uid == os.geteuid() and temporary & {*above.parents}:
            above.chmod(above.stat().st_mode | 0o011)
    for file in folder.rglob("*"):
        file.chmod(0o755 if file.is_dir() else 0o444)
    folder.chmod(mode)


@pytest.mark.parametrize("closed", [True, False], ids=["closed", "with a write-ahead log"])
def test_a_store_in_a_read_only_folder_is_read_from_a_copy(
    path: Path, lock: DiskLock, tmp_path: Path, closed: bool
) -> None:
    database = open_database(str(path), lock=lock)
    id = record(database, 20)
    content = database.blobs.put(random.Random(1).randbytes(400_000))
    database.event_log(id).append([draft(SessionStarted("last"))])
    if closed:
        database.close()
    listed = sorted(path.parent.iterdir())
    open_up(path.parent, 0o555)
    copies = tmp_path / "copies"
    copies.mkdir(mode=0o777)
    copies.chmod(0o777)

    def read() -> None:
        tempfile.tempdir = str(copies)
        found = open_database(str(path), lock=lock)
        assert "copy" in found.notice and not found.connections.writable
        assert found.event_log(id).head() == 21
        assert len(found.blobs.get(content)) == 400_000
        assert len(found.projections(id).sessions()) == 1
        with pytest.raises(AuditUnavailable, match="reading only"):
            found.event_log(id).append([draft(SessionStarted("a"))])
        [private] = copies.iterdir()
        assert stat.S_IMODE(private.stat().st_mode) == 0o700
        found.close()
        del found
        assert not list(copies.iterdir())

    try:
        as_nobody(read)
        assert sorted(path.parent.iterdir()) == listed
    finally:
        path.parent.chmod(0o755)
        if not closed:
            database.close()


# --- other revisions ----------------------------------------------------------------------


def test_a_short_look_into_a_store_that_cannot_be_opened_says_so(
    tmp_path: Path, lock: DiskLock
) -> None:
    connections = Connections(str(tmp_path / "gone.db"), lock)
    with pytest.raises(StorageFailed):
        connections.rows(prepare("SELECT 1"))
    connections.close()


def test_missing_guards_are_found(database: Database, path: Path) -> None:
    raw = connect(str(path), "rw")
    raw.execute("DROP TRIGGER event_no_update")
    raw.close()
    with (
        database.connections.reading() as connection,
        pytest.raises(Corrupt, match="event_no_update"),
    ):
        schema.check_triggers(connection)


def test_an_error_of_the_store_says_what_to_do(database: Database) -> None:
    for cause, hint in sqlite_driver.HINTS.items():
        assert hint.endswith("."), cause
    assert issubclass(AuditUnavailable, AuditError)


def test_the_end_of_a_call_is_written_by_its_id_however_many_others_are_open(
    database: Database,
) -> None:
    [text] = [sql for one in calls.STATEMENTS if (sql := one.on("sqlite")[0]).startswith("UPDATE")]
    with database.connections.reading() as connection:
        plan = connection.execute(f"EXPLAIN QUERY PLAN {text}", [0] * text.count("?")).fetchall()
    assert any("call_id" in step[3] for step in plan), plan
    assert not any("call_open" in step[3] for step in plan), plan
