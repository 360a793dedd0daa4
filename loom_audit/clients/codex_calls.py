"""What Codex tells of its calls: what they may do, and how they ended."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct, json

from loom_audit.clients import fields
from loom_audit.clients.reports import FileTold
from loom_audit.clients.tools import ClientTools
from loom_audit.model.coverage import Status

PATCH = "apply_patch"
SHELLS = fields.words("Bash exec_command shell shell_command local_shell container.exec exec")
TOOLS = ClientTools(
    read=fields.words(
        "update_plan view_image read_file list_dir grep_files request_user_input wait wait_agent "
        "spawn_agent send_input send_message followup_task close_agent resume_agent list_agents "
        "tool_search tool_suggest list_mcp_resources list_mcp_resource_templates "
        "read_mcp_resource get_goal update_goal create_goal request_permissions"
    ),
    network=fields.words("web_search web.run image_generation"),
    patches={PATCH: ("command", "input", "patch")},
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


def parsed(arguments: Any) -> Any:
    """Arguments told as a text of JSON; another text as it is."""
    if not isinstance(arguments, str):
        return arguments
    try:
        return json.decode(arguments)
    except (ValueError, RecursionError):
        return arguments


def outcome(tool: str, given: Any) -> CodexOutcome:
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
    if running and tool in SHELLS:
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
    unsure = tool in SHELLS or tool in (PATCH, "")
    return None if unsure else "ok"


def _metadata(output: str) -> CodexOutcome | None:
    """The outcome in the JSON that older releases gave as text."""
    if not output.startswith("{"):
        return None
    inner = parsed(output)
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


def of_command(item: Mapping[str, Any]) -> CodexOutcome:
    """How a command ended, from the item or event that tells of it."""
    code = fields.whole(item.get("exit_code"))
    status = _STATUSES.get(fields.text(item, "status"))
    if status in (None, "ok", "error") and code is not None:
        status = "error" if code else "ok"
    output = fields.text(item, "aggregated_output", "formatted_output", "stdout")
    return CodexOutcome(status, fields.result(output, {} if code is None else {"exit_code": code}))


def of_patch(item: Mapping[str, Any]) -> CodexOutcome:
    """How a patch ended, from the item or event that tells of it."""
    status = _STATUSES.get(fields.text(item, "status"))
    if isinstance(item.get("success"), bool):
        status = "ok" if item["success"] else status or "error"
    shown = [fields.text(item, "stdout"), fields.text(item, "stderr")]
    return CodexOutcome(status, fields.result("\n".join(part for part in shown if part), {}))


def of_mcp(item: Mapping[str, Any]) -> CodexOutcome:
    """How the call of an MCP server's tool ended, from the item or event that tells of it."""
    given = item.get("result")
    if isinstance(given, dict) and ("Ok" in given or "Err" in given):
        given = given.get("Ok", given.get("Err"))
    if isinstance(given, str) or given is None:
        said = fields.plain(given) or fields.text(fields.mapping(item, "error"), "message")
        return CodexOutcome("error", fields.result(said, {}))
    ended = outcome("", given)
    told = _STATUSES.get(fields.text(item, "status"))
    return CodexOutcome(told or ended.status, ended.result)


def duration(item: Mapping[str, Any]) -> int | None:
    """Microseconds that something took, of seconds and nanoseconds; None where that is not told."""
    took = fields.mapping(item, "duration")
    seconds = fields.microseconds(took.get("secs"), 1_000_000)
    nanos = fields.whole(took.get("nanos"))
    return None if seconds is None else seconds + (nanos or 0) % 1_000_000_000 // 1000


def files_of(item: Mapping[str, Any]) -> Iterator[FileTold]:
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
