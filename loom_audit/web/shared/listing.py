"""The rows of a timeline: calls, and between them what came from outside, newest first."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby, islice
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from loom_audit.api.control.flagged import COUNTED, FlaggedCalls
from loom_audit.api.control.needs import allowed_by_people
from loom_audit.api.face import AuditedWorkspace, Timeline
from loom_audit.model.coverage import FAILED
from loom_audit.model.git.record import GitChanged
from loom_audit.model.git.words import words_of
from loom_audit.model.records import Call, OutsideChange
from loom_audit.model.text.display import count_text, one_line
from loom_audit.ports import CallFilter
from loom_audit.web.shared.budget import LINKED, NODE
from loom_audit.web.shared.dependencies import number
from loom_audit.web.shared.strip import STANDS_OUT
from loom_audit.web.shared.urls import Fields, first

ROWS = 100
OUTSIDE_ROWS = 200
SPACE = 26_000
"""What the rows of a page may weigh, of which there are no more than fit."""
FILTERS = ("tool", "status", "actor", "path", "search", "only", "days", "session")
ONLY = {
    "allowed": "allowed by a person",
    "partial": "coverage not full",
    "outside": "changes from outside",
    **{name: STANDS_OUT[name][1] for name in COUNTED},
}
MOST_DAYS = 36_500
GIT_LINES = 4
"""The number of lines of what a call changed of git that are in its row."""
FOLDED = 3
"""The number of reads after each other from which on they are one row."""


class ReadsRow(Struct, frozen=True):
    """Calls of one session, one after the other, that only looked, newest first."""

    calls: tuple[Call, ...]

    @property
    def title(self) -> str:
        """What the row says of them all."""
        return reads_title(self.calls)

    @property
    def at(self) -> datetime:
        """When the newest of the calls was made."""
        return self.calls[0].at

    @property
    def actor(self) -> str:
        """Who made the calls."""
        return self.calls[0].actor

    @property
    def session(self) -> str:
        """The session of the calls."""
        return self.calls[0].session


Row: TypeAlias = Call | OutsideChange | ReadsRow


class Listing(Struct, frozen=True):
    """A page of a timeline has its calls, and the seqs from which its neighbours start.

    `fold`: reads that follow each other are one row. `git` is what calls changed of git, in git's
    words, by their requests.
    """

    calls: Sequence[Call]
    older: int | None
    newer: int | None
    outside: tuple[OutsideChange, ...] = ()
    fold: bool = False
    git: Mapping[int, Sequence[str]] = {}

    @property
    def crowded(self) -> bool:
        """Whether there may be more from outside than is listed here."""
        return self.older is None and len(self.outside) >= OUTSIDE_ROWS

    @property
    def counted(self) -> list[tuple[str, int]]:
        """The query that asks for the line counts of the calls on this page."""
        return [("of", call.requested) for call in self.calls if call.changed]

    @property
    def nested(self) -> Mapping[int, Sequence[Call]]:
        """The calls that took back something on this page stand below it, oldest first.

        By the number of what was taken back first, of several that of the newest one.
        """
        listed = {call.seq for call in self.calls} | {row.seq for row in self.outside}
        first_of: dict[int, int] = {}
        found: dict[int, list[Call]] = {}
        for call in sorted(self.calls, key=_place):
            here = [seq for seq in call.reverts if seq in listed]
            if here and call.seq:
                first_of[call.seq] = first_of.get(max(here), max(here))
                found.setdefault(first_of[call.seq], []).append(call)
        return found

    @property
    def rows(self) -> list[Row]:
        """All that is not nested, newest first; what only looked is one row where many follow each
        other.
        """
        below = {one.requested for some in self.nested.values() for one in some}
        mixed: list[Call | OutsideChange] = [c for c in self.calls if c.requested not in below]
        mixed += self.outside
        mixed.sort(key=_place, reverse=True)
        return [*_folded(mixed)] if self.fold else [*mixed]


def taken_back_by_agents(timeline: Timeline, calls: Sequence[Call]) -> frozenset[int]:
    """The numbers of the calls by which an agent, and no person, took back any of these calls."""
    by = {call.undone_by for call in calls if call.undone_by is not None}
    known = {call.seq or 0: call.actor for call in calls if call.seq in by}
    others = tuple(number for number in by if number not in known)
    if others:
        listed = timeline.calls(CallFilter(numbers=others, limit=None))
        known |= {call.seq or 0: call.actor for call in listed}
    return frozenset(number for number, actor in known.items() if actor.startswith("agent:"))


def git_on_page(timeline: Timeline, calls: Sequence[Call]) -> Mapping[int, Sequence[str]]:
    """What these calls changed of git, in git's words, by their requests; the first few of each."""
    return git_lines(timeline.git_of(calls))


def git_lines(told: Mapping[int, Sequence[GitChanged]]) -> Mapping[int, Sequence[str]]:
    """The first few lines of what calls changed of git, in git's words, by their requests."""
    return {one: (*islice(words_shown(facts), GIT_LINES),) for one, facts in told.items()}


def words_shown(facts: Iterable[GitChanged]) -> Iterator[str]:
    """What facts say of git, a line each."""
    return (one_line(text, 120) for text in words_of(facts))


