"""Which paths of which calls were taken back, though the calls as a whole were not.

An undo, revert or rollback has that in its result on record, since it names no such call among
those that it takes back.
"""

from collections.abc import Mapping

from loom_audit.model.calls import took_back_in_part
from loom_audit.model.events import CallFinished
from loom_audit.model.records import Call
from loom_audit.ports import CallFilter, EventFilter, EventLog, Projections

_VERBS = ("undo", "revert", "rollback")


def taken_back_in_part(
    log: EventLog, tables: Projections, after: int
) -> Mapping[tuple[int, str], int]:
    """The number of the call that took back a path of a call, by that call's number and the path.

    What calls requested after an event took back, as far as it stands: none of them is taken back
    itself. Corrupt.
    """
    found: dict[tuple[int, str], int] = {}
    undos = [
        call.seq
        for verb in _VERBS
        for call in tables.calls(CallFilter(after=after, tool=verb, limit=None))
        if call.seq and call.effect == "write" and call.undone_by is None
    ]
    for number in sorted(undos, reverse=True):
        for event in log.read(EventFilter.only(number)):
            if not isinstance(event.fact, CallFinished):
                continue
            for target, paths in took_back_in_part(event.fact).items():
                for path in paths:
                    # one that was itself taken back at this path since took nothing back there
                    if (number, path) not in found:
                        found.setdefault((target, path), number)
    return found


def paths_taken_back(log: EventLog, tables: Projections, call: Call) -> dict[str, int]:
    """The paths of a call that were taken back, each with the number of the call that did.

    None of an open call, nor of one that is taken back as a whole.
    """
    if call.seq is None or call.undone_by is not None or not call.changed:
        return {}
    found = taken_back_in_part(log, tables, call.seq)
    return {path: found[number, path] for number, path in sorted(found) if number == call.seq}
