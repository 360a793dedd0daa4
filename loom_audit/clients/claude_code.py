"""Claude Code: its hooks, their answers and its transcripts.

What it does not tell:
- an Edit that is refused before it runs (the text is not found, the file was not read) fires no
  hook: it is in the transcript only;
- no hook tells an exit code: a failure has it in its text, a success means 0 unless
  `returnCodeInterpretation` says otherwise;
- Bash does not tell which files it changed; `bashEditDiff` names them where Claude looked, with
  the hunks of at most five, in which leading tabs may stand as spaces;
- contents (`originalFile`, `content`) are told with LF line ends, whatever the file has;
- the end of background work is told as a prompt, `<task-notification>`, not by a hook of its own;
- paths are absolute, links in them are not resolved;
- the transcript lags behind the hooks by up to some ten milliseconds.
A subagent's calls come with `agent_id`, which is a session of its own here. A rewind starts another
branch in the same transcript: what the left one did has happened, and is told.
"""

import re
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from loom_audit.clients import fields
from loom_audit.clients.claude_results import (
    background_named,
    ended,
    ended_in_background,
    failure,
    has_failed,
    has_run,
    is_notice,
    notified,
)
from loom_audit.clients.hooks import ClientHooks, permission
from loom_audit.clients.reports import (
    BackgroundEnded,
    CallBegan,
    CallEnded,
    Client,
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

NAME = "claude-code"

_HOOKS = ClientHooks(
    moments={
        "SessionStart": "session",
        "UserPromptSubmit": "prompt",
        "PreToolUse": "before",
        "PostToolUse": "after",
        "PostToolUseFailure": "after",
        "PermissionRequest": "permission",
        "PermissionDenied": "after",
        "Stop": "stop",
        "StopFailure": "stop",
        "SubagentStop": "stop",
        "SessionEnd": "end",
    },
    silent=fields.words(
        "PostToolBatch Notification UserPromptExpansion SubagentStart PreCompact PostCompact "
        "Elicitation ElicitationResult TeammateIdle TaskCreated TaskCompleted Setup "
        "InstructionsLoaded CwdChanged FileChanged ConfigChange WorktreeCreate WorktreeRemove "
        "PreModelSwitch PostModelSwitch MessageDisplay DirectoryAdded"
    ),
    fields=fields.words(
        "session_id transcript_path cwd hook_event_name permission_mode prompt_id effort agent_id "
        "agent_type tool_name tool_input tool_use_id tool_response duration_ms error is_interrupt "
        "prompt source reason stop_hook_active last_assistant_message background_tasks "
        "session_crons agent_transcript_path permission_suggestions model session_title"
    ),
)
_TOOLS = ClientTools(
    # a Task's own calls are on record themselves, in a session of its own
    read=fields.words(
        "Read Glob Grep LS NotebookRead TodoRead TodoWrite ToolSearch AskUserQuestion "
        "EnterPlanMode ExitPlanMode Task Agent TaskCreate TaskGet TaskList TaskUpdate TaskOutput "
        "TaskStop BashOutput AgentOutputTool KillShell KillBash ListMcpResourcesTool "
        "ReadMcpResourceTool Skill LSP CronList WaitForMcpServers ScheduleWakeup "
        "PushNotification SendMessage advisor"
    ),
    network=fields.words("WebFetch WebSearch web_search web_fetch"),
    writes={
        **dict.fromkeys(("Write", "Edit", "MultiEdit"), ("file_path",)),
        "NotebookEdit": ("notebook_path",),
    },
)


def read_hook(raw: bytes) -> Hook:
    """One call of a hook. InvalidArguments for what is not the input of one."""
    given = fields.hook_input(raw, NAME)
    name = fields.text(given, "hook_event_name")
    main, agent = fields.text(given, "session_id"), fields.text(given, "agent_id")
    session = child(main, agent)
    transcript, cwd = fields.text(given, "transcript_path"), fields.text(given, "cwd")
    if agent:
        transcript = fields.text(given, "agent_transcript_path") or _agents_file(transcript, agent)
    told = SessionTold(session, None, cwd, transcript, parent=main if agent else "")
    return _HOOKS.read(given, name, told, _hook_reports(name, given, session, cwd))


def _hook_reports(name: str, given: Mapping[str, Any], session: str, cwd: str) -> Iterator[Report]:
    tool, call_id = fields.text(given, "tool_name"), fields.text(given, "tool_use_id")
    arguments = given.get("tool_input")
    microseconds = fields.microseconds(given.get("duration_ms"), 1000)
    match name:
        case "PreToolUse":
            yield _TOOLS.began(session, call_id, tool, arguments, None, cwd)
        case "PostToolUse":
            end = ended(session, call_id, tool, given.get("tool_response"))
            yield replace(end, arguments=arguments, duration=microseconds)
            about = background_named(arguments)
            yield from ended_in_background(session, tool, about, given.get("tool_response"))
        case "PostToolUseFailure" | "PermissionDenied":
            why = fields.text(given, "error", "reason")
            status, result = failure(why)
            if given.get("is_interrupt") is True:
                status = "cancelled"
            if name == "PermissionDenied":
                status = "denied"
            if call_id or name == "PostToolUseFailure":
                yield CallEnded(
                    session=session,
                    call_id=call_id,
                    tool=tool,
                    status=status,
                    result=result,
                    arguments=arguments,
                    duration=microseconds,
                )
        case "UserPromptSubmit":
            yield from _prompt(session, fields.text(given, "prompt"), given.get("prompt_id"), None)
        case "Stop" | "StopFailure":
            yield TurnEnded(session, None, _still_running(given.get("background_tasks")))
        case "SubagentStop":
            yield TurnEnded(session)
            if fields.text(given, "agent_id"):
                yield SessionOver(session, reason="the subagent stopped")
        case "SessionEnd":
            yield SessionOver(session, reason=fields.text(given, "reason"))


def child(session: str, agent: str) -> str:
    """The id of a subagent's session, which is of the session that it works for."""
    return f"{session}.{agent}" if session and agent else session


def _agents_file(transcript: str, agent: str) -> str:
    folder, ending, _ = transcript.rpartition(".jsonl")
    return f"{folder}/subagents/agent-{agent}.jsonl" if ending else ""


def _still_running(tasks: Any) -> tuple[str, ...]:
    ended = ("completed", "failed", "killed", "stopped")
    running = (task for task in fields.mappings(tasks) if fields.text(task, "status") not in ended)
    return fields.as_paths([fields.text(task, "id") for task in running])


def _prompt(session: str, text: str, prompt_id: Any, at: Any) -> Iterator[Report]:
    """What was submitted as a prompt: maybe by the client, which tells an end in this way."""
    name = prompt_id if isinstance(prompt_id, str) else ""
    if is_notice(text):
        yield from (BackgroundEnded(session, one, at) for one in notified(text))
        yield MessageTold(session, text, name, at, notice=True)
    elif text.startswith("[Request interrupted by user"):
        yield TurnEnded(session, at, interrupted=True)
    elif text and not text.startswith(_COMMAND_OUTPUT):
        yield PromptTold(session, text, name, at)


_COMMAND_OUTPUT = (
    "<local-command-stdout>",
    "<local-command-stderr>",
    "<local-command-caveat>",
    "<bash-stdout>",
    "<bash-stderr>",
)


def answer(hook: Hook, verdict: Verdict | None) -> bytes:
    """What the hook prints: empty when nobody decided, or about what is not asked."""
    if verdict is None:
        return b""
    if hook.moment == "before":
        said = permission(hook, verdict)
    elif hook.moment == "permission":
        decision: dict[str, Any] = {"behavior": verdict.decision}
        if verdict.decision == "deny":
            decision["message"] = verdict.reason
        elif verdict.arguments is not UNSET:
            decision["updatedInput"] = verdict.arguments
        said = {"hookEventName": hook.name, "decision": decision}
    else:
        return b""
    return fields.answer({"hookSpecificOutput": said})


_SILENT_RECORDS = fields.words(
    "system summary file-history-snapshot progress pr-link agent-name last-prompt "
    "permission-mode agent-setting bridge-session worktree-state api-request api-request-blob "
    "api-request-shape atis-latch tools-used cost-state mode speculation-accept tag "
    "marble-origami-commit content-replacement task-summary "
    "attribution-snapshot agent-color"
)
_RECORD_FIELDS = fields.words(
    "type uuid parentUuid logicalParentUuid sessionId timestamp version cwd gitBranch isSidechain "
    "userType message requestId agentId isMeta isCompactSummary promptId permissionMode origin "
    "sourceToolAssistantUUID sourceToolUseID toolUseResult slug entrypoint promptSource teamName "
    "turnOrigin turnPosition sandboxed permissionDecision toolInputStreamMs apiBlockIndex "
    "requestRef requestedModel promptCacheRequested effort perTurnEffort madeBy attachment "
    "rendered renderedRole renderedBesideToolResult isVisibleInTranscriptOnly imagePasteIds "
    "thinkingMetadata todos isApiErrorMessage error errorDetails apiErrorStatus advisorModel "
    "attributionAgent attributionPlugin attributionSkill sessionKind sidechainParentUuid mcpMeta "
    "planContent queueSkipAttachments caller forkedFrom summarizeMetadata queuePriority "
    "toolDenialKind toolDenialBeforeRun holdsPersonsWords toolResultRemedy"
)
_SILENT_BLOCKS = fields.words("image document redacted_thinking tool_reference fallback")


class ClaudeTranscript:
    """A reader of one transcript, that of a session or of a subagent of it."""

    def __init__(self) -> None:
        self.unread: Counter[str] = Counter()
        self._sessions: dict[str, str] = {}
        """The directory told of each session."""
        self._open: dict[tuple[str, str], tuple[str, str]] = {}
        """Of calls without a result, which tells neither: the tool, and what it is about."""
        self._chains = OrderedDict[str, str]()
        """The last records of subagents without an id, and what each chain began with."""

    def read(self, line: bytes) -> Sequence[Report]:
        """The reports of one line."""
        record = fields.line_of(line, self.unread)
        return list(self._reports(record)) if record else ()

    def _reports(self, record: Mapping[str, Any]) -> Iterator[Report]:
        kind, session = fields.text(record, "type"), self._session(record)
        if session:
            yield from self._told(session, record)
        elif kind not in _SILENT_RECORDS:
            self.unread[fields.label("record without a session", kind)] += 1
        match kind:
            case "user" | "assistant":
                self.unread.update(fields.unknown(record, _RECORD_FIELDS, kind))
                yield from self._message(session, kind, record)
            case "attachment":
                yield from self._attachment(session, record)
            case "queue-operation":
                if fields.text(record, "operation") == "enqueue":
                    at = fields.time(record.get("timestamp"))
                    names = notified(fields.text(record, "content"))
                    yield from (BackgroundEnded(session, name, at) for name in names)
            case "custom-title" | "ai-title":
                title = fields.text(record, "customTitle", "aiTitle", "title")
                yield SessionTold(session, title=title)
            case _:
                if kind not in _SILENT_RECORDS:
                    self.unread[fields.label("record", kind)] += 1

    def _session(self, record: Mapping[str, Any]) -> str:
        """The session of a record: that of the subagent, where it is one's."""
        main, agent = fields.text(record, "sessionId"), fields.text(record, "agentId")
        if agent or record.get("isSidechain") is not True:
            return child(main, agent) if record.get("isSidechain") is True else main
        uuid, parent = fields.text(record, "uuid"), fields.text(record, "parentUuid")
        start = self._chains.get(parent) or uuid
        fields.remember(self._chains, uuid, start)
        return child(main, start)

    def _told(self, session: str, record: Mapping[str, Any]) -> Iterator[Report]:
        """That there is a session, once, and again when its directory is first told."""
        cwd = fields.text(record, "cwd")
        if self._sessions.get(session):
            return
        if session in self._sessions and not cwd:
            return
        self._sessions[session] = cwd
        main = fields.text(record, "sessionId")
        at, version = fields.time(record.get("timestamp")), fields.text(record, "version")
        parent = "" if session == main else main
        yield SessionTold(session, at, cwd, version=version, parent=parent)

    def _message(self, session: str, kind: str, record: Mapping[str, Any]) -> Iterator[Report]:
        content = fields.mapping(record, "message").get("content")
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        for number, block in enumerate(fields.mappings(content)):
            yield from self._block(session, kind, record, block, number)

    def _block(
        self, session: str, role: str, record: Mapping[str, Any], block: dict[str, Any], number: int
    ) -> Iterator[Report]:
        at, uuid = fields.time(record.get("timestamp")), fields.text(record, "uuid")
        match kind := fields.text(block, "type"):
            case "text" if role == "user":
                if _is_a_prompt(record, block):
                    prompt_id = fields.text(record, "promptId") or uuid
                    yield from _prompt(session, fields.text(block, "text"), prompt_id, at)
            case "text" | "thinking":
                said = fields.text(block, kind)
                name = f"{uuid}.{number}" if number else uuid
                if said:
                    yield MessageTold(session, said, name, at, kind == "thinking")
            case "tool_use" | "server_tool_use" | "mcp_tool_use":
                yield self._began(session, record, block)
            case "tool_result":
                yield from self._ended(session, record, block)
            case _ if kind.endswith("_tool_result"):
                yield from self._ended(session, record, block)
            case _ if kind not in _SILENT_BLOCKS:
                self.unread[fields.label("block", kind)] += 1

    def _began(
        self, session: str, record: Mapping[str, Any], block: Mapping[str, Any]
    ) -> CallBegan:
        tool, call_id = fields.text(block, "name"), fields.text(block, "id")
        arguments = block.get("input")
        self._open[session, call_id] = (tool, background_named(arguments))
        at, cwd = fields.time(record.get("timestamp")), fields.text(record, "cwd")
        return _TOOLS.began(session, call_id, tool, arguments, at, cwd)

    def _ended(
        self, session: str, record: Mapping[str, Any], block: Mapping[str, Any]
    ) -> Iterator[Report]:
        call_id = fields.text(block, "tool_use_id")
        tool, about = self._open.pop((session, call_id), ("", ""))
        at, given = fields.time(record.get("timestamp")), record.get("toolUseResult")
        if has_failed(block, given):
            said = fields.plain(block.get("content"))
            status, result = failure(said, given, record)
            ran = has_run(tool, said)
            yield CallEnded(session, call_id, tool, status, result, at=at, ran=ran)
            return
        yield replace(ended(session, call_id, tool, given, block.get("content")), at=at)
        yield from ended_in_background(session, tool, about, given, at)

    def _attachment(self, session: str, record: Mapping[str, Any]) -> Iterator[Report]:
        attached = fields.mapping(record, "attachment")
        if fields.text(attached, "type") == "queued_command":
            at = fields.time(record.get("timestamp"))
            said = fields.plain(attached.get("prompt"))
            yield from _prompt(session, said, fields.text(record, "uuid"), at)


def _is_a_prompt(record: Mapping[str, Any], block: Mapping[str, Any]) -> bool:
    """Whether a text of the user's is what a person told, or tells that a task has ended."""
    if record.get("isMeta") is True or record.get("isCompactSummary") is True:
        return False
    interrupted = re.match(r"\[Request interrupted by user", fields.text(block, "text"))
    return record.get("isSidechain") is not True or interrupted is not None


def _wrote(record: Mapping[str, Any]) -> bool:
    named = "sessionId" in record or "leafUuid" in record or "messageId" in record
    return bool(fields.text(record, "type")) and named


CLIENT = Client(
    name=NAME,
    title="Claude Code",
    moments=_HOOKS.moments,
    read_hook=read_hook,
    answer=answer,
    transcript=ClaudeTranscript,
    wrote=_wrote,
    place=Place(
        home="CLAUDE_CONFIG_DIR",
        folder=".claude",
        user="settings.json",
        local=".claude/settings.local.json",
        transcripts=("projects/**/*.jsonl",),
        personal=True,
    ),
    untold="which files a command changed (we look at the files), nor of an edit that it refuses "
    "itself (its transcript does)",
    hooked_by="settings",
)
