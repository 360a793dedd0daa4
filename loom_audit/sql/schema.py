"""The schema of a store: made at once for a new one, migrated by Alembic for an older one.

A new store gets the same tables, indexes and triggers as the migrations make (a test compares
the two); Alembic is imported only when there is something to upgrade.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from datetime import UTC, datetime
from typing import Any

from sqlalchemy.dialects.sqlite import dialect
from sqlalchemy.schema import CreateIndex, CreateTable

from loom_audit.errors import AuditUnavailable, Corrupt
from loom_audit.sql.connection import Connection
from loom_audit.sql.driver import APPEND_ONLY, connect, driver
from loom_audit.sql.large_objects import sync_folder
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
    "log": ("number = NEW.number", "id = NEW.id"),
    "event": ("log = NEW.log AND seq = NEW.seq", "log = NEW.log AND id = NEW.id"),
    "tree_node": ("log = NEW.log AND level = NEW.level AND position = NEW.position",),
}
_SEARCH_TABLES = ("search", "search_data", "search_idx", "search_docsize", "search_config")
_KIND_OF_TABLE = "SELECT type, wr, strict FROM pragma_table_list WHERE schema = 'main' AND name = ?"
_KIND_OF_INDEX = 'SELECT "unique", partial FROM pragma_index_list(?) WHERE name = ?'
_STATISTICS = {
    "event": "1000000 100000 1",
    "event_id": "1000000 100000 1",
    "payload": "1500000 150000 2 1 1",
    "tree_node": "4000 2000 1900 1",
    "sqlite_autoindex_blob_1": "500000 1",
    "session_id": "500 250 1",
    "session_started": "500 250 1",
    "call": "250000 100000 1",
    "call_id": "250000 100000 1",
    "call_session": "250000 100000 500 1",
    "call_number": "250000 100000 1",
    "call_open": "4 2 1",
    "call_not_ok": "10000 5000 1 1",
    "revert": "1000 500 10 1",
    "path_name": "40000 20000 1",
    "change_set": "250000 100000 1",
    "call_change": "250000 100000 1 1",
    "call_change_seq": "250000 100000 1",
    "file_change": "500000 200000 2 1",
    "file_change_path": "500000 200000 20 1",
    "tree_entry": "20000 20000 1",
    "sqlite_autoindex_keyframe_1": "100 50 1",
    "sqlite_autoindex_checkpoint_1": "100 50 1",
    "rollup": "5000 2500 10 3 1",
}
"""Rows of each index, then for each of its columns how many share it, in a store of some size.

Without them SQLite takes a log for ten rows, and reads it whole to find one call in it.
"""


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
        # one EXISTS for each key: with OR inside a single one SQLite reads the whole table
        there = " OR ".join(f"EXISTS (SELECT 1 FROM {table} WHERE {k})" for k in _KEYS[table])
        found[name] = (
            f"CREATE TRIGGER {name} BEFORE INSERT ON {table} WHEN {there} "
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
    connection.execute(_VERSION_TABLE)
    connection.execute("INSERT INTO alembic_version VALUES (?)", (REVISION,))


def create_tables(connection: Connection) -> None:
    """Tables, indexes, triggers and the full-text index of revision 0001."""
    for table in TABLES:
        connection.execute(str(CreateTable(table).compile(dialect=dialect())))
        for index in sorted(table.indexes, key=lambda index: str(index.name)):
            connection.execute(str(CreateIndex(index).compile(dialect=dialect())))
    for sql in triggers().values():
        connection.execute(sql)
    connection.execute(search_table())
    _state_statistics(connection)


def _state_statistics(connection: Connection) -> None:
    tables = {str(index.name): table.name for table in TABLES for index in table.indexes}
    connection.execute("ANALYZE sqlite_schema")
    for index, rows in _STATISTICS.items():
        table = index.removeprefix("sqlite_autoindex_").removesuffix("_1")
        connection.execute(
            "INSERT INTO sqlite_stat1 (tbl, idx, stat) VALUES (?, ?, ?)",
            (tables.get(index, table), index, rows),
        )
    # once more, or this connection goes on without them
    connection.execute("ANALYZE sqlite_schema")


def revision(connection: Connection) -> str | None:
    """The revision the store is at; None for an empty database or one that is not a store."""
    has = "SELECT 1 FROM sqlite_master WHERE name = 'alembic_version'"
    if connection.execute(has).fetchone() is None:
        return None
    found = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    return None if found is None or found[0] is None else str(found[0])


def is_empty(connection: Connection) -> bool:
    """Whether nothing was ever created in the database."""
    return connection.execute("SELECT 1 FROM sqlite_master").fetchone() is None


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
    rows = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")
    there = {str(name): str(sql) for name, sql in rows}
    wrong = [name for name, sql in triggers().items() if there.get(name) != sql]
    if wrong:
        raise Corrupt(
            f"Append-only triggers are missing or changed: {', '.join(wrong)}",
            hint="Somebody altered the store. Run `loom-audit verify` before you trust it.",
            details={"triggers": wrong},
        )


def structure(raw: Any) -> dict[str, Any]:
    """What a database is made of, by type and name, in words that no version of SQLite changes.

    SQLite's own tables and those inside the full-text index are left out. `raw` is a driver's
    connection.
    """
    found: dict[str, Any] = {}
    rows = raw.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema").fetchall()
    for kind, name, table, sql in rows:
        if kind in ("table", "index") and (name.startswith("sqlite_") or name in _SEARCH_TABLES):
            continue
        made_of: Any = sql
        if kind == "table":
            columns = raw.execute("SELECT * FROM pragma_table_xinfo(?)", (name,)).fetchall()
            made_of = raw.execute(_KIND_OF_TABLE, (name,)).fetchone(), columns
        elif kind == "index":
            columns = raw.execute("SELECT * FROM pragma_index_xinfo(?)", (name,)).fetchall()
            made_of = raw.execute(_KIND_OF_INDEX, (table, name)).fetchone(), columns
        found[f"{kind} {name}"] = made_of
    return found


def structure_differences(found: Mapping[str, Any], made: Mapping[str, Any]) -> Iterator[str]:
    """How the shape of a store differs from that of one just made."""
    for name in sorted({*found, *made} - {"table alembic_version"}):
        if name not in made:
            yield f"the {name} is not ours"
        elif name not in found:
            yield f"the {name} is missing"
        elif found[name] != made[name]:
            yield f"the {name} is not as it was made"


def back_up(path: str) -> str:
    """Copy the store beside itself, write-ahead log included; the path of the copy.

    The caller holds the store lock. The copy is complete on disk when it has its name.
    AuditUnavailable when it cannot be made.
    """
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%fZ")
    target, unfinished = f"{path}.before-upgrade-{stamp}", f"{path}.unfinished-{stamp}"
    try:
        os.close(os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        try:
            _copy(path, unfinished)
            os.rename(unfinished, target)
        except BaseException:
            with suppress(OSError):
                os.unlink(unfinished)
            raise
        sync_folder(os.path.dirname(target))
    except (OSError, driver().Error) as error:
        raise AuditUnavailable(
            f"The store could not be backed up, and so was not upgraded: {error}",
            hint="See that there is as much room beside it as it has, then try again.",
            details={"cause": "upgrade"},
        ) from error
    return target


def _copy(path: str, target: str) -> None:
    module: Any = driver()
    with closing(connect(path, "ro")) as source, closing(module.connect(target)) as copy:
        source.backup(copy)
    descriptor = os.open(target, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
