"""Holds and releases sessions: while a session is held, none of its calls runs."""

from loom_audit.errors import ApprovalDenied, Conflict
from loom_audit.history.ground.attachment import Attachment, StoredLog
from loom_audit.history.ground.writer import Writer
from loom_audit.history.record.call import OpenCall
from loom_audit.model.events import CallDecided, CallRequested, SessionHeld, SessionReleased
from loom_audit.model.records import Call, SessionHold
from loom_audit.ports import EventFilter


def hold(writer: Writer, reason: str = "", *, label: str = "") -> SessionHold:
    """Hold the writer's session, and with it the sessions within it.

    Returns the hold: who holds the session, why and since when. A session that is held already is
    not held a second time; its first hold is returned. `label` is a name beside the actor's.
    NotFound for a session that is not on record, Conflict for one that has ended.
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
            writer.record(SessionHeld(_labelled_actor(writer, label), reason))
        # after the log, which alone says that the session is held
        _keep_holds_for_hooks(attachment, session)
        held = attachment.hold(session)
        assert held is not None
        return held


def release(writer: Writer, reason: str = "", *, label: str = "") -> bool:
    """End the hold of the writer's session; returns whether the session was held itself.

    `label` is a name beside the actor's. NotFound for a session that is not on record. Conflict,
    with its own hold ended, for one that is still held with a session that contains it.
    """
    attachment, session = writer.attachment, writer.session
    with attachment.exclusive():
        attachment.stored.reading.session(session)
        was = attachment.session_state(session).hold is not None
        if was:
            writer.record(SessionReleased(_labelled_actor(writer, label), reason))
        _keep_holds_for_hooks(attachment, session)
        above = attachment.hold(session)
        if above is not None:
            raise Conflict(
                f"{above.text}; {session} is within it",
                hint=f"`loom-audit release {above.session}` lets both go on.",
            )
        return was


def _labelled_actor(writer: Writer, label: str) -> str:
    """The writer's actor, with the label in brackets if there is one."""
    return f"{writer.actor} ({label})" if label else writer.actor


def keep_hold_for_hooks(attachment: Attachment, session: str) -> SessionHold | None:
    """Write down for hooks that a session is held, if it is; returns the hold.

    A hook that no process of ours answers reads it there, and denies calls by itself.
    """
    held = attachment.hold(session)
    if held is not None:
        attachment.stored.holds.keep(session, held.refusal)
    return held


def _keep_holds_for_hooks(attachment: Attachment, session: str) -> None:
    """Bring what hooks read up to date, for this session and for all that are open.

    Any open session may be within this one, and so be held or released with it.
    """
    still_open = {one.id for one in attachment.stored.tables.open_sessions()}
    for one in sorted({session, *still_open}):
        if keep_hold_for_hooks(attachment, one) is None:
            attachment.stored.holds.discard(one)


def deny_if_on_hold(writer: Writer, request: CallRequested) -> None:
    """Put a call on record as denied if its session is held, and raise ApprovalDenied then."""
    attachment = writer.attachment
    held = keep_hold_for_hooks(attachment, writer.session)
    if held is None:
        # a process that was killed between the release and this may have left the file there
        if attachment.session_state(writer.session).released:
            attachment.stored.holds.discard(writer.session)
        return
    with OpenCall.from_request(writer, request) as call:
        deny(call, held)


def deny(call: OpenCall, session_hold: SessionHold) -> None:
    """Record that a call was denied because its session is held; always raises ApprovalDenied."""
    call.add_decision("denied", by=session_hold.by, reason=session_hold.text)
    raise ApprovalDenied(
        session_hold.refusal, details={"by": session_hold.by, "held": session_hold.seq}
    )


def check_not_denied(stored: StoredLog, call: Call) -> None:
    """ApprovalDenied for a call that is on record as denied, with the reason of then."""
    if call.status == "denied" and (decided := denial(stored, call)) is not None:
        raise ApprovalDenied(
            decided.reason or f"{call.tool} was denied", details={"by": decided.by}
        )


def denial(stored: StoredLog, call: Call) -> CallDecided | None:
    """The decision by which a finished call was denied; None where there was none."""
    decided = EventFilter(call.requested, call.seq, (CallDecided.kind,), call.session, call.call_id)
    facts = (event.fact for event in stored.log.read(decided))
    denied = (one for one in facts if isinstance(one, CallDecided) and one.decision == "denied")
    return next(denied, None) if call.seq is not None else None
