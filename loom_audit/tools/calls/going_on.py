"""What a tool does with commands that go on when their call has ended."""

from collections.abc import Mapping, Sequence
from functools import partial

from loom_audit.history.ground.process_state import KeptBackground
from loom_audit.history.record.backgrounds import (
    known_background,
    start_background,
    stop_background,
)
from loom_audit.tools.calls.context import ToolContext
from loom_audit.tools.calls.thread import in_thread


async def start_command(
    ctx: ToolContext,
    *argv: str,
    cwd: str = "",
    writes: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    home: Mapping[str, bytes] | None = None,
) -> KeptBackground:
    """Start a command that goes on when the call has ended, confined whatever the settings say.

    Of the workspace it can write the folders `writes`. Conflict where nothing goes on between
    calls, and when too many run; ExecutionFailed where it cannot be confined so.
    """
    started: list[KeptBackground] = []

    def step() -> KeptBackground:
        ctx.check_may_run("execute")
        command = ctx.command(
            argv, cwd, timeout=None, confinement=None, environment=environment, home=home
        )
        started.append(start_background(ctx.open_call, ctx.command_runner, command, writes))
        return started[0]

    try:
        return await in_thread(step)
    except BaseException:
        for one in started:  # nobody is told its name any more
            await in_thread(partial(stop_background, ctx.open_call, one.name), shielded=True)
        raise


def known_command(ctx: ToolContext, name: str) -> KeptBackground:
    """The session's background command of that name. NotFound, Conflict, NoWorkspace."""
    if ctx.writer is None:
        raise ctx.no_call_error()
    return known_background(ctx.writer, name)


def running_commands(ctx: ToolContext) -> Sequence[str]:
    """The names of the session's background commands that run now."""
    kept = ctx.writer.attachment.process.backgrounds.get(ctx.session) if ctx.writer else None
    return [name for name, one in kept.known.items() if not one.command.is_over] if kept else []


async def stop_command(ctx: ToolContext, name: str) -> KeptBackground:
    """Stop a background command, and put on record what it has changed until then."""
    return await in_thread(partial(stop_background, ctx.open_call, name))
