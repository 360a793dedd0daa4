"""What a client that was run with our hooks has left on record."""

from msgspec import Struct
from msgspec.structs import replace

from loom_audit.api.workspace import AuditedWorkspace
from loom_audit.model.events import SessionStarted
from loom_audit.model.records import Call
from loom_audit.ports import CallFilter, EventFilter

PAGE = 500


class RanWithin(Struct, frozen=True):
    """How many calls of clients are on record within one of ours, and which files changed in all
    of them: files and links, no folders.
    """

    calls: int
    files: frozenset[str]


def ran_within(workspace: AuditedWorkspace, number: int) -> RanWithin:
    """What is on record within the call of ours of this number. NotFound."""
    timeline = workspace.timeline
    ours = timeline.listed_call(number)
    sessions = {ours.session}
    kinds = (SessionStarted.kind,)
    for event in timeline.events(EventFilter(after=ours.requested, kinds=kinds)):
        if isinstance(event.fact, SessionStarted) and event.fact.parent in sessions:
            sessions.add(event.session)
    calls = [one for one in _calls_after(workspace, ours.requested) if one.session in sessions]
    changed = timeline.listed_changes([ours.requested, *(one.requested for one in calls)])
    files = {
        one.change.path
        for one in changed
        if any(state and state.blob for state in (one.change.before, one.change.after))
    }
    return RanWithin(len(calls), frozenset(files))


def _calls_after(workspace: AuditedWorkspace, request: int) -> list[Call]:
    query = CallFilter(after=request, newest_first=False, limit=PAGE)
    found: list[Call] = []
    while page := workspace.timeline.calls(query):
        found += page
        query = replace(query, after=page[-1].requested)
    return found
