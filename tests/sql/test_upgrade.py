"""Older stores are backed up and upgraded when they are opened; newer ones are left alone."""

import os
import re
import resource
import signal
import stat
from collections.abc import Callable
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine

import loom_audit
from loom_audit.disk.machine.locks import DiskLock
from loom_audit.errors import (
    AuditUnavailable,
)
from loom_audit.model.events import SessionEnded, SessionStarted
from loom_audit.sql import definition, schema, tables
from loom_audit.sql.ground.connections import Connections
from loom_audit.sql.ground.driver import connect, driver
from loom_audit.sql.store import upgrade
from loom_audit.sql.store.database import Database, open_database
from loom_audit.sql.store.upgrade import upgrade_locked
from tests.contracts.stores import draft
from tests.sql.conftest import record

MIGRATIONS = Path(loom_audit.__file__).parent / "migrations"


def test_the_newest_revision_is_the_one_in_the_code() -> None:
    script = ScriptDirectory(str(MIGRATIONS))
    assert script.get_heads() == [schema.REVISION]
    older = {revision.revision for revision in script.walk_revisions()} - {schema.REVISION}
    assert older == schema.OLDER


def described(connections: Connections) -> dict[str, Any]:
    with connections.reading() as connection:
        rows = connection.execute("SELECT type, name, sql FROM sqlite_master").fetchall()
        found = {f"{row[0]} {row[1]}": re.sub(r"\s", "", row[2] or "") for row in rows}
        for table in ("sqlite_stat1", "alembic_version"):
            found[table] = repr(sorted(map(tuple, connection.execute(f"SELECT * FROM {table}"))))
    return found


def test_the_tables_the_file_the_migrations_and_a_new_store_say_the_same(
    database: Database, tmp_path: Path, lock: DiskLock
) -> None:
    written = Path(schema.__file__).with_name("schema.sql").read_text("utf-8")
    assert written == definition.schema_sql(), "bring it up to date: make schema"
    empty = tmp_path / "empty.db"
    empty.touch(0o600)
    connections = Connections(str(empty), lock)
    upgrade_locked(connections)
    made = described(database.connections)
    assert described(connections) == made
    connections.close()
    assert {name for name in made if name.startswith("trigger ")} == {
        f"trigger {name}" for name in schema.triggers()
    }
    engine = create_engine("sqlite://", creator=lambda: connect(str(empty), "ro"), module=driver())
    with engine.connect() as connection:
        options = {
            "include_name": lambda name, kind, _: kind != "table" or name in tables.metadata.tables
        }
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, tables.metadata) == []
    engine.dispose()


NEWEST = schema.REVISION
NEXT = f"{int(NEWEST) + 1:04}"


def migrations_with(folder: Path, body: str, *, rebuilds: bool = False) -> str:
    """Our migrations and one more."""
    copytree(MIGRATIONS, folder / "migrations")
    (folder / "migrations" / "versions" / f"{NEXT}_more.py").write_text(
        f'from alembic import op\nrevision = "{NEXT}"\ndown_revision = "{NEWEST}"\n'
        f"rebuilds = {rebuilds}\n\n"
        f"def upgrade() -> None:\n    {body}\n"
    )
    return str(folder / "migrations")


def at_next_revision(monkeypatch: pytest.MonkeyPatch, migrations: str) -> None:
    monkeypatch.setattr(schema, "REVISION", NEXT)
    monkeypatch.setattr(schema, "OLDER", schema.OLDER | {NEWEST})
    monkeypatch.setattr(upgrade, "MIGRATIONS", migrations)


