"""The calls of which a plan says what it does not take back."""

from collections.abc import Sequence

from loom_audit.history.ground.attachment import StoredLog
from loom_audit.history.look.doers import UNKNOWN
from loom_audit.history.undo.selection import Selection
from loom_audit.model.events import CallFinished, CallRequested
from loom_audit.model.git.record import GitChanged
from loom_audit.model.records import Call
from loom_audit.ports import CallFilter, EventFilter


def concerned_calls(stored: StoredLog, selection: Selection) -> Sequence[Call]:
    """The calls that are taken back; in a rollback those that ended after its point and whose
    coverage is not full, or that changed git, or may have. Corrupt.
    """
    if not selection.rollback:
        return selection.calls
    since = selection.since
    found = {
        call.requested: call
        for call in stored.reading.calls(
            CallFilter(ended_after=since, partial_only=True, limit=None)
        )
    }
    changing = tuple(_changing_git(stored, since) - found.keys())
    if changing:
        more = CallFilter(ended_after=since, only=changing, limit=None)
        found |= {call.requested: call for call in stored.reading.calls(more)}
    return [found[requested] for requested in sorted(found, reverse=True)]


def _changing_git(stored: StoredLog, since: int) -> set[int]:
    """The requests of the calls of changes of git after an event, and of those that may be."""
    own: set[tuple[str, str]] = set()
    found: set[int] = set()
    for event in stored.log.read(EventFilter(after=since, kinds=(GitChanged.kind,))):
        if isinstance(event.fact, GitChanged) and event.fact.is_of_git:
            found.update(event.fact.causes)
            if event.fact.call_id is not None:
                own.add((event.session, event.fact.call_id))
    return found - {UNKNOWN} | {request_and_number(stored, *one)[0] for one in own}


def request_and_number(stored: StoredLog, session: str, call_id: str) -> tuple[int, int]:
    """The seq of a call's request, and its number; of an open call the request twice. NotFound,
    Corrupt.

    Only these events are read: whether the call is taken back, in a long chain, is not asked.
    """
    kinds = (CallRequested.kind, CallFinished.kind)
    window = EventFilter(kinds=kinds, session=session, call_id=call_id)
    seqs = {event.kind: event.seq for event in stored.log.read(window)}
    requested = seqs.get(CallRequested.kind)
    if requested is None:  # the tables, by which this was found, do not have it there
        call = stored.reading.call(session, call_id)
        return call.requested, call.seq or call.requested
    return requested, seqs.get(CallFinished.kind, requested)
