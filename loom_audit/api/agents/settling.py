"""What clients told by now, put on record where no process hears their hooks."""

import os
from collections.abc import Mapping, Sequence

from loom_audit.api.agents.conversations import Conversation, real_path
from loom_audit.api.workspace import AuditedWorkspace
from loom_audit.clients.known import CLIENTS
from loom_audit.history.look.kept_looks import transcript_name, unread_transcripts


def settle(workspace: AuditedWorkspace) -> Sequence[str]:
    """Put on record how open calls of clients' sessions ended, as their transcripts tell it.

    And all calls that are told of clients that are gone. The sessions of those that are open still,
    because nobody tells.
    """
    gone = [*unread_transcripts(workspace.attachment)]
    for session in gone:
        read_gone(workspace, session)
    found = [
        call.session
        for call in workspace.timeline.open_calls()
        if workspace.attachment.lease(call.session) is not None
    ]
    left = []
    for session in dict.fromkeys(found):
        told = None if session in gone else _told(workspace, session)
        if told is not None:
            conversation, transcript = told
            conversation.follow_file(transcript)
            conversation.read(calls_only=True)
            conversation.close_file()
            if not conversation.has_open_calls:
                continue
        left.append(session)
    return left


def read_gone(workspace: AuditedWorkspace, session: str) -> None:
    """Put on record what the transcript of a client that is gone tells, to its end."""
    if (told := _told(workspace, session)) is not None:
        conversation, transcript = told
        conversation.read_gone(transcript)
    workspace.attachment.looks.discard(transcript_name(session))


def _told(workspace: AuditedWorkspace, session: str) -> tuple[Conversation, str] | None:
    """A session whose transcript is known, and that."""
    kept = workspace.attachment.looks.get(transcript_name(session))
    if not isinstance(kept, list) or len(kept) not in (2, 3) or kept[0] not in CLIENTS:
        return None
    roots = {workspace.root: workspace.id}

    def owner_of(path: str) -> AuditedWorkspace | None:
        return workspace if innermost(roots, real_path(path)) else None

    open_file = workspace.adapters.transcript
    conversation = Conversation(CLIENTS[kept[0]], session, owner_of, open_file)
    conversation.prompts = kept[2:] == [True]  # earlier releases did not keep whether it may
    conversation.find_home("", [workspace])
    return conversation, str(kept[1])


def session_of_client(workspace: AuditedWorkspace, told: Sequence[object]) -> str | None:
    """The open session whose hooks are of the client that started this process.

    By the ids that the client told of it, else by the client's process; not that of a subagent.
    """
    attachment = workspace.attachment
    leases = {
        one.id: lease
        for one in attachment.projections.open_sessions()
        if (lease := attachment.lease(one.id)) is not None and lease.pid is not None
    }
    for id in told:
        if isinstance(id, str) and id in leases:
            return id
    client, _ = attachment.processes.asker(os.getpid())
    mine = [id for id, lease in leases.items() if lease.pid == client]
    return next((id for id in mine if not attachment.standing(id).parent), None)


def innermost(roots: Mapping[str, str], path: str) -> str | None:
    """The id of the workspace whose root is nearest above a path."""
    while path not in roots:
        path, last = os.path.dirname(path), path
        if path == last:
            return None
    return roots[path]
