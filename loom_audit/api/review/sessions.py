"""A session gathered for review, kept for as long as nothing was recorded since."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeVar

from loom_audit.api.workspace import AuditedWorkspace
from loom_audit.history.read.flagged import events_at
from loom_audit.history.read.review import (
    MOST_OUTSIDE,
    Evidence,
    SessionReview,
    review_session,
)
from loom_audit.model.events import CallFinished
from loom_audit.model.records import Call

__all__ = [
    "MOST_OUTSIDE",
    "Evidence",
    "Reviews",
    "SessionReview",
    "last_lines",
]

KEPT = 12
"""The number of reviews, of sessions and of their steps, that are kept."""

T = TypeVar("T")


class Reviews:
    """What was gathered last for reviews; a cache, of which nothing is missed."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[object, ...], Any] = OrderedDict()

    def of(self, workspace: AuditedWorkspace, session: str) -> SessionReview:
        """What a session and the sessions within it did. NotFound, Corrupt."""
        timeline = workspace.timeline
        return self.once(
            workspace,
            ("session", session),
            lambda: review_session(timeline, session),
        )

    def once(
        self, workspace: AuditedWorkspace, name: tuple[object, ...], gather: Callable[[], T]
    ) -> T:
        """What `gather` gives, which is kept by its name until something is recorded."""
        key = self._key(workspace, name)
        found: T | None = self._kept.get(key)
        if found is None:
            found = self._kept[key] = gather()
            while len(self._kept) > KEPT:
                # another thread may have emptied it meanwhile
                self._kept.pop(next(iter(self._kept), ()), None)
        return found

    def known(self, workspace: AuditedWorkspace, name: tuple[object, ...]) -> Any:
        """What is kept by a name; None for nothing."""
        return self._kept.get(self._key(workspace, name))

    def _key(self, workspace: AuditedWorkspace, name: tuple[object, ...]) -> tuple[object, ...]:
        return (workspace.id, workspace.timeline.log.head(), *name)


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
