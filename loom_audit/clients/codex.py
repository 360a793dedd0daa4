"""Codex CLI: its hooks, their answers and its rollouts.

What it does not tell:
- a hook's `tool_response` has no exit code, and a call that failed (a patch that does not apply, an
  MCP error, a denial) fires no hook after it: both are in the rollout;
- a command that runs on after its first output ends with `Process running with session ID`; its
  own end is an item later, with exit code -1 when the client stopped it;
- the rollout has the whole content of a file that a patch added or deleted, and only a diff of one
  that it changed; whether an added file was there before is not told;
- `exec_command` is called `Bash` in hooks, with the command alone as its argument;
- a question for permission does not name its call;
- `ask` is ignored and the tool runs; a hook that times out lets it run;
- the hooks of parallel calls come at once and out of order;
- a forked session's rollout begins with a copy of the other's.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import UNSET, Struct, json

from loom_audit.clients import fields
from loom_audit.clients.hooks import ClientHooks, permission
from loom_audit.clients.reports import (
    BackgroundEnded,
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

NAME = "codex"

_HOOKS = ClientHooks(
    moments={
        "SessionStart": "session",
        "UserPromptSubmit": "prompt",
        "PreToolUse": "before",
        "PostToolUse": "after",
        "PermissionRequest": "permission",
        "Stop": "stop",
        "SubagentStop": "stop",
        "Interrupt": "stop",
        "SessionEnd": "end",
    },
    silent=fields.words("PreCompact PostCompact SubagentStart Notification"),
    fields=fields.words(
        "session_id turn_id transcript_path cwd hook_event_name model permission_mode tool_name "
        "tool_input tool_use_id tool_response prompt source reason stop_hook_active agent_id "
        "agent_type last_assistant_message agent_transcript_path trigger"
    ),
)


def read_hook(raw: bytes) -> Hook:
    """One call of a hook. InvalidArguments for what is not the input of one."""
    given = fields.hook_input(raw, NAME)
    name = fields.text(given, "hook_event_name")
    main, agent = fields.text(given, "session_id"), fields.text(given, "agent_id")
    session, parent = (agent, main) if agent and agent != main else (main, "")
    transcript, cwd = fields.text(given, "transcript_path"), fields.text(given, "cwd")
    if parent:
        transcript = fields.text(given, "agent_transcript_path") or transcript
    told = SessionTold(session, None, cwd, transcript, parent=parent)
    return _HOOKS.read(given, name, told, _hook_reports(name, given, session, cwd))


def _hook_reports(name: str, given: Mapping[str, Any], session: str, cwd: str) -> Iterator[Report]:
    tool, call_id = fields.text(given, "tool_name"), fields.text(given, "tool_use_id")
    arguments = given.get("tool_input")
    match name:
        case "PreToolUse":
            yield _TOOLS.began(session, call_id, tool, arguments, None, cwd)
        case "PostToolUse":
            end = _outcome(tool, given.get("tool_response"))
            if tool in _SHELLS:  # the output of a command says nothing of its end
                end = CodexOutcome(
                    None, fields.result(fields.plain(given.get("tool_response")), {})
                )
            yield CallEnded(session, call_id, tool, end.status, end.result, arguments)
        case "UserPromptSubmit":
            prompt = fields.text(given, "prompt")
            if prompt:
                yield PromptTold(session, prompt, fields.text(given, "turn_id"))
        case "Stop":
            yield TurnEnded(session)
        case "Interrupt":
            yield TurnEnded(session, interrupted=True)
        case "SubagentStop":
            yield TurnEnded(session)
            if fields.text(given, "agent_id"):
                yield SessionOver(session, reason="the subagent stopped")
        case "SessionEnd":
            yield SessionOver(session, reason=fields.text(given, "reason"))


def answer(hook: Hook, verdict: Verdict | None) -> bytes:
    """What the hook prints: empty when nobody decided, or nothing else is to be done."""
    if verdict is None:
        return b""
    changed = verdict.arguments is not UNSET
    if hook.moment == "before" and (verdict.decision == "deny" or changed):
        said = permission(hook, verdict)
    elif hook.moment == "permission" and not (verdict.decision == "allow" and changed):
        decision: dict[str, str] = {"behavior": verdict.decision}
        if verdict.decision == "deny" and verdict.reason:
            decision["message"] = verdict.reason
        said = {"hookEventName": hook.name, "decision": decision}
    else:  # an allowed call just runs; that another should run cannot be said here
        return b""
    return fields.answer({"hookSpecificOutput": said})


# --- what its calls may do, and how they ended: by hooks and in rollouts alike -----------

_PATCH = "apply_patch"
_SHELLS = fields.words("Bash exec_command shell shell_command local_shell container.exec exec")
_TOOLS = ClientTools(
    read=fields.words(
        "update_plan view_image read_file list_dir grep_files request_user_input wait wait_agent "
        "spawn_agent send_input send_message followup_task close_agent resume_agent list_agents "
        "tool_search tool_suggest list_mcp_resources list_mcp_resource_templates "
        "read_mcp_resource get_goal update_goal create_goal request_permissions"
    ),
    network=fields.words("web_search web.run image_generation"),
    patches={_PATCH: ("command", "input", "patch")},
)
_EXITED = re.compile(
    r"^(?:Process exited with code|Exit code:|Command exited with code) (-?\d{1,9})\b", re.MULTILINE
)
_RUNNING = re.compile(r"^Process running with session ID (\d{1,20})\b", re.MULTILINE)
_HEAD = 2000
"""Characters at the start of an output where the client itself speaks."""

_DENIED = re.compile(
    r"blocked by (?:PreToolUse )?hook|rejected by user|rejected: |denied by |"
    r"(?:not permitted|blocked) by policy|was not approved|approval was denied",
    re.IGNORECASE,
)
_CANCELLED = re.compile(r"^aborted(?: by user)?\b|\bcancell?ed by user\b", re.IGNORECASE)
_TIMED_OUT = re.compile(r"^(?:command|exec_command|Error: command) timed out\b", re.IGNORECASE)
_FAILED = re.compile(
    r"\A(?:apply_patch verification failed|unsupported (?:custom tool )?call|failed to |"
    r"execution error|Error\b|invalid |exec_command failed|tool call error|write_stdin failed|"
    r"unknown process|apply_patch handler)",
    re.IGNORECASE,
)


class CodexOutcome(Struct, frozen=True):
    """How a call ended; a `status` of None when that is not told."""

    status: Status | None
    result: Mapping[str, Any]
    background: tuple[str, ...] = ()


def _parsed(arguments: Any) -> Any:
    """Arguments told as a text of JSON; another text as it is."""
    if not isinstance(arguments, str):
        return arguments
    try:
        return json.decode(arguments)
    except (ValueError, RecursionError):
        return arguments


def _outcome(tool: str, given: Any) -> CodexOutcome:
    """How a call ended, from the text that the model was given, or blocks, or an object."""
    if isinstance(given, dict):
        return _of_object(given)
    output = fields.plain(given)
    inner = _metadata(output)
    if inner is not None:
        return inner
    head = output[:_HEAD]
    code, running = fields.exit_code(head, _EXITED), _RUNNING.search(head)
    data: dict[str, Any] = {}
    if running and tool in _SHELLS:
        data["background"] = [running[1]]
        return CodexOutcome("running", fields.result(output, data), (running[1],))
    if code is not None:
        data["exit_code"] = code
    return CodexOutcome(_status(tool, head, code), fields.result(output, data))


def _status(tool: str, head: str, code: int | None) -> Status | None:
    if code is not None:
        return "error" if code else "ok"
    if _CANCELLED.search(head):
        return "cancelled"
    if _TIMED_OUT.search(head):
        return "timeout"
    if _DENIED.search(head):
        return "denied"
    if _FAILED.search(head):
        return "error"
    unsure = tool in _SHELLS or tool in (_PATCH, "")
    return None if unsure else "ok"


def _metadata(output: str) -> CodexOutcome | None:
    """The outcome in the JSON that older releases gave as text."""
    if not output.startswith("{"):
        return None
    inner = _parsed(output)
    if not isinstance(inner, dict) or not isinstance(inner.get("metadata"), dict):
        return None
    code = fields.whole(inner["metadata"].get("exit_code"))
    if code is None:
        return None
    told = fields.result(fields.text(inner, "output"), {"exit_code": code})
    return CodexOutcome("error" if code else "ok", told)


def _of_object(given: Mapping[str, Any]) -> CodexOutcome:
    """The outcome in what an MCP server answered, or in a text with a flag for its success."""
    failed = given.get("isError") is True or given.get("success") is False
    data = {name: value for name, value in given.items() if name != "content"}
    output = fields.plain(given.get("content"))
    known = "isError" in given or "success" in given or "content" in given
    return CodexOutcome("error" if failed else "ok" if known else None, fields.result(output, data))


_STATUSES: Mapping[str, Status] = {
    "completed": "ok",
    "failed": "error",
    "declined": "denied",
    "cancelled": "cancelled",
}


def _of_command(item: Mapping[str, Any]) -> CodexOutcome:
    """How a command ended, from the item or event that tells of it."""
    code = fields.whole(item.get("exit_code"))
    status = _STATUSES.get(fields.text(item, "status"))
    if status in (None, "ok", "error") and code is not None:
        status = "error" if code else "ok"
    output = fields.text(item, "aggregated_output", "formatted_output", "stdout")
    return CodexOutcome(status, fields.result(output, {} if code is None else {"exit_code": code}))


def _of_patch(item: Mapping[str, Any]) -> CodexOutcome:
    """How a patch ended, from the item or event that tells of it."""
    status = _STATUSES.get(fields.text(item, "status"))
    if isinstance(item.get("success"), bool):
        status = "ok" if item["success"] else status or "error"
    shown = [fields.text(item, "stdout"), fields.text(item, "stderr")]
    return CodexOutcome(status, fields.result("\n".join(part for part in shown if part), {}))


def _of_mcp(item: Mapping[str, Any]) -> CodexOutcome:
    """How the call of an MCP server's tool ended, from the item or event that tells of it."""
    given = item.get("result")
    if isinstance(given, dict) and ("Ok" in given or "Err" in given):
        given = given.get("Ok", given.get("Err"))
    if isinstance(given, str) or given is None:
        said = fields.plain(given) or fields.text(fields.mapping(item, "error"), "message")
        return CodexOutcome("error", fields.result(said, {}))
    ended = _outcome("", given)
    told = _STATUSES.get(fields.text(item, "status"))
    return CodexOutcome(told or ended.status, ended.result)


