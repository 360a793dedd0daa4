"""The outcomes of calls that were told only after their finish."""

from loom_audit.model.calls import reported
from loom_audit.model.events import CallReported
from loom_audit.sql.ground.statements import insert_into
from loom_audit.sql.projections.rows import FollowedEvent, Rows

TABLES = ("outcome",)
FACTS = (CallReported,)

_TOLD = insert_into(
    "outcome", ("number", "seq", "status", "error"), "ON CONFLICT (log, number) DO NOTHING"
)
STATEMENTS = (_TOLD,)

JOINED = "LEFT JOIN outcome o ON o.log = c.log AND o.number = c.finished"
STATUS, ERROR = "coalesce(o.status, c.status)", "coalesce(o.error, c.error)"
"""How the call `c` ended, and why not well, where its outcome is joined."""


def apply(event: FollowedEvent, rows: Rows) -> None:
    """Add a row for the first report that takes the place of an inferred status."""
    match event.fact:
        case CallReported() as fact:
            if told := reported(event.seq, fact):
                rows.add(_TOLD, number=told[0], seq=event.seq, **told[1])
