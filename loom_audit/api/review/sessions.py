"""A session gathered for review, kept for as long as nothing was recorded since."""

from collections import OrderedDict

from loom_audit.api.workspace import AuditedWorkspace
from loom_audit.history.read.review import (
    MASS,
    Evidence,
    OwnChanges,
    SessionReview,
    events_at,
    net_of,
    review_session,
)
from loom_audit.model.events import CallFinished
from loom_audit.model.records import Call

__all__ = [
    "MASS",
    "Evidence",
    "OwnChanges",
    "Reviews",
    "SessionReview",
    "last_lines",
    "net_of",
]

KEPT = 8
"""So many sessions are kept gathered."""


class Reviews:
    """The sessions that were gathered last; a cache, of which nothing is missed."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str, int], SessionReview] = OrderedDict()

    def of(self, workspace: AuditedWorkspace, session: str) -> SessionReview:
        """What a session and the sessions within it did. NotFound, Corrupt."""
        timeline = workspace.timeline
        key = workspace.id, session, timeline.log.head()
        found = self._kept.get(key)
        if found is None:
            found = review_session(timeline.log, timeline.projections, session)
            self._kept[key] = found
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return found


def last_lines(workspace: AuditedWorkspace, calls: list[Call]) -> dict[int, str]:
    """The last line that each of these calls printed, by request; of those that printed any."""
    numbers = {call.seq: call.requested for call in calls if call.seq is not None}
    found: dict[int, str] = {}
    for event in events_at(workspace.timeline.log, numbers, CallFinished.kind):
        if isinstance(event.fact, CallFinished) and (line := last_line_of(event.fact)):
            found[numbers[event.seq]] = line
    return found


def last_line_of(fact: CallFinished) -> str:
    """The last line of a call's output that is not empty; "" without one."""
    result = fact.result
    output = result.get("output") if isinstance(result, dict) else None
    if not isinstance(output, str):
        return ""
    return next((line for line in reversed(output[-20_000:].split("\n")) if line.strip()), "")
