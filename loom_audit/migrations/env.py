"""What Alembic runs: over the connection that `sql.store.upgrade` hands in, or to write SQL."""

from typing import Any

from alembic import context

from loom_audit.errors import InvalidArguments
from loom_audit.sql.ground.driver import APPEND_ONLY
from loom_audit.sql.tables import metadata

_NOT_IN_METADATA = ("search", "alembic_version", "sqlite_")


def include(name: str | None, type_: str, *_: object) -> bool:
    """Leave the full-text index and SQLite's own tables to the migrations' own SQL."""
    return type_ != "table" or not str(name).startswith(_NOT_IN_METADATA)


def keep_append_only(_context: Any, _revision: Any, directives: list[Any]) -> None:
    """Refuse to generate a migration that touches an append-only table."""
    for directive in directives:
        for operations in getattr(directive, "upgrade_ops_list", []):
            for operation in operations.ops:
                name = getattr(operation, "table_name", "")
                if name in APPEND_ONLY:
                    raise InvalidArguments(f"{name} is append-only: no migration may alter it")


connection = context.config.attributes.get("connection")
if connection is None and not context.is_offline_mode():
    raise InvalidArguments(
        "A store is upgraded under its lock and after a backup, not by Alembic alone",
        hint="Run `loom-audit db upgrade`; `alembic upgrade head --sql` shows the statements.",
    )
context.configure(
    connection=connection,
    dialect_name=None if connection is not None else "sqlite",
    target_metadata=metadata,
    include_name=include,
    process_revision_directives=keep_append_only,
    literal_binds=connection is None,
)
with context.begin_transaction():
    context.run_migrations()
