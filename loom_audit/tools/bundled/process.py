"""What a program came to, as the tools that run programs say it."""

import re
from collections.abc import Iterable, Sequence
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import Field

from loom_audit.errors import AuditError, ExecutionFailed, ToolTimeout
from loom_audit.model.text.cutting import ends_of
from loom_audit.model.text.display import count_text, first_few, visible
from loom_audit.ports import CommandResult
from loom_audit.tools.bundled.printed import printed_text
from loom_audit.tools.bundled.text import decode
from loom_audit.tools.calls.context import ToolContext
from loom_audit.tools.calls.result import ToolResult

MAX_STREAM = 256 * 1024
MAX_SECONDS = 300
MOST_NAMED = 20
"""Changed files that a model is told by name."""
_SAID_LAST = 4_000
_UNREACHED = re.compile(
    r"could not resolve|name resolution|name or service not known|network is unreachable"
    r"|EAI_AGAIN|ENOTFOUND",
    re.IGNORECASE,
)
"""How programs say that they reach nobody."""

SCAN_SECONDS = 600.0
"""Seconds allowed for looking at a large workspace before and after the command."""

TIMEOUT_NAMES = MappingProxyType({"timeout_seconds": "timeout", "timeout_secs": "timeout"})
"""What models call a timeout, too."""

MORE_TIME = f"Ask for less at once, or for more time: timeout takes up to {MAX_SECONDS} seconds."
PLACES = (
    "Confined, HOME and /tmp are its own and go at its end; $SCRATCH_DIR lasts for the session."
)

Timeout = Annotated[
    int | None,
    Field(
        ge=1,
        le=MAX_SECONDS,
        description=f"Seconds until it is killed: 60 by default, {MAX_SECONDS} at most",
    ),
]


def process_result(
    what: str,
    done: CommandResult,
    seconds: float,
    fields: Iterable[str],
    ctx: ToolContext,
    told: Sequence[str] = (),
) -> ToolResult:
    """Return the result of a process: TIMEOUT, EXECUTION_ERROR for an exit code, or success.

    `seconds` is the limit the process had; `fields` are those of the tool's output, `told` lines of
    what a model must know beside what was printed.
    """
    told = [*told, *_network_text(done, ctx), *changes_text(files_changed(ctx))]
    text = "\n".join([output_text(done), *told])
    error: AuditError | None = None
    if done.timed_out:
        longer = " What takes longer is started with background=true." if what == "command" else ""
        error = killed_error(f"The {what} was", seconds, MORE_TIME + longer)
    elif done.exit_code:
        error = ExecutionFailed(
            f"The {what} failed with exit code {done.exit_code}",
            details={"exit_code": done.exit_code},
        )
    return result_of(error, text, process_data(done, fields))


def result_of(error: AuditError | None, output: str, data: dict[str, Any]) -> ToolResult:
    """Return a failure that shows the output too when there is an error, else a success."""
    if error is not None:
        return ToolResult.failure(error, output=output, data=data)
    return ToolResult(True, output, data)


def killed_error(what: str, seconds: float, hint: str = "") -> ToolTimeout:
    """Return the error of a program that was killed after `seconds`; `what` is it with its verb."""
    return ToolTimeout(f"{what} killed after {count_text(seconds, 'second')}", hint=hint)


def process_data(done: CommandResult, fields: Iterable[str]) -> dict[str, Any]:
    """Return the fields that a process itself fills, by name; `duration` is in milliseconds."""
    exit_code = None if done.timed_out else done.exit_code
    known = {
        "exit_code": exit_code,
        # the name that `run_code` is specified with
        "exitCode": exit_code,
        "stdout": decode(done.stdout),
        "stderr": decode(done.stderr),
        "timed_out": done.timed_out,
        "truncated": done.truncated,
        "survivors": [*done.survivors],
        "duration": done.duration // 1000,
        "sandbox": done.sandbox,
    }
    return {name: known[name] for name in fields if name in known}


def files_changed(ctx: ToolContext) -> list[str]:
    """Return the paths that the call has changed so far, sorted."""
    return sorted(ctx.call.files_changed) if ctx.call is not None else []


def changes_text(paths: Sequence[str]) -> list[str]:
    """Return the line that tells a model which files a command changed; no line for no change."""
    return [f"[changed: {first_few(paths, MOST_NAMED, visible)}]"] if paths else []


def output_text(done: CommandResult) -> str:
    """Return what a command printed, and what else a model must know of how the command ran."""
    parts = [_stream_text(done.stdout, done.stdout_bytes)] if done.stdout else []
    if done.stderr:
        parts.append("[stderr]\n" + _stream_text(done.stderr, done.stderr_bytes))
    if done.truncated:
        total = done.stdout_bytes + done.stderr_bytes
        way = "`COMMAND > $SCRATCH_DIR/out` keeps all, which read_file gives as scratch://out"
        parts.append(f"[cut: the command wrote {total} bytes; {way}]")
    if done.survivors:
        killed = ", ".join(done.survivors[:10])
        way = "bash with background=true starts what goes on"
        parts.append(f"[still alive at its end and killed: {killed}; {way}]")
    if done.unconfined:
        parts.append(f"[not confined: {done.unconfined}]")
    return "\n".join(part.rstrip("\n") for part in parts) or "[no output]"


def _network_text(done: CommandResult, ctx: ToolContext) -> list[str]:
    """The line that says which tools have the network that a command has looked for in vain."""
    last = decode(done.stdout[-_SAID_LAST:] + done.stderr[-_SAID_LAST:])
    if not done.exit_code or ctx.settings.network or done.sandbox == "plain":
        return []
    way = "[the command had no network: install_package fetches packages, web_fetch pages]"
    return [way] if _UNREACHED.search(last) else []


def _stream_text(kept: bytes, total: int) -> str:
    """What was kept of a stream, with what is missing named where its head and tail meet."""
    if total <= len(kept):
        return printed_text(decode(kept))
    half = len(kept) // 2
    end, begin = ends_of(kept, half, len(kept) - half)
    head, tail = (printed_text(decode(part)) for part in (kept[:end], kept[begin:]))
    said = f"[… {total - end - len(kept) + begin} of {total} bytes left out …]"
    return f"{head}{'' if head.endswith(chr(10)) else chr(10)}{said}\n{tail}"
