"""The rows of a timeline: calls, and between them what came from outside, newest first."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import groupby
from typing import TypeAlias

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
FOLDED = 3
"""So many reads after each other are one row."""


class OutsideRow(Struct, frozen=True):
    """A change nobody called for: a person's editor, another program."""

    seq: int
    at: datetime
    paths: tuple[str, ...]
    changed: int


class ReadsRow(Struct, frozen=True):
    """Calls of one session, one after the other, that only looked, newest first."""

    calls: tuple[Call, ...]

    @property
    def at(self) -> datetime:
        return self.calls[0].at

    @property
    def actor(self) -> str:
        return self.calls[0].actor

    @property
    def session(self) -> str:
        return self.calls[0].session


Row: TypeAlias = Call | OutsideRow | ReadsRow


class Listing(Struct, frozen=True):
    """One page of a timeline, with the seqs from which the neighbours start.

    `fold`: reads that follow each other are one row.
    """

    calls: Sequence[Call]
    older: int | None
    newer: int | None
    outside: tuple[OutsideRow, ...] = ()
    fold: bool = False

    @property
    def crowded(self) -> bool:
        """Whether there may be more from outside than is listed here."""
        return len(self.outside) >= OUTSIDE_ROWS

    @property
    def rows(self) -> list[Row]:
        """All of them, newest first; what only looked is one row where many follow each other."""
        mixed: list[Call | OutsideRow] = [*self.calls, *self.outside]
        mixed.sort(key=_place, reverse=True)
        return [*_folded(mixed)] if self.fold else [*mixed]


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
    if any(first(query, name) for name in FILTERS):
        return Listing(calls, older, newer)
    fold = not first(query, "reads")
    if session is not None:
        return Listing(calls, older, newer, fold=fold)
    low = after or (older - 1 if older else 0)
    high = newer + 1 if after is not None and newer else before
    return Listing(calls, older, newer, outside_between(timeline, low, high), fold)


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


def _folded(rows: Iterable[Call | OutsideRow]) -> Iterator[Row]:
    for _, some in groupby(rows, _look_of):
        together = [*some]
        looks = tuple(row for row in together if isinstance(row, Call))
        if len(looks) >= FOLDED and _look_of(looks[0]) is not None:
            yield ReadsRow(looks)
        else:
            yield from together


def _look_of(row: Call | OutsideRow) -> object:
    """Who only looked, and on which day; None for every other row."""
    if isinstance(row, OutsideRow) or row.effect != "read" or row.status != "ok":
        return None
    return row.session, row.actor, row.at.date()


def _place(row: Call | OutsideRow) -> int:
    return row.seq if isinstance(row, OutsideRow) else row.requested
