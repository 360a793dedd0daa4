"""Which paths of calls were taken back, where not all of a call was at once."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0007"
down_revision: str | Sequence[str] | None = "0006"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None
rebuilds = True

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "revert_path",
        sa.Column("log", BIG, nullable=False),
        sa.Column("number", BIG, nullable=False),
        sa.Column("target", BIG, nullable=False),
        sa.Column("path", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("log", "number", "target", "path"),
        sqlite_with_rowid=False,
    )
    op.execute(
        "INSERT INTO sqlite_stat1 (tbl, idx, stat) VALUES "
        "('revert_path', 'revert_path', '1000 500 50 5 1')"
    )
