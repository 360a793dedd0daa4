"""Gemini CLI: its hooks, their answers and its session files.

What it does not tell:
- its hooks name no call: `call_id` is "", and a call's end belongs to the oldest open call of the
  same tool and arguments in the session; the session file has ids;
- exit code, signal and background processes of a command stand only as the last lines of the text
  that the model is given, and no exit code means 0: a command that prints such lines last can
  feign them;
- a failed call fires its hook after it, with `error`; one that Esc stopped may be told there as
  one that ended well, and is cancelled in the session file once all calls of the answer have ended;
- the session file has no working directory of its own: the first message names the folders, the
  head only a SHA-256 of the project's path;
- the same message is written again when it has changed: what was told is not told again;
- the contents of a file are told before and after an edit, for a new file "" and `isNewFile`.
"""

import re
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import UNSET, Struct, UnsetType
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

NAME = "gemini"
SHELL = "run_shell_command"

_HOOKS = ClientHooks(
    moments={
        "SessionStart": "session",
        "BeforeAgent": "prompt",
        "BeforeTool": "before",
        "AfterTool": "after",
        "AfterAgent": "stop",
        "SessionEnd": "end",
    },
    silent=fields.words("BeforeModel BeforeToolSelection AfterModel Notification PreCompress"),
    fields=fields.words(
        "session_id transcript_path cwd hook_event_name timestamp tool_name tool_input mcp_context "
        "tool_response prompt prompt_response stop_hook_active source reason llm_request "
        "llm_response notification_type message details trigger original_request_name"
    ),
)
_EDITED = ("file_path", "absolute_path")
_TOOLS = ClientTools(
    read=fields.words(
        "read_file read_many_files list_directory glob grep_search search_file_content "
        "write_todos ask_user activate_skill enter_plan_mode exit_plan_mode get_internal_docs "
        "list_background_processes read_background_output complete_task update_topic "
        "read_mcp_resource list_mcp_resources"
    ),
    network=fields.words("web_fetch google_web_search"),
    writes=dict.fromkeys(("write_file", "replace", "edit"), _EDITED),
    folders={SHELL: ("dir_path",)},
)


class Tail(Struct, frozen=True):
    """What the last lines of a command's text tell."""

    exit_code: int | None = None
    signal: str = ""
    error: str = ""
    background: tuple[str, ...] = ()


_TOLD = re.compile(
    r"\A(Error|Exit Code|Signal|Background PIDs|Process Group PGID): (.{1,1000})\Z", re.DOTALL
)
_MOVED = re.compile(r"moved to background \(PID: (\d{1,10})\)")


def tail_of(output: str) -> Tail:
    """What stands below a command's own output, read from the end."""
    lines = output.rstrip().removesuffix("</untrusted_context>").rstrip().split("\n")
    told: dict[str, str] = {}
    for line in reversed(lines[-8:]):
        found = _TOLD.match(line)
        if found is None or found[1] in told:
            break
        told[found[1]] = found[2].strip()
    code = told.get("Exit Code", "")
    pids = [pid.strip() for pid in told.get("Background PIDs", "").split(",")]
    if moved := _MOVED.search(output[:500]):
        pids.append(moved[1])
    return Tail(
        exit_code=int(code) if re.fullmatch(r"-?\d{1,9}", code) else None,
        signal=told.get("Signal", ""),
        error=told.get("Error", ""),
        background=fields.as_paths([pid for pid in pids if pid.isdecimal()]),
    )


def _ended(
    report: CallBegan,
    output: str,
    shown: Any,
    status: Status,
    arguments: Any | UnsetType,
    at: datetime | None,
) -> CallEnded:
    """A call's end, by the text that the model was given and what was shown of it."""
    data: dict[str, Any] = {}
    background: tuple[str, ...] = ()
    if report.tool == SHELL and status in ("ok", "error"):
        tail = tail_of(output)
        background = tail.background
        status, data = _of_command(tail, status)
    if isinstance(shown, str) and shown and shown != output:
        data["shown"] = shown
    files: tuple[FileTold, ...] = ()
    if isinstance(shown, dict):
        files = tuple(_files(shown))
        known = ("originalContent", "newContent")
        data.update((name, value) for name, value in shown.items() if name not in known)
    return CallEnded(
        session=report.session,
        call_id=report.call_id,
        tool=report.tool,
        status=status,
        result=fields.result(output, data),
        arguments=arguments,
        at=at,
        files=files,
        background=background,
    )


