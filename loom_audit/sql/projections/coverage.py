"""The facts that lower the coverage of calls after their finish."""

import json
from collections.abc import Mapping, Sequence
from typing import cast

from loom_audit.model.calls import lowered as calls_lowered
from loom_audit.model.coverage import Coverage, Level
from loom_audit.model.events import CoverageLowered
from loom_audit.sql.ground.conditions import Where, chunks
from loom_audit.sql.ground.connection import Connection
from loom_audit.sql.ground.packing import check_texts
from loom_audit.sql.ground.statements import insert_into, prepare
from loom_audit.sql.projections.rows import FollowedEvent, Rows, json_array

TABLES = ("lowered",)
FACTS = (CoverageLowered,)

_LOWERED = insert_into("lowered", ("number", "seq", "level", "reasons"))
STATEMENTS = (_LOWERED,)
_LOWERED_AT = prepare("SELECT seq FROM lowered WHERE log = :log AND number = :number ORDER BY seq")

PARTIAL = (
    "(c.coverage IS NOT NULL OR EXISTS "
    "(SELECT 1 FROM lowered l WHERE l.log = c.log AND l.number = c.finished))"
)
"""The condition that the coverage of the call `c` is not full."""

_ANY = prepare("SELECT 1 FROM lowered WHERE log = :log LIMIT 1")


def apply(event: FollowedEvent, rows: Rows) -> None:
    """Add a row for each finished call whose coverage was lowered."""
    match event.fact:
        case CoverageLowered(coverage=found) as fact:
            level, reasons = found.level, json_array(found.reasons)
            for number in calls_lowered(event.seq, fact):
                rows.add(_LOWERED, number=number, seq=event.seq, level=level, reasons=reasons)


def lowered(
    connection: Connection, log: int, numbers: Sequence[int]
) -> Mapping[int, Sequence[Coverage]]:
    """The coverages that lowered that of each of these calls, in order, by number."""
    found: dict[int, list[Coverage]] = {}
    if not _ANY.rows(connection, log=log):
        return found
    for some in chunks(numbers):
        where = Where().also("log = :log", log=log).among("number", "n", some)
        sql = f"SELECT number, level, reasons FROM lowered WHERE {where} ORDER BY number, seq"
        for number, level, reasons in prepare(sql).rows(connection, **where.values):
            check_texts(level)
            one = Coverage(cast(Level, level), tuple(json.loads(reasons)))
            found.setdefault(number, []).append(one)
    return found


def lowered_at(connection: Connection, log: int, number: int) -> Sequence[int]:
    """The seqs of the events that lowered the coverage of a call, in order."""
    return [row[0] for row in _LOWERED_AT.rows(connection, log=log, number=number)]
