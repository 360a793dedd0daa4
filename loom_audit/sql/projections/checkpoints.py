"""Checkpoints: names for points of the log."""

from collections.abc import Sequence

from loom_audit.model.events import CheckpointMarked
from loom_audit.model.records import Checkpoint
from loom_audit.model.text.summaries import plain_text
from loom_audit.sql.ground.connection import Connection
from loom_audit.sql.ground.packing import corrupt_on_mismatch
from loom_audit.sql.ground.reading import RowReading
from loom_audit.sql.ground.statements import insert_into, prepare
from loom_audit.sql.projections.rows import FollowedEvent, Rows

TABLES = ("checkpoint",)
FACTS = (CheckpointMarked,)

_MARKED = insert_into("checkpoint", ("seq", "name", "point", "at", "note"))
STATEMENTS = (_MARKED,)

_READ = RowReading(Checkpoint, "checkpoint")
_NEWEST_FIRST = prepare(
    f"SELECT {_READ.columns} FROM checkpoint WHERE log = :log ORDER BY seq DESC"
)


def apply(event: FollowedEvent, rows: Rows) -> None:
    """Add a row for each mark, also of a name that was marked before."""
    match event.fact:
        case CheckpointMarked(name=name, point=point, note=note):
            name, note = plain_text(name), plain_text(note)
            rows.add(_MARKED, seq=event.seq, at=event.at, name=name, point=point, note=note)


def checkpoints(connection: Connection, log: int) -> Sequence[Checkpoint]:
    """The checkpoints, newest first; a name marked again stands once, with its newest point."""
    newest: dict[str, Checkpoint] = {}
    with corrupt_on_mismatch():
        for row in _NEWEST_FIRST.rows(connection, log=log):
            one = _READ.read(row)
            newest.setdefault(one.name, one)
    return list(newest.values())
