"""Tool schemas as the vendors' own packages type them."""

from typing import Any

import pytest
from anthropic.types import ToolParam
from mcp.types import Tool as McpTool
from openai.types.chat import ChatCompletionFunctionToolParam
from openai.types.responses import FunctionToolParam
from pydantic import TypeAdapter

from loom_audit.tools.builtin import builtin_registry
from loom_audit.tools.tool import Dialect

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
