"""The schema of a store: made at once for a new one, migrated by Alembic for an older one.

A new store gets what `schema.sql` says, which is generated from `tables` (`definition`), and is the
same as what the migrations make; a test holds them together.
"""

import os
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from loom_audit.errors import AuditUnavailable, Corrupt
from loom_audit.sql.ground.connection import Connection
from loom_audit.sql.ground.driver import driver

_MIGRATIONS = Path(__file__).parents[1] / "migrations" / "versions"
_REVISIONS = sorted(name[:4] for name in os.listdir(_MIGRATIONS) if name[:4].isdigit())

REVISION = _REVISIONS[-1]
"""The newest revision that there is a migration to."""

OLDER = frozenset(_REVISIONS[:-1])
"""Revisions that can be upgraded from."""

_SEARCH_TABLES = ("search", "search_data", "search_idx", "search_docsize", "search_config")
_KIND_OF_TABLE = "SELECT type, wr, strict FROM pragma_table_list WHERE schema = 'main' AND name = ?"
_KIND_OF_INDEX = 'SELECT "unique", partial FROM pragma_index_list(?) WHERE name = ?'


@lru_cache(maxsize=1)
def _statements() -> tuple[str, ...]:
    text = Path(__file__).with_name("schema.sql").read_text("utf-8")
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("--"))
    return tuple(sql.strip() for sql in lines.split(";\n") if sql.strip())


def triggers() -> dict[str, str]:
    """The triggers by name, which refuse UPDATE, DELETE and replacing INSERT."""
    return {sql.split()[2]: sql for sql in _statements() if sql.startswith("CREATE TRIGGER ")}


def create_all(connection: Connection) -> None:
    """Make the whole schema in an empty database, at the newest revision."""
    # before 3.43 rows of a contentless table could not be deleted
    old = driver().sqlite_version_info < (3, 43)
    for sql in _statements():
        connection.execute(sql.replace(" contentless_delete=1,", "") if old else sql)


def revision(connection: Connection) -> str | None:
    """The revision of a store; None for an empty database or one that is not a store.

    Of several, which verifying finds, ours where it is among them.
    """
    has = "SELECT 1 FROM sqlite_master WHERE name = 'alembic_version'"
    if connection.execute(has).fetchone() is None:
        return None
    rows = connection.execute("SELECT version_num FROM alembic_version").fetchall()
    named = [str(found) for (found,) in rows if found is not None]
    return max(named, key=lambda one: (one == REVISION, one), default=None)


def is_empty(connection: Connection) -> bool:
    """Whether nothing was ever created in the database."""
    return connection.execute("SELECT 1 FROM sqlite_master").fetchone() is None


def check_revision(stored: str | None, path: str) -> bool:
    """Whether the store is up to date. AuditUnavailable when it is newer, or no store."""
    if stored == REVISION:
        return True
    if stored is None:
        raise AuditUnavailable(
            f"{path} is not a store of loom-audit",
            hint="Name another file with --store or LOOM_AUDIT_STORE.",
            details={"cause": "other"},
        )
    if stored not in OLDER:
        raise AuditUnavailable(
            f"The store is at revision {stored}, newer than {REVISION}, the newest known here",
            hint="Upgrade loom-audit; nothing was changed.",
            details={"cause": "newer", "revision": stored, "known": REVISION},
        )
    return False


def check_triggers(connection: Connection) -> None:
    """Raise Corrupt when an append-only trigger is missing or is not ours."""
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
    """The tables, indexes and triggers of a database, in words that no version of SQLite changes.

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


def structure_differences(stored: Mapping[str, Any], made: Mapping[str, Any]) -> Iterator[str]:
    """A sentence for each way in which a store differs from one just made."""
    for name in sorted({*stored, *made}):
        if name not in made:
            yield f"the {name} is not ours"
        elif name not in stored:
            yield f"the {name} is missing"
        elif stored[name] != made[name]:
            yield f"the {name} is not as it was made"
