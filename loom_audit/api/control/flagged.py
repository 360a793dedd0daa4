"""Which of a workspace's newest calls stand out, each looked at once it has ended."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec import Struct, field

from loom_audit.api.control.needs import first_counted
from loom_audit.api.workspace import AuditedWorkspace
from loom_audit.history.read.flagged import MASS, gather
from loom_audit.ports import CallFilter

__all__ = ["COUNTED", "MASS", "FlaggedCalls"]

COUNTED = ("deletions", "modes", "network", "programs", "code", "git")
"""What calls stand out for that is looked for in what they did; the rest is asked of the tables."""
_TOGETHER = 2_000


class _Known(Struct):
    """Up to which event calls were looked at, which were open then, and when those that stand out
    were made, by what they stand out for and by their requests.
    """

    since: int
    until: int
    open: set[int] = field(default_factory=set)
    flagged: dict[str, dict[int, datetime]] = field(default_factory=dict)


class FlaggedCalls:
    """What was found by now, of the workspaces that were asked about. Any thread may ask; a cache,
    of which nothing is missed.
    """

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}

    def behind(self, workspace: AuditedWorkspace, since: datetime) -> int:
        """How many events have to be looked at before it can be told what stands out."""
        known, first = self._known.get(workspace.id), first_counted(workspace.timeline, since)
        enough = known is not None and known.since <= first
        return workspace.timeline.log.head() - (known.until if known and enough else first)

    def requests(self, workspace: AuditedWorkspace, name: str, since: datetime) -> Sequence[int]:
        """The requests of the calls since a time that stand out for one of COUNTED, in order; among
        the newest events, as all that is counted. Corrupt.
        """
        found = self._looked_at(workspace, since).flagged.get(name, {})
        return sorted(requested for requested, at in found.items() if at >= since)

    def counts(self, workspace: AuditedWorkspace, since: datetime) -> Mapping[str, int]:
        """How many calls since a time stand out, by what for. Corrupt."""
        found = self._looked_at(workspace, since).flagged
        return {name: sum(at >= since for at in found.get(name, {}).values()) for name in COUNTED}

    def _looked_at(self, workspace: AuditedWorkspace, since: datetime) -> _Known:
        timeline = workspace.timeline
        head, first = timeline.log.head(), first_counted(timeline, since)
        known = self._known.get(workspace.id)
        if known is None or known.since > first:
            known = _Known(first, first)
        if known.until == head:
            return known
        # another thread may look meanwhile, and keeps its own
        new = _Known(
            known.since, head, flagged={name: {**known.flagged.get(name, {})} for name in COUNTED}
        )
        wanted = [
            call.requested
            for call in timeline.calls(
                CallFilter(after=known.until, before=head + 1, newest_first=False, limit=None)
            )
        ]
        if known.until > known.since:
            changes = timeline.projections.changes(after=known.until, until=head)
            late = {one.requested for one in changes if one.requested}
            wanted = sorted({*wanted, *known.open, *late})
        for start in range(0, len(wanted), _TOGETHER):
            self._gather(workspace, wanted[start : start + _TOGETHER], new)
        self._known[workspace.id] = new
        return new

    def _gather(self, workspace: AuditedWorkspace, requests: Sequence[int], new: _Known) -> None:
        timeline = workspace.timeline
        calls = timeline.calls(CallFilter(only=(*requests,), newest_first=False, limit=None))
        flagged = gather(timeline.log, timeline.projections, calls).flagged
        made = {call.requested: call.at for call in calls}
        new.open |= {call.requested for call in calls if call.seq is None}
        for name in COUNTED:
            new.flagged[name] |= {one: made[one] for one in flagged[name]}
