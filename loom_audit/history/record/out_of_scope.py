"""Keeps what a call that writes by itself is about to change out of scope, where no look goes."""

import stat
from collections.abc import Iterator, Sequence
from typing import TypeGuard

from loom_audit.errors import AuditError, AuditUnavailable, NoWorkspace
from loom_audit.history.ground.attachment import Attachment, StoredLog
from loom_audit.history.look.attribution import request_event
from loom_audit.history.look.observation import observe
from loom_audit.history.record.call_record import CallRecord
from loom_audit.history.record.preconditions import Preconditions, outside_scope
from loom_audit.model.events import ContentFound
from loom_audit.model.files import FileChange, FileState
from loom_audit.model.plans.links import without_group
from loom_audit.model.records import Call
from loom_audit.ports import EventFilter, Stamp

BEFORE = "what was there before a call that names this path, which is out of scope"
"""The reason of a content that is kept before a call of another program."""


def keep_before(record: CallRecord, paths: Sequence[str]) -> None:
    """Let what is at these paths now wait for the commit of the request, where it is out of scope.

    A file over the limit for recorded content is not kept, nor one that cannot be read, nor what is
    not a file or a link. AuditUnavailable where a content cannot be stored.
    """
    for path in _unrecorded(record.attachment, paths):
        if (state := _state(record.attachment, path, keep=True)) is not None:
            record.add(ContentFound(path, state, BEFORE, record.call_id))


def note_changed(record: CallRecord, call: Call) -> None:
    """Lower the coverage by what a call changed out of scope, at the paths that it named.

    What was kept before the call and is the same now was not changed. Where nothing was kept, any
    file that is there now may be the call's.
    """
    attachment = record.attachment
    paths = request_event(attachment.stored, call)[1].paths or ()
    kept = _kept(attachment.stored, call, len(paths))
    for path, (at, before) in kept.items():
        now = _state(attachment, path, keep=False)
        if without_group(now) != without_group(before):
            record.lower_coverage(outside_scope(FileChange(path, before, now), at))
    for path in _unrecorded(attachment, [path for path in paths if path not in kept]):
        if _is_there(attachment, path):
            record.lower_coverage(outside_scope(FileChange(path, None, None), 0))


def _kept(stored: StoredLog, call: Call, most: int) -> dict[str, tuple[int, FileState]]:
    """What was kept with the request of a call: by path, the seq of its event and the state."""
    if not most:
        return {}
    kinds = (ContentFound.kind,)
    wanted = EventFilter(after=call.requested, kinds=kinds, session=call.session, limit=most)
    return {
        event.fact.path: (event.seq, event.fact.state)
        for event in stored.log.read(wanted)
        if isinstance(event.fact, ContentFound)
        and (event.fact.call_id, event.fact.reason) == (call.call_id, BEFORE)
    }


def _unrecorded(attachment: Attachment, paths: Sequence[str]) -> Iterator[str]:
    """The paths that are out of scope; never `.git`, the store, or a temporary of ours."""
    is_recorded, workspace = Preconditions(attachment).is_recorded, attachment.on_disk.workspace
    for path in paths:
        if workspace.is_writable(path) and not is_recorded(path, None):
            yield path


def _state(attachment: Attachment, path: str, *, keep: bool) -> FileState | None:
    """The file or link at a path; None for anything else, and for what may not or cannot be read.

    A file over the limit for recorded content is not read.
    """
    try:
        stamp = attachment.on_disk.workspace.stamp(path)
        if not _is_file(stamp) or stamp.size > attachment.scope.max_file_bytes:
            return None
        state, _ = observe(attachment, path, None, keep=keep, seen=stamp)
    except (AuditUnavailable, NoWorkspace):
        raise
    except AuditError:
        return None
    # it may have grown over the limit, or become a folder, while it was read
    if state is None or state.blob is None or (keep and state.blob not in attachment.stored.blobs):
        return None
    return state


def _is_there(attachment: Attachment, path: str) -> bool:
    """Whether a file or link is at a path, as far as that can be seen."""
    try:
        return _is_file(attachment.on_disk.workspace.stamp(path))
    except NoWorkspace:
        raise
    except AuditError:
        return True


def _is_file(stamp: Stamp | None) -> TypeGuard[Stamp]:
    return stamp is not None and (stat.S_ISREG(stamp.mode) or stat.S_ISLNK(stamp.mode))
