"""Tool schemas and results as the vendors' own packages type them."""

from typing import Any

import pytest
from anthropic.types import MessageParam, ToolParam, ToolResultBlockParam
from mcp.types import Tool as McpTool
from openai.types.chat import ChatCompletionFunctionToolParam, ChatCompletionToolMessageParam
from openai.types.responses import FunctionToolParam
from openai.types.responses.response_input_param import FunctionCallOutput
from pydantic import TypeAdapter

from loom_audit.api import builtin_registry
from loom_audit.errors import InvalidPath
from loom_audit.tools.calls.messages import MessageDialect, ToolCall, tool_messages
from loom_audit.tools.calls.result import ToolResult
from loom_audit.tools.calls.tool import Dialect

TYPES: dict[Dialect, Any] = {
    "openai": ChatCompletionFunctionToolParam,
    "openai-flat": FunctionToolParam,
    "anthropic": ToolParam,
    "mcp": McpTool,
}


@pytest.mark.parametrize("dialect", [*TYPES])
def test_the_vendors_types_take_every_schema_whole(dialect: Dialect) -> None:
    adapter = TypeAdapter(TYPES[dialect])
    for schema in builtin_registry().all_schemas(dialect):
        taken = adapter.validate_python(schema)
        again = adapter.dump_python(taken, by_alias=True, exclude_unset=True, mode="json")
        assert again == schema


@pytest.mark.parametrize("dialect", [*TYPES])
def test_the_vendors_types_refuse_another_dialect(dialect: Dialect) -> None:
    other: Dialect = "mcp" if dialect != "mcp" else "openai"
    schema = builtin_registry().all_schemas(other)[0]
    adapter = TypeAdapter(TYPES[dialect])
    try:
        again = adapter.dump_python(
            adapter.validate_python(schema), by_alias=True, exclude_unset=True, mode="json"
        )
    except ValueError:
        return
    assert again != schema


CALLS = [ToolCall("call_0#2", "read_file", {}, answers="call_0"), ToolCall("call_1", "bash", {})]
RESULTS = [ToolResult(True, "text"), ToolResult.failure(InvalidPath("no path", hint="Name one."))]


@pytest.mark.parametrize(
    ("dialect", "kind", "id"),
    [
        ("openai", ChatCompletionToolMessageParam, "tool_call_id"),
        ("openai-flat", FunctionCallOutput, "call_id"),
    ],
)
def test_the_vendors_types_take_each_result_whole(
    dialect: MessageDialect, kind: Any, id: str
) -> None:
    adapter = TypeAdapter(kind)
    messages = tool_messages(CALLS, RESULTS, dialect)
    for message in messages:
        assert adapter.dump_python(adapter.validate_python(message), mode="json") == message
    assert [message[id] for message in messages] == ["call_0", "call_1"]
    assert [[*message.values()][-1] for message in messages] == [
        "text",
        "Error: no path\nName one.",
    ]


def test_results_for_anthropic_are_blocks_of_one_message() -> None:
    (message,) = tool_messages(CALLS, RESULTS, "anthropic")
    assert TypeAdapter(MessageParam).validate_python(message)["role"] == "user"
    adapter = TypeAdapter(ToolResultBlockParam)
    for block in message["content"]:
        assert adapter.dump_python(adapter.validate_python(block), mode="json") == block
    assert message["content"] == [
        {"type": "tool_result", "tool_use_id": "call_0", "content": "text", "is_error": False},
        {
            "type": "tool_result",
            "tool_use_id": "call_1",
            "content": "Error: no path\nName one.",
            "is_error": True,
        },
    ]