def _of_command(tail: Tail, status: Status) -> tuple[Status, dict[str, Any]]:
    data: dict[str, Any] = {}
    if tail.signal not in ("", "0", "(none)", "null"):
        data["signal"] = tail.signal
        status = "error"
    code = tail.exit_code
    if code is None and status == "ok" and not tail.error and not tail.background:
        code = 0
    if code is not None:
        data["exit_code"] = code
        status = "error" if code else status
    if tail.background:
        data["background"] = [*tail.background]
        status = "running" if status == "ok" else status
    return status, data


def _files(shown: Mapping[str, Any]) -> Iterator[FileTold]:
    path = fields.text(shown, "filePath")
    if not path or "newContent" not in shown:
        return
    before: str | UnsetType | None = UNSET
    if isinstance(shown.get("originalContent"), str):
        before = shown["originalContent"]
    if shown.get("isNewFile") is True:
        before = None
    after = shown["newContent"]
    yield FileTold(path, before, after if isinstance(after, str) else UNSET)


def read_hook(raw: bytes) -> Hook:
    """One call of a hook. InvalidArguments for what is not the input of one."""
    given = fields.hook_input(raw, NAME)
    name, session = fields.text(given, "hook_event_name"), fields.text(given, "session_id")
    transcript, cwd = fields.text(given, "transcript_path"), fields.text(given, "cwd")
    at = fields.time(given.get("timestamp"))
    told = SessionTold(session, at, cwd, transcript)
    return _HOOKS.read(given, name, told, _hook_reports(name, given, session, cwd, at))


def _hook_reports(
    name: str, given: Mapping[str, Any], session: str, cwd: str, at: datetime | None
) -> Iterator[Report]:
    arguments = given.get("tool_input")
    match name:
        case "BeforeTool":
            yield _TOOLS.began(session, "", fields.text(given, "tool_name"), arguments, at, cwd)
        case "AfterTool":
            report = _TOOLS.began(session, "", fields.text(given, "tool_name"), arguments, at, cwd)
            response = fields.mapping(given, "tool_response")
            output = fields.plain(response.get("llmContent"))
            error = response.get("error")
            status: Status = "ok" if not error else _failed(fields.mapping(response, "error"))
            if output.lower().startswith(_BLOCKED):
                status = "denied"
            end = _ended(report, output, response.get("returnDisplay"), status, arguments, at)
            yield replace(end, final=False)
        case "BeforeAgent":
            if prompt := fields.text(given, "prompt"):
                yield PromptTold(session, prompt, at=at)
        case "AfterAgent":
            yield TurnEnded(session, at)
        case "SessionEnd":
            yield SessionOver(session, at, fields.text(given, "reason"))


_BLOCKED = "tool execution blocked: "
"""How the text about a call begins that a hook has denied."""


def _failed(error: Mapping[str, Any]) -> Status:
    kind, said = fields.text(error, "type").lower(), fields.text(error, "message").lower()
    if "cancel" in kind:
        return "cancelled"
    by_policy = "denied" in kind or "policy" in kind or "denied by policy" in said
    if by_policy or said.startswith(_BLOCKED):
        return "denied"
    return "timeout" if "timeout" in kind else "error"


def answer(hook: Hook, verdict: Verdict | None) -> bytes:
    """What the hook prints: empty when nobody decided, or about what is not asked."""
    if verdict is None or hook.moment != "before":
        return b""
    said = decision(verdict)
    if verdict.decision == "allow" and verdict.arguments is not UNSET:
        changed = {"hookEventName": hook.name, "tool_input": verdict.arguments}
        said["hookSpecificOutput"] = changed
    return fields.answer(said)


_STATUSES: Mapping[str, Status] = {"success": "ok", "error": "error", "cancelled": "cancelled"}
_FOLDER = re.compile(
    r"(?:Workspace Directories:\*{0,2}\n\s*- |working in the directory: )(/[^\n]{1,4000})"
)
_SILENT = fields.words("info error warning user gemini")


