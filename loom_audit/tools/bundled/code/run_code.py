"""run_code: a program of the model's own, confined or not at all."""

import re
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import Field

from loom_audit.errors import InvalidArguments
from loom_audit.tools.bundled.environment import find_programs, python_of, system_program
from loom_audit.tools.bundled.git.identity import Identities, withholding
from loom_audit.tools.bundled.git_head import moved_text
from loom_audit.tools.bundled.process import (
    MAX_STREAM,
    PLACES,
    SCAN_SECONDS,
    TIMEOUT_NAMES,
    Timeout,
    process_result,
)
from loom_audit.tools.bundled.text import encode
from loom_audit.tools.calls.context import ToolContext
from loom_audit.tools.calls.models import Arguments, NonEmpty, Output
from loom_audit.tools.calls.result import ToolResult
from loom_audit.tools.calls.steps_in_thread import steps_in_thread
from loom_audit.tools.calls.tool import Tool
from loom_audit.tools.guard.interactive import check_terminal
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
        "Run Python (the project's .venv, if there is one) or bash code in the workspace, in a "
        "sandbox: no network, and nothing outside the workspace but the system's programs. Files "
        "it changes are recorded. " + PLACES
    )
    input = CodeInput
    output = CodeOutput
    effect = "execute"
    timeout_seconds = 60
    confinement = "required"
    other_names = TIMEOUT_NAMES

    def __init__(self) -> None:
        self._identities = Identities()

    def parse(self, arguments: Any) -> CodeInput:
        """Return the arguments.

        BlockedCommand comes here, so that nobody is asked about a refused program.
        """
        args: CodeInput = super().parse(arguments)
        if args.language == "bash" and len(args.code) <= MAX_CODE:
            check_command(args.code)
            check_terminal(args.code)
        return args

    def limit(self, args: CodeInput) -> float:
        return (args.timeout or self.timeout_seconds) + SCAN_SECONDS

    async def execute(self, args: CodeInput, ctx: ToolContext) -> ToolResult:
        return await steps_in_thread(ctx, partial(self._run, args))

    async def _run(self, args: CodeInput, ctx: ToolContext) -> ToolResult:
        seconds = args.timeout or self.timeout_seconds
        programs = await find_programs(ctx)
        python = await ctx.in_thread(lambda: python_of(ctx, own=programs.confined))
        done = await ctx.run(
            *withholding(ctx),
            *_argv(args, python),
            cwd=ctx.cwd,
            timeout=seconds,
            limit=MAX_STREAM,
            final=True,
            environment={**programs.variables, **(args.env or {})},
            home=await self._identities.home(ctx, programs),
        )
        moved = await ctx.in_thread(lambda: moved_text(ctx, programs.head))
        told = [*programs.told, *moved]
        return process_result("code", done, seconds, CodeOutput.model_fields, ctx, told)


def _argv(args: CodeInput, python: Sequence[str]) -> list[str]:
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
        return [system_program("bash"), "-c", args.code, "bash", *(args.args or ())]
    return [*python, "-c", args.code, *(args.args or ())]
