"""What the sessions of a workspace were asked and said."""

from loom_audit.api.workspace import AuditedWorkspace
from loom_audit.history.read.conversation import Conversation, Said, Why
from loom_audit.history.read.near_call import NearCall, near_call

__all__ = ["Conversation", "NearCall", "Said", "Why", "conversation_of", "near_call"]


def conversation_of(workspace: AuditedWorkspace) -> Conversation:
    """The prompts and messages of a workspace's sessions."""
    return Conversation(workspace.timeline.log, workspace.timeline.projections)
