"""Tools for Pydantic AI: a failed call is `ToolFailed`, which the model reads and goes on from."""

from typing import Any

from pydantic_ai import RunContext, Tool, ToolFailed

from loom_audit.api.frameworks.known import Offered


def make(offered: Offered) -> "Tool[Any]":
    """One tool; the call on record has the model's id."""

    async def call(context: "RunContext[Any]", **arguments: Any) -> str:
        result = await offered.call(arguments, context.tool_call_id)
        if not result.success:
            raise ToolFailed(result.output)
        return result.output

    return Tool.from_schema(
        call, offered.name, offered.description, dict(offered.parameters), takes_ctx=True
    )
