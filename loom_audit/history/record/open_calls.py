"""Finds open calls that are in the way of taking something back, and says how each can end."""

from collections.abc import Mapping, Sequence
from typing import Any

from loom_audit.errors import Conflict
from loom_audit.history.ground.attachment import Attachment
from loom_audit.history.ground.questions import approval_state
from loom_audit.history.look.attribution import contains_calls
from loom_audit.history.read.verified import listed_error
from loom_audit.model.events import (
    ApprovalRequested,
    CallFinished,
    CallRequested,
    SessionEnded,
    SessionStarted,
)
from loom_audit.model.records import Call, Session
from loom_audit.ports import EventLog


def check_open(log: EventLog, calls: Sequence[Call], sessions: Sequence[Session] = ()) -> None:
    """Corrupt unless the log says that these calls and sessions began and have not ended.

    They have to begin at the event that the tables list for them. A session begins with its first
    event, of whatever kind, and may begin again after it ended.
    """
    begun = {(call.session, call.call_id): call.requested for call in calls}
    opened = {session.id: session.started for session in sessions}
    still_open = set[object]()

    def look(envelope: Mapping[str, Any]) -> bool:
        kind, seq = envelope.get("kind"), envelope["seq"]
        session = envelope.get("session", "")
        call = session, envelope.get("call_id", "")
        if kind == CallRequested.kind and begun.get(call) == seq:
            still_open.add(call)
        if session in opened and (kind == SessionStarted.kind or opened[session] == seq):
            still_open.add(session)
        if kind == CallFinished.kind:
            still_open.discard(call)
        if kind == SessionEnded.kind:
            still_open.discard(session)
        return False

    listed = [*begun.items(), *opened.items()]
    first = min((seq for _, seq in listed), default=log.head() + 1)
    # `look` sees every envelope of the stretch, and asks for none to be decoded
    for _ in log.stretch(max(first, 1) - 1, log.head(), look):
        pass
    if ended := [seq for key, seq in listed if key not in still_open]:
        raise listed_error(min(ended))


def calls_in_the_way(
    attachment: Attachment, *, besides: tuple[str, str] | None = None
) -> list[Call]:
    """The open calls that may change files while something is taken back, oldest first.

    Calls whose process has ended are not among them, nor calls that contain others: these change
    files by the calls in them; nor the call `besides` (session, id), which takes back.
    """
    return [
        call
        for call in attachment.stored.tables.open_calls()
        if call.effect != "read"
        and (call.session, call.call_id) != besides
        and attachment.is_alive(call)
        and not contains_calls(attachment.stored, call)
    ]


def open_call_error(attachment: Attachment, calls: Sequence[Call]) -> Conflict:
    """The error for an operation that these open calls prevent; it names the first of them."""
    call = calls[0]
    more = f" and {len(calls) - 1} more" if len(calls) > 1 else ""
    which = f"call {call.requested}, open since {call.at:%Y-%m-%d %H:%M:%S} UTC"
    details = {"calls": [one.requested for one in calls]}
    named = f"{call.tool} of session {call.session}"
    state = approval_state(attachment.stored.log, call.session, call.call_id, after=call.requested)
    if not attachment.is_alive(call):
        text = f"{named} was interrupted ({which}){more}"
        return Conflict(text, hint="`loom-audit recover` closes it.", details=details)
    if state.is_waiting and state.question and isinstance(state.question.fact, ApprovalRequested):
        asked = state.question.fact
        number = state.question.seq if asked.number > 1 else call.requested
        whose = f"{which}, session {call.session}"
        return Conflict(
            f"{call.tool} waits for approval: {asked.reason} ({whose}){more}",
            hint=f"Answer it first: `loom-audit approve {number}` or `loom-audit deny {number}`.",
            details=details,
        )
    if attachment.lease(call.session) is None:
        return Conflict(
            f"{named} is still running here ({which}){more}",
            hint="Wait until it has ended, or stop the program that runs that session.",
            details=details,
        )
    return Conflict(
        f"{named} is still open: its client has not reported its end ({which}){more}",
        hint=f"Wait for that, or run `loom-audit session end {call.session}`. "
        "`loom-audit rollback POINT --hold` goes back now, and lets no other call of it run.",
        details=details,
    )
