"""What a client's two reporters, its hooks and its transcript, say of one call: pure functions."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from hashlib import sha256
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from loom_audit.clients.reports import CallBegan, CallEnded, FileTold
from loom_audit.errors import AuditError
from loom_audit.history.look.attribution import in_ns
from loom_audit.history.look.doers import Told
from loom_audit.model.files import FileState
from loom_audit.model.records import Call
from loom_audit.model.text.display import visible
from loom_audit.ports import BlobStore, Workspace

MAX_ID = 200


def safe_id(id: str) -> str:
    """An id or a name as a client gives it, as far as it can be one; else a name for it."""
    raw = id.encode("utf-8", "replace")
    if visible(id) == id and len(raw) <= MAX_ID:
        return id
    return sha256(raw).hexdigest()[:32]


def begun_of(ended: CallEnded) -> CallBegan:
    """A call of which only the end is told."""
    arguments = None if ended.arguments is UNSET else ended.arguments
    return CallBegan(ended.session, ended.call_id, ended.tool, arguments, "execute")


def merged(heard: CallEnded | None, told: CallEnded) -> CallEnded:
    """What a hook and the transcript say of one end; where they differ the latter holds."""
    if heard is None:
        return told
    return replace(
        told,
        status=told.status or heard.status,
        result=joined(heard.result, told.result),
        arguments=heard.arguments if told.arguments is UNSET else told.arguments,
        duration=heard.duration if told.duration is None else told.duration,
        files=heard.files or told.files,
        background=heard.background or told.background,
    )


def joined(first: Mapping[str, Any], last: Mapping[str, Any]) -> Mapping[str, Any]:
    """Two results as one; of what both say the last holds."""
    told = {name: one for name, one in last.items() if one or name not in first}
    data = {**(first.get("data") or {}), **(last.get("data") or {})}
    return {**first, **told, **({"data": data} if data else {})}


def differs(workspace: Workspace, told: FileTold) -> bool:
    """Whether a file is not as the client says that it left it."""
    if told.after is UNSET:
        return False
    try:
        path = workspace.relative(told.path)
        if workspace.stamp(path) is None or told.after is None:
            return (workspace.stamp(path) is None) != (told.after is None)
        found = workspace.read(path).decode("utf-8-sig")
    except (AuditError, UnicodeDecodeError):
        return False
    # clients read lines, and may tell them with other ends than the file has
    return _lines(found) != _lines(told.after.removeprefix("\ufeff"))


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
            paths, same = _told_paths(workspace, report.files if report else ())
            found[call.requested] = Told(
                in_ns(began.at if began else None),
                in_ns(report.at if report else None),
                paths,
                same,
            )
    return found


def _told_paths(
    workspace: Workspace, files: Iterable[FileTold]
) -> tuple[frozenset[str], frozenset[str]]:
    """The paths of these files, and those that are as the client says that it left them."""
    paths: set[str] = set()
    same: set[str] = set()
    for one in files:
        if (path := told_path(workspace, one)) is not None:
            paths.add(path)
            if is_same(workspace, path, one):
                same.add(path)
    return frozenset(paths), frozenset(same)


def is_same(workspace: Workspace, path: str, told: FileTold) -> bool:
    """Whether a file is known to be as the client says that it left it."""
    if told.after is UNSET:
        return False
    if told.after is None or workspace.stamp(path) is None:
        return told.after is None and workspace.stamp(path) is None
    try:
        found = workspace.read(path).decode("utf-8-sig")
    except (AuditError, UnicodeDecodeError):
        return False
    return _lines(found) == _lines(told.after.removeprefix("\ufeff"))


def is_content(blobs: BlobStore, state: FileState | None, told: FileTold) -> bool:
    """Whether a recorded state is known to be what the client says that it left."""
    if told.after is UNSET:
        return False
    if told.after is None or state is None:
        return told.after is None and state is None
    longest = 2 * len(told.after.encode("utf-8", "replace")) + 3  # with other line ends, and a mark
    if state.kind != "file" or state.blob is None or state.size > longest:
        return False
    try:
        found = blobs.get(state.blob).decode("utf-8-sig")
    except (AuditError, UnicodeDecodeError):
        return False
    return _lines(found) == _lines(told.after.removeprefix("\ufeff"))


def told_path(workspace: Workspace, told: FileTold) -> str | None:
    """The path of a file in a workspace; None where it is not in it."""
    with suppress(AuditError):
        return workspace.relative(told.path)
    return None


def _lines(text: str) -> str:
    return text.replace("\r\n", "\n")
