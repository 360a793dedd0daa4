"""What became of what a call changed."""

from collections.abc import Sequence

from loom_audit.api.workspace import AuditedWorkspace
from loom_audit.history.read.aftermath import Aftermath, aftermath
from loom_audit.history.read.call_detail import CallDetail
from loom_audit.model.records import RecordedChange

__all__ = ["MOST", "Aftermath", "aftermath_of", "changed_later"]

MOST = 200
"""So many paths of a call are looked up."""


def aftermath_of(workspace: AuditedWorkspace, detail: CallDetail) -> list[Aftermath]:
    """Whether the first `MOST` paths that a call changed are as it left them."""
    last = max((one.seq for one in detail.recorded), default=0)
    return aftermath(workspace.timeline.projections, detail.changes[:MOST], last)


def changed_later(
    workspace: AuditedWorkspace, paths: Sequence[str], after: int
) -> dict[str, RecordedChange]:
    """The first change of each of these paths after an event, of those that were changed."""
    ends = workspace.timeline.projections.ends(paths, after)
    return {path: first for path, (first, _) in ends.items()}