def _duration(item: Mapping[str, Any]) -> int | None:
    """Microseconds that something took, of seconds and nanoseconds; None where that is not told."""
    took = fields.mapping(item, "duration")
    seconds = fields.microseconds(took.get("secs"), 1_000_000)
    nanos = fields.whole(took.get("nanos"))
    return None if seconds is None else seconds + (nanos or 0) % 1_000_000_000 // 1000


def _files_of(item: Mapping[str, Any]) -> Iterator[FileTold]:
    """The files of a patch. A file that it adds may have been there: the patch does not say."""
    for path, change in fields.mapping(item, "changes").items():
        if not isinstance(change, dict):
            continue
        kind, content = fields.text(change, "type"), change.get("content")
        if not kind and change:  # as older releases wrote them: {"add": {"content": …}}
            kind = next(iter(change))
            inner = change[kind]
            change = inner if isinstance(inner, dict) else {}
            content = change.get("content")
        diff, moved = fields.text(change, "unified_diff"), fields.text(change, "move_path")
        if kind == "add" and isinstance(content, str):
            yield FileTold(path, None, content)
        elif kind == "delete" and isinstance(content, str):
            yield FileTold(path, content, None)
        elif moved:
            yield FileTold(path, after=None)
            yield FileTold(moved, None, diff=diff, source=path)
        else:
            yield FileTold(path, diff=diff)


