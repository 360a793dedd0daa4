"""What the sessions of a workspace were asked and said."""

from loom_audit.api.workspace import AuditedWorkspace
from loom_audit.history.read.conversation import Conversation, Said, Why

__all__ = ["Conversation", "Said", "Why", "conversation_of"]


def conversation_of(workspace: AuditedWorkspace) -> Conversation:
    """The prompts and messages of a workspace's sessions."""
    return Conversation(workspace.timeline.log, workspace.timeline.projections)
