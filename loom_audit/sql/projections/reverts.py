"""Which call took back which call or event, and whether that still holds."""

from collections.abc import Collection, Mapping, Sequence

from loom_audit.model.calls import took_back
from loom_audit.model.events import CallFinished
from loom_audit.model.plans.taken_back import taken_back
from loom_audit.sql.ground.conditions import Where, chunks
from loom_audit.sql.ground.connection import Connection, Row
from loom_audit.sql.ground.statements import insert_into, prepare
from loom_audit.sql.projections.rows import FollowedEvent, Rows

TABLES = ("revert",)
FACTS = (CallFinished,)

_REVERTED = insert_into("revert", ("number", "target"))
STATEMENTS = (_REVERTED,)

LONGEST = 8
"""Of longer chains of undo and redo everything that took something back is read."""
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


def reverted_of(connection: Connection, log: int, of: Collection[int]) -> Mapping[int, int]:
    """As `reverted_by`, of these calls and events alone."""
    found: set[tuple[int, int]] = set()
    asked, wanted = set[int](), {*of}
    # whether what took one back stands depends on what took that back, and so on
    for _ in range(LONGEST):
        asked |= wanted
        rows = [
            (row[0], row[1])
            for some in chunks(sorted(wanted))
            for row in _taking_back(connection, log, some)
        ]
        found.update(rows)
        wanted = {number for number, _ in rows} - asked
        if not wanted:
            reverted: Mapping[int, int] = taken_back(sorted(found, reverse=True))
            break
    else:
        reverted = reverted_by(connection, log)
    return {number: reverted[number] for number in of if number in reverted}


def _taking_back(connection: Connection, log: int, targets: Sequence[int]) -> Sequence[Row]:
    where = Where().also("log = :log", log=log).among("target", "t", targets)
    query = prepare(f"SELECT number, target FROM revert WHERE {where}")
    return query.rows(connection, **where.values)
