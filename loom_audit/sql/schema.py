"""The schema of a store: made at once for a new one, migrated by Alembic for an older one.

A new store gets the same tables, indexes and triggers as the migrations make (a test compares
the two); Alembic is imported only when there is something to upgrade.
"""

import os
from contextlib import closing, suppress
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.schema import CreateIndex, CreateTable

from loom_audit.errors import AuditUnavailable, Corrupt
from loom_audit.sql.engine import APPEND_ONLY, connect, driver
from loom_audit.sql.tables import TABLES

REVISION = "0001"
"""The newest revision in `loom_audit/migrations/versions`."""

OLDER: frozenset[str] = frozenset()
"""Revisions that can be upgraded from."""

_VERSION_TABLE = (
    "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL, "
    "CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num))"
)
_KEYS = {
    "log": "number = NEW.number OR id = NEW.id",
    "event": "log = NEW.log AND (seq = NEW.seq OR id = NEW.id)",
    "tree_node": "log = NEW.log AND level = NEW.level AND position = NEW.position",
}


def triggers() -> dict[str, str]:
    """SQLite triggers by name: append-only tables refuse UPDATE, DELETE and replacing INSERT."""
    found = {}
    for table in sorted(APPEND_ONLY):
        message = f"RAISE(ABORT, '{table} is append-only')"
        for verb in ("UPDATE", "DELETE"):
            name = f"{table}_no_{verb.lower()}"
            found[name] = (
                f"CREATE TRIGGER {name} BEFORE {verb} ON {table} BEGIN SELECT {message}; END"
            )
        name = f"{table}_no_replace"
        found[name] = (
            f"CREATE TRIGGER {name} BEFORE INSERT ON {table} "
            f"WHEN EXISTS (SELECT 1 FROM {table} WHERE {_KEYS[table]}) "
            f"BEGIN SELECT {message}; END"
        )
    return found


def search_table() -> str:
    """The full-text index: words only, by rowid; what it indexes is not stored again."""
    # before 3.43 rows of a contentless table could not be deleted
    deletes = ", contentless_delete=1" if driver().sqlite_version_info >= (3, 43) else ""
    return (
        "CREATE VIRTUAL TABLE search USING fts5(words, content='', detail=none"
        f"{deletes}, tokenize=\"unicode61 tokenchars '_'\")"
    )


def create_all(connection: Connection) -> None:
    """Make the whole schema in an empty database, at the newest revision."""
    create_tables(connection)
    connection.exec_driver_sql(_VERSION_TABLE)
    connection.exec_driver_sql("INSERT INTO alembic_version VALUES (?)", (REVISION,))


def create_tables(connection: Connection) -> None:
    """Tables, indexes, triggers and the full-text index of revision 0001."""
    for table in TABLES:
        connection.execute(CreateTable(table))
        for index in sorted(table.indexes, key=lambda index: str(index.name)):
            connection.execute(CreateIndex(index))
    for sql in triggers().values():
        connection.exec_driver_sql(sql)
    connection.exec_driver_sql(search_table())


def revision(connection: Connection) -> str | None:
    """The revision the store is at; None for an empty database or one that is no store."""
    has = "SELECT 1 FROM sqlite_master WHERE name = 'alembic_version'"
    if connection.exec_driver_sql(has).scalar() is None:
        return None
    found = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
    return None if found is None else str(found)


def is_empty(connection: Connection) -> bool:
    """Whether nothing was ever created in the database."""
    return connection.exec_driver_sql("SELECT count(*) FROM sqlite_master").scalar() == 0


def check_revision(found: str | None, path: str) -> bool:
    """Whether the store is up to date. AuditUnavailable when it is newer, or no store."""
    if found == REVISION:
        return True
    if found is None:
        raise AuditUnavailable(
            f"{path} is not a store of loom-audit",
            hint="Name another file with --store or LOOM_AUDIT_STORE.",
            details={"cause": "other"},
        )
    if found not in OLDER:
        raise AuditUnavailable(
            f"The store is at revision {found}, newer than {REVISION}, the newest known here",
            hint="Upgrade loom-audit; nothing was changed.",
            details={"cause": "newer", "revision": found, "known": REVISION},
        )
    return False


def check_triggers(connection: Connection) -> None:
    """Corrupt when an append-only trigger is missing or is not ours."""
    rows = connection.exec_driver_sql("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")
    there = {str(name): str(sql) for name, sql in rows}
    wrong = [name for name, sql in triggers().items() if there.get(name) != sql]
    if wrong:
        raise Corrupt(
            f"Append-only triggers are missing or changed: {', '.join(wrong)}",
            hint="Somebody altered the store. Run `loom-audit verify` before you trust it.",
            details={"triggers": wrong},
        )


def back_up(path: str) -> str:
    """Copy the store beside itself, write-ahead log included; the path of the copy.

    The caller holds the store lock. The copy is complete on disk when this returns.
    """
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%fZ")
    target = f"{path}.before-upgrade-{stamp}"
    os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    module: Any = driver()
    try:
        with closing(connect(path, "ro")) as source, closing(module.connect(target)) as copy:
            source.backup(copy)
        descriptor = os.open(target, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except BaseException:
        with suppress(OSError):
            os.unlink(target)
        raise
    return target
