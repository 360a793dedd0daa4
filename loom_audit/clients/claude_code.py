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
from datetime import datetime
from typing import Any

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

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
            end = _ended(session, call_id, tool, given.get("tool_response"))
            yield replace(end, arguments=arguments, duration=microseconds)
            about = _background_named(arguments)
            yield from _ended_in_background(session, tool, about, given.get("tool_response"))
        case "PostToolUseFailure" | "PermissionDenied":
            why = fields.text(given, "error", "reason")
            status, result = _failure(why)
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
    if _is_notice(text):
        yield from (BackgroundEnded(session, one, at) for one in _notified(text))
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


# --- how a call ended: by hooks and in transcripts alike ---------------------------------

_EXIT_CODE = re.compile(r"\AExit code (-?\d{1,9})\b")
_TIMED_OUT = re.compile(r"\bCommand timed out after ")
_DENIED = (
    "The user doesn't want to proceed with this tool use",
    "User rejected tool use",
    "Permission to use ",
    "Permission for this ",
    "Claude requested permissions to ",
    "Claude Code is unable to ",
)
_CANCELLED = (
    "[Request interrupted by user",
    "The user doesn't want to take this action right now",
    "Interrupted by user",
)
_EDITORS = fields.words("Edit MultiEdit Write NotebookEdit")
"""What is marked as an error of their use is found before they run; other tools may say it, too."""
_MAY_HAVE_RUN = ("Error calling tool", "Cancelled", "Interrupted")
_REFUSED = ("InputValidationError: ", "Error: No such tool available: ")
_NOTICE = re.compile(r"<task-notification>.*?</task-notification>", re.DOTALL)
_TASK = re.compile(r"<task-id>([^<]{1,200})</task-id>")
_TASK_STATUS = re.compile(r"<status>([^<]{1,50})</status>")
_WHOLE_FILES = fields.words(
    "originalFile originalFileContents original_file updated_file content stdout"
)
_STOPPERS = fields.words("KillShell KillBash TaskStop")
_WATCHERS = fields.words("BashOutput TaskOutput AgentOutputTool")
_ENDED = fields.words("completed failed killed stopped cancelled")


def _is_notice(text: str) -> bool:
    """Whether a prompt is a notice that the client gives by itself."""
    return text.lstrip().startswith("<task-notification>")


def _notified(text: str) -> list[str]:
    """The names of what a notification of the client says has ended."""
    names: list[str] = []
    if not _is_notice(text):
        return names
    for notice in _NOTICE.findall(text):
        task, status = _TASK.search(notice), _TASK_STATUS.search(notice)
        if task and (status is None or status[1].strip() in _ENDED):
            names.append(task[1].strip())
    return names


def _has_failed(block: Mapping[str, Any], given: Any) -> bool:
    """Whether a result in the transcript is that of a call that did not do what it should."""
    refused = isinstance(given, str) and given.startswith(("Error: ", "User rejected"))
    error = fields.text(fields.mapping(block, "content"), "type").endswith("_error")
    return block.get("is_error") is True or refused or error


def _failure(
    said: str, given: Any = None, record: Mapping[str, Any] | None = None
) -> tuple[Status, dict[str, Any]]:
    """Status and result of a call that failed, was denied or was stopped, by what is said of it."""
    output = said.removeprefix("<tool_use_error>").removesuffix("</tool_use_error>")
    output = (output or (given if isinstance(given, str) else "")).removeprefix("Error: ")
    data: dict[str, Any] = {}
    code = fields.exit_code(output, _EXIT_CODE)
    if code is not None:
        data["exit_code"] = code
    interrupted = isinstance(given, dict) and given.get("interrupted") is True
    stopped, denied = _decided(record or {})
    status: Status = "error"
    if interrupted or stopped or output.startswith(_CANCELLED):
        status = "cancelled"
    elif denied or output.startswith(_DENIED) or _by_hook(output):
        status = "denied"
    elif _TIMED_OUT.search(output):
        status = "timeout"
    return status, fields.result(output, data)


