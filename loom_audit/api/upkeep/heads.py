"""Tree heads: as lines of text, and those that are kept outside the store."""

from collections.abc import Sequence

from loom_audit.api.workspace import AuditedWorkspace
from loom_audit.model.events import TreeHead
from loom_audit.wiring.heads import head_line, parse_heads

__all__ = ["head_line", "kept_heads", "parse_heads"]


def kept_heads(workspace: AuditedWorkspace) -> Sequence[TreeHead]:
    """The heads of a log that are kept outside the store, oldest first. StorageFailed."""
    return workspace.adapters.kept_heads(workspace.id)
