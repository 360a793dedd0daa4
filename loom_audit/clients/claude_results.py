"""What Claude Code tells of how a call ended: by its hooks and in its transcript alike."""

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from msgspec import UNSET, UnsetType

from loom_audit.clients import fields
from loom_audit.clients.reports import BackgroundEnded, CallEnded, FileTold
from loom_audit.model.coverage import Status

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


def is_notice(text: str) -> bool:
    """Whether a prompt is a notice that the client gives by itself."""
    return text.lstrip().startswith("<task-notification>")


def notified(text: str) -> list[str]:
    """The names of what a notification of the client says has ended."""
    names: list[str] = []
    if not is_notice(text):
        return names
    for notice in _NOTICE.findall(text):
        task, status = _TASK.search(notice), _TASK_STATUS.search(notice)
        if task and (status is None or status[1].strip() in _ENDED):
            names.append(task[1].strip())
    return names


def has_failed(block: Mapping[str, Any], given: Any) -> bool:
    """Whether a result in the transcript is that of a call that did not do what it should."""
    refused = isinstance(given, str) and given.startswith(("Error: ", "User rejected"))
    error = fields.text(fields.mapping(block, "content"), "type").endswith("_error")
    return block.get("is_error") is True or refused or error


def failure(
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


def has_run(tool: str, said: str) -> bool:
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


def ended(
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


def background_named(arguments: Any) -> str:
    """The client's name of what runs in the background and a call is about, or ""."""
    asked = arguments if isinstance(arguments, dict) else {}
    return fields.text(asked, "shell_id", "bash_id", "task_id", "agentId")


def ended_in_background(
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