def _has_run(tool: str, said: str) -> bool:
    """Whether a failed call may have run: not where the client found its input wrong, by itself."""
    refused = re.fullmatch(r"<tool_use_error>(.*)</tool_use_error>", said, re.DOTALL)
    if refused is None or refused[1].startswith(_MAY_HAVE_RUN):
        return True
    return tool not in _EDITORS and not refused[1].startswith(_REFUSED)


def _decided(record: Mapping[str, Any]) -> tuple[bool, bool]:
    """Whether a record says that a person stopped the call, and that somebody denied it."""
    decision = fields.mapping(record, "permissionDecision")
    source = fields.text(decision, "source") or fields.text(
        fields.mapping(decision, "source"), "type"
    )
    kind = fields.text(record, "toolDenialKind")
    # a person's No and an Esc while it runs are both told as a rejection
    while_it_ran = kind == "user-rejected" and record.get("toolDenialBeforeRun") is not True
    stopped = while_it_ran or source == "user_abort" or kind in ("interrupted", "cancelled")
    return stopped, bool(kind) or fields.text(decision, "decision") in ("reject", "deny")


def _by_hook(output: str) -> bool:
    return re.match(r"PreToolUse:\S* hook (error|returned blocking error)", output) is not None


def _ended(
    session: str,
    call_id: str,
    tool: str,
    given: Any,
    content: Any = None,
) -> CallEnded:
    """How a call ended that did not fail, by what its tool gave.

    `content` is what the model was shown of it.
    """
    if not isinstance(given, dict):
        output = fields.plain(given) or fields.plain(content)
        data: dict[str, Any] = {"exit_code": 0} if tool == "Bash" else {}
        return CallEnded(session, call_id, tool, "ok", fields.result(output, data))
    data = {name: value for name, value in given.items() if name not in _WHOLE_FILES}
    task = fields.text(given, "backgroundTaskId")
    stopped = given.get("interrupted") is True
    status: Status = "running" if task else "cancelled" if stopped else "ok"
    output = fields.plain(content)
    if "stdout" in given:
        shown = [fields.text(given, "stdout"), fields.text(given, "stderr")]
        output = "\n".join(part for part in shown if part)
        if status == "ok" and not given.get("returnCodeInterpretation"):
            data["exit_code"] = 0
    elif isinstance(file := given.get("file"), dict):
        output = output or fields.text(file, "content")
        data["file"] = {name: value for name, value in file.items() if name != "content"}
    elif not output and "filePath" not in given:
        output = fields.plain(given.get("content"))
    if task:
        data["background"] = [task]
    duration = given.get("durationMs") or given.get("totalDurationMs")
    return CallEnded(
        session=session,
        call_id=call_id,
        tool=tool,
        status=status,
        result=fields.result(output, data),
        duration=fields.microseconds(duration, 1000),
        files=tuple(_files(tool, given)),
        background=(task,) if task else (),
    )


def _background_named(arguments: Any) -> str:
    """The client's name of what runs in the background and a call is about, or ""."""
    asked = arguments if isinstance(arguments, dict) else {}
    return fields.text(asked, "shell_id", "bash_id", "task_id", "agentId")


def _ended_in_background(
    session: str, tool: str, name: str, given: Any, at: datetime | None = None
) -> Iterator[BackgroundEnded]:
    """Tells that a call stopped what it named, or found that this had ended."""
    if tool in _WATCHERS:
        known = given if isinstance(given, dict) else {}
        found = fields.text(known, "status") or fields.text(fields.mapping(known, "task"), "status")
        name = name if found in _ENDED else ""
    if name and (tool in _STOPPERS or tool in _WATCHERS):
        yield BackgroundEnded(session, name, at)


