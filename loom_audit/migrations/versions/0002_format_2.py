"""Format 2: the dictionaries that rows are packed with, and events without an id of their own."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

from loom_audit.sql.packing import DICTIONARIES

revision: str = "0002"
down_revision: str | Sequence[str] | None = "0001"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

DICTIONARY = (
    "CREATE TABLE dictionary (number INTEGER NOT NULL, words BLOB NOT NULL, PRIMARY KEY (number))"
)
LAST = (
    "coalesce((SELECT max(seq) FROM event WHERE log = NEW.log AND seq <= 9223372036854775807), 0)"
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


def _refuse_changes(table: str, *keys: str) -> None:
    refuse = f"BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
    op.execute(f"CREATE TRIGGER {table}_no_update BEFORE UPDATE ON {table} {refuse}")
    op.execute(f"CREATE TRIGGER {table}_no_delete BEFORE DELETE ON {table} {refuse}")
    _refuse_replacing(table, *keys)


def _refuse_replacing(table: str, *keys: str, more: str = "") -> None:
    refuse = f"BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
    there = " OR ".join(f"EXISTS (SELECT 1 FROM {table} WHERE {key})" for key in keys) + more
    op.execute(f"CREATE TRIGGER {table}_no_replace BEFORE INSERT ON {table} WHEN {there} {refuse}")
