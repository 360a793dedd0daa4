"""Shell commands in the workspace, with every file they change on record."""

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field

from loom_audit.errors import AuditError, ExecutionFailed, InvalidArguments, ToolTimeout
from loom_audit.model.text.display import count_text, first_few, visible_path
from loom_audit.ports import CommandResult
from loom_audit.tools.bundled.text import decode
from loom_audit.tools.calls.context import ToolContext
from loom_audit.tools.calls.models import Arguments, NonEmpty, Output
from loom_audit.tools.calls.result import ToolResult
from loom_audit.tools.calls.tool import Preview, Tool
from loom_audit.tools.guard.rules import check_command

MAX_STREAM = 256 * 1024
MAX_SECONDS = 300
MAX_COMMAND = 120 * 1024
MOST_NAMED = 20
"""Changed files that a model is told by name."""
SCAN_SECONDS = 600.0
"""Seconds allowed for looking at a large workspace before and after the command."""


class ShellInput(Arguments):
    command: Annotated[NonEmpty, Field(description="What `sh -c` shall run")]
    cwd: Annotated[
        str | None,
        Field(description="Directory of the workspace to run in; the session's, else its root"),
    ] = None
    timeout: Annotated[
        int | None,
        Field(ge=1, le=MAX_SECONDS, description="Seconds until it is killed; 60 by default"),
    ] = None


class ShellOutput(Output):
    exit_code: int | None
    stdout: str
    stderr: str
    timed_out: bool
    truncated: bool
    survivors: list[str]
    sandbox: str


class ShellExecute(Tool):
    name = "shell_execute"
    description = (
        "Run a shell command in the workspace. The command and everything it started is killed "
        "at its end or its timeout; no process stays in the background."
    )
    input = ShellInput
    output = ShellOutput
    effect = "execute"
    timeout_seconds = 60
    confinement = "preferred"

    def parse(self, arguments: Any) -> ShellInput:
        """The arguments; nobody is asked about what is refused anyway. BlockedCommand."""
        args: ShellInput = super().parse(arguments)
        if "\0" in args.command:
            raise InvalidArguments("command holds a NUL character", hint="Remove it.")
        if len(args.command) > MAX_COMMAND:
            raise InvalidArguments(
                f"command has more than {MAX_COMMAND} characters",
                hint="Write a script to a file first and run that.",
            )
        check_command(args.command)
        return args

    def limit(self, args: ShellInput) -> float:
        return self._seconds(args) + SCAN_SECONDS

    def _seconds(self, args: ShellInput) -> float:
        return args.timeout or self.timeout_seconds

    def preview(self, args: ShellInput, ctx: ToolContext) -> Preview:
        return Preview(f"in {_working_directory(args, ctx)}:\n{args.command}\n")

    async def execute(self, args: ShellInput, ctx: ToolContext) -> ToolResult:
        seconds = self._seconds(args)
        done = await ctx.run(
            "sh",
            "-c",
            args.command,
            cwd=_working_directory(args, ctx),
            timeout=seconds,
            limit=MAX_STREAM,
            final=True,
        )
        data = {
            "exit_code": None if done.timed_out else done.exit_code,
            "stdout": decode(done.stdout),
            "stderr": decode(done.stderr),
            "timed_out": done.timed_out,
            "truncated": done.truncated,
            "survivors": [*done.survivors],
            "sandbox": done.sandbox,
        }
        return process_result("command", done, seconds, data, ctx)


class Bash(ShellExecute):
    """The same, for models that know it by this name."""

    name = "bash"


def _working_directory(args: ShellInput, ctx: ToolContext) -> str:
    return (ctx.cwd if args.cwd is None else args.cwd) or "."


def process_result(
    what: str,
    done: CommandResult,
    seconds: float,
    data: dict[str, Any],
    ctx: ToolContext,
) -> ToolResult:
    """The result of a process: TIMEOUT, EXECUTION_ERROR for an exit code, or success."""
    text = "\n".join([output_text(done), *changes_text(files_changed(ctx))])
    error: AuditError | None = None
    if done.timed_out:
        error = ToolTimeout(f"The {what} was killed after {count_text(seconds, 'second')}")
    elif done.exit_code:
        error = ExecutionFailed(
            f"The {what} failed with exit code {done.exit_code}",
            details={"exit_code": done.exit_code},
        )
    if error is not None:
        return ToolResult.failure(error, output=text, data=data)
    return ToolResult(True, text, data)


def files_changed(ctx: ToolContext) -> list[str]:
    """What the call has changed so far, sorted."""
    return sorted(ctx.call.files_changed) if ctx.call is not None else []


def changes_text(paths: Sequence[str]) -> list[str]:
    """The line that tells a model which files a command changed; none when it changed none."""
    return [f"[changed: {first_few(paths, MOST_NAMED, visible_path)}]"] if paths else []


def output_text(done: CommandResult) -> str:
    """What a command printed, and what must be said about it."""
    parts = [decode(done.stdout)] if done.stdout else []
    if done.stderr:
        parts.append("[stderr]\n" + decode(done.stderr))
    if done.truncated:
        total = done.stdout_bytes + done.stderr_bytes
        way = "`COMMAND > $SCRATCH_DIR/out` keeps all, which read_file gives as scratch://out"
        parts.append(f"[cut: the command wrote {total} bytes; {way}]")
    if done.survivors:
        parts.append("[still alive at its end and killed: " + ", ".join(done.survivors[:10]) + "]")
    if done.unconfined:
        parts.append(f"[not confined: {done.unconfined}]")
    return "\n".join(part.rstrip("\n") for part in parts) or "[no output]"
