"""What a client's two reporters, its hooks and its transcript, say of one call: pure functions."""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from loom_audit.clients.reports import CallBegan, CallEnded, FileTold
from loom_audit.errors import AuditError
from loom_audit.model.display import visible
from loom_audit.ports import Workspace

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


def _lines(text: str) -> str:
    return text.replace("\r\n", "\n")
