"""What a tool must say of itself, by models or by schemas, and that its results are held to it."""

import base64
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field

from loom_audit.api.registry import ToolRegistry
from loom_audit.errors import InvalidArguments
from loom_audit.tools.bundled.builtin import builtin_tools
from loom_audit.tools.calls.context import ToolContext
from loom_audit.tools.calls.models import Arguments
from loom_audit.tools.calls.result import ToolResult
from loom_audit.tools.calls.tool import Tool
from tests.tools.conftest import Bench


def test_a_tool_must_say_what_it_is_and_do_something() -> None:
    with pytest.raises(TypeError, match="abstract"):
        Tool()  # type: ignore[abstract]

    class Nameless(Tool):
        description = "has no name"

        async def execute(self, args: Any, ctx: ToolContext) -> ToolResult:
            return ToolResult(True)

    with pytest.raises(InvalidArguments):
        ToolRegistry().register(Nameless())
    assert Nameless().timeout_seconds == 30


def test_a_schema_is_the_nested_form_of_openai_by_default() -> None:
    (read, *_) = builtin_tools()
    assert read.schema() == {
        "type": "function",
        "function": {
            "name": read.name,
            "description": read.description,
            "parameters": read.parameters,
        },
    }
    assert read.parameters["required"] == ["path"]
    assert {"path", "line_range"} <= {*read.parameters["properties"]}


class Raw(Tool):
    name = "raw"
    description = "Gives what it is told to."
    gives: Any = None
    parameters = {"type": "object", "properties": {"n": {"type": "integer"}}}  # noqa: RUF012
    output_schema = {  # noqa: RUF012
        "type": "object",
        "properties": {"sum": {"type": "integer"}},
        "required": ["sum"],
    }

    async def execute(self, args: Any, ctx: ToolContext) -> ToolResult:
        return ToolResult(True, "", self.gives)


class Modelled(Raw):
    class Sum(BaseModel):
        sum: int

    output = Sum


@pytest.mark.parametrize("kind", [Raw, Modelled])
def test_a_result_that_does_not_fit_the_output_schema_is_an_error_on_record(
    bench: Bench, kind: type[Raw]
) -> None:
    tool = kind()
    bench.registry.register(tool)
    tool.gives = {"sum": 3}
    assert bench.call("raw", {"n": 3}).success
    tool.gives = {"sum": "many"}
    result = bench.call("raw", {"n": 3})
    assert result.error.code == "EXECUTION_ERROR" and "sum: " in result.error.message
    assert bench.last().status == "error"
    tool.gives = None
    assert bench.call("raw", {"n": 3}).error.code == "EXECUTION_ERROR"
    assert tool.schema("mcp")["outputSchema"]["properties"] == {"sum": {"type": "integer"}}


def test_an_output_schema_that_is_none_is_refused() -> None:
    class Bad(Raw):
        output_schema = {"type": 7}  # noqa: RUF012

    with pytest.raises(InvalidArguments, match="output of raw"):
        ToolRegistry().register(Bad())


class ReadFileTool(Tool):
    class Input(Arguments):
        path: str = Field(description="Path relative to workspace root")
        encoding: Literal["utf-8", "base64"] | None = None

    class Output(BaseModel):
        content: str
        size: int
        modified: str

    name = "read_file_again"
    description = "Read the contents of a file in the workspace"
    input = Input
    output = Output
    requires_approval = False

    async def execute(self, args: Any, ctx: ToolContext) -> ToolResult:
        entry = await ctx.stat(args.path)
        raw = await ctx.read(args.path)
        content = base64.b64encode(raw).decode() if args.encoding == "base64" else raw.decode()
        data = {"content": content, "size": entry.size, "modified": entry.modified.isoformat()}
        return ToolResult(True, content, data)


def test_a_tool_with_models_of_its_input_and_output_works(bench: Bench) -> None:
    bench.registry.register(ReadFileTool())
    result = bench.call("read_file_again", {"path": "notes.txt"})
    assert result.ok and result.value["content"] == "first\r\nsecond\r\nthird"
    exact = bench.call("read_file_again", {"path": "notes.txt", "encoding": "base64"})
    assert base64.b64decode(exact.value["content"]) == b"first\r\nsecond\r\nthird"
    wrong = bench.call("read_file_again", {"path": "notes.txt", "encoding": "latin-1"})
    assert not wrong.ok and wrong.error.code == "INVALID_ARGUMENTS"
    parameters = bench.registry.get("read_file_again").parameters
    assert parameters["properties"]["path"] == {
        "description": "Path relative to workspace root",
        "type": "string",
    }


class MyTool(Tool):
    name = "my_tool"
    description = "Does something useful"
    parameters = {  # noqa: RUF012
        "type": "object",
        "properties": {"arg1": {"type": "string"}},
        "required": ["arg1"],
    }

    async def execute(self, args: Any, ctx: ToolContext) -> ToolResult:
        return ToolResult(True, "success", {"result": "success"})


def test_a_tool_with_a_schema_of_its_own_works(bench: Bench) -> None:
    bench.registry.register(MyTool())
    result = bench.call("my_tool", {"arg1": "test"})
    assert result.data["result"] == "success"
    assert bench.call("my_tool", {}).error.code == "INVALID_ARGUMENTS"
    assert bench.registry.get("my_tool").schema()["function"]["parameters"] == MyTool.parameters
