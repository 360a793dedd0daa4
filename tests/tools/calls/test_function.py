"""What a function says it gives is its output schema, and what it gives is held to it."""

from typing import Any

import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from loom_audit.api.registry import ToolRegistry
from loom_audit.tools.calls.function import tool
from loom_audit.tools.calls.result import ToolResult
from tests.tools.conftest import Bench


class Point(BaseModel):
    across: int = Field(alias="from")


class Tree(BaseModel):
    name: str
    below: "list[Tree]" = []


class Size(TypedDict):
    width: int


def given(bench: Bench, hint: Any, value: Any) -> tuple[ToolResult, Any]:
    def function() -> Any:
        return value

    function.__annotations__["return"] = hint
    made = tool(name="made", description="gives it")(function)
    bench.registry = ToolRegistry()
    bench.registry.register(made)
    return bench.call("made", {}), made.schema("mcp").get("outputSchema")


@pytest.mark.parametrize(
    ("hint", "value", "data", "output"),
    [
        (int, 3, {"result": 3}, "3"),
        (list[int], [1, 2], {"result": [1, 2]}, "[1, 2]"),
        (tuple[int, str], (1, "a"), {"result": [1, "a"]}, '[1, "a"]'),
        (dict[str, int], {"a": 1}, {"a": 1}, '{"a": 1}'),
        (Size, {"width": 2}, {"width": 2}, '{"width": 2}'),
        (Point, Point(**{"from": 4}), {"from": 4}, '{"from": 4}'),
        (
            Tree,
            Tree(name="a", below=[Tree(name="b")]),
            {"name": "a", "below": [{"name": "b", "below": []}]},
            '{"name": "a", "below": [{"name": "b", "below": []}]}',
        ),
        (str | None, "text", {"result": "text"}, "text"),
        (str | None, None, {"result": None}, ""),
        (dict[str, int] | list[int], {"a": 1}, {"result": {"a": 1}}, '{"a": 1}'),
    ],
)
def test_a_result_as_the_hint_says_is_given_and_fits_its_schema(
    bench: Bench, hint: Any, value: Any, data: dict[str, object], output: str
) -> None:
    result, schema = given(bench, hint, value)
    assert result.success, result.error
    assert (result.data, result.output) == (data, output)
    assert schema["type"] == "object"
    Draft202012Validator.check_schema(schema)
    Draft202012Validator(schema).validate(result.data)


@pytest.mark.parametrize(
    ("hint", "value"),
    [(int, "3"), (list[int], [1, "2"]), (dict[str, int], {"a": "b"}), (Size, {}), (int, None)],
)
def test_a_result_that_is_not_what_the_hint_says_is_an_error(
    bench: Bench, hint: Any, value: Any
) -> None:
    result, _ = given(bench, hint, value)
    assert result.error.code == "EXECUTION_ERROR" and "what it says it gives" in result.output
    bench.assert_every_call_has_one_finish()


@pytest.mark.parametrize(
    ("hint", "value", "data"),
    [
        (str, "text", None),
        (None, None, {"result": None}),
        (Any, {"a": 1}, {"a": 1}),
        (ToolResult, ToolResult(True, "mine", {"n": 1}), {"n": 1}),
        (ToolResult | str, ToolResult(True, "mine"), None),
        (type | None, None, {"result": None}),
    ],
)
def test_where_the_hint_says_nothing_there_is_no_schema(
    bench: Bench, hint: Any, value: Any, data: dict[str, object] | None
) -> None:
    result, schema = given(bench, hint, value)
    assert result.success and result.data == data
    assert schema is None
