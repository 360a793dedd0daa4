"""Calls of other programs of which nobody was told when they began: they are on record as told."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from loom_audit.history.ground.attachment import CLIENT, CLIENT_UNSEEN
from loom_audit.history.ground.writer import Writer
from loom_audit.history.look.attribution import request_event
from loom_audit.history.look.survivors import Running
from loom_audit.history.record.call import OpenCall, exclusive
from loom_audit.history.told.foreign import check_session_open, find_call
from loom_audit.model.coverage import Status
from loom_audit.model.events import CallRequested, SessionStarted
from loom_audit.ports import EventFilter


def add_unseen(
    writer: Writer,
    request: CallRequested,
    status: Status,
    result: Mapping[str, Any],
    why: str,
    *,
    ended: datetime | None = None,
    inferred: bool = False,
) -> None:
    """Put a whole call on record of which nothing was looked at, and `why`, unless it is there.

    Without a reason there was nothing to look at: it did not run.
    `ended` is when it ended. What is found next as from outside it may have done. Conflict when
    the session is not one that another program reports.
    """
    attachment = writer.attachment
    with exclusive(attachment):
        if not _announce(writer, request):
            return
        begun = attachment.stored.reading.call(writer.session, request.call_id)
        event, _ = request_event(attachment.stored, begun)
        ending = OpenCall.resumed(
            replace(writer, source=CLIENT, occurred_at=ended), begun, began=event.occurred_at
        )
        ending.record.lower_coverage(*filter(None, [why]), level="none")
        if request.effect in ("write", "execute") and status in ("ok", "running", "unknown"):
            Running(attachment).add_client(begun.requested)
            if status != "running":
                Running(attachment).end_client(begun.requested)
        ending.finish(status, {**result, "files_changed": []}, inferred=inferred)


def announce_unseen(writer: Writer, request: CallRequested) -> None:
    """Put a call on record as requested that was not looked at before, unless it is there.

    Conflict when the session is not one that another program reports.
    """
    with exclusive(writer.attachment):
        _announce(writer, request)


def _announce(writer: Writer, request: CallRequested) -> bool:
    """Whether it was not on record: another process may read the same transcript."""
    if find_call(writer.attachment.stored, writer.session, request.call_id) is not None:
        return False
    _go_on(writer)
    check_session_open(writer.attachment, writer.session)
    told_of = replace(writer, source=CLIENT_UNSEEN)
    OpenCall.from_request(told_of, replace(request, within=None)).announce()
    return True


def _go_on(writer: Writer) -> None:
    """Let a session that was ended before all of it was told go on, as it began last.

    Under the same lease, so that it ends with its client.
    """
    attachment, session = writer.attachment, writer.session
    if (
        attachment.stored.reading.session(session).ended is None
        or attachment.lease(session) is None
    ):
        return
    kinds = (SessionStarted.kind,)
    wanted = EventFilter(kinds=kinds, session=session, newest_first=True, limit=1)
    writer.record(*(event.fact for event in attachment.stored.log.read(wanted)))
