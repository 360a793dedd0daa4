"""Tools for LangChain: a failed call is a `ToolMessage` whose status is an error."""

from contextvars import ContextVar
from typing import Any

from langchain_core.runnables import RunnableConfig
from langchain_core.tools import StructuredTool, ToolException

from loom_audit.api.frameworks.known import Offered

_call_id = ContextVar[str | None]("call_id", default=None)


class RecordedTool(StructuredTool):
    """Remembers the model's id of a call, which a tool with a JSON Schema is not told otherwise."""

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Keep the model's id of the call, then call the tool as LangChain does."""
        id = input.get("id") if isinstance(input, dict) and "args" in input else None
        _call_id.set(id if isinstance(id, str) else None)
        return await super().ainvoke(input, config, **kwargs)


def make(offered: Offered) -> RecordedTool:
    """One tool, to be awaited; the call on record has the model's id."""

    async def call(**arguments: Any) -> str:
        result = await offered.call(arguments, _call_id.get())
        if not result.success:
            raise ToolException(result.output)
        return result.output

    return RecordedTool(
        name=offered.name,
        description=offered.description,
        args_schema=dict(offered.parameters),
        coroutine=call,
        handle_tool_error=True,
    )
