"""An index that finds at once in a log what changed of git."""

from collections.abc import Sequence

from alembic import op

revision: str = "0008"
down_revision: str | Sequence[str] | None = "0007"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    op.execute("CREATE INDEX event_git ON event (log, seq) WHERE kind = 'git.changed'")
    op.execute(
        "INSERT INTO sqlite_stat1 (tbl, idx, stat) VALUES ('event', 'event_git', '500 250 1')"
    )
