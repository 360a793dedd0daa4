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
    assert "edit_file" in found and "web_fetch" not in found
    assert "shell_execute" in names({"title": "Run the tests"})


WORK = {*["edit_file", "run_tests", "run_code", "shell_execute", "install_package"]}
EVERYDAY = [
    "Fix the bug so that the suite passes",
    "Add a new dependency on requests to the project",
    "Refactor the parser into two modules",
    "Write unit tests for the date helper",
    "Make the failing test pass",
    "Rename the function load to read_all everywhere",
    "Implement pagination for the list of users",
    "Remove the dead code in utils.py",
    "Update the README with the new flags",
    "Upgrade pytest and repair what breaks",
    "Get the tests green again",
    "Fixing the flaky integration test",
    "Adding a dark mode switch",
    "Updating the API documentation",
    "The website shows the wrong price: correct it",
    "Improve the error message for a missing file",
    "Speed up the import of large files",
    "Migrated settings still use the old key; change that",
    "Convert the callbacks to async functions",
    "Split config.py by topic",
    "Run the tests and tell me what fails",
    "Install black and format the code",
    "Debug why the server stops after an hour",
    "Reproduce the crash that was reported",
    "Set up continuous integration",
    "Create a script that cleans the cache",
    "Translate the messages into German",
    "Merge the two loggers into one",
    "Use pathlib instead of os.path",
    "Bump the version and write the changelog",
    "Extend the schema by an optional field",
    "Document the public functions",
    "Delete the obsolete fixtures",
    "Why does the login fail?",
    "Explain how the parser looks for errors",
    "Finish what the last session began",
    "The docs say 30 seconds, the code says 60",
    "Lint the package and clean up",
]
ALSO = {
    "Commit the changes and push them": "git_commit git_push run_tests",
    "Publish the release on GitHub": "git_push web_fetch shell_execute",
    "Fetch the latest rates from the API and save them as JSON": "web_fetch write_file run_code",
    "Search the web for the cause of this error, then fix it": "web_search edit_file run_tests",
    "Look up the documentation of httpx online": "web_search web_fetch read_file",
}


@pytest.mark.parametrize("sentence", EVERYDAY)
def test_an_everyday_task_keeps_what_writes_runs_tests_and_installs(sentence: str) -> None:
    assert {*names(sentence)} >= {*READING, *WORK}


@pytest.mark.parametrize("sentence", ALSO)
def test_an_everyday_task_that_speaks_of_the_network_keeps_it(sentence: str) -> None:
    assert {*names(sentence)} >= {*ALSO[sentence].split()}


def test_a_text_that_only_looks_something_up_gets_nothing_that_writes_or_runs() -> None:
    found = names("Look up the documentation of httpx online")
    assert not {*found} & {*WORK, "write_file"}


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
