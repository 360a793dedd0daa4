"""Bringing an older store up to date: back up, migrate, then check that no event changed.

Imported when there is something to upgrade only: Alembic and SQLAlchemy are slow to start.
"""

import os
from collections.abc import Mapping
from contextlib import closing, suppress
from datetime import UTC, datetime
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine
from sqlalchemy.pool import StaticPool

from loom_audit.errors import AuditUnavailable, Corrupt, NotFound
from loom_audit.model.stored.merkle import root_at
from loom_audit.sql import schema
from loom_audit.sql.contents.blobs import SqlBlobStore
from loom_audit.sql.contents.large_objects import sync_folder
from loom_audit.sql.events.event_reader import EventReader
from loom_audit.sql.events.merkle_tree import stored_nodes
from loom_audit.sql.ground.connection import Connection
from loom_audit.sql.ground.connections import Connections, store_lock
from loom_audit.sql.ground.driver import connect, driver
from loom_audit.sql.projections.fold import rebuild

MIGRATIONS = "loom_audit:migrations"


def upgrade_locked(connections: Connections) -> str:
    """Upgrade the store behind the connections; the path of the backup made before.

    The path is empty when another process was quicker: then nothing is left to do. All migrations
    are one transaction: after an error the store is as it was, which AuditUnavailable says, also
    where the cause is Corrupt: the append-only tables are checked afterwards, their triggers and
    the root over all events of each log.
    """
    with store_lock(connections.lock):
        with connections.reading() as connection:
            found = schema.revision(connection)
        if found == schema.REVISION:
            return ""
        backup = _back_up(connections.path)
        folder = os.path.join(os.path.dirname(connections.path), "blobs")
        raw = connect(connections.path, "rw")
        ours = Connection(raw)
        engine = create_engine(
            "sqlite://", creator=lambda: raw, poolclass=StaticPool, module=driver()
        )
        try:
            with engine.connect() as connection:
                connection.exec_driver_sql("BEGIN IMMEDIATE")
                before = _roots(ours)
                if _migrate(connection, found or ""):
                    _rebuild(ours, SqlBlobStore(connections, folder))
                schema.check_triggers(ours)
                if _roots(ours) != before:
                    raise Corrupt("A migration changed events", hint=f"Restore {backup}.")
                connection.commit()
        except Exception as error:
            raise AuditUnavailable(
                f"The store could not be upgraded, and is as it was: {error}",
                hint=f"A backup is at {backup}. Run `loom-audit db upgrade` to try again.",
                details={"cause": "upgrade", "backup": backup},
            ) from error
        finally:
            engine.dispose()
            raw.close()
    return backup


def _back_up(path: str) -> str:
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


def _migrate(connection: Any, stored: str) -> bool:
    """Run the migrations from the stored revision on; whether one says that it `rebuilds`."""
    config = Config()
    config.set_main_option("script_location", MIGRATIONS)
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
    revisions = ScriptDirectory.from_config(config).walk_revisions()
    return any(getattr(one.module, "rebuilds", False) for one in revisions if one.revision > stored)


def _rebuild(connection: Connection, blobs: SqlBlobStore) -> None:
    """Make the projections of every log anew; of one that is damaged they stay as migrated."""
    for number, id in connection.execute("SELECT number, id FROM log").fetchall():
        events = EventReader(id, number, blobs).read_all(connection)
        connection.execute("SAVEPOINT rebuilt")
        try:
            rebuild(connection, number, events)
        except (Corrupt, NotFound):
            connection.execute("ROLLBACK TO rebuilt")
        connection.execute("RELEASE rebuilt")


def _roots(connection: Connection) -> Mapping[str, Any]:
    """Size and Merkle root of each log; nothing for a database without logs yet."""
    has = "SELECT count(*) FROM sqlite_master WHERE name IN ('log', 'event', 'tree_node')"
    if connection.execute(has).fetchone() != (3,):
        return {}
    roots: dict[str, Any] = {}
    for number, id in connection.execute("SELECT number, id FROM log").fetchall():
        [(size,)] = connection.execute("SELECT max(seq) FROM event WHERE log = ?", (number,))
        roots[id] = size and (size, root_at(size, stored_nodes(connection, number)))
    return roots
