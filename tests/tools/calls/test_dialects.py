"""Tool schemas and results as the vendors' own packages type them.

The packages take seconds to load, so only what runs these tests loads them.
"""

from importlib import import_module
from typing import Any

import pytest
from pydantic import TypeAdapter

from loom_audit.api.registry import builtin_registry
from loom_audit.errors import InvalidPath
from loom_audit.tools.calls.messages import MessageDialect, ToolCall, tool_messages
from loom_audit.tools.calls.result import ToolResult
from loom_audit.tools.calls.tool import Dialect

TYPES: dict[Dialect, str] = {
    "openai": "openai.types.chat.ChatCompletionFunctionToolParam",
    "openai-flat": "openai.types.responses.FunctionToolParam",
    "anthropic": "anthropic.types.ToolParam",
    "mcp": "mcp.types.Tool",
}


def adapter_of(name: str) -> TypeAdapter[Any]:
    module, _, kind = name.rpartition(".")
    return TypeAdapter(getattr(import_module(module), kind))


@pytest.mark.few(1)
@pytest.mark.parametrize("dialect", [*TYPES])
def test_the_vendors_types_take_every_schema_whole(dialect: Dialect) -> None:
    adapter = adapter_of(TYPES[dialect])
    for schema in builtin_registry().all_schemas(dialect):
        taken = adapter.validate_python(schema)
        again = adapter.dump_python(taken, by_alias=True, exclude_unset=True, mode="json")
        assert again == schema


@pytest.mark.parametrize("dialect", [*TYPES])
def test_the_vendors_types_refuse_another_dialect(dialect: Dialect) -> None:
    other: Dialect = "mcp" if dialect != "mcp" else "openai"
    schema = builtin_registry().all_schemas(other)[0]
    adapter = adapter_of(TYPES[dialect])
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
        ("openai", "chat.ChatCompletionToolMessageParam", "tool_call_id"),
        ("openai-flat", "responses.response_input_param.FunctionCallOutput", "call_id"),
    ],
)
def test_the_vendors_types_take_each_result_whole(
    dialect: MessageDialect, kind: str, id: str
) -> None:
    adapter = adapter_of(f"openai.types.{kind}")
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
    taken = adapter_of("anthropic.types.MessageParam").validate_python(message)
    assert taken["role"] == "user"
    adapter = adapter_of("anthropic.types.ToolResultBlockParam")
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
