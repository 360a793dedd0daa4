"""Shell commands in the workspace, with every file they change on record."""

from functools import partial
from typing import Annotated, Any

from pydantic import Field

from loom_audit.errors import InvalidArguments
from loom_audit.model.coverage import Effect
from loom_audit.tools.bundled.environment import find_programs, system_program
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
from loom_audit.tools.bundled.shell.background import refused_text, started_result
from loom_audit.tools.calls.context import ToolContext
from loom_audit.tools.calls.going_on import known_command, start_command
from loom_audit.tools.calls.models import Arguments, NonEmpty, Output
from loom_audit.tools.calls.result import ToolResult
from loom_audit.tools.calls.steps_in_thread import steps_in_thread
from loom_audit.tools.calls.tool import Preview, Tool
from loom_audit.tools.guard.interactive import check_terminal
from loom_audit.tools.guard.rules import check_command

MAX_COMMAND = 120 * 1024


class ShellInput(Arguments):
    command: Annotated[NonEmpty, Field(description="What `sh -c` shall run")]
    cwd: Annotated[
        str | None,
        Field(description="Directory of the workspace to run in; the session's, else its root"),
    ] = None
    timeout: Timeout = None
    background: Annotated[
        bool,
        Field(
            description="For servers and watchers: answer with an id (bg1) as soon as it has "
            "started. It goes on until it ends, bash_stop, or the session's end; without `&` and "
            "`timeout`"
        ),
    ] = False
    writes: list[NonEmpty] = Field(
        default_factory=list,
        description="Folders of the workspace that a background command may write; it reads all, "
        "and writes none by default (/tmp and HOME are its own)",
    )
    within: Annotated[
        NonEmpty | None,
        Field(
            alias="in",
            description="Id of a background command: run beside it, in its sandbox, with its "
            "localhost (curl localhost:8000), its /tmp and the same read-only workspace",
        ),
    ] = None


class ShellOutput(Output):
    exit_code: int | None
    stdout: str
    stderr: str
    timed_out: bool
    truncated: bool
    survivors: list[str]
    sandbox: str
    background: str | None = None


class ShellExecute(Tool):
    """Runs a shell command in the workspace."""

    name = "shell_execute"
    description = (
        "Run a shell command in the workspace, the project's .venv and node_modules/.bin first on "
        "PATH. The command and everything it started is killed at its end or its timeout, unless "
        "it was started with background=true. " + PLACES
    )
    input = ShellInput
    output = ShellOutput
    effect = "execute"
    timeout_seconds = 60
    confinement = "preferred"
    other_names = TIMEOUT_NAMES

    def __init__(self) -> None:
        self._identities = Identities()

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
        _check_background(args)
        check_terminal(args.command)
        return args

    def effects(self, args: ShellInput) -> frozenset[Effect]:
        if args.background or args.within:
            return frozenset({"execute", "write", "network"})
        return super().effects(args)

    def paths(self, args: ShellInput, ctx: ToolContext) -> list[str]:
        return [one.path for one in known_command(ctx, args.within).writes] if args.within else []

    def limit(self, args: ShellInput) -> float:
        return (args.timeout or self.timeout_seconds) + SCAN_SECONDS

    def preview(self, args: ShellInput, ctx: ToolContext) -> Preview:
        where = f"in {_working_directory(args, ctx)}"
        if args.background:
            where += f", in the background, writing {', '.join(args.writes) or 'nothing'}"
        if args.within:
            where += f", beside {known_command(ctx, args.within).name}"
        return Preview(f"{where}:\n{args.command}\n")

    async def execute(self, args: ShellInput, ctx: ToolContext) -> ToolResult:
        if not args.background:
            return await steps_in_thread(ctx, partial(self._run, args))
        programs = await find_programs(ctx)
        started = await start_command(
            ctx,
            *_argv(args, ctx),
            cwd=_working_directory(args, ctx),
            writes=args.writes,
            environment=programs.variables,
            home=await self._identities.home(ctx, programs),
        )
        return started_result(started)

    async def _run(self, args: ShellInput, ctx: ToolContext) -> ToolResult:
        programs = await find_programs(ctx)
        seconds = args.timeout or self.timeout_seconds
        done = await ctx.run(
            *_argv(args, ctx),
            cwd=_working_directory(args, ctx),
            timeout=seconds,
            limit=MAX_STREAM,
            final=True,
            environment=programs.variables,
            home=await self._identities.home(ctx, programs),
            within=args.within or "",
        )
        moved = await ctx.in_thread(lambda: moved_text(ctx, programs.head))
        told = [*programs.told, *moved, *([] if args.within else refused_text(done, ctx))]
        return process_result("command", done, seconds, ShellOutput.model_fields, ctx, told)


class Bash(ShellExecute):
    """The tool `shell_execute`, for models that know it by this name."""

    name = "bash"


def _check_background(args: ShellInput) -> None:
    """InvalidArguments for what says nothing together."""
    if args.background and args.within:
        flaw = "a background command has a sandbox of its own: leave out `in`"
    elif args.background and args.timeout is not None:
        flaw = "a background command goes on until it ends or bash_stop: leave out `timeout`"
    elif args.writes and not args.background:
        flaw = "`writes` is for a background command: pass background=true, or leave it out"
    else:
        return
    raise InvalidArguments(f"Invalid arguments: {flaw}")


def _argv(args: ShellInput, ctx: ToolContext) -> tuple[str, ...]:
    return (*withholding(ctx), system_program("sh"), "-c", args.command)


def _working_directory(args: ShellInput, ctx: ToolContext) -> str:
    return (ctx.cwd if args.cwd is None else args.cwd) or "."
