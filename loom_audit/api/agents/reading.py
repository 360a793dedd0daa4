"""What clients told by now, read in their transcripts where no process hears their hooks."""

from collections.abc import Sequence

from loom_audit.api.agents.conversations import Conversation, innermost, real_path
from loom_audit.api.workspace import AuditedWorkspace
from loom_audit.clients.known import CLIENTS
from loom_audit.history.told.unread_transcripts import transcript_name, unread_transcripts


def read_transcripts(workspace: AuditedWorkspace) -> Sequence[str]:
    """Put on record how open calls of clients' sessions ended, as their transcripts tell it.

    And all calls that are told of clients that are gone. The sessions of those that are open still,
    because nobody tells.
    """
    gone = [*unread_transcripts(workspace.attachment)]
    for session in gone:
        read_gone(workspace, session)
    left = []
    open_calls = workspace.timeline.open_calls()
    for session in dict.fromkeys(call.session for call in open_calls):
        if workspace.attachment.lease(session) is None:
            continue
        conversation = None if session in gone else _of_session(workspace, session)
        if conversation is not None:
            conversation.read(calls_only=True)
            conversation.close_file()
        if conversation is None or conversation.has_open_calls:
            left.append(session)
    return left


def read_gone(workspace: AuditedWorkspace, session: str) -> None:
    """Put on record what the transcript of a client that is gone tells, to the transcript's end."""
    if (conversation := _of_session(workspace, session)) is not None:
        conversation.read_gone()
    workspace.attachment.on_disk.looks.discard(transcript_name(session))


def _of_session(workspace: AuditedWorkspace, session: str) -> Conversation | None:
    """A session with its transcript, where that is known."""
    kept = workspace.attachment.on_disk.looks.get(transcript_name(session))
    if not isinstance(kept, list) or len(kept) not in (2, 3) or kept[0] not in CLIENTS:
        return None
    roots = {workspace.root: workspace.id}

    def owner_of(path: str) -> AuditedWorkspace | None:
        return workspace if innermost(roots, real_path(path)) else None

    open_file = workspace.adapters.transcript
    conversation = Conversation(CLIENTS[kept[0]], session, owner_of, open_file)
    conversation.prompts = kept[2:] == [True]  # earlier releases did not keep whether it may
    conversation.find_home("", [workspace])
    conversation.follow_file(str(kept[1]))
    return conversation
