"""The schemas of the bundled tools: what each takes and gives."""

import json

import pytest
from jsonschema import Draft202012Validator

from loom_audit.tools.bundled.builtin import BUNDLED, builtin_tools
from tests.tools.conftest import Bench


def test_every_tool_says_what_it_takes_and_what_it_gives() -> None:
    for tool in builtin_tools():
        assert tool.description
        for schema in (tool.parameters, tool.output_schema):
            assert schema is not None
            Draft202012Validator.check_schema(dict(schema))
            assert schema["type"] == "object"
        for argument in tool.parameters.get("properties", {}).values():
            assert argument["description"]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("read_file", {"path": "notes.txt"}),
        ("write_file", {"path": "new.txt", "content": ""}),
        ("delete_file", {"path": "notes.txt"}),
        ("move_file", {"from": "notes.txt", "to": "new.txt"}),
        ("list_directory", {}),
        ("list_files", {}),
        ("search_files", {"pattern": "x"}),
        ("shell_execute", {"command": "true"}),
        ("bash", {"command": "true"}),
        ("run_code", {"language": "bash", "code": "true"}),
        ("web_fetch", {"url": "http://nobody.invalid/"}),
        ("web_search", {"query": "x"}),
        ("oracle", {"question": "x"}),
    ],
)
def test_needed_arguments_are_needed_and_no_others(
    bench: Bench, name: str, arguments: dict[str, object]
) -> None:
    before = bench.tree()
    for left_out in arguments:
        some = {key: value for key, value in arguments.items() if key != left_out}
        result = bench.call(name, some)
        assert result.error.code == "INVALID_ARGUMENTS" and left_out in result.error.message
    assert bench.tree() == before
    result = bench.call(name, arguments)
    assert result.success or result.error.code == "EXECUTION_ERROR"  # nobody to ask in the web


def test_results_of_the_file_tools_fit_their_output_schemas(bench: Bench) -> None:
    for name, arguments in (
        ("read_file", {"path": "notes.txt"}),
        ("write_file", {"path": "n", "content": "x"}),
        ("edit_file", {"path": "n", "old_str": "x", "new_str": "y"}),
        ("list_directory", {}),
        ("list_files", {}),
        ("search_files", {"pattern": "y"}),
        ("move_file", {"from": "n", "to": "m"}),
        ("delete_file", {"path": "m"}),
        ("shell_execute", {"command": "true"}),
    ):
        result = bench.call(name, arguments)
        schema = bench.registry.get(name).output_schema
        assert schema is not None
        Draft202012Validator(dict(schema)).validate(json.loads(result.to_json())["data"])


def test_every_bundled_tool_has_the_name_it_is_loaded_by() -> None:
    assert [tool.name for tool in builtin_tools()] == [*BUNDLED]