def _files(tool: str, given: Mapping[str, Any]) -> Iterator[FileTold]:
    path = fields.text(given, "filePath", "notebook_path")
    if path and tool in ("Write", "Edit", "MultiEdit", "NotebookEdit", ""):
        yield from _edited(path, given)
    diff = fields.mapping(given, "bashEditDiff")
    shown: set[str] = set()
    for file in fields.mappings(diff.get("files")):
        if name := fields.text(file, "filePath"):
            shown.add(name)
            before = None if file.get("created") is True else UNSET
            after = None if file.get("deleted") is True else UNSET
            yield FileTold(name, before, after, fields.hunks(file.get("hunks")))
    names = diff.get("changedFiles")
    for name in names if isinstance(names, list) else ():
        if isinstance(name, str) and name not in shown:
            yield FileTold(name)


def _edited(path: str, given: Mapping[str, Any]) -> Iterator[FileTold]:
    """The file of an edit; what it holds afterwards where that follows from what is told."""
    before: str | UnsetType | None = UNSET
    for name in ("originalFile", "originalFileContents", "original_file"):
        if isinstance(given.get(name), str):
            before = given[name]
    after: str | UnsetType | None = UNSET
    patch = given.get("structuredPatch")
    if isinstance(given.get("updated_file"), str):
        after = given["updated_file"]
    elif "content" in given and isinstance(given["content"], str):
        after = given["content"]
        if given.get("type") == "create":
            before = None
    elif isinstance(before, str) and given.get("userModified") is not True:
        after = _replaced(before, given, patch)
    if given.get("oldString") == "" and before in ("", UNSET) and after is not UNSET:
        before = UNSET  # an empty file and none are told alike
    diff = fields.hunks(patch) if after is UNSET else ""
    yield FileTold(path, before, after, diff)


def _replaced(before: str, given: Mapping[str, Any], patch: Any) -> str | UnsetType:
    """The file with the texts replaced, if that changes as many lines as the patch says."""
    edits = [given] if "oldString" in given else list(fields.mappings(given.get("edits")))
    after = before
    for edit in edits:
        old = edit.get("oldString", edit.get("old_string"))
        new = edit.get("newString", edit.get("new_string"))
        if not isinstance(old, str) or not isinstance(new, str) or old not in after:
            return UNSET
        everywhere = edit.get("replaceAll", edit.get("replace_all")) is True
        if not new and not old.endswith("\n") and old + "\n" in after:
            old += "\n"
        after = after.replace(old, new, -1 if everywhere else 1) if old else new
    added = 0
    for hunk in fields.mappings(patch):
        more, fewer = fields.whole(hunk.get("newLines")), fields.whole(hunk.get("oldLines"))
        added += (more or 0) - (fewer or 0)
    same = len(after.splitlines()) - len(before.splitlines()) == added
    return after if edits and same else UNSET


# --- transcripts --------------------------------------------------------------------------

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
        """The tool and the subject of each call without a result: the result will tell neither."""
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
                    names = _notified(fields.text(record, "content"))
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
        """Report that there is a session, once, and again when its directory is first told."""
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
        self._open[session, call_id] = (tool, _background_named(arguments))
        at, cwd = fields.time(record.get("timestamp")), fields.text(record, "cwd")
        return _TOOLS.began(session, call_id, tool, arguments, at, cwd)

    def _ended(
        self, session: str, record: Mapping[str, Any], block: Mapping[str, Any]
    ) -> Iterator[Report]:
        call_id = fields.text(block, "tool_use_id")
        tool, about = self._open.pop((session, call_id), ("", ""))
        at, given = fields.time(record.get("timestamp")), record.get("toolUseResult")
        if _has_failed(block, given):
            said = fields.plain(block.get("content"))
            status, result = _failure(said, given, record)
            ran = _has_run(tool, said)
            yield CallEnded(session, call_id, tool, status, result, at=at, ran=ran)
            return
        yield replace(_ended(session, call_id, tool, given, block.get("content")), at=at)
        yield from _ended_in_background(session, tool, about, given, at)

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
