"""Which call took back which call or event, and whether that still holds."""

from collections.abc import Mapping

from loom_audit.model.calls import took_back
from loom_audit.model.events import CallFinished
from loom_audit.model.plans.taken_back import taken_back
from loom_audit.sql.ground.connection import Connection
from loom_audit.sql.ground.statements import insert_into, prepare
from loom_audit.sql.projections.rows import FollowedEvent, Rows

TABLES = ("revert",)
FACTS = (CallFinished,)

_REVERTED = insert_into("revert", ("number", "target"))
STATEMENTS = (_REVERTED,)

_NEWEST_FIRST = prepare("SELECT number, target FROM revert WHERE log = :log ORDER BY number DESC")


def apply(event: FollowedEvent, rows: Rows) -> None:
    """Add a row for each call or event that a call took back."""
    match event.fact:
        case CallFinished() as fact:
            for target in took_back(fact):
                rows.add(_REVERTED, number=event.seq, target=target)


def reverted_by(connection: Connection, log: int) -> Mapping[int, int]:
    """The number of the call that took back each call or event, while that still holds."""
    return taken_back((row[0], row[1]) for row in _NEWEST_FIRST.rows(connection, log=log))
