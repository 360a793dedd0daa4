"""When each client was last heard: the newest event that its hooks put on record."""

from collections.abc import Mapping
from datetime import datetime

from loom_audit.api.workspace import AuditedWorkspace
from loom_audit.clients.known import CLIENTS
from loom_audit.model.records import Session
from loom_audit.ports import EventFilter

SESSIONS = 100
"""So many of the newest sessions are looked at."""


def heard_clients(workspace: AuditedWorkspace) -> Mapping[str, datetime]:
    """The clients whose hooks were heard in a workspace's newest sessions, and when last."""
    found: dict[str, datetime] = {}
    for session in workspace.timeline.sessions(limit=SESSIONS):
        known, ended = found.get(session.agent), session.ended_at
        if session.agent not in CLIENTS or (known and ended and ended <= known):
            continue
        # that of `run --agent codex`, or an imported one, was reported by no hook
        if workspace.attachment.lease(session.id) is not None:
            at = _last(workspace, session)
            found[session.agent] = max(at, known or at)
    return found


def _last(workspace: AuditedWorkspace, session: Session) -> datetime:
    """When the newest event of the client itself was recorded; a person may have held it since."""
    newest = EventFilter(session=session.id, newest_first=True)
    for event in workspace.timeline.events(newest):
        if event.actor == session.actor:
            return event.at
    return session.started_at
