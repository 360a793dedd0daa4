"""Which events tell what a session was asked and said."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0005"
down_revision: str | Sequence[str] | None = "0004"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None
rebuilds = True

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "spoken",
        sa.Column("log", BIG, nullable=False),
        sa.Column("seq", BIG, nullable=False),
        sa.Column("session", BIG, nullable=True),
        sa.Column("role", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("log", "seq"),
        sqlite_with_rowid=False,
    )
    op.create_index("spoken_session", "spoken", ["log", "session", "seq", "role"])
    op.execute(
        "INSERT INTO sqlite_stat1 (tbl, idx, stat) VALUES "
        "('spoken', 'spoken', '100000 50000 1'), "
        "('spoken', 'spoken_session', '100000 50000 200 1 1')"
    )
