"""opencode: what our plugin hands on, what it is answered, and exported sessions.

opencode has no hooks of its own that run a command: our plugin runs the hook client with

    {"hook_event_name": NAME, "session_id": …, "cwd": directory of the project,
     "input": …, "output": …, "event": …}

on its standard input, where NAME is one of opencode's plugin hooks with its `input` and `output`
as they are (`tool.execute.before`, `tool.execute.after`, `chat.message`, `permission.ask`), or
`event` with the `event` as it is. Of events it hands on `session.created`, `session.idle`,
`session.error`, `session.deleted`, and `message.part.updated` whose part is a tool whose state is
`error`, or a text or reasoning with a `time.end`. The answer is nothing or
`{"decision": "allow" | "deny", "reason": …, "arguments": …}`: for a denied tool the plugin throws
the reason, which blocks it; for an allowed one it takes over `arguments` where there are some; for
`permission.ask` it sets `status`. It waits for the answer to `tool.execute.before`,
`tool.execute.after` and `permission.ask`.

What opencode does not tell:
- a failed tool fires only `tool.execute.before`: its error is an event;
- what a command leaves running, which outlives the session;
- the contents of an edited file, of which there is a diff (older releases: both contents);
- when a process of opencode ends.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from loom_audit.clients import fields
from loom_audit.clients.hooks import ClientHooks, decision
from loom_audit.clients.reports import (
    CallBegan,
    CallEnded,
    Client,
    FileTold,
    Hook,
    MessageTold,
    Place,
    PromptTold,
    Report,
    SessionOver,
    SessionTold,
    TurnEnded,
    Verdict,
)
from loom_audit.clients.tools import ClientTools
from loom_audit.model.coverage import Status

NAME = "opencode"

_HOOKS = ClientHooks(
    moments={
        "tool.execute.before": "before",
        "tool.execute.after": "after",
        "permission.ask": "permission",
        "chat.message": "prompt",
        "session.created": "session",
        "session.idle": "stop",
        "session.error": "stop",
        "session.deleted": "end",
        "message.part.updated": "after",
    },
    silent=frozenset(),
    fields=fields.words("hook_event_name session_id cwd input output event ev"),
)
_PATCH = ("patchText", "patch")
_TOOLS = ClientTools(
    # a task's own calls are on record themselves, in a session of its own
    read=fields.words(
        "read glob grep list ls lsp lsp_hover lsp_diagnostics todowrite todoread task question "
        "skill plan_enter plan_exit invalid batch"
    ),
    network=fields.words("webfetch websearch codesearch"),
    writes=dict.fromkeys(("write", "edit", "multiedit"), ("filePath",)),
    patches={"patch": _PATCH, "apply_patch": _PATCH},
    folders={"bash": ("workdir",)},
)
_TRAILER = re.compile(r"<(bash|shell)_metadata>\n(?P<said>[^<]*)\n</\1_metadata>\s*\Z")
"""What opencode itself adds at the end of the output of a command that has no exit code.

