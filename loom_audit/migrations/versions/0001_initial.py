"""The first schema, of format 1."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op

revision: str = "0001"
down_revision: str | Sequence[str] | None = None
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

APPEND_ONLY = {
    "event": ("log = NEW.log AND seq = NEW.seq", "log = NEW.log AND id = NEW.id"),
    "log": ("number = NEW.number", "id = NEW.id"),
    "tree_node": ("log = NEW.log AND level = NEW.level AND position = NEW.position",),
}
STATISTICS = (
    ("event", "event", "1000000 100000 1"),
    ("event", "event_id", "1000000 100000 1"),
    ("payload", "payload", "1500000 150000 2 1 1"),
    ("tree_node", "tree_node", "4000 2000 1900 1"),
    ("blob", "sqlite_autoindex_blob_1", "500000 1"),
    ("session", "session_id", "500 250 1"),
    ("session", "session_started", "500 250 1"),
    ("call", "call", "250000 100000 1"),
    ("call", "call_id", "250000 100000 1"),
    ("call", "call_session", "250000 100000 500 1"),
    ("call", "call_number", "250000 100000 1"),
    ("call", "call_open", "4 2 1"),
    ("call", "call_not_ok", "10000 5000 1 1"),
    ("revert", "revert", "1000 500 10 1"),
    ("path", "path_name", "40000 20000 1"),
    ("change_set", "change_set", "250000 100000 1"),
    ("call_change", "call_change", "250000 100000 1 1"),
    ("call_change", "call_change_seq", "250000 100000 1"),
    ("file_change", "file_change", "500000 200000 2 1"),
    ("file_change", "file_change_path", "500000 200000 20 1"),
    ("tree_entry", "tree_entry", "20000 20000 1"),
    ("keyframe", "sqlite_autoindex_keyframe_1", "100 50 1"),
    ("checkpoint", "sqlite_autoindex_checkpoint_1", "100 50 1"),
    ("rollup", "rollup", "5000 2500 10 3 1"),
)


def upgrade() -> None:
    _contents()
    _log()
    _calls()
    _files()
    _rest()
    if op.get_context().dialect.name == "sqlite":
        _sqlite()


def _column(name: str, kind: Any, *, null: bool = False) -> "sa.Column[Any]":
    return sa.Column(name, kind, nullable=null)


def _only(condition: str) -> dict[str, Any]:
    return {f"{name}_where": sa.text(condition) for name in ("sqlite", "postgresql")}


def _log() -> None:
    op.create_table(
        "log",
        _column("number", BIG),
        _column("id", sa.String()),
        sa.PrimaryKeyConstraint("number"),
        sa.UniqueConstraint("id"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "event",
        _column("log", BIG),
        _column("seq", BIG),
        _column("id", sa.LargeBinary()),
        _column("kind", sa.String()),
        _column("leaf", sa.LargeBinary()),
        _column("leaf_hash", sa.LargeBinary()),
        sa.ForeignKeyConstraint(["log"], ["log.number"]),
        sa.PrimaryKeyConstraint("log", "seq"),
        sqlite_with_rowid=False,
    )
    op.create_index("event_id", "event", ["log", "id"], unique=True)
    op.create_table(
        "payload",
        _column("log", BIG),
        _column("seq", BIG),
        _column("role", sa.String()),
        _column("n", sa.Integer()),
        _column("salt", sa.LargeBinary()),
        _column("content", sa.LargeBinary(), null=True),
        _column("blob", BIG, null=True),
        sa.ForeignKeyConstraint(["blob"], ["blob.number"]),
        sa.PrimaryKeyConstraint("log", "seq", "role", "n"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "tree_node",
        _column("log", BIG),
        _column("level", sa.Integer()),
        _column("position", BIG),
        _column("hash", sa.LargeBinary()),
        sa.ForeignKeyConstraint(["log"], ["log.number"]),
        sa.PrimaryKeyConstraint("log", "level", "position"),
        sqlite_with_rowid=False,
    )


def _contents() -> None:
    op.create_table(
        "blob",
        _column("number", BIG),
        _column("sha256", sa.LargeBinary()),
        _column("size", BIG),
        _column("stored", BIG),
        _column("encoding", sa.String()),
        _column("base", BIG, null=True),
        _column("version", sa.Integer()),
        _column("large", sa.Integer()),
        sa.CheckConstraint("(encoding = 'zstd-delta') = (base IS NOT NULL)", name="delta_has_base"),
        sa.PrimaryKeyConstraint("number"),
        sa.UniqueConstraint("sha256"),
        sa.ForeignKeyConstraint(["base"], ["blob.number"]),
    )
    op.create_table(
        "blob_content",
        _column("blob", BIG),
        _column("content", sa.LargeBinary()),
        sa.ForeignKeyConstraint(["blob"], ["blob.number"]),
        sa.PrimaryKeyConstraint("blob"),
    )


def _calls() -> None:
    op.create_table(
        "workspace",
        _column("log", BIG),
        _column("root", sa.LargeBinary()),
        _column("ignore", sa.String()),
        _column("max_file_bytes", BIG),
        _column("attached", BIG),
        _column("attached_at", BIG),
        _column("baseline", BIG, null=True),
        sa.PrimaryKeyConstraint("log"),
    )
    op.create_table(
        "session",
        _column("number", BIG),
        _column("log", BIG),
        _column("id", sa.String()),
        _column("agent", sa.String()),
        _column("actor", sa.String()),
        _column("title", sa.String()),
        _column("parent", sa.String(), null=True),
        _column("started", BIG),
        _column("started_at", BIG),
        _column("last", BIG),
        _column("ended", BIG, null=True),
        _column("ended_at", BIG, null=True),
        _column("status", sa.String()),
        _column("calls", sa.Integer()),
        _column("errors", sa.Integer()),
        _column("files", sa.Integer()),
        sa.PrimaryKeyConstraint("number"),
    )
    op.create_index("session_id", "session", ["log", "id"], unique=True)
    op.create_index("session_started", "session", ["log", "started"])
    op.create_table(
        "call",
        _column("log", BIG),
        _column("requested", BIG),
        _column("finished", BIG, null=True),
        _column("session", BIG, null=True),
        _column("call_id", sa.LargeBinary()),
        _column("at", BIG),
        _column("actor", sa.String(), null=True),
        _column("tool", sa.String()),
        _column("effect", sa.String()),
        _column("status", sa.String()),
        _column("coverage", sa.String(), null=True),
        _column("reasons", sa.String(), null=True),
        _column("summary", sa.String()),
        _column("error", sa.String()),
        _column("changed", sa.Integer()),
        _column("reverts", sa.String(), null=True),
        _column("duration", BIG),
        _column("sandbox", sa.String()),
        sa.PrimaryKeyConstraint("log", "requested"),
        sqlite_with_rowid=False,
    )
    op.create_index("call_id", "call", ["log", "call_id"])
    op.create_index(
        "call_not_ok", "call", ["log", "requested", "status"], **_only("status <> 'ok'")
    )
    op.create_index("call_number", "call", ["log", "finished"])
    op.create_index("call_open", "call", ["log", "requested"], **_only("finished IS NULL"))
    op.create_index("call_session", "call", ["log", "session", "requested"])
    op.create_table(
        "revert",
        _column("log", BIG),
        _column("number", BIG),
        _column("target", BIG),
        sa.PrimaryKeyConstraint("log", "number", "target"),
        sqlite_with_rowid=False,
    )


def _files() -> None:
    op.create_table(
        "path",
        _column("number", BIG),
        _column("log", BIG),
        _column("path", sa.LargeBinary()),
        sa.PrimaryKeyConstraint("number"),
    )
    op.create_index("path_name", "path", ["log", "path"], unique=True)
    op.create_table(
        "change_set",
        _column("log", BIG),
        _column("seq", BIG),
        _column("at", BIG),
        _column("session", BIG, null=True),
        _column("actor", sa.String()),
        _column("origin", sa.String()),
        _column("call", sa.LargeBinary(), null=True),
        _column("causes", sa.String(), null=True),
        sa.PrimaryKeyConstraint("log", "seq"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "call_change",
        _column("log", BIG),
        _column("requested", BIG),
        _column("seq", BIG),
        _column("own", sa.Integer()),
        sa.PrimaryKeyConstraint("log", "requested", "seq"),
        sqlite_with_rowid=False,
    )
    op.create_index("call_change_seq", "call_change", ["log", "seq"])
    op.create_table(
        "file_change",
        _column("log", BIG),
        _column("seq", BIG),
        _column("n", sa.Integer()),
        _column("path", BIG),
        _column("old_mode", sa.Integer(), null=True),
        _column("old_size", BIG, null=True),
        _column("old_blob", BIG, null=True),
        _column("new_mode", sa.Integer(), null=True),
        _column("new_size", BIG, null=True),
        _column("new_blob", BIG, null=True),
        sa.PrimaryKeyConstraint("log", "seq", "n"),
        sqlite_with_rowid=False,
    )
    op.create_index("file_change_path", "file_change", ["log", "path", "seq"])
    op.create_table(
        "tree_entry",
        _column("log", BIG),
        _column("path", BIG),
        _column("mode", sa.Integer()),
        _column("size", BIG),
        _column("blob", BIG, null=True),
        sa.PrimaryKeyConstraint("log", "path"),
        sqlite_with_rowid=False,
    )


def _rest() -> None:
    op.create_table(
        "keyframe",
        _column("log", BIG),
        _column("seq", BIG),
        _column("latest", BIG),
        _column("listing", sa.LargeBinary()),
        sa.PrimaryKeyConstraint("log", "seq"),
    )
    op.create_table(
        "checkpoint",
        _column("log", BIG),
        _column("seq", BIG),
        _column("name", sa.String()),
        _column("point", BIG),
        _column("at", BIG),
        _column("note", sa.String()),
        sa.PrimaryKeyConstraint("log", "seq"),
    )
    op.create_table(
        "rollup",
        _column("log", BIG),
        _column("hour", sa.Integer()),
        _column("tool", sa.String()),
        _column("status", sa.String()),
        _column("n", sa.Integer()),
        sa.PrimaryKeyConstraint("log", "hour", "tool", "status"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "reach", _column("log", BIG), _column("latest", BIG), sa.PrimaryKeyConstraint("log")
    )
    op.create_table(
        "searched", _column("log", BIG), _column("seq", BIG), sa.PrimaryKeyConstraint("log")
    )


def _sqlite() -> None:
    """Make the triggers, the full-text index, and the figures for the planner."""
    for table, keys in APPEND_ONLY.items():
        refuse = f"BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
        there = " OR ".join(f"EXISTS (SELECT 1 FROM {table} WHERE {key})" for key in keys)
        op.execute(f"CREATE TRIGGER {table}_no_update BEFORE UPDATE ON {table} {refuse}")
        op.execute(f"CREATE TRIGGER {table}_no_delete BEFORE DELETE ON {table} {refuse}")
        op.execute(
            f"CREATE TRIGGER {table}_no_replace BEFORE INSERT ON {table} WHEN {there} {refuse}"
        )
    version: tuple[int, ...] = (3, 43)
    if not op.get_context().as_sql:
        found = op.get_bind().exec_driver_sql("SELECT sqlite_version()").scalar()
        version = tuple(int(part) for part in str(found).split("."))[:2]
    deletes = ", contentless_delete=1" if version >= (3, 43) else ""
    op.execute(
        "CREATE VIRTUAL TABLE search USING fts5(words, content='', detail=none"
        f"{deletes}, tokenize=\"unicode61 tokenchars '_'\")"
    )
    op.execute("ANALYZE sqlite_schema")
    for table, index, rows in STATISTICS:
        op.execute(f"INSERT INTO sqlite_stat1 VALUES ('{table}', '{index}', '{rows}')")
    op.execute("ANALYZE sqlite_schema")
