"""Which paths of which calls were taken back, though the calls as a whole were not.

An undo, redo, revert or rollback has that in its result on record, since it names no such call
among those that it takes back; and of a call of which it took back only what was left, what that
was.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from loom_audit.history.ground.attachment import UNDO_TOOLS, is_undo
from loom_audit.model.calls import took_back, took_back_in_part
from loom_audit.model.events import CallFinished
from loom_audit.model.plans.taken_back import TakingBack, taken_back_by_path
from loom_audit.model.records import Call
from loom_audit.ports import CallFilter, EventFilter, EventLog, Projections


class TakenInPart(Struct, frozen=True):
    """What is taken back in part.

    `paths` has the number of the call that took back a path of a call, by that call's number and
    the path. `again` are the numbers of calls that were taken back as a whole and of which a path
    is in effect again since.
    """

    paths: Mapping[tuple[int, str], int]
    again: frozenset[int] = frozenset()


def taken_back_in_part(log: EventLog, tables: Projections, after: int) -> TakenInPart:
    """What calls requested after an event took back in part, as far as it stands. Corrupt."""
    undos = [
        call
        for tool in sorted(UNDO_TOOLS)
        for call in tables.calls(CallFilter(after=after, tool=tool, limit=None))
        if call.seq and is_undo(call)
    ]
    doings = [*_doings(log, undos)]
    in_part = {number for one in doings for number in one.in_part}
    if not in_part:
        return TakenInPart({})
    changed: dict[int, set[str]] = {}
    asked = {one for doing in doings for one in (doing.number, *doing.whole)}
    for number, path in _changed_paths(tables, asked):
        changed.setdefault(number, set()).add(path)
    found = taken_back_by_path(doings, changed)
    whole = tables.reverted()
    again = frozenset(
        number
        for number in whole
        if any((number, path) not in found for path in changed.get(number, ()))
    )
    paths = {one: by for one, by in found.items() if one[0] not in whole or one[0] in again}
    return TakenInPart(paths, again)


def _doings(log: EventLog, undos: Sequence[Call]) -> Iterator[TakingBack]:
    """What each of these calls took back, of the newest first."""
    for number in sorted((call.seq or 0 for call in undos), reverse=True):
        for event in log.read(EventFilter.only(number)):
            if isinstance(event.fact, CallFinished):
                parts = took_back_in_part(event.fact)
                yield TakingBack(number, tuple(took_back(event.fact)), parts)


def _changed_paths(tables: Projections, numbers: Iterable[int]) -> Iterator[tuple[int, str]]:
    """The paths that calls changed, and events of no call, by their numbers."""
    left = sorted(numbers)
    calls: dict[int, Call] = {}
    for start in range(0, len(left), 500):
        some = tuple(left[start : start + 500])
        calls |= {c.seq: c for c in tables.calls(CallFilter(numbers=some, limit=None)) if c.seq}
    for one in tables.changes(calls=[call.requested for call in calls.values()]):
        if one.number in calls:
            yield one.number, one.change.path
    for seq in left:
        if seq not in calls:
            for one in tables.changes(after=seq - 1, until=seq):
                yield seq, one.change.path


def paths_taken_back(log: EventLog, tables: Projections, call: Call) -> Mapping[str, int] | None:
    """The paths of a call that were taken back, each with the number of the call that did.

    None where the call is open, changed nothing or is taken back as a whole.
    """
    if call.seq is None or not call.changed:
        return None
    found = taken_back_in_part(log, tables, call.seq)
    if call.undone_by is not None and call.seq not in found.again:
        return None
    paths = found.paths
    return {path: paths[number, path] for number, path in sorted(paths) if number == call.seq}
