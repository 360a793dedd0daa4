"""What a tool does with the session's own past: as rules and people have seen it."""

from collections.abc import Callable
from typing import TypeVar

from loom_audit.errors import ExecutionFailed
from loom_audit.model.plans.planning import Plan
from loom_audit.tools.calls.context import ToolContext
from loom_audit.tools.calls.past import Past, PlannedOnce

T = TypeVar("T")


def past_of(ctx: ToolContext) -> PlannedOnce:
    """What is on record, as this call asks it. NoWorkspace, ExecutionFailed."""
    if ctx.writer is None:
        raise ctx.no_call_error()
    if ctx.past is None:
        raise ExecutionFailed(
            "What is on record cannot be asked here", hint="Call the tool in a session."
        )
    return ctx.past


async def recall(ctx: ToolContext, reader: Callable[[Past], T]) -> T:
    """What `reader` makes of what is on record, read in the worker thread."""
    return await ctx.in_thread(lambda: reader(past_of(ctx).past))


async def take_back(ctx: ToolContext, number: int | None) -> Plan:
    """Take back a call of this session, or the newest, as the last step of this call.

    What is done is what `PlannedOnce.plan` gave before, if it was asked. NotFound,
    PermissionDenied; Conflict where not all of it can be taken back, or something else happened
    meanwhile.
    """

    def step() -> Plan:
        own, call = past_of(ctx), ctx.open_call
        plan = own.plan(number)
        call.check_writable()
        own.past.carry_out(plan, call)
        return plan

    return await ctx.in_thread(step)
