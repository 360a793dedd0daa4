"""What Alembic runs: over the connection that `sql.store.upgrade` hands in, or for a person."""

import re
from typing import Any

from alembic import context
from alembic.util import CommandError
from sqlalchemy import Connection

from loom_audit.migrations import by_hand
from loom_audit.sql.ground.authorizer import APPEND_ONLY
from loom_audit.sql.tables import metadata

_NOT_IN_METADATA = re.compile(r"search(_.*)?|alembic_version|sqlite_.*")


def include(name: str | None, type_: str, *_: object) -> bool:
    """Leave the full-text index and SQLite's own tables to the migrations' own SQL."""
    return type_ != "table" or not _NOT_IN_METADATA.fullmatch(str(name))


def complete(_context: Any, _revision: Any, directives: list[Any]) -> None:
    """Number a new migration; CommandError where it would touch an append-only table."""
    newest = max(one.revision for one in context.script.walk_revisions())
    for directive in directives:
        directive.rev_id = f"{int(newest) + 1:04}"
        for operations in directive.upgrade_ops_list:
            for operation in operations.ops:
                name = getattr(operation, "table_name", "")
                if name in APPEND_ONLY:
                    raise CommandError(f"{name} is append-only: no migration may alter it")


def run(connection: Connection) -> None:
    """Do over this connection what the command asks for."""
    context.configure(
        connection=connection,
        target_metadata=metadata,
        include_name=include,
        process_revision_directives=complete,
    )
    with context.begin_transaction():
        context.run_migrations()


handed_in = context.config.attributes.get("connection")
command = by_hand.typed_command(context.config)
if handed_in is not None:
    run(handed_in)
elif command == "upgrade" and context.is_offline_mode():
    start, end = context.get_starting_revision_argument(), context.get_revision_argument()
    by_hand.write_statements(
        context.script,
        start=start if isinstance(start, str) else None,
        end=str(end),
        to=context.config.stdout,
    )
elif command in ("check", "revision"):
    with by_hand.migrated(context.script) as connection:
        run(connection)
elif command == "current":
    with by_hand.stored() as connection:
        run(connection)
else:
    raise by_hand.refusal(command)