class GeminiSession:
    """A reader of one session file: lines, or the one object that older releases wrote."""

    def __init__(self) -> None:
        self.unread: Counter[str] = Counter()
        self._session = ""
        self._cwd = ""
        self._told = OrderedDict[str, str]()
        """Calls and messages that were told already; each is told once."""

    def read(self, line: bytes) -> Sequence[Report]:
        """The reports of one line."""
        record = fields.line_of(line, self.unread)
        return list(self._reports(record)) if record else ()

    def _reports(self, record: Mapping[str, Any]) -> Iterator[Report]:
        if "sessionId" in record and not self._session:
            self._session = fields.text(record, "sessionId")
            parent = fields.text(record, "parentSessionId")
            yield SessionTold(self._session, fields.time(record.get("startTime")), parent=parent)
        if not self._session:
            self.unread["record without a session"] += 1
        changed = fields.mapping(record, "$set")
        for message in fields.mappings(changed.get("messages", record.get("messages"))):
            yield from self._message(message)
        if "type" in record:
            yield from self._message(record)
        elif not {"sessionId", "$set", "$rewindTo"} & record.keys():
            self.unread["record of another kind"] += 1

    def _message(self, message: Mapping[str, Any]) -> Iterator[Report]:
        at, name = fields.time(message.get("timestamp")), fields.text(message, "id")
        content = message.get("content")
        match kind := fields.text(message, "type"):
            case "user":
                yield from self._user(fields.plain(content), name, at)
            case "gemini":
                yield from self._said(_thoughts(message), f"{name}.thoughts", at, True)
                yield from self._said(fields.plain(content), name, at, False)
            case "info":
                if fields.plain(content).startswith("Request cancelled"):
                    yield TurnEnded(self._session, at, interrupted=True)
            case _ if kind not in _SILENT:
                self.unread[fields.label("message", kind)] += 1
        for call in fields.mappings(message.get("toolCalls")):
            yield from self._call(call, at)

    def _user(self, said: str, name: str, at: datetime | None) -> Iterator[Report]:
        if said.startswith("<session_context>") or "This is the Gemini CLI." in said[:100]:
            found = _FOLDER.search(said)
            if found and not self._cwd:
                self._cwd = found[1].strip()
                yield SessionTold(self._session, at, self._cwd)
        elif said and self._once(f"message {name}"):
            yield PromptTold(self._session, said, name, at)

    def _said(self, said: str, name: str, at: datetime | None, to_itself: bool) -> Iterator[Report]:
        if said and self._once(f"message {name}"):
            yield MessageTold(self._session, said, name, at, to_itself)

    def _call(self, call: Mapping[str, Any], at: datetime | None) -> Iterator[Report]:
        call_id, tool = fields.text(call, "id"), fields.text(call, "name")
        began = _TOOLS.began(self._session, call_id, tool, call.get("args"), at, self._cwd)
        if self._once(f"began {call_id}"):
            yield began
        told = fields.text(call, "status")
        if told not in _STATUSES:
            if told not in fields.words("scheduled validating executing awaiting_approval"):
                self.unread[fields.label("status", told)] += 1
            return
        if not self._once(f"ended {call_id}"):
            return
        output, failed = _response(call.get("result"))
        shown = call.get("resultDisplay")
        if not output and told != "success" and isinstance(shown, str):
            output = shown
        status = _STATUSES[told]
        if status == "error":
            status = _failed({"message": failed})
        ended = fields.time(call.get("timestamp")) or at
        yield _ended(began, output, shown, status, UNSET, ended)

    def _once(self, what: str) -> bool:
        """Whether this was not told before."""
        if what in self._told:
            return False
        fields.remember(self._told, what)
        return True


def _thoughts(message: Mapping[str, Any]) -> str:
    parts = [
        ": ".join(filter(None, (fields.text(one, "subject"), fields.text(one, "description"))))
        for one in fields.mappings(message.get("thoughts"))
    ]
    return "\n".join(part for part in parts if part)


def _response(result: Any) -> tuple[str, str]:
    """The text that the model was given of a call, and that of its error."""
    shown: list[str] = []
    failed = ""
    if isinstance(result, str):
        return result, ""
    for part in fields.mappings(result):
        given = fields.mapping(fields.mapping(part, "functionResponse"), "response")
        failed = failed or fields.text(given, "error")
        shown.append(fields.text(given, "output", "error") or fields.text(part, "text"))
    return "\n".join(part for part in shown if part), failed


def _wrote(record: Mapping[str, Any]) -> bool:
    return "projectHash" in record and "sessionId" in record


CLIENT = Client(
    name=NAME,
    title="Gemini CLI",
    moments=_HOOKS.moments,
    read_hook=read_hook,
    answer=answer,
    transcript=GeminiSession,
    wrote=_wrote,
    place=Place(
        folder=".gemini",
        user="settings.json",
        local=".gemini/settings.json",
        transcripts=("tmp/*/chats/*.jsonl", "tmp/*/chats/*.json"),
        per_second=1000,
        shown="loom-audit",
        reads_below=False,
    ),
    untold="an id of a call: one that is made twice at once with the same arguments may be taken "
    "for the other",
)