# --- rollouts -----------------------------------------------------------------------------

_SILENT_RECORDS = fields.words(
    "world_state token_usage_record compacted ghost_snapshot inter_agent_communication "
    "inter_agent_communication_metadata dynamic_tools_updated security_risk_score realtime_item"
)
_SILENT_EVENTS = fields.words(
    "task_started turn_started token_count thread_settings_applied thread_name_updated "
    "exec_command_begin exec_command_output_delta patch_apply_begin mcp_tool_call_begin "
    "web_search_begin turn_diff plan_update background_event context_compacted item_started "
    "session_configured entered_review_mode exited_review_mode error stream_error warning "
    "patch_apply_updated web_search_end image_generation_begin image_generation_end hook_started "
    "hook_completed terminal_interaction view_image_tool_call exec_approval_request "
    "request_permissions apply_patch_approval_request elicitation_request elicitation_abandoned "
    "deprecation_notice guardian_assessment environment_connected environment_disconnected "
    "thread_queue_changed mcp_startup_update mcp_startup_complete shutdown_complete "
    "undo_completed thread_rolled_back agent_reasoning_section_break thread_goal_updated"
)
_SILENT_ITEMS = fields.words(
    "message ghost_snapshot compaction compaction_summary context_compaction other "
    "tool_search_output image_generation_call agent_message additional_tools "
    "Plan ContextCompaction HookPrompt WebSearch ImageView ImageGeneration EnteredReviewMode "
    "ExitedReviewMode CollabAgentToolCall SubAgentActivity Sleep"
)
_TURN_ENDS = fields.words("task_complete turn_complete turn_aborted")