def test_an_older_store_is_backed_up_and_upgraded_when_it_is_opened(
    path: Path, lock: DiskLock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = open_database(str(path), lock=lock)
    id = record(database, 600)
    head = database.event_log(id).tree_head()
    database.close()
    migrations = migrations_with(tmp_path, 'op.execute("CREATE TABLE more (x)")')
    at_next_revision(monkeypatch, migrations)
    upgraded = open_database(str(path), lock=lock)
    assert upgraded.event_log(id).tree_head() == head
    upgraded.event_log(id).append([draft(SessionStarted("goes on"))])
    upgraded.close()
    raw = connect(str(path), "ro")
    assert raw.execute("SELECT count(*) FROM more").fetchall() == [(0,)]
    raw.close()
    [backup] = path.parent.glob("audit.db.before-upgrade-*")
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600
    raw = connect(str(backup), "ro")
    assert raw.execute("SELECT version_num FROM alembic_version").fetchall() == [(NEWEST,)]
    assert raw.execute("SELECT count(*) FROM event").fetchall() == [(600,)]
    raw.close()


@pytest.mark.parametrize("damaged", [False, True])
def test_tables_that_follow_the_log_in_a_new_way_are_made_anew_where_it_can_be_read(
    path: Path, lock: DiskLock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damaged: bool
) -> None:
    database = open_database(str(path), lock=lock)
    id = database.create_log()
    database.event_log(id).append([draft(SessionStarted("a"), "s"), draft(SessionEnded(), "s")])
    database.close()
    raw = connect(str(path), "rw")
    if damaged:
        raw.execute("DROP TRIGGER event_no_update")
        raw.execute("UPDATE event SET leaf = x'00' WHERE seq = 2")
        raw.execute(schema.triggers()["event_no_update"])
    raw.close()
    body = "op.execute(\"UPDATE session SET agent = 'as migrated', title = ''\")"
    at_next_revision(monkeypatch, migrations_with(tmp_path, body, rebuilds=True))
    upgraded = open_database(str(path), lock=lock)
    [session] = upgraded.projections(id).sessions()
    assert session.agent == ("as migrated" if damaged else "a")
    assert session.status == "completed"
    upgraded.close()


def test_who_finds_the_store_upgraded_meanwhile_makes_no_second_backup(
    path: Path, lock: DiskLock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = open_database(str(path), lock=lock)
    record(database, 20)
    database.close()
    at_next_revision(monkeypatch, migrations_with(tmp_path, 'op.execute("CREATE TABLE more (x)")'))
    late = Connections(str(path), lock)
    with late.reading() as connection:
        assert schema.revision(connection) == NEWEST
    open_database(str(path), lock=lock).close()
    assert upgrade_locked(late) == ""
    late.close()
    assert len(list(path.parent.glob("audit.db.before-upgrade-*"))) == 1


def in_a_child(work: Callable[[], None]) -> int:
    """Do it in a process of its own; its exit code, 0 when it came to the end."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_backup_that_does_not_fit_leaves_nothing_and_is_said(
    path: Path, lock: DiskLock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = open_database(str(path), lock=lock)
    record(database, 600)
    database.close()
    at_next_revision(monkeypatch, migrations_with(tmp_path, 'op.execute("CREATE TABLE more (x)")'))

    def with_little_room() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (64 * 1024, 64 * 1024))
        with pytest.raises(AuditUnavailable, match="backed up") as caught:
            open_database(str(path), lock=lock)
        assert "room" in caught.value.hint

    assert in_a_child(with_little_room) == 0
    left = [file.name for file in path.parent.iterdir()]
    assert not [name for name in left if "upgrade" in name or "unfinished" in name]


def test_a_backup_that_was_cut_short_does_not_bear_a_backup_s_name(
    path: Path, lock: DiskLock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = open_database(str(path), lock=lock)
    record(database, 20)
    database.close()
    at_next_revision(monkeypatch, migrations_with(tmp_path, 'op.execute("CREATE TABLE more (x)")'))

    def killed_half_way() -> None:
        monkeypatch.setattr(os, "fsync", lambda _: os.kill(os.getpid(), signal.SIGKILL))
        open_database(str(path), lock=lock)

    assert in_a_child(killed_half_way) == -signal.SIGKILL
    assert list(path.parent.glob("audit.db.before-upgrade-*")) == []
    open_database(str(path), lock=lock).close()
    assert len(list(path.parent.glob("audit.db.before-upgrade-*"))) == 1


@pytest.mark.parametrize(
    "body",
    [
        'op.execute("DROP TRIGGER event_no_delete")',
        'op.execute("DROP TRIGGER event_no_delete; ")\n    op.execute("DELETE FROM event")',
        'op.execute("CREATE TABLE more (x)")\n    raise ValueError("half way")',
    ],
    ids=["guards", "events", "failure"],
)
def test_a_migration_that_fails_or_touches_the_log_is_undone(
    path: Path, lock: DiskLock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str
) -> None:
    database = open_database(str(path), lock=lock)
    id = record(database, 20)
    before = described(database.connections)
    database.close()
    with monkeypatch.context() as patched:
        at_next_revision(patched, migrations_with(tmp_path, body))
        with pytest.raises(AuditUnavailable, match="as it was"):
            open_database(str(path), lock=lock)
    again = open_database(str(path), lock=lock)
    assert described(again.connections) == before
    assert again.event_log(id).head() == 20
    again.close()


def test_a_newer_store_is_refused_and_left_alone(path: Path, lock: DiskLock) -> None:
    database = open_database(str(path), lock=lock)
    record(database)
    database.close()
    raw = connect(str(path), "rw")
    raw.execute("UPDATE alembic_version SET version_num = '0999'")
    raw.close()
    before = path.read_bytes()
    with pytest.raises(AuditUnavailable, match="newer") as caught:
        open_database(str(path), lock=lock)
    assert caught.value.details["revision"] == "0999"
    assert path.read_bytes() == before
