"""Recognizes what a transcript tells that is not to go on record here.

A session that was resumed or forked has the calls and texts of the earlier one copied into its own
transcript. And a transcript goes back to times when the client was not connected.
"""

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


def was_without_hooks(writer: Writer, connected: Connected, at: datetime | None) -> bool:
    """Whether something happened while the client did not run our hooks here; False without a time.

    Where it is not known when the client ran them, they count from the session's start on record.
    """
    if at is None:
        return False
    started = writer.attachment.stored.reading.session(writer.session).started_at
    known = connected(started, at)
    return is_before_start(writer, at) if known is None else not known


def is_before_start(writer: Writer, at: datetime | None) -> bool:
    """Whether something happened before the session was on record; False without a time."""
    started = writer.attachment.stored.reading.session(writer.session).started_at
    return at is not None and (started - at).total_seconds() > _EARLIER


def is_copied(writer: Writer, began: CallBegan) -> bool:
    """Whether a call is on record in another session of the same client, by its id and tool."""
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
    """Whether a text is on record with the same id, in whatever session of the same client."""
    texts = writer.attachment.stored.log.read(EventFilter(kinds=(fact.kind,)))
    return any(one.fact == fact and one.actor == writer.actor for one in texts)
