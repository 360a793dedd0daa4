"""What became of what a call changed."""

from loom_audit.api.workspace import AuditedWorkspace
from loom_audit.history.read.aftermath import Aftermath, aftermath
from loom_audit.history.read.call_detail import CallDetail

__all__ = ["MOST", "Aftermath", "aftermath_of"]

MOST = 200
"""So many paths of a call are looked up."""


def aftermath_of(workspace: AuditedWorkspace, detail: CallDetail) -> list[Aftermath]:
    """Whether the first `MOST` paths that a call changed are as it left them."""
    last = max((one.seq for one in detail.recorded), default=0)
    return aftermath(workspace.timeline.projections, detail.changes[:MOST], last)
