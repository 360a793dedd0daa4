"""An index that finds at once in a log what is recorded of its workspace."""

from collections.abc import Sequence

from alembic import op

revision: str = "0003"
down_revision: str | Sequence[str] | None = "0002"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None
rebuilds = True  # the tables that follow the log are made anew


def upgrade() -> None:
    op.execute(
        "CREATE INDEX event_scope ON event (log, seq) "
        "WHERE kind IN ('scope.accepted', 'workspace.attached')"
    )
    op.execute("INSERT INTO sqlite_stat1 (tbl, idx, stat) VALUES ('event', 'event_scope', '4 2 1')")
