"""Puts on record the calls that only a transcript tells: no hook came when they began.

Nothing was looked at before and after such a call, so its coverage is `none: no hook`.
"""

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
    """Put a call on record with its finish, unless it is there.

    Its coverage is `none`, and `why` the reason; "" for a call that did not run, so that there was
    nothing to look at. `ended` is when it ended, by the client's clock; its `status` was `inferred`
    where nobody told it. A change that the next look finds as from outside names the call as a
    candidate. Conflict when the session is not one that another program reports.
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
    """Put the request of a call on record, unless it is there, and leave the call open.

    Conflict when the session is not one that another program reports.
    """
    with exclusive(writer.attachment):
        _announce(writer, request)


def _announce(writer: Writer, request: CallRequested) -> bool:
    """Put the request of a call on record; False where it is there already.

    Asked under the lock, since another process may read the same transcript.
    """
    if find_call(writer.attachment.stored, writer.session, request.call_id) is not None:
        return False
    _reopen_session(writer)
    check_session_open(writer.attachment, writer.session)
    unseen = replace(writer, source=CLIENT_UNSEEN)
    OpenCall.from_request(unseen, replace(request, within=None)).announce()
    return True


def _reopen_session(writer: Writer) -> None:
    """Put on record that a session goes on that was ended before all of it was told.

    It goes on under the lease that it had, so that it ends with its client.
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
