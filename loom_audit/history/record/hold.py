"""Holding a session: from then on none of its calls runs, until it is released."""

from loom_audit.errors import ApprovalDenied, Conflict
from loom_audit.history.ground.attachment import Attachment, StoredLog
from loom_audit.history.ground.writer import Writer
from loom_audit.history.record.call import OpenCall
from loom_audit.model.events import CallDecided, CallRequested, SessionHeld, SessionReleased
from loom_audit.model.records import Call, SessionHold
from loom_audit.ports import EventFilter


def hold(writer: Writer, reason: str = "", *, label: str = "") -> SessionHold:
    """Hold the writer's session, and those within it: by what it is held, once when told twice.

    `label` is a name beside the actor's. NotFound for a session that is not on record, Conflict
    for one that has ended.
    """
    attachment, session = writer.attachment, writer.session
    with attachment.exclusive():
        found = attachment.stored.reading.session(session)
        if attachment.session_state(session).hold is None:
            if found.ended is not None:
                raise Conflict(
                    f"session {session} has ended",
                    hint="What has ended makes no calls. `loom-audit session` lists those that "
                    "are open.",
                )
            writer.record(SessionHeld(_named(writer, label), reason))
        _keep_all(attachment, session)
        held = attachment.hold(session)
        assert held is not None
        return held


def release(writer: Writer, reason: str = "", *, label: str = "") -> bool:
    """End the hold of the writer's session: whether it was held.

    `label` as for `hold`. NotFound for a session that is not on record, Conflict for one that is
    held with the one that contains it.
    """
    attachment, session = writer.attachment, writer.session
    with attachment.exclusive():
        attachment.stored.reading.session(session)
        was = attachment.session_state(session).hold is not None
        if was:
            writer.record(SessionReleased(_named(writer, label), reason))
        _keep_all(attachment, session)
        above = attachment.hold(session)
        if above is not None:
            raise Conflict(
                f"{above.text}; {session} is within it",
                hint=f"`loom-audit release {above.session}` lets both go on.",
            )
        return was


def _named(writer: Writer, label: str) -> str:
    return f"{writer.actor} ({label})" if label else writer.actor


def keep_held(attachment: Attachment, session: str) -> SessionHold | None:
    """Let hooks that no process of ours answers know that a session is held, when it is."""
    held = attachment.hold(session)
    if held is not None:
        attachment.stored.holds.keep(session, held.refusal)
    return held


def _keep_all(attachment: Attachment, session: str) -> None:
    """The same of a session and those that are open, some of which may be within it, or not."""
    still_open = {one.id for one in attachment.stored.tables.open_sessions()}
    for one in sorted({session, *still_open}):
        if keep_held(attachment, one) is None:
            attachment.stored.holds.discard(one)


def deny_if_held(writer: Writer, request: CallRequested) -> None:
    """Put a call of a held session on record as denied, and raise ApprovalDenied."""
    attachment = writer.attachment
    held = keep_held(attachment, writer.session)
    if held is None:
        if attachment.session_state(writer.session).released:
            attachment.stored.holds.discard(writer.session)  # which a kill may have left there
        return
    with OpenCall.asked(writer, request) as call:
        deny(call, held)


def deny(call: OpenCall, held: SessionHold) -> None:
    """Decide that a call does not run because its session is held. ApprovalDenied."""
    call.add_decision("denied", by=held.by, reason=held.text)
    raise ApprovalDenied(held.refusal, details={"by": held.by, "held": held.seq})


def check_not_denied(stored: StoredLog, call: Call) -> None:
    """ApprovalDenied, again, for a call that was not let run."""
    if call.status == "denied" and (decided := denial(stored, call)) is not None:
        raise ApprovalDenied(
            decided.reason or f"{call.tool} was denied", details={"by": decided.by}
        )


def denial(stored: StoredLog, call: Call) -> CallDecided | None:
    """The decision that a finished call was not to run; None where there was none."""
    decided = EventFilter(call.requested, call.seq, (CallDecided.kind,), call.session, call.call_id)
    facts = (event.fact for event in stored.log.read(decided))
    denied = (one for one in facts if isinstance(one, CallDecided) and one.decision == "denied")
    return next(denied, None) if call.seq is not None else None
