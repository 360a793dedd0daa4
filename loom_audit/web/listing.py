"""The rows of a timeline: calls, and between them what came from outside, newest first."""

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from loom_audit.api.face import Timeline
from loom_audit.model.events import FilesChanged
from loom_audit.model.records import Call
from loom_audit.ports import CallFilter, EventFilter
from loom_audit.web.dependencies import number
from loom_audit.web.urls import Fields, first

ROWS = 100
OUTSIDE_ROWS = 200
PATHS = 20
FILTERS = ("tool", "status", "path")


class OutsideRow(Struct, frozen=True):
    """A change nobody called for: a person's editor, another program."""

    seq: int
    at: datetime
    paths: tuple[str, ...]
    changed: int


class Listing(Struct, frozen=True):
    """One page of a timeline, with the seqs from which the neighbours start."""

    calls: Sequence[Call]
    older: int | None
    newer: int | None
    outside: tuple[OutsideRow, ...] = ()

    @property
    def crowded(self) -> bool:
        """Whether there may be more from outside than is listed here."""
        return len(self.outside) >= OUTSIDE_ROWS

    @property
    def rows(self) -> list[Call | OutsideRow]:
        """All of them, newest first."""
        mixed: list[Call | OutsideRow] = [*self.calls, *self.outside]
        return sorted(mixed, key=_place, reverse=True)


def list_calls(timeline: Timeline, query: Fields, session: str | None = None) -> Listing:
    """A page of calls by `before` or `after` (seqs of requests) and the filters.

    What came from outside is listed too where nothing narrows the calls.
    """
    before, after = number(query, "before"), number(query, "after")
    wanted = CallFilter(
        after=after or 0,
        before=before,
        session=session,
        tool=first(query, "tool") or None,
        status=first(query, "status") or None,
        path=first(query, "path").strip("/") or None,
        newest_first=after is None,
        limit=ROWS + 1,
    )
    found = timeline.calls(wanted)
    more, calls = len(found) > ROWS, list(found[:ROWS])
    if after is not None:
        calls.reverse()
        older = calls[-1].requested if calls else None
        newer = calls[0].requested if more else None
    else:
        older = calls[-1].requested if more else None
        newer = calls[0].requested if calls and before is not None else None
    if session is not None or any(first(query, name) for name in FILTERS):
        return Listing(calls, older, newer)
    low = after or (older - 1 if older else 0)
    high = newer + 1 if after is not None and newer else before
    return Listing(calls, older, newer, outside_between(timeline, low, high))


def outside_between(timeline: Timeline, after: int, before: int | None) -> tuple[OutsideRow, ...]:
    """Changes from outside with `after < seq < before`, newest first."""
    wanted = EventFilter(
        after=after,
        before=before,
        kinds=(FilesChanged.kind,),
        session="",
        newest_first=True,
        limit=OUTSIDE_ROWS,
    )
    rows = []
    for event in timeline.events(wanted):
        if isinstance(event.fact, FilesChanged) and event.fact.origin == "outside":
            paths = tuple(change.path for change in event.fact.changes[:PATHS])
            rows.append(OutsideRow(event.seq, event.at, paths, len(event.fact.changes)))
    return tuple(rows)


def _place(row: Call | OutsideRow) -> int:
    return row.seq if isinstance(row, OutsideRow) else row.requested
