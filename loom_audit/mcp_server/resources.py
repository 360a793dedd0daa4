"""What is on record as resources: timeline, one call, a difference, a file at a point."""

import base64
import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote_to_bytes

import mcp_types as types

from loom_audit.api.face import AuditedWorkspace
from loom_audit.errors import InvalidArguments, NotFound
from loom_audit.mcp_server.lines import own_change, session_patch, who_wrote
from loom_audit.model.git.record import GitChanged
from loom_audit.model.git.words import words_of
from loom_audit.model.text.display import one_line, visible
from loom_audit.model.text.textdiff import unified
from loom_audit.model.values import nearest_json

SCHEME = "loom-audit:///"
PAGE = 100
MAX_DIFF_FILES = 200
TIMELINE = types.Resource(
    uri=f"{SCHEME}timeline",
    name="timeline",
    description="The newest calls on record, newest first",
    mime_type="application/json",
)
TEMPLATES = (
    ("event/{seq}", "One call whole, by the number of any of its events", "application/json"),
    ("diff/{from}/{to}", "What differs between two points, as a unified diff", "text/plain"),
    (
        "blame/{point}/{first}-{last}/{+path}",
        "Which call wrote each of these lines of a file at a point, at most 300 at a time",
        "application/json",
    ),
    (
        "own/{session}",
        "What the calls of one session changed on balance, each line with its call",
        "text/plain",
    ),
    (
        "patch/{session}",
        "How the files that one session changed differ from before it, for `git apply`",
        "text/plain",
    ),
    (
        "patch/{session}/all",
        "The same of all files, whoever changed them meanwhile",
        "text/plain",
    ),
    ("file/{point}/{+path}", "A file as it was at a point", "application/octet-stream"),
)


def read_resource(
    workspace: AuditedWorkspace, uri: str
) -> types.TextResourceContents | types.BlobResourceContents:
    """Read the resource that a URI of ours names. NotFound, InvalidArguments, Corrupt."""
    if not uri.startswith(SCHEME):
        raise InvalidArguments(f"not a resource of this server: {one_line(uri, 100)}")
    kind, *rest = uri.removeprefix(SCHEME).split("/")
    names = [unquote_to_bytes(one).decode("utf-8", "surrogateescape") for one in rest]
    timeline = workspace.timeline
    match kind, names:
        case "timeline", []:
            page = timeline.calls()[:PAGE]
            git = timeline.git_of(page)
            calls = [_shown(call) | _git(git.get(call.requested, ())) for call in page]
            return _text(uri, json.dumps(nearest_json(calls)), "application/json")
        case "event", [seq] if seq.isascii() and seq.isdigit() and len(seq) < 19:
            detail = timeline.call(int(seq))
            told = _shown(detail.call) | _git(detail.git)
            told |= {
                "arguments": detail.arguments,
                "result": detail.result,
                "only_maybe": [*detail.shared],
                "may_have_changed": list(detail.to_choose),
            }
            return _text(uri, json.dumps(nearest_json(told)), "application/json")
        case "diff", [old, new]:
            return _text(uri, _difference(workspace, old, new), "text/plain")
        case "blame", [point, lines, *path] if path:
            told = who_wrote(workspace, point, lines, "/".join(path))
            return _text(uri, json.dumps(told), "application/json")
        case "own", [session]:
            return _text(uri, own_change(workspace, session), "text/plain")
        case "patch", [session]:
            return _bytes(uri, session_patch(workspace, session), "text/plain")
        case "patch", [session, "all"]:
            return _bytes(uri, session_patch(workspace, session, everyones=True), "text/plain")
        case "file", [point, *path] if path:
            return _file(workspace, uri, point, "/".join(path))
    raise InvalidArguments(
        f"not a resource of this server: {one_line(uri, 100)}",
        hint="There are: timeline, " + ", ".join(form for form, _, _ in TEMPLATES) + ".",
    )


def _file(
    workspace: AuditedWorkspace, uri: str, point: str, path: str
) -> types.TextResourceContents | types.BlobResourceContents:
    timeline = workspace.timeline
    seq = timeline.point(point)
    state = timeline.state(path, seq)
    if state is None and (why := timeline.why_unseen(path, seq)):
        raise NotFound(f"it is not known what was at {path} at {point}: {why}")
    if state is None or state.kind == "directory":
        raise NotFound(f"{path} was not a file at {point}")
    return _bytes(uri, timeline.content(state), "application/octet-stream")


def _difference(workspace: AuditedWorkspace, old: str, new: str) -> str:
    timeline = workspace.timeline
    points = timeline.point(old), timeline.point(new)
    changes = timeline.diff(*points)
    unseen = timeline.unseen(*points).items()
    parts = [f"not known what was there: {visible(path)} ({why})\n" for path, why in unseen]
    for change in changes[:MAX_DIFF_FILES]:
        before, after = (
            timeline.content(state) if state is not None and state.blob else None
            for state in (change.before, change.after)
        )
        told = unified(
            change.path,
            change.path,
            before,
            after,
            state_old=change.before,
            state_new=change.after,
        )
        parts.append(told.decode("utf-8", "replace"))
    if len(changes) > MAX_DIFF_FILES:
        parts.append(f"and {len(changes) - MAX_DIFF_FILES} more files\n")
    return "".join(parts)


def _shown(call: Any) -> dict[str, Any]:
    return {
        "number": call.seq or call.requested,
        "at": call.at.isoformat(),
        "session": call.session,
        "actor": call.actor,
        "tool": call.tool,
        "status": call.status,
        "summary": call.summary,
        "changed": call.changed,
        "paths": list(call.paths),
        "undone_by": call.undone_by,
        "undone_in_part_by": list(call.undone_in_part_by),
    }


def _git(facts: Sequence[GitChanged]) -> dict[str, list[str]]:
    """What a call changed of git, in git's words; nothing where it changed none."""
    words = words_of(facts)
    return {"git_changed": words} if words else {}


def _text(uri: str, text: str, kind: str) -> types.TextResourceContents:
    harmless = text.encode("utf-8", "backslashreplace").decode()
    return types.TextResourceContents(uri=uri, text=harmless, mime_type=kind)


def _bytes(
    uri: str, content: bytes, kind: str
) -> types.TextResourceContents | types.BlobResourceContents:
    """A text as such; what is not one as bytes of this kind."""
    try:
        return _text(uri, content.decode(), "text/plain")
    except UnicodeDecodeError:
        encoded = base64.b64encode(content).decode("ascii")
        return types.BlobResourceContents(uri=uri, blob=encoded, mime_type=kind)
