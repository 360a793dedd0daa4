"""What calls change out of scope: where what was there is kept, and the reasons of coverage.

A step of a write keeps it with its intention. A call that writes by itself names its paths, and
what is there is kept before it, since no look goes there.
"""

import stat
from collections.abc import Iterator, Sequence
from typing import TypeGuard

from loom_audit.errors import AuditError, AuditUnavailable, NoWorkspace
from loom_audit.history.ground.attachment import Attachment, StoredLog
from loom_audit.history.look.attribution import request_event
from loom_audit.history.look.observation import observe
from loom_audit.history.record.preconditions import Preconditions
from loom_audit.model.events import ContentFound
from loom_audit.model.files import FileChange, FileState
from loom_audit.model.plans.links import without_group
from loom_audit.model.records import Call
from loom_audit.ports import EventFilter, Stamp

BEFORE = "what was there before a call that names this path, which is out of scope"
"""The reason of a content that is kept before a call of another program."""


def outside_scope(change: FileChange, kept: int) -> str:
    """The reason of coverage for a change that is not recorded.

    What was at the path before is kept with the event `kept`, and the reason says so.
    """
    reason = f"outside the scope: {change.path}"
    if change.before is None or change.before.blob is None:
        return reason
    return f"{reason} (`loom-audit cat PATH --at {kept}` prints what it held)"


def contents_before(
    attachment: Attachment, call_id: str, paths: Sequence[str]
) -> Iterator[ContentFound]:
    """What is at these paths before a call that names them, where it is out of scope.

    Its content is stored. A file over the limit for recorded content is left out, one that cannot
    be read, and what is not a file or a link. AuditUnavailable where a content cannot be stored.
    """
    for path in _unrecorded(attachment, paths):
        if (state := _state(attachment, path, keep=True)) is not None:
            yield ContentFound(path, state, BEFORE, call_id)


def changed_reasons(attachment: Attachment, call: Call) -> Iterator[str]:
    """The reasons of coverage for what a call changed out of scope, at the paths that it named.

    What was kept before the call and is the same now was not changed. Where nothing was kept, any
    file that is there now may be the call's.
    """
    paths = request_event(attachment.stored, call)[1].paths or ()
    kept = _kept(attachment.stored, call, len(paths))
    for path, (at, before) in kept.items():
        now = _state(attachment, path, keep=False)
        if without_group(now) != without_group(before):
            yield outside_scope(FileChange(path, before, now), at)
    for path in _unrecorded(attachment, [path for path in paths if path not in kept]):
        if _is_there(attachment, path):
            yield outside_scope(FileChange(path, None, None), 0)


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
