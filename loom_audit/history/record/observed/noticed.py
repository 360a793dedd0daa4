"""Putting on record what changes from outside, as an observer notices it.

It is the look that is made between calls, told earlier: while a call runs that changes files by
itself, nothing is looked at, since the look at its end finds what it did.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from loom_audit.errors import AuditError
from loom_audit.history.ground.attachment import OBSERVED, Attachment
from loom_audit.history.look.attribution import acting_calls, attributed_drafts, ended_candidate
from loom_audit.history.look.batches import Batch
from loom_audit.history.look.capture import scan
from loom_audit.history.look.change_index import update_index
from loom_audit.history.look.doers import Candidate
from loom_audit.history.look.spared import Spared
from loom_audit.history.look.survivors import Window
from loom_audit.history.look.timing import changed_at
from loom_audit.history.record.fitted import append_or_fit
from loom_audit.history.record.interrupted import record_interrupted
from loom_audit.history.record.recovery import recover
from loom_audit.model.events import Draft, Event, FilesChanged
from loom_audit.ports import CallFilter, Noticed, Watch

EDITORS = re.compile(r"4913|\..*\.sw[a-z]|.*~|\.#.*|\.goutputstream-.*", re.DOTALL)
"""The names that editors give files for as long as they write or have a file open."""

_NEWEST_CALLS = 50
"""Among so many calls of a session the newest is looked for that may change files."""


class Recorded(Struct, frozen=True):
    """What a look put on record, and the window that ended with it.

    The window goes on until `end_window`: what is noticed later may have been done in it.
    """

    events: Sequence[Event]
    window: Window


def is_of_editor(path: str) -> bool:
    """Whether a file has a name that an editor gives to one that goes again."""
    return EDITORS.fullmatch(path.rpartition("/")[2]) is not None


def is_recorded(attachment: Attachment, one: Noticed) -> bool:
    """Whether what is noticed is nothing new, or out of scope; no lock is held.

    What is at the path is then as the change index says, which follows the log.
    """
    path, scope = one.path, attachment.scope
    if not path:
        return not one.renewed
    entry, opaque = attachment.on_disk.index.get(path), scope.is_opaque(path)
    outside = not scope.includes(path, directory=one.renewed)
    if entry is None and outside and not opaque:
        return True
    if one.renewed:
        return False
    with suppress(AuditError):  # a folder above may forbid to look
        stamp = attachment.on_disk.workspace.stamp(path)
        if opaque:
            return (stamp is None) == (entry is None)
        return stamp == (entry.stamp if entry else None)
    return False


def why_wait(attachment: Attachment) -> str:
    """Why nothing can be looked at now; "" when it can.

    Calls whose process has ended are closed first, as by whoever records next.
    """
    if attachment.is_undo_running:
        return "something is taken back"
    recover(attachment)
    calls = acting_calls(attachment)
    return f"call {calls[0].requested} is open" if calls else ""


def record_noticed(
    attachment: Attachment,
    watch: Watch,
    paths: Iterable[str],
    spares: Callable[[str], bool] | None = None,
) -> Recorded | None:
    """Put on record what changed at these paths, and all that the watch doubts; the lock is held.

    With `spares` known files of which it says so are left as they are, and new files of editors.
    None where something has begun that has to end before.
    """
    open_calls = attachment.stored.tables.open_calls()
    if attachment.is_undo_running or acting_calls(attachment, open_calls):
        return None
    for path in paths:
        watch.touch(path)
    attachment.process.last_seen.watch = watch
    record_interrupted(attachment, open_calls)
    window = Window.begin(attachment)
    spared = None if spares is None else Spared(_sparing(spares))
    clients = [*_of_clients(attachment)]
    events: list[Event] = []
    for batch in scan(attachment, spared=spared):
        among = window.with_survivors(())
        seen = {one.requested for one in among}
        among += [one for one in clients if one.requested not in seen]
        drafts = [*_dated(attachment, batch, attributed_drafts(attachment, batch, among))]
        found = append_or_fit(attachment, drafts, batch.entries, among)
        update_index(attachment, batch.entries, found)
        events += found
    return Recorded(events, window)


def end_window(attachment: Attachment, window: Window) -> None:
    """Let no call be a candidate any more that had left nothing running when a look was made.

    To be called long after it, when nothing more was noticed.
    """
    if window.since:
        with attachment.exclusive():
            window.end()


def _sparing(spares: Callable[[str], bool]) -> Callable[[str, bool], bool]:
    return lambda path, is_new: is_of_editor(path) if is_new else spares(path)


def _of_clients(attachment: Attachment) -> Iterator[Candidate]:
    """For each client that is there its newest call that may change files.

    Not all that a client does is told: what changes while none of its calls is open may be its own,
    of a call that is told later or never. It may as well be a person's.
    """
    for session in attachment.stored.tables.open_sessions():
        if attachment.lease(session.id) is None or not attachment.is_session_alive(session.id):
            continue
        newest = CallFilter(session=session.id, limit=_NEWEST_CALLS)
        for call in attachment.stored.tables.calls(newest):
            if call.seq is not None and call.effect in ("write", "execute"):
                yield replace(ended_candidate(call), assumed=True)
                break


def _dated(attachment: Attachment, batch: Batch, drafts: Iterable[Draft]) -> Iterator[Draft]:
    """The drafts, those of changes with when the last of them was made."""
    if not batch.changes:
        yield from drafts
        return
    asked, now = changed_at(attachment.on_disk), attachment.stored.clock.now()
    for draft in drafts:
        if isinstance(draft.fact, FilesChanged):
            at = _time(filter(None, map(asked, draft.fact.changes)))
            draft = replace(draft, source=OBSERVED, occurred_at=at if at and at <= now else None)
        yield draft


def _time(changed: Iterable[int]) -> datetime | None:
    """The newest of these times, which are in ns since 1970."""
    newest = max(changed, default=None)
    if newest is None:
        return None
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=newest // 1000)
