"""run_code: a program of the model's own, confined or not at all."""

import re
import sys
from typing import Annotated, Any, Literal

from pydantic import Field

from loom_audit.errors import InvalidArguments
from loom_audit.tools.bundled.process import (
    MAX_STREAM,
    SCAN_SECONDS,
    Timeout,
    process_result,
)
from loom_audit.tools.bundled.text import encode
from loom_audit.tools.calls.context import ToolContext
from loom_audit.tools.calls.models import Arguments, NonEmpty, Output
from loom_audit.tools.calls.result import ToolResult
from loom_audit.tools.calls.tool import Tool
from loom_audit.tools.guard.rules import check_command

MAX_CODE = 120 * 1024
"""Bytes: Linux takes no single argument of 128 KiB."""

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class CodeInput(Arguments):
    language: Annotated[Literal["python", "bash"], Field(description="What the code is")]
    code: Annotated[NonEmpty, Field(description="The program's text")]
    args: Annotated[list[str] | None, Field(description="Its command-line arguments")] = None
    env: Annotated[dict[str, str] | None, Field(description="Further environment variables")] = None
    timeout: Timeout = None


class CodeOutput(Output):
    """`duration` in milliseconds; `exitCode` is None when the time was up."""

    stdout: str
    stderr: str
    exitCode: int | None
    duration: int
    timed_out: bool
    truncated: bool
    sandbox: str


class RunCode(Tool):
    """Runs a program that the model wrote, in a sandbox or not at all."""

    name = "run_code"
    description = (
        "Run Python or bash code in the workspace, in a sandbox: no network, and nothing outside "
        "the workspace but the system's programs. Files it changes are recorded."
    )
    input = CodeInput
    output = CodeOutput
    effect = "execute"
    timeout_seconds = 60
    confinement = "required"

    def parse(self, arguments: Any) -> CodeInput:
        """Return the arguments.

        BlockedCommand comes here, so that nobody is asked about a refused program.
        """
        args: CodeInput = super().parse(arguments)
        if args.language == "bash" and len(args.code) <= MAX_CODE:
            check_command(args.code)
        return args

    def limit(self, args: CodeInput) -> float:
        return (args.timeout or self.timeout_seconds) + SCAN_SECONDS

    async def execute(self, args: CodeInput, ctx: ToolContext) -> ToolResult:
        seconds = args.timeout or self.timeout_seconds
        done = await ctx.run(
            *_argv(args),
            cwd=ctx.cwd,
            timeout=seconds,
            limit=MAX_STREAM,
            final=True,
            environment=args.env,
        )
        return process_result("code", done, seconds, CodeOutput.model_fields, ctx)


def _argv(args: CodeInput) -> list[str]:
    """The command line. InvalidArguments for what no process can be given."""
    given = [args.code, *(args.args or ())]
    for name, value in (args.env or {}).items():
        if not _VARIABLE.fullmatch(name) or name.startswith("LOOM_AUDIT_"):
            raise InvalidArguments(
                f"{name!r:.80} is not a name for a variable here",
                hint="Use letters, digits and underscores; LOOM_AUDIT_ is kept.",
            )
        given.append(value)
    if any("\0" in text for text in given):
        raise InvalidArguments("code, args or env hold a NUL character", hint="Remove it.")
    if sum(len(encode(text, "run_code")) for text in given) > MAX_CODE:
        raise InvalidArguments(
            f"code, args and env have more than {MAX_CODE} bytes together",
            hint="Write the code to a file first and run that.",
        )
    if args.language == "bash":
        return ["bash", "-c", args.code, "bash", *(args.args or ())]
    return [sys.executable, "-c", args.code, *(args.args or ())]
