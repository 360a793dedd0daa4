"""Tools for the OpenAI Agents SDK: a failed call is its text, as the SDK's own errors are."""

import json

from agents import FunctionTool
from agents.tool_context import ToolContext

from loom_audit.api.frameworks.known import Offered


def make(offered: Offered) -> FunctionTool:
    """One tool; the call on record has the model's id."""

    async def call(context: "ToolContext[object]", arguments: str) -> str:
        try:
            told = json.loads(arguments or "{}")
        except ValueError:
            told = arguments  # which the tool refuses, and says where
        result = await offered.call(told, context.tool_call_id)
        return result.output

    return FunctionTool(
        name=offered.name,
        description=offered.description,
        params_json_schema=dict(offered.parameters),
        on_invoke_tool=call,
        strict_json_schema=False,
    )
