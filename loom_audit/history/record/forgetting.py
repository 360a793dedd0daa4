"""Puts on record that a workspace is forgotten: the last event of its log."""

from loom_audit.errors import Conflict
from loom_audit.history.ground.attachment import Attachment, is_undo
from loom_audit.model.events import Draft, Event, WorkspaceForgotten
from loom_audit.ports import EventLog


def check_unused(attachment: Attachment) -> None:
    """Conflict while a session is open there, somebody watches, or an interrupted undo waits."""
    tables = attachment.stored.tables
    for session in tables.open_sessions():
        if attachment.is_session_alive(session.id):
            raise Conflict(
                f"session {session.id} of {session.agent} is open there",
                hint="Wait for it to end, or end it: `loom-audit session end ID`.",
                details={"session": session.id},
            )
    if attachment.stored.lock.is_held(f"watch-{attachment.stored.log.id}"):
        raise Conflict("somebody watches it", hint="End `loom-audit watch` there first.")
    if any(is_undo(call) for call in tables.open_calls()):
        raise Conflict(
            "an undo that was interrupted waits there for a decision",
            hint="`loom-audit recover --continue` finishes it, `--abandon` leaves it.",
        )


def record_forgotten(log: EventLog, fact: WorkspaceForgotten, *, actor: str) -> Event:
    """Put on record that everything before is erased. Nothing is recorded in the log afterwards."""
    return log.append([Draft(fact, "", actor)])[0]