class CodexRollout:
    """A reader of one rollout."""

    def __init__(self) -> None:
        self.unread: Counter[str] = Counter()
        self._session = ""
        self._cwd = ""
        self._open: dict[str, str] = {}
        """The tools of calls whose output the model was not given yet."""
        self._ended: set[str] = set()
        """The calls of these whose end was told already, by an item or event of its own."""
        self._background: dict[str, str] = {}
        """What runs on, by the call that started it."""
        self._last: dict[str, tuple[str, str]] = {}
        """What was last said, and where it was read: several records tell the same."""

    def read(self, line: bytes) -> Sequence[Report]:
        """The reports of one line."""
        record = fields.line_of(line, self.unread)
        return list(self._reports(record)) if record else ()

    def _reports(self, record: Mapping[str, Any]) -> Iterator[Report]:
        kind, payload = fields.text(record, "type"), fields.mapping(record, "payload")
        at = fields.time(record.get("timestamp"))
        if kind == "session_meta":
            yield from self._meta(payload, at)
            return
        if not self._session:
            self._session = fields.text(payload, "thread_id")
            if self._session:
                yield SessionTold(self._session, at)
            else:
                self.unread[fields.label("record without a session", kind)] += 1
        match kind:
            case "turn_context":
                self._cwd = fields.text(payload, "cwd") or self._cwd
            case "response_item":
                yield from self._item(payload, at)
            case "event_msg":
                yield from self._event(payload, at)
            case _ if kind not in _SILENT_RECORDS:
                self.unread[fields.label("record", kind)] += 1

    def _meta(self, payload: Mapping[str, Any], at: datetime | None) -> Iterator[Report]:
        """The session, once: what a fork copied has another."""
        session, main = fields.text(payload, "id"), fields.text(payload, "session_id")
        session = session or main
        if self._session or not session:
            return
        self._session, self._cwd = session, fields.text(payload, "cwd")
        spawn = fields.mapping(fields.mapping(payload, "source"), "subagent")
        parent = fields.text(fields.mapping(spawn, "thread_spawn"), "parent_thread_id")
        parent = parent or (main if main != session else "")
        version = fields.text(payload, "cli_version")
        yield SessionTold(session, at, self._cwd, version=version, parent=parent)

    def _item(self, item: Mapping[str, Any], at: datetime | None) -> Iterator[Report]:
        call_id = fields.text(item, "call_id") or fields.text(item, "id")
        match kind := fields.text(item, "type"):
            case "function_call" | "custom_tool_call" | "local_shell_call" | "tool_search_call":
                yield self._call(kind, item, call_id, at)
            case "function_call_output" | "custom_tool_call_output":
                yield from self._output(call_id, item.get("output"), at)
            case "web_search_call":
                action = item.get("action")
                began = _TOOLS.began(self._session, call_id, "web_search", action, at, self._cwd)
                result = fields.result("", {})
                yield began
                yield CallEnded(self._session, call_id, "web_search", "ok", result, at=at)
            case "message" if fields.text(item, "role") == "assistant":
                yield from self._message(kind, call_id, fields.plain(item.get("content")), at)
            case "reasoning":
                said = fields.plain(item.get("summary")) or fields.plain(item.get("content"))
                yield from self._message(kind, call_id, said, at, thinking=True)
            case _ if kind not in _SILENT_ITEMS:
                self.unread[fields.label("item", kind)] += 1

    def _call(
        self, kind: str, item: Mapping[str, Any], call_id: str, at: datetime | None
    ) -> CallBegan:
        tool, space = fields.text(item, "name"), fields.text(item, "namespace")
        arguments = item.get("input")
        if "input" not in item:
            arguments = _parsed(item.get("arguments"))
        if kind == "local_shell_call":
            tool, arguments = "local_shell", item.get("action")
        elif kind == "tool_search_call":
            tool = "tool_search"
        elif space.startswith("mcp__"):
            tool = f"{space}__{tool}"
        cwd = self._cwd
        if isinstance(arguments, dict):
            chosen = fields.text(arguments, "workdir", "working_directory")
            cwd = chosen if chosen.startswith("/") else cwd
        self._open[call_id] = tool
        return _TOOLS.began(self._session, call_id, tool, arguments, at, cwd)

    def _output(self, call_id: str, given: Any, at: datetime | None) -> Iterator[Report]:
        """Report that the model was given a call's output, unless its end was told already."""
        tool = self._open.pop(call_id, "")
        if call_id in self._ended:
            self._ended.discard(call_id)
            return
        end = _outcome(tool, given)
        if end.background:
            self._background[call_id] = end.background[0]
        yield CallEnded(
            session=self._session,
            call_id=call_id,
            tool=tool,
            status=end.status,
            result=end.result,
            at=at,
            background=end.background,
        )

    def _event(self, event: Mapping[str, Any], at: datetime | None) -> Iterator[Report]:
        turn, call_id = fields.text(event, "turn_id"), fields.text(event, "call_id")
        match kind := fields.text(event, "type"):
            case "item_completed":
                yield from self._completed(fields.mapping(event, "item"), turn, at)
            case "user_message":
                yield from self._prompt(kind, fields.text(event, "message"), turn, at)
            case "agent_message":
                yield from self._message(kind, "", fields.text(event, "message"), at)
            case "agent_reasoning" | "agent_reasoning_raw_content":
                said = fields.text(event, "text")
                yield from self._message(kind, "", said, at, thinking=True)
            case "exec_command_end":
                yield from self._end(call_id, _of_command(event), event, at)
            case "patch_apply_end":
                yield from self._end(call_id, _of_patch(event), event, at)
            case "mcp_tool_call_end":
                yield from self._end(call_id, _of_mcp(event), event, at)
            case _ if kind in _TURN_ENDS:
                yield TurnEnded(self._session, at, interrupted=kind == "turn_aborted")
            case _ if kind not in _SILENT_EVENTS:
                self.unread[fields.label("event", kind)] += 1

    def _completed(
        self, item: Mapping[str, Any], turn: str, at: datetime | None
    ) -> Iterator[Report]:
        name = fields.text(item, "id")
        match kind := fields.text(item, "type"):
            case "CommandExecution":
                yield from self._end(name, _of_command(item), item, at)
            case "FileChange":
                yield from self._end(name, _of_patch(item), item, at)
            case "McpToolCall":
                yield from self._end(name, _of_mcp(item), item, at)
            case "UserMessage":
                yield from self._prompt(kind, fields.plain(item.get("content")), turn, at)
            case "AgentMessage":
                yield from self._message(kind, name, fields.plain(item.get("content")), at)
            case "Reasoning":
                said = fields.plain(item.get("summary_text")) or fields.plain(item.get("summary"))
                yield from self._message(kind, name, said, at, thinking=True)
            case _ if kind not in _SILENT_ITEMS:
                self.unread[fields.label("completed item", kind)] += 1

    def _end(
        self, call_id: str, end: CodexOutcome, item: Mapping[str, Any], at: datetime | None
    ) -> Iterator[Report]:
        tool = self._open.get(call_id, "")
        if tool:
            self._ended.add(call_id)
        yield CallEnded(
            session=self._session,
            call_id=call_id,
            tool=tool,
            status=end.status,
            result=end.result,
            at=at,
            duration=_duration(item),
            files=tuple(_files_of(item)),
        )
        running = self._background.pop(call_id, "")
        if running:
            yield BackgroundEnded(self._session, running, at)

    def _prompt(self, source: str, said: str, turn: str, at: datetime | None) -> Iterator[Report]:
        if said and self._first("prompt", source, said):
            yield PromptTold(self._session, said, turn, at)

    def _message(
        self, source: str, name: str, said: str, at: datetime | None, thinking: bool = False
    ) -> Iterator[Report]:
        if said and self._first("thinking" if thinking else "message", source, said):
            yield MessageTold(self._session, said, name, at, thinking)

    def _first(self, what: str, source: str, said: str) -> bool:
        """Whether this was not just told by a record of another kind."""
        known = self._last.get(what)
        self._last[what] = (source, said)
        if known is None or known[1] != said or known[0] == source:
            return True
        self._last[what] = known
        return False


def _wrote(record: Mapping[str, Any]) -> bool:
    return isinstance(record.get("payload"), dict) and bool(fields.text(record, "type"))


CLIENT = Client(
    name=NAME,
    title="Codex",
    moments=_HOOKS.moments,
    read_hook=read_hook,
    answer=answer,
    transcript=CodexRollout,
    wrote=_wrote,
    place=Place(
        home="CODEX_HOME",
        folder=".codex",
        user="hooks.json",
        local=".codex/hooks.json",
        reads_worktrees=False,
        transcripts=("sessions/**/*.jsonl", "archived_sessions/*.jsonl"),
    ),
    untold="a command's exit code, and that a patch failed, at once: both are taken from its "
    "rollout",
    trust="Codex runs a hook only once you trust it: start `codex` here; where it says `Hooks need "
    "review`, answer `Trust all and continue` (later: `/hooks`).",
    brief={"SessionEnd": 3, "Interrupt": 3},
    hooked_by="flags",
)
