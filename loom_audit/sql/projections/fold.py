"""Projections as a fold over events: the same code when appending, rebuilding and verifying.

`fold` writes rows within the caller's transaction. It looks at nothing but the events and what
it wrote for earlier ones, and however the events are cut into commits the rows are the same.
"""

from collections.abc import Iterator, Sequence
from itertools import islice

from loom_audit.model.events import Event, TreeRelisted
from loom_audit.sql.ground.connection import Connection
from loom_audit.sql.projections import keyframes
from loom_audit.sql.projections.rows import FollowedEvent, Rows, followed
from loom_audit.sql.projections.subjects import FOLLOWING, PROJECTIONS, STATEMENTS

REBUILT_AT_ONCE = 1000


def fold(connection: Connection, log: int, events: Sequence[FollowedEvent]) -> None:
    """Bring the projections of a log from before these events to after them."""
    for group in between_keyframes(events):
        rows = Rows(log)
        for event in group:
            for subject in FOLLOWING[type(event.fact)]:
                subject.apply(event, rows)
        rows.run(connection, STATEMENTS)
        keyframes.follow(connection, log, group[-1])


def rebuild(connection: Connection, log: int, events: Iterator[Event]) -> int:
    """Drop all rows of a log and make them from its events; how many these are."""
    empty(connection, log)
    done = 0
    while some := [followed(event) for event in islice(events, REBUILT_AT_ONCE)]:
        fold(connection, log, some)
        done += len(some)
    return done


def empty(connection: Connection, log: int) -> None:
    """Delete all rows that a fold of the log makes again."""
    for table in PROJECTIONS:
        connection.execute(f"DELETE FROM {table} WHERE log = ?", (log,))


def between_keyframes(events: Sequence[FollowedEvent]) -> Iterator[Sequence[FollowedEvent]]:
    """The events in parts, each of which ends with the last, or where the tree is listed whole."""
    start = 0
    for end, event in enumerate(events, 1):
        if keyframes.is_due(event) or isinstance(event.fact, TreeRelisted) or end == len(events):
            yield events[start:end]
            start = end
