"""What people note while they read: the parts they viewed, and how far they have read."""

import secrets
from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0006"
down_revision: str | Sequence[str] | None = "0005"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

# what is on record by now was read, or not, before anybody could mark it: none of it is unread
LOGS = (
    "SELECT number, coalesce((SELECT max(seq) FROM event e WHERE e.log = l.number "
    "AND e.seq <= 9223372036854775807), 0) FROM log l"
)


def upgrade() -> None:
    marks = op.create_table(
        "marks",
        sa.Column("log", BIG, nullable=False),
        sa.Column("key", sa.LargeBinary(), nullable=False),
        sa.Column("since", BIG, nullable=False),
        sa.PrimaryKeyConstraint("log"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "viewed",
        sa.Column("log", BIG, nullable=False),
        sa.Column("person", sa.String(), nullable=False),
        sa.Column("part", sa.LargeBinary(), nullable=False),
        sa.Column("at", BIG, nullable=False),
        sa.PrimaryKeyConstraint("log", "person", "part"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "read_to",
        sa.Column("log", BIG, nullable=False),
        sa.Column("person", sa.String(), nullable=False),
        sa.Column("session", sa.String(), nullable=False),
        sa.Column("seq", BIG, nullable=False),
        sa.Column("at", BIG, nullable=False),
        sa.PrimaryKeyConstraint("log", "person", "session"),
        sqlite_with_rowid=False,
    )
    rows = [
        {"log": log, "key": secrets.token_bytes(32), "since": end}
        for log, end in op.get_bind().exec_driver_sql(LOGS).fetchall()
    ]
    if rows:
        op.bulk_insert(marks, rows)
