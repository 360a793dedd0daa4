"""Commands that go on between calls: what a model is told of one, and the tools that ask it."""

import re
from functools import partial
from time import monotonic
from typing import Annotated, Any

from pydantic import Field

from loom_audit.history.ground.process_state import KeptBackground
from loom_audit.model.text.display import count_text, first_few, visible
from loom_audit.ports import CommandResult
from loom_audit.tools.bundled.process import MAX_STREAM
from loom_audit.tools.bundled.text import decode
from loom_audit.tools.calls.context import ToolContext
from loom_audit.tools.calls.going_on import known_command, running_commands, stop_command
from loom_audit.tools.calls.models import Arguments, NonEmpty, Output
from loom_audit.tools.calls.result import ToolResult
from loom_audit.tools.calls.tool import Tool

MAX_WAIT = 60
_SAID_LAST = 4_000
_REFUSED = re.compile(r"connection refused|could(?:n't| not) connect|ECONNREFUSED", re.IGNORECASE)
_SLICE = 0.25
"""Seconds that a thread waits at once, so that a cancelled call ends soon."""

_Id = Annotated[NonEmpty, Field(description="The id that bash gave, such as bg1")]


class BackgroundOutput(Output):
    id: str
    running: bool
    exit_code: int | None
    output: str
    offset: int
    next_offset: int
    left_out: int


class BashOutputInput(Arguments):
    id: _Id
    offset: Annotated[
        int | None,
        Field(ge=0, description="From which byte on; by default where the last answer ended"),
    ] = None
    wait: Annotated[
        int | None,
        Field(
            ge=0,
            le=MAX_WAIT,
            description="Seconds to wait for new output, or the end, if there is none yet; 0 by "
            "default",
        ),
    ] = None


class BashStopInput(Arguments):
    id: _Id


class BashOutput(Tool):
    """Shows what a background command printed, and whether it runs."""

    name = "bash_output"
    description = (
        "Show what a background command of bash has printed since the last time, stdout and "
        "stderr together, and whether it still runs. Of its output the last 1 MiB is kept."
    )
    input = BashOutputInput
    output = BackgroundOutput
    effect = "read"
    timeout_seconds = 10

    def limit(self, args: BashOutputInput) -> float:
        return self.timeout_seconds + (args.wait or 0)

    async def execute(self, args: BashOutputInput, ctx: ToolContext) -> ToolResult:
        one = known_command(ctx, args.id)
        after = one.shown if args.offset is None else args.offset
        until = monotonic() + (args.wait or 0)
        while not one.command.is_over and one.command.output(after)[1] <= after:
            if monotonic() >= until:
                break
            await ctx.in_thread(partial(one.command.wait, after, _SLICE))
        return printed_result(one, after)


class BashStop(Tool):
    """Stops a background command and all that it started."""

    name = "bash_stop"
    description = (
        "Stop a background command of bash: it is asked to end (SIGTERM), and killed with all "
        "that runs in its sandbox after two seconds. Shows what it printed last."
    )
    input = BashStopInput
    output = BackgroundOutput
    effect = "execute"
    timeout_seconds = 660

    async def execute(self, args: BashStopInput, ctx: ToolContext) -> ToolResult:
        one = await stop_command(ctx, args.id)
        return printed_result(one, one.shown)


def printed_result(one: KeptBackground, after: int) -> ToolResult:
    """Return what a command printed behind so many bytes, and how it is; that is shown then."""
    printed, total = one.command.output(after)
    shown = printed[-MAX_STREAM:]
    one.shown = total
    left_out = max(total - after, 0) - len(shown)
    over = one.command.is_over
    data = {
        "id": one.name,
        "running": not over,
        "exit_code": one.command.exit_code,
        "output": decode(shown),
        "offset": total - len(shown),
        "next_offset": total,
        "left_out": left_out,
    }
    gone = len(printed) < total - after
    lines = [decode(shown).rstrip("\n")] if shown else []
    if left_out:
        way = "the last 1 MiB is kept" if gone else f"offset {after} shows them"
        lines.insert(0, f"[{count_text(left_out, 'byte')} before this left out; {way}]")
    lines.append(f"[{_state_text(one)}]" if shown else f"[nothing new; {_state_text(one)}]")
    return ToolResult(True, "\n".join(lines), data)


def _state_text(one: KeptBackground) -> str:
    if not one.command.is_over:
        return f"{one.name} runs"
    code = one.command.exit_code
    how = "was stopped" if one.how == "stopped" else "has ended"
    return f"{one.name} {how}" + (f": exit code {code}" if code is not None else "")


def refused_text(done: CommandResult, ctx: ToolContext) -> list[str]:
    """The line for a command that found nobody at its own localhost, while others run elsewhere."""
    last = decode(done.stdout[-_SAID_LAST:] + done.stderr[-_SAID_LAST:])
    if not done.exit_code or not _REFUSED.search(last) or not (names := running_commands(ctx)):
        return []
    verb = "runs in a sandbox of its own" if len(names) == 1 else "run in sandboxes of their own"
    return [f'[{", ".join(names)} {verb}: with in="{names[-1]}" a command reaches its localhost]']


def started_result(one: KeptBackground) -> ToolResult:
    """Return the answer to the call that started a command, with the fields of a shell's output."""
    folders = first_few([folder.path for folder in one.writes], 5, visible)
    data: dict[str, Any] = {
        "background": one.name,
        "exit_code": None,
        "stdout": "",
        "stderr": "",
        "timed_out": False,
        "truncated": False,
        "survivors": [],
        "sandbox": one.command.name,
    }
    text = (
        f"{one.name} runs in the background; of the workspace it can write "
        f"{folders or 'nothing'}.\n"
        f'bash_output shows what it prints, bash_stop ends it; bash with in="{one.name}" runs a '
        "command beside it, which reaches its localhost."
    )
    return ToolResult(True, text, data)
