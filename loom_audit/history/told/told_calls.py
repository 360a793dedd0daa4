"""What a client tells of its calls and their files, beside what is on disk and on record."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from msgspec import UNSET

from loom_audit.clients.reports import CallBegan, CallEnded, FileTold
from loom_audit.errors import AuditError
from loom_audit.history.look.attribution import in_ns
from loom_audit.history.look.doers import Told
from loom_audit.history.told.reported import merged
from loom_audit.model.files import FileState
from loom_audit.model.records import Call
from loom_audit.ports import BlobStore, Workspace


def told_of_calls(
    workspace: Workspace,
    calls: Iterable[Call],
    asked: Mapping[str, CallBegan],
    heard: Mapping[str, CallEnded],
    ended: Mapping[str, CallEnded],
) -> Mapping[int, Told]:
    """What is told of calls, by their requests: by their ids that they were asked for, and ended.

    The end is told by a hook that was `heard`, by the transcript, or by both.
    """
    found = {}
    for call in calls:
        id = call.call_id
        report = merged(heard.get(id), ended[id]) if id in ended else heard.get(id)
        began = asked.get(id)
        if report is not None or began is not None:
            files = [
                (path, file)
                for file in (report.files if report else ())
                if (path := told_path(workspace, file)) is not None
            ]
            found[call.requested] = Told(
                in_ns(began.at if began else None),
                in_ns(report.at if report else None),
                frozenset(path for path, _ in files),
                frozenset(path for path, file in files if is_as_told(workspace, path, file)),
            )
    return found


def is_as_told(workspace: Workspace, path: str, told: FileTold) -> bool | None:
    """Whether a file is as the client says that it left it; None where that is not known."""
    try:
        is_there = workspace.stamp(path) is not None
    except AuditError:  # a folder above may forbid to look
        return None
    return _is_told(told, is_there, lambda: workspace.read(path))


def is_content(blobs: BlobStore, state: FileState | None, told: FileTold) -> bool:
    """Whether a recorded state is known to be what the client says that it left."""
    if state is None or not isinstance(told.after, str):
        return _is_told(told, state is not None, bytes) is True
    longest = 2 * len(told.after.encode("utf-8", "replace")) + 3  # with other line ends, and a mark
    blob = state.blob
    if state.kind != "file" or blob is None or state.size > longest:
        return False
    return _is_told(told, True, lambda: blobs.get(blob)) is True


def _is_told(told: FileTold, is_there: bool, read: Callable[[], bytes]) -> bool | None:
    if told.after is UNSET:
        return None
    if told.after is None or not is_there:
        return told.after is None and not is_there
    try:
        found = read().decode("utf-8-sig")
    except (AuditError, UnicodeDecodeError):
        return None
    # clients read lines, and may tell them with other ends than the file has
    return _lines(found) == _lines(told.after.removeprefix("\ufeff"))


def told_path(workspace: Workspace, told: FileTold) -> str | None:
    """The path of a file in a workspace; None where it is not in it."""
    with suppress(AuditError):
        return workspace.relative(told.path)
    return None


def _lines(text: str) -> str:
    return text.replace("\r\n", "\n")