Older versions write `bash_metadata`, 1.18 writes `shell_metadata`.
"""
_STOPPED: Mapping[str, Status] = {
    "User aborted the command": "cancelled",
    "terminated command after exceeding timeout": "timeout",
}


def _ended(
    began: CallBegan,
    output: Any,
    metadata: Mapping[str, Any],
    arguments: Any | UnsetType,
    at: datetime | None = None,
    duration: int | None = None,
) -> CallEnded:
    """The end of a call that did not fail, unless it is a command that did."""
    kept = {k: v for k, v in metadata.items() if k not in ("output", "filediff", "preview")}
    kept = {k: v for k, v in kept.items() if k not in ("display", "diagnostics")}
    code = fields.whole(metadata.get("exit"))
    status: Status = "ok"
    if code is not None:
        kept["exit_code"] = kept.pop("exit")
        status = "error" if code else "ok"
    elif trailer := _TRAILER.search(fields.plain(output)):
        said = trailer["said"]
        status = next((status for words, status in _STOPPED.items() if words in said), "ok")
    return CallEnded(
        session=began.session,
        call_id=began.call_id,
        tool=began.tool,
        status=status,
        result=fields.result(fields.plain(output), kept),
        arguments=arguments,
        at=at,
        duration=duration,
        files=tuple(_files(began, metadata)),
    )


def _failed(began: CallBegan, said: str, at: datetime | None, duration: int | None) -> CallEnded:
    lower = said.lower()
    status: Status = "error"
    if "aborted" in lower[:60] or "cancelled" in lower[:60]:
        status = "cancelled"
    elif "rejected permission" in lower or "rule which prevents" in lower:
        status = "denied"
    return CallEnded(
        session=began.session,
        call_id=began.call_id,
        tool=began.tool,
        status=status,
        result=fields.result(said, {}),
        at=at,
        duration=duration,
    )


def _files(began: CallBegan, metadata: Mapping[str, Any]) -> Iterator[FileTold]:
    """The files of an edit, by its metadata and arguments."""
    told = [metadata.get("filediff"), *fields.mappings(metadata.get("files"))]
    for result in fields.mappings(metadata.get("results")):
        told.append(result.get("filediff"))
    found = [one for one in told if isinstance(one, dict)]
    for one in found:
        if path := fields.text(one, "file", "filePath", "path"):
            before, after = one.get("before"), one.get("after")
            yield FileTold(
                path,
                before if isinstance(before, str) else UNSET,
                after if isinstance(after, str) else UNSET,
                _without_head(fields.text(one, "patch", "diff")),
            )
    if found or not began.paths or began.tool in _TOOLS.patches:
        return
    if began.tool == "write":
        absent = metadata.get("exists") is False
        content = began.arguments.get("content")
        after = content if isinstance(content, str) else UNSET
        yield FileTold(began.paths[0], None if absent else UNSET, after)
    else:
        diff = _without_head(fields.text(metadata, "diff"))
        yield FileTold(began.paths[0], diff=diff)


def _without_head(diff: str) -> str:
    start = diff.find("@@ ")
    return diff[start:] if start >= 0 else ""


def read_hook(raw: bytes) -> Hook:
    """What the plugin hands on. InvalidArguments for what is not an object."""
    given = fields.hook_input(raw, NAME)
    name = fields.text(given, "hook_event_name", "ev")
    event = fields.mapping(given, "event")
    source, output = fields.mapping(given, "input"), fields.mapping(given, "output")
    if name == "event":
        name, source = fields.text(event, "type"), fields.mapping(event, "properties")
    part, info = fields.mapping(source, "part"), fields.mapping(source, "info")
    session = fields.text(given, "session_id") or fields.text(source, "sessionID")
    session = session or fields.text(part, "sessionID") or fields.text(info, "id")
    cwd = fields.text(given, "cwd") or fields.text(info, "directory")
    told = _session(info, session, None, cwd)
    hook = _HOOKS.read(given, name, told, _hook_reports(name, source, output, session, cwd))
    if name == "message.part.updated" and fields.text(part, "type") != "tool":
        return replace(hook, moment="other")
    return hook


def _session(info: Mapping[str, Any], session: str, at: datetime | None, cwd: str) -> SessionTold:
    return SessionTold(
        session=session,
        at=at,
        cwd=cwd,
        version=fields.text(info, "version"),
        title=fields.text(info, "title"),
        parent=fields.text(info, "parentID"),
    )


def _hook_reports(
    name: str,
    source: Mapping[str, Any],
    output: Mapping[str, Any],
    session: str,
    cwd: str,
) -> Iterator[Report]:
    tool, call_id = fields.text(source, "tool"), fields.text(source, "callID")
    match name:
        case "tool.execute.before":
            yield _TOOLS.began(session, call_id, tool, output.get("args"), None, cwd)
        case "tool.execute.after":
            arguments = source.get("args", UNSET)
            began = _TOOLS.began(session, call_id, tool, arguments, None, cwd)
            metadata = fields.mapping(output, "metadata")
            yield _ended(began, output.get("output"), metadata, arguments)
        case "message.part.updated":
            part = fields.mapping(source, "part")
            if fields.text(part, "type") == "tool":
                yield from _of_tool(session, part, cwd, began_too=False)
            elif fields.mapping(part, "time").get("end"):
                yield from _of_text(session, part)
        case "chat.message":
            message = fields.mapping(output, "message")
            pieces = [*fields.mappings(output.get("parts"))]
            yield from _prompt(session, message, pieces)
        case "session.idle":
            yield TurnEnded(session)
        case "session.error":
            kind = fields.text(fields.mapping(source, "error"), "name")
            yield TurnEnded(session, interrupted=kind == "MessageAbortedError")
        case "session.deleted":
            yield SessionOver(session, reason="deleted")


def _of_tool(
    session: str, part: Mapping[str, Any], cwd: str, *, began_too: bool
) -> Iterator[Report]:
    """What a part tells of a call; that it began only where no hook has told that."""
    state = fields.mapping(part, "state")
    times = fields.mapping(state, "time")
    start, end = fields.time(times.get("start")), fields.time(times.get("end"))
    duration = None
    if start and end and end >= start:
        duration = round((end - start).total_seconds() * 1_000_000)
    tool, call_id = fields.text(part, "tool"), fields.text(part, "callID")
    began = _TOOLS.began(session, call_id, tool, state.get("input"), start, cwd)
    if began_too:
        yield began
    match fields.text(state, "status"):
        case "completed":
            metadata = fields.mapping(state, "metadata")
            yield _ended(began, state.get("output"), metadata, UNSET, end, duration)
        case "error":
            yield _failed(began, fields.text(state, "error"), end, duration)


def _of_text(session: str, part: Mapping[str, Any]) -> Iterator[Report]:
    kind, said = fields.text(part, "type"), fields.text(part, "text")
    at = fields.time(fields.mapping(part, "time").get("end"))
    if said and kind in ("text", "reasoning"):
        yield MessageTold(session, said, fields.text(part, "id"), at, kind == "reasoning")


def _prompt(
    session: str, message: Mapping[str, Any], pieces: Sequence[Mapping[str, Any]]
) -> Iterator[Report]:
    texts = [
        fields.text(part, "text")
        for part in pieces
        if fields.text(part, "type") == "text" and part.get("synthetic") is not True
    ]
    said = "\n".join(text for text in texts if text)
    if said:
        at = fields.time(fields.mapping(message, "time").get("created"))
        yield PromptTold(session, said, fields.text(message, "id"), at)


def answer(hook: Hook, verdict: Verdict | None) -> bytes:
    """What the plugin is answered: empty when nobody decided, or about what is not asked."""
    if verdict is None or hook.moment not in ("before", "permission"):
        return b""
    said = decision(verdict)
    if verdict.decision == "allow" and verdict.arguments is not UNSET:
        said["arguments"] = verdict.arguments
    return fields.answer(said)


_SILENT_KINDS = fields.words(
    "step-start step-finish patch snapshot file agent compaction retry subtask"
)


class OpencodeExport:
    """A reader of what `opencode export` prints: one object."""

    def __init__(self) -> None:
        self.unread: Counter[str] = Counter()

    def read(self, line: bytes) -> Sequence[Report]:
        """The reports of the whole export, given as one line."""
        record = fields.line_of(line, self.unread)
        return list(self._reports(record)) if record else ()

    def _reports(self, record: Mapping[str, Any]) -> Iterator[Report]:
        info = fields.mapping(record, "info")
        session = fields.text(info, "id")
        if not session:
            self.unread["record without a session"] += 1
        cwd = fields.text(info, "directory")
        if session:
            at = fields.time(fields.mapping(info, "time").get("created"))
            yield _session(info, session, at, cwd)
        for message in fields.mappings(record.get("messages")):
            about = fields.mapping(message, "info")
            pieces = [*fields.mappings(message.get("parts"))]
            here = fields.text(fields.mapping(about, "path"), "cwd") or cwd
            if fields.text(about, "role") == "user":
                yield from _prompt(session, about, pieces)
                continue
            for part in pieces:
                yield from self._part(session, part, here)

    def _part(self, session: str, part: Mapping[str, Any], cwd: str) -> Iterator[Report]:
        match kind := fields.text(part, "type"):
            case "tool":
                yield from _of_tool(session, part, cwd, began_too=True)
            case "text" | "reasoning":
                yield from _of_text(session, part)
            case _ if kind not in _SILENT_KINDS:
                self.unread[fields.label("part", kind)] += 1


def _wrote(record: Mapping[str, Any]) -> bool:
    return isinstance(record.get("info"), dict) and "messages" in record


CLIENT = Client(
    name=NAME,
    title="opencode",
    moments=_HOOKS.moments,
    read_hook=read_hook,
    answer=answer,
    transcript=OpencodeExport,
    wrote=_wrote,
    place=Place(
        home="OPENCODE_CONFIG_DIR",
        folder=".config/opencode",
        user="plugins/loom-audit.js",
        local=".opencode/plugins/loom-audit.js",
        plugin="opencode_plugin.js",
        personal=True,
    ),
    untold="what a command leaves running, and when opencode itself ends",
    whole=True,
    hooked_by="plugin",
)
