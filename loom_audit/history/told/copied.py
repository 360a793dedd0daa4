"""What a client tells that is older, or of another session: a resumed or forked one copies it."""

from collections.abc import Callable
from datetime import datetime

from loom_audit.clients.reports import CallBegan
from loom_audit.history.ground.writer import Writer
from loom_audit.history.told.reported import safe_id, tool_name
from loom_audit.model.conversation import MessageReceived, PromptSubmitted
from loom_audit.model.events import CallRequested
from loom_audit.ports import EventFilter

_EARLIER = 10
"""Seconds by which what belongs to a session may be older than its start on record."""


Connected = Callable[[datetime, datetime], bool | None]
"""Whether the client of a session that started at the first time ran our hooks here at the second.

None where that is not known.
"""


def is_beyond(writer: Writer, connected: Connected, at: datetime | None) -> bool:
    """Whether what is told lies where the client did not run our hooks here.

    Where it is not known when it does, before the session was on record.
    """
    if at is None:
        return False
    started = writer.attachment.stored.reading.session(writer.session).started_at
    known = connected(started, at)
    return is_before_start(writer, at) if known is None else not known


def is_before_start(writer: Writer, at: datetime | None) -> bool:
    """Whether what is told lies before the session was on record."""
    started = writer.attachment.stored.reading.session(writer.session).started_at
    return at is not None and (started - at).total_seconds() > _EARLIER


def is_copied(writer: Writer, began: CallBegan) -> bool:
    """Whether the client told of this call in another session."""
    call_id = safe_id(began.call_id)
    wanted = EventFilter(kinds=(CallRequested.kind,), call_id=call_id)
    return bool(call_id) and any(
        event.actor == writer.actor
        and event.session != writer.session
        and isinstance(event.fact, CallRequested)
        and event.fact.tool == tool_name(began.tool)
        for event in writer.attachment.stored.log.read(wanted)
    )


def is_known_text(writer: Writer, fact: PromptSubmitted | MessageReceived) -> bool:
    """Whether this text is on record, with its id, in another session of the client."""
    texts = writer.attachment.stored.log.read(EventFilter(kinds=(fact.kind,)))
    return any(one.fact == fact and one.actor == writer.actor for one in texts)
