"""Shell commands in the workspace, with every file they change on record."""

from typing import Annotated, Any

from pydantic import Field

from loom_audit.errors import InvalidArguments
from loom_audit.tools.bundled.process import (
    MAX_STREAM,
    SCAN_SECONDS,
    Timeout,
    process_result,
)
from loom_audit.tools.calls.context import ToolContext
from loom_audit.tools.calls.models import Arguments, NonEmpty, Output
from loom_audit.tools.calls.result import ToolResult
from loom_audit.tools.calls.tool import Preview, Tool
from loom_audit.tools.guard.rules import check_command

MAX_COMMAND = 120 * 1024


class ShellInput(Arguments):
    command: Annotated[NonEmpty, Field(description="What `sh -c` shall run")]
    cwd: Annotated[
        str | None,
        Field(description="Directory of the workspace to run in; the session's, else its root"),
    ] = None
    timeout: Timeout = None


class ShellOutput(Output):
    exit_code: int | None
    stdout: str
    stderr: str
    timed_out: bool
    truncated: bool
    survivors: list[str]
    sandbox: str


class ShellExecute(Tool):
    """Runs a shell command in the workspace."""

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
        """Return the arguments.

        InvalidArguments; BlockedCommand comes here, so that nobody is asked.
        """
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
        return (args.timeout or self.timeout_seconds) + SCAN_SECONDS

    def preview(self, args: ShellInput, ctx: ToolContext) -> Preview:
        return Preview(f"in {_working_directory(args, ctx)}:\n{args.command}\n")

    async def execute(self, args: ShellInput, ctx: ToolContext) -> ToolResult:
        seconds = args.timeout or self.timeout_seconds
        done = await ctx.run(
            "sh",
            "-c",
            args.command,
            cwd=_working_directory(args, ctx),
            timeout=seconds,
            limit=MAX_STREAM,
            final=True,
        )
        return process_result("command", done, seconds, ShellOutput.model_fields, ctx)


class Bash(ShellExecute):
    """The tool `shell_execute`, for models that know it by this name."""

    name = "bash"


def _working_directory(args: ShellInput, ctx: ToolContext) -> str:
    return (ctx.cwd if args.cwd is None else args.cwd) or "."
