"""Says of an open call that is in the way: which it is, since when, and how it ends."""

from collections.abc import Sequence

from loom_audit.errors import Conflict
from loom_audit.history.attachment import Attachment
from loom_audit.history.questions import approval_state
from loom_audit.model.events import ApprovalRequested
from loom_audit.model.records import Call


def open_call_error(attachment: Attachment, calls: Sequence[Call]) -> Conflict:
    """The refusal because of these open calls; it names the first of them."""
    call = calls[0]
    more = f" and {len(calls) - 1} more" if len(calls) > 1 else ""
    which = f"call {call.requested}, open since {call.at:%Y-%m-%d %H:%M:%S} UTC"
    details = {"calls": [one.requested for one in calls]}
    named = f"{call.tool} of session {call.session}"
    state = approval_state(attachment.log, call.session, call.call_id, after=call.requested)
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
        hint=f"Wait for that, or run `loom-audit session end {call.session}`.",
        details=details,
    )
