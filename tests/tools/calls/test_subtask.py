"""Tools chosen for a subtask by declared names, declared needs, or its text."""

from dataclasses import dataclass

import pytest

from loom_audit.api.registry import builtin_registry
from loom_audit.errors import InvalidArguments, UnknownTool
from loom_audit.tools.bundled.builtin import builtin_tools
from loom_audit.tools.calls.subtask import choose_tools

TOOLS = builtin_tools()
READING = [tool.name for tool in TOOLS if tool.effect == "read"]


def names(subtask: object) -> list[str]:
    return [tool.name for tool in choose_tools(TOOLS, subtask)]


@dataclass
class Subtask:
    description: str
    tools: list[str] | None = None
    needs: list[str] | None = None


def test_declared_names_are_taken_as_they_are() -> None:
    assert names({"tools": ["write_file"], "description": "run"}) == ["write_file"]
    assert names(Subtask("run", ["write_file"])) == ["write_file"]


def test_declared_needs_add_what_reads() -> None:
    found = names(Subtask("anything", needs=["execute"]))
    assert "shell_execute" in found and {*READING} <= {*found} and "write_file" not in found


def test_names_and_needs_add_up() -> None:
    assert {*names({"tools": ["write_file"], "needs": []})} == {*READING, "write_file"}


def test_the_text_chooses_when_nothing_is_declared() -> None:
    assert names("Explain how the parser looks for errors") == [tool.name for tool in TOOLS]
    found = names("Fix the spelling in the notes")
    assert "edit_file" in found and "shell_execute" not in found
    assert "shell_execute" in names({"title": "Run the tests"})


def test_a_text_that_says_nothing_gets_every_tool() -> None:
    assert names("") == names({"description": "hm"}) == [tool.name for tool in TOOLS]


def test_a_name_nobody_registered_is_an_error() -> None:
    with pytest.raises(UnknownTool, match="fly"):
        names({"tools": ["fly"]})


@pytest.mark.parametrize("subtask", [{"needs": ["magic"]}, {"tools": "read_file"}, {"needs": 3}])
def test_a_malformed_subtask_is_an_error(subtask: dict[str, object]) -> None:
    with pytest.raises(InvalidArguments):
        names(subtask)


def test_a_registry_gives_the_schemas_for_a_subtask() -> None:
    registry = builtin_registry()
    wanted = registry.tools_for_subtask({"tools": ["read_file"]})
    assert wanted == [registry.get("read_file").schema()]
    several = registry.tools_for_subtask("Fix the spelling in the notes", "anthropic")
    assert {"read_file", "edit_file"} <= {schema["name"] for schema in several}
    assert all("input_schema" in schema for schema in several)
