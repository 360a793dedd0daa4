"""Compares what a client tells of its calls' files with what is on disk and on record."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from msgspec import UNSET

from loom_audit.clients.reports import FileTold
from loom_audit.errors import AuditError
from loom_audit.history.look.attribution import in_ns
from loom_audit.history.look.doers import Told
from loom_audit.history.told.pending_calls import PendingCalls
from loom_audit.history.told.reported import merged_end
from loom_audit.model.files import FileState
from loom_audit.model.records import Call
from loom_audit.ports import BlobStore, Workspace


def told_of_calls(
    workspace: Workspace,
    calls: Iterable[Call],
    pending: PendingCalls,
) -> Mapping[int, Told]:
    """What the client told of calls by now, for looks: by the seq of each call's request.

    A call of which nothing was told is left out.
    """
    found = {}
    for call in calls:
        id = call.call_id
        by_hook, ended = pending.hook_ends.get(id), pending.transcript_ends.get(id)
        ended = merged_end(by_hook, ended) if ended is not None else by_hook
        began = pending.transcript_begins.get(id)
        if ended is not None or began is not None:
            files = [
                (path, file)
                for file in (ended.files if ended else ())
                if (path := reported_path(workspace, file)) is not None
            ]
            found[call.requested] = Told(
                in_ns(began.at if began else None),
                in_ns(ended.at if ended else None),
                frozenset(path for path, _ in files),
                frozenset(path for path, file in files if is_as_told(workspace, path, file)),
            )
    return found


def is_as_told(workspace: Workspace, path: str, file: FileTold) -> bool | None:
    """Whether a file on disk is as the client says that it left it; None where that is not known.

    It is not known where the client does not tell the content, or the file cannot be read.
    """
    try:
        is_there = workspace.stamp(path) is not None
    except AuditError:  # the mode of a folder above may forbid to look
        return None
    return _is_content_told(file, is_there, lambda: workspace.read(path))


def is_recorded_as_told(blobs: BlobStore, state: FileState | None, file: FileTold) -> bool:
    """Whether a recorded state is known to be what the client says that it left; None is absent."""
    if state is None or not isinstance(file.after, str):
        return _is_content_told(file, state is not None, bytes) is True
    # the file may have CRLF where LF is told, and a byte order mark of 3 bytes
    longest = 2 * len(file.after.encode("utf-8", "replace")) + 3
    blob = state.blob
    if state.kind != "file" or blob is None or state.size > longest:
        return False
    return _is_content_told(file, True, lambda: blobs.get(blob)) is True


def _is_content_told(file: FileTold, is_there: bool, read: Callable[[], bytes]) -> bool | None:
    """Whether content is what the client tells; None where it tells none, or this is not text."""
    if file.after is UNSET:
        return None
    if file.after is None or not is_there:
        return file.after is None and not is_there
    try:
        found = read().decode("utf-8-sig")
    except (AuditError, UnicodeDecodeError):
        return None
    # clients read lines, and may tell them with other ends than the file has
    return _with_lf(found) == _with_lf(file.after.removeprefix("\ufeff"))


def reported_path(workspace: Workspace, file: FileTold) -> str | None:
    """The path of a file within a workspace; None where it is not in it."""
    with suppress(AuditError):
        return workspace.relative(file.path)
    return None


def _with_lf(text: str) -> str:
    return text.replace("\r\n", "\n")
