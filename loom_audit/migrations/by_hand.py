"""What Alembic's own commands work on, typed by a person in a clone: never on a store's tables."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any, TextIO

from alembic.config import Config
from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection, create_engine
from sqlalchemy.pool import StaticPool

from loom_audit.config import read_settings
from loom_audit.sql.ground.driver import connect, driver

_QUESTIONS = ("SELECT", "PRAGMA", "BEGIN", "COMMIT", "ROLLBACK", "--")


def typed_command(config: Config) -> str:
    """The name of the command that was typed: `upgrade`; empty where code runs Alembic."""
    typed = getattr(config.cmd_opts, "cmd", None)
    return typed[0].__name__ if typed else ""


def refusal(command: str) -> CommandError:
    """The answer to a command that would change a store: one line that says what to do instead."""
    if command == "upgrade":
        return CommandError(
            "a store is upgraded under its lock and after a backup: `loom-audit db upgrade`; "
            "`alembic upgrade head --sql` shows the statements"
        )
    if command == "downgrade":
        return CommandError(
            "a store goes back to no older revision; the backup that `loom-audit db upgrade` "
            "made lies beside the store"
        )
    return CommandError(f"`alembic {command}` would change a store: see `loom-audit db --help`")


@contextmanager
def stored() -> Iterator[Connection]:
    """The store of the settings, to be read only. CommandError where there is none."""
    file = read_settings().file
    if file is None or not file.exists():
        raise CommandError(f"there is no store at {file}; `loom-audit init` makes one")
    with closing(connect(str(file), "ro")) as raw, _connected(raw) as connection:
        yield connection


@contextmanager
def migrated(script: ScriptDirectory) -> Iterator[Connection]:
    """A database in memory at the newest revision, which all migrations made."""
    with _empty() as (_, connection):
        _migrate(connection, script, "base", "head")
        yield connection


def write_statements(script: ScriptDirectory, start: str | None, end: str, to: TextIO) -> None:
    """Write the statements from one revision to another, as they run on a database in memory.

    They are run since some migrations ask the database for what they make anew.
    """
    with _empty() as (raw, connection):
        if start:
            _migrate(connection, script, "base", start)
        to.write(f"-- for SQLite {driver().sqlite_version}\n\n")
        raw.set_trace_callback(lambda text: _write(text, to))
        _migrate(connection, script, start or "base", end)
        raw.set_trace_callback(None)


def _write(statement: str, to: TextIO) -> None:
    if not statement.lstrip().upper().startswith(_QUESTIONS):
        to.write(f"{statement.strip()};\n\n")


def _migrate(connection: Connection, script: ScriptDirectory, start: str, end: str) -> None:
    context = MigrationContext.configure(connection)
    context._ensure_version_table()
    with Operations.context(context):
        for one in reversed([*script.iterate_revisions(end, start)]):
            one.module.upgrade()
            context.stamp(script, one.revision)


@contextmanager
def _empty() -> Iterator[tuple[Any, Connection]]:
    raw = driver().connect(":memory:", isolation_level=None)
    with closing(raw), _connected(raw) as connection:
        yield raw, connection


@contextmanager
def _connected(raw: Any) -> Iterator[Connection]:
    engine = create_engine("sqlite://", creator=lambda: raw, poolclass=StaticPool, module=driver())
    try:
        with engine.connect() as connection:
            yield connection
    finally:
        engine.dispose()