def page_of_calls(
    workspace: AuditedWorkspace,
    query: Fields,
    session: str | None,
    flagged_calls: FlaggedCalls,
) -> Listing:
    """A page of calls by `before` or `after` (seqs of requests) and the filters.

    What came from outside is listed too, unless more than a path narrows the calls.
    """
    timeline = workspace.timeline
    before, after = number(query, "before"), number(query, "after")
    session = session or first(query, "session") or None
    if first(query, "only") == "outside":
        return _page_of_outside(timeline, query, before)
    wanted = call_filter(
        workspace,
        query,
        session,
        flagged_calls,
        after=after or 0,
        before=before,
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
    narrowed = any(first(query, name) for name in FILTERS)
    fold = not narrowed and not first(query, "reads")
    if not lists_outside(query, session):
        return _fitting(timeline, Listing(calls, older, newer, fold=fold), after)
    low = after or (older - 1 if older else 0)
    high = newer + 1 if after is not None and newer else before
    outside = timeline.outside(after=low, before=high, typed=wanted.typed or "", limit=OUTSIDE_ROWS)
    if after is None and len(outside) == OUTSIDE_ROWS:
        # the next page goes on where these end
        older = outside[-1].seq
        calls = [call for call in calls if call.requested > older]
    return _fitting(timeline, Listing(calls, older, newer, tuple(outside), fold), after)


def _page_of_outside(timeline: Timeline, query: Fields, before: int | None) -> Listing:
    """A page of changes from outside, none of calls."""
    typed, since = first(query, "path").strip().strip("/"), since_of(query)
    found = timeline.outside(before=before, typed=typed, limit=ROWS + 1)
    wanted = [one for one in found if since is None or one.at >= since]
    older = wanted[ROWS - 1].seq if len(wanted) > ROWS else None
    newer = None  # what is newer than a page is on the first one
    return _fitting(timeline, Listing((), older, newer, tuple(wanted[:ROWS])), None)


def since_of(query: Fields) -> datetime | None:
    """The time from which on a page lists, for the `days` of its query; None for all."""
    days = number(query, "days")
    return None if not days else datetime.now(UTC) - timedelta(days=min(days, MOST_DAYS))


def call_filter(
    workspace: AuditedWorkspace,
    query: Fields,
    session: str | None,
    flagged_calls: FlaggedCalls,
    **more: Any,
) -> CallFilter:
    """Which calls the filters of a page want; `more` says of what stretch and how many."""
    status, only, since = first(query, "status"), first(query, "only"), since_of(query)
    earliest = since or datetime.min.replace(tzinfo=UTC)
    if only == "allowed":
        more["only"] = tuple(allowed_by_people(workspace.timeline, earliest))
    elif only in COUNTED:
        more["only"] = tuple(flagged_calls.requests(workspace, only, earliest))
    return CallFilter(
        since=since,
        partial_only=only == "partial",
        session=session,
        tool=first(query, "tool") or None,
        actor=first(query, "actor") or None,
        status=None if status == FAILED else status or None,
        failed_only=status == FAILED,
        typed=first(query, "path").strip().strip("/") or None,
        words=first(query, "search").strip() or None,
        **more,
    )


def lists_outside(query: Fields, session: str | None) -> bool:
    """Whether a page lists changes from outside, too: a path at most narrows it."""
    if first(query, "only") == "outside":
        return True
    return session is None and not any(first(query, name) for name in FILTERS if name != "path")


def _fitting(timeline: Timeline, listing: Listing, after: int | None) -> Listing:
    """As many of the rows as a page holds: the newest, or with `after` the oldest ones."""
    listing = replace(listing, git=git_on_page(timeline, listing.calls))
    mixed: list[Call | OutsideChange] = [*listing.calls, *listing.outside]
    mixed.sort(key=_place, reverse=after is None)
    space, edge = SPACE, 0
    for row in mixed:
        space -= _weight(row, listing.git)
        if edge and space < 0:
            break
        edge = _place(row)
    else:
        return listing
    ends = {"older": edge} if after is None else {"newer": edge}

    def stays(row: Call | OutsideChange) -> bool:
        return _place(row) >= edge if after is None else _place(row) <= edge

    calls, outside = filter(stays, listing.calls), filter(stays, listing.outside)
    return replace(listing, calls=[*calls], outside=(*outside,), **ends)


def _weight(row: Call | OutsideChange, git: Collection[int]) -> int:
    titled = LINKED * sum(map(len, row.paths))
    if isinstance(row, OutsideChange):
        return 14 * NODE + titled
    undoing = 3 * (row.seq is not None and not row.undone_by)
    back = 3 * bool(row.undone_by or row.undone_in_part_by) + (1 + len(row.reverts[:3])) * bool(
        row.reverts
    )
    nodes = 11 + bool(row.changed) * (2 + undoing) + bool(row.error) + back
    nodes += 2 * GIT_LINES * (row.requested in git)
    return nodes * NODE + len(row.tool) + len(row.summary[:140]) + len(row.error[:100]) + titled


def reads_title(calls: Sequence[Call]) -> str:
    """What a row says of reads: how many files, where each read another; else how many reads."""
    files = {call.summary for call in calls if call.tool.lower() in ("read_file", "read")}
    each_another = len(files) == len(calls)
    return f"read {count_text(len(files), 'file')}" if each_another else f"{len(calls)} reads"


def _folded(rows: Iterable[Call | OutsideChange]) -> Iterator[Row]:
    for _, some in groupby(rows, _who_looked):
        together = [*some]
        looks = tuple(row for row in together if isinstance(row, Call))
        if len(looks) >= FOLDED and _who_looked(looks[0]) is not None:
            yield ReadsRow(looks)
        else:
            yield from together


def _who_looked(row: Call | OutsideChange) -> object:
    """Who only looked, and on which day; None for every other row."""
    if isinstance(row, OutsideChange) or row.effect != "read" or row.status != "ok":
        return None
    return row.session, row.actor, row.at.date()


def _place(row: Call | OutsideChange) -> int:
    return row.seq if isinstance(row, OutsideChange) else row.requested
