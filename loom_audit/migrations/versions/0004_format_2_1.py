"""Tables for what format 2.1 has on record, such as outcomes told after the finish of a call."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0004"
down_revision: str | Sequence[str] | None = "0003"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None
rebuilds = True  # the tables that follow the log are made anew

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "outcome",
        sa.Column("log", BIG, nullable=False),
        sa.Column("number", BIG, nullable=False),
        sa.Column("seq", BIG, nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("error", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("log", "number"),
        sqlite_with_rowid=False,
    )
    # how trees change besides by changes
    op.create_table(
        "tree_step",
        sa.Column("log", BIG, nullable=False),
        sa.Column("seq", BIG, nullable=False),
        sa.Column("n", sa.Integer, nullable=False),
        sa.Column("what", sa.String, nullable=False),
        sa.Column("path", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("log", "seq", "n"),
        sqlite_with_rowid=False,
    )
    op.create_index("tree_step_path", "tree_step", ["log", "path", "seq"])
    op.create_table(
        "relisted",
        sa.Column("log", BIG, nullable=False),
        sa.Column("seq", BIG, nullable=False),
        sa.Column("path", sa.LargeBinary, nullable=False),
        sa.Column("mode", sa.Integer, nullable=False),
        sa.Column("size", BIG, nullable=False),
        sa.Column("blob", sa.LargeBinary, nullable=True),
        sa.PrimaryKeyConstraint("log", "seq", "path"),
        sqlite_with_rowid=False,
    )
