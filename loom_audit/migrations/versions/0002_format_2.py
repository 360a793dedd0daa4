"""Format 2: dictionaries of packed rows, events without an id of their own, smaller projections."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op

from loom_audit.sql.ground.packing import DICTIONARIES

revision: str = "0002"
down_revision: str | Sequence[str] | None = "0001"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

DICTIONARY = (
    "CREATE TABLE dictionary (number INTEGER NOT NULL, words BLOB NOT NULL, PRIMARY KEY (number))"
)
LAST = (
    "coalesce((SELECT max(seq) FROM event WHERE log = NEW.log AND seq <= 9223372036854775807), 0)"
)


STATISTICS = (
    ("call", "call", "250000 100000 1"),
    ("call", "call_id", "250000 100000 1"),
    ("call", "call_number", "250000 100000 1"),
    ("call", "call_open", "4 2 1"),
    ("call", "call_not_ok", "10000 5000 1 1"),
    ("lowered", "lowered", "100 50 1 1"),
    ("change_set", "change_set", "250000 100000 1"),
    ("change_set", "change_set_call", "250000 100000 1"),
    ("candidate", "candidate", "1000 500 2 1"),
)


def upgrade() -> None:
    op.execute(DICTIONARY)
    table = sa.table("dictionary", sa.column("number"), sa.column("words"))
    rows = [{"number": number, "words": words} for number, words in DICTIONARIES.items()]
    op.bulk_insert(table, rows)
    op.execute("DROP INDEX event_id")
    op.execute("CREATE UNIQUE INDEX event_id ON event (log, id) WHERE id <> x''")
    op.execute(
        "INSERT INTO sqlite_stat1 (tbl, idx, stat) VALUES ('event', 'event_id', '10000 5000 1')"
    )
    op.execute("DROP TRIGGER event_no_replace")
    _refuse_changes("dictionary", "number = NEW.number")
    _refuse_replacing(
        "event",
        "log = NEW.log AND seq = NEW.seq",
        "log = NEW.log AND id = NEW.id AND id <> x''",
        more=f" OR NEW.seq <> 1 + {LAST}",
    )
    _projections()


def _projections() -> None:
    """Make smaller rows of those that are there: a log that is damaged is upgraded too."""
    op.execute("DELETE FROM sqlite_stat1 WHERE tbl IN ('call', 'change_set')")
    op.execute("DROP TABLE rollup")
    op.create_table(
        "lowered",
        *_columns(log=BIG, number=BIG, seq=BIG, level=sa.String, reasons=sa.String),
        sa.PrimaryKeyConstraint("log", "number", "seq"),
        sqlite_with_rowid=False,
    )
    _calls()
    _change_sets()
    _search()
    for table, index, rows in STATISTICS:
        op.execute(
            f"INSERT INTO sqlite_stat1 (tbl, idx, stat) VALUES ('{table}', '{index}', '{rows}')"
        )


def _search() -> None:
    """Begin the full-text index anew, with words that are divided before they get there."""
    version: tuple[int, ...] = (3, 43)
    if not op.get_context().as_sql:
        found = op.get_bind().exec_driver_sql("SELECT sqlite_version()").scalar()
        version = tuple(int(part) for part in str(found).split("."))
    deletes = ", contentless_delete=1" if version >= (3, 43) else ""
    op.execute("DROP TABLE search")
    op.execute("DELETE FROM searched")
    op.execute(
        "CREATE VIRTUAL TABLE search USING fts5(words, content='', detail=none"
        f"{deletes}, tokenize=\"ascii tokenchars '_'\")"
    )


def _calls() -> None:
    """Say of each call which call contains it; the span of a session's events finds its calls."""
    op.rename_table("call", "old_call")
    for name in ("call_id", "call_not_ok", "call_number", "call_open", "call_session"):
        op.drop_index(name, "old_call")
    numbers = ("log", "requested", "finished", "session", "at", "duration", "within")
    names = (
        "log",
        "requested",
        "finished",
        "session",
        "call_id",
        "at",
        "actor",
        "tool",
        "effect",
        "status",
        "coverage",
        "reasons",
        "summary",
        "error",
        "changed",
        "reverts",
        "duration",
        "sandbox",
        "within",
    )
    kinds = {"call_id": sa.LargeBinary, "changed": sa.Integer, **dict.fromkeys(numbers, BIG)}
    columns = {name: kinds.get(name, sa.String) for name in names}
    null = ("finished", "session", "actor", "coverage", "reasons", "reverts", "within")
    op.create_table(
        "call",
        *_columns(null, **columns),
        sa.PrimaryKeyConstraint("log", "requested"),
        sqlite_with_rowid=False,
    )
    old = [name for name in columns if name != "within"]
    op.execute(f"INSERT INTO call ({', '.join(old)}) SELECT {', '.join(old)} FROM old_call")
    op.drop_table("old_call")
    op.create_index("call_id", "call", ["log", "call_id"])
    op.create_index(
        "call_not_ok", "call", ["log", "requested", "status"], **_only("status <> 'ok'")
    )
    op.create_index("call_number", "call", ["log", "finished"])
    op.create_index("call_open", "call", ["log", "requested"], **_only("finished IS NULL"))


def _change_sets() -> None:
    """Name a call by its request and an actor only beside the session's; candidates get a table."""
    op.rename_table("change_set", "old_change_set")
    op.create_table(
        "change_set",
        *_columns(
            ("session", "actor", "requested", "call", "causes"),
            log=BIG,
            seq=BIG,
            at=BIG,
            session=BIG,
            actor=sa.String,
            origin=sa.String,
            requested=BIG,
            call=sa.LargeBinary,
            causes=sa.String,
        ),
        sa.PrimaryKeyConstraint("log", "seq"),
        sqlite_with_rowid=False,
    )
    op.execute(
        "INSERT INTO change_set (log, seq, at, session, actor, origin, requested, call, causes) "
        "SELECT o.log, o.seq, o.at, o.session, nullif(o.actor, s.actor), o.origin, c.requested, "
        "CASE WHEN c.requested IS NULL THEN o.call END, o.causes FROM old_change_set o "
        "LEFT JOIN session s ON s.number = o.session LEFT JOIN call c ON c.log = o.log "
        "AND c.requested = (SELECT max(d.requested) FROM call d WHERE d.log = o.log AND "
        "d.call_id = o.call AND d.requested < o.seq AND d.session IS NOT DISTINCT FROM o.session)"
    )
    op.drop_table("old_change_set")
    op.create_index(
        "change_set_call", "change_set", ["log", "requested"], **_only("requested IS NOT NULL")
    )
    op.create_table(
        "candidate",
        *_columns(log=BIG, requested=BIG, seq=BIG),
        sa.PrimaryKeyConstraint("log", "requested", "seq"),
        sqlite_with_rowid=False,
    )
    op.execute(
        "INSERT INTO candidate (log, requested, seq) "
        "SELECT log, requested, seq FROM call_change WHERE own = 0"
    )
    op.drop_table("call_change")


def _columns(null: Sequence[str] = (), **kinds: Any) -> "list[sa.Column[Any]]":
    return [sa.Column(name, kind, nullable=name in null) for name, kind in kinds.items()]


def _only(condition: str) -> dict[str, Any]:
    return {f"{name}_where": sa.text(condition) for name in ("sqlite", "postgresql")}


def _refuse_changes(table: str, *keys: str) -> None:
    refuse = f"BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
    op.execute(f"CREATE TRIGGER {table}_no_update BEFORE UPDATE ON {table} {refuse}")
    op.execute(f"CREATE TRIGGER {table}_no_delete BEFORE DELETE ON {table} {refuse}")
    _refuse_replacing(table, *keys)


def _refuse_replacing(table: str, *keys: str, more: str = "") -> None:
    refuse = f"BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
    there = " OR ".join(f"EXISTS (SELECT 1 FROM {table} WHERE {key})" for key in keys) + more
    op.execute(f"CREATE TRIGGER {table}_no_replace BEFORE INSERT ON {table} WHEN {there} {refuse}")
