"""Tools, their schemas, and the registry that finds a store by itself."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from loom_audit.api.face import open_store
from loom_audit.api.ground.connections import Connections
from loom_audit.api.registry import ToolRegistry, builtin_registry
from loom_audit.errors import Conflict, InvalidArguments
from loom_audit.tools.bundled.builtin import builtin_tools
from loom_audit.tools.bundled.files.reading import ReadFile
from loom_audit.tools.calls.context import ToolContext
from loom_audit.tools.calls.function import tool
from loom_audit.tools.calls.result import ToolError, ToolResult
from loom_audit.tools.calls.schemas import surely_fits
from loom_audit.tools.calls.settings import ToolSettings
from loom_audit.tools.calls.tool import Dialect, Tool
from tests.tools.conftest import Bench


def execute(registry: ToolRegistry, *args: Any, **options: Any) -> ToolResult:
    async def main() -> ToolResult:
        return await registry.execute(*args, **options)

    return anyio.run(main)


def test_the_tools_that_are_asked_for_are_there_with_their_effects_and_limits() -> None:
    found = {tool.name: (tool.effect, tool.timeout_seconds) for tool in builtin_tools()}
    asked = {
        "read_file": ("read", 10),
        "write_file": ("write", 10),
        "edit_file": ("write", 10),
        "delete_file": ("write", 10),
        "move_file": ("write", 10),
        "list_directory": ("read", 10),
        "list_files": ("read", 10),
        "search_files": ("read", 30),
        "shell_execute": ("execute", 60),
        "bash": ("execute", 60),
        "run_code": ("execute", 60),
        "search_code": ("read", 30),
        "git_status": ("read", 30),
        "git_diff": ("read", 30),
        "git_log": ("read", 30),
        "git_commit": ("execute", 660),
        "git_push": ("network", 720),
        "run_tests": ("execute", 120),
        "format_code": ("execute", 720),
        "install_package": ("execute", 900),
        "web_fetch": ("network", 30),
        "web_search": ("network", 60),
        "web_search_google": ("network", 60),
        "web_search_serper": ("network", 60),
        "oracle": ("network", 30),
    }
    assert asked.items() <= found.items()


@pytest.mark.few(2)
@pytest.mark.parametrize("dialect", ["openai", "openai-flat", "anthropic", "mcp"])
def test_schemas_are_valid_in_every_dialect(dialect: Dialect) -> None:
    for schema in builtin_registry().all_schemas(dialect):
        inner = schema["function"] if dialect == "openai" else schema
        key = {"anthropic": "input_schema", "mcp": "inputSchema"}.get(dialect, "parameters")
        assert inner["name"] and inner["description"]
        parameters = inner[key]
        Draft202012Validator.check_schema(parameters)
        assert parameters["type"] == "object" and parameters["additionalProperties"] is False
        assert "title" not in json.dumps(parameters)
        if dialect == "mcp":
            Draft202012Validator.check_schema(inner["outputSchema"])


def test_every_bundled_tool_is_one_that_could_be_registered() -> None:
    registry = ToolRegistry()
    for one in builtin_tools():
        registry.register(one)
    assert registry.list() and len(registry.list()) == len(builtin_registry().list())


def test_a_schema_is_a_copy() -> None:
    (reader, *_) = builtin_tools()
    reader.schema()["function"]["parameters"].clear()
    assert reader.schema()["function"]["parameters"]["required"] == ["path"]


def test_move_file_s_arguments_are_from_and_to() -> None:
    move = next(tool for tool in builtin_tools() if tool.name == "move_file")
    assert [*move.parameters["properties"]] == ["from", "to", "overwrite"]


class Echo(Tool):
    """A tool as the specification writes them: properties and a raw schema."""

    @property
    def name(self) -> str:  # type: ignore[override] # as the specification writes it
        return "echo"

    description = "says it again"
    needs_workspace = False

    @property
    def parameters(self) -> dict[str, Any]:  # type: ignore[override] # likewise
        return {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}

    async def execute(self, args: Any, ctx: ToolContext) -> ToolResult:
        return ToolResult(True, args["text"])


def test_register_get_and_list() -> None:
    registry = ToolRegistry()
    echo = Echo()
    registry.register(echo)
    assert registry.get("echo") is echo and registry.get("other") is None
    assert registry.list() == [echo]
    with pytest.raises(Conflict):
        registry.register(Echo())


@pytest.mark.parametrize("name", ["", "a b", "x" * 65, "a.b", 7, None])
def test_a_bad_name_is_refused(name: int | str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    class Bad(Echo):
        pass

    monkeypatch.setattr(Bad, "name", name)
    with pytest.raises(InvalidArguments):
        ToolRegistry().register(Bad())


@pytest.mark.parametrize("schema", [{"type": "array"}, {"type": 7}, {}])
def test_a_bad_schema_is_refused(
    schema: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Bad(Echo):
        pass

    monkeypatch.setattr(Bad, "parameters", schema)
    with pytest.raises(InvalidArguments):
        ToolRegistry().register(Bad())


def test_a_tool_that_needs_no_workspace_runs_without_one() -> None:
    registry = ToolRegistry()
    registry.register(Echo())
    assert execute(registry, "echo", {"text": "hi"}).output == "hi"
    assert execute(registry, "echo", {"text": 1}).error.code == "INVALID_ARGUMENTS"
    assert execute(registry, "ecko", {}).error.code == "UNKNOWN_TOOL"


def test_without_a_workspace_the_file_tools_say_so() -> None:
    for name, arguments in (
        ("read_file", {"path": "x"}),
        ("write_file", {"path": "x", "content": ""}),
        ("list_directory", {}),
        ("search_files", {"pattern": "x"}),
        ("shell_execute", {"command": "true"}),
    ):
        result = execute(builtin_registry(), name, arguments)
        assert result.error.code == "NO_WORKSPACE"
        assert json.loads(result.to_json())["error"]["code"] == "NO_WORKSPACE"


def test_execute_records_into_the_default_store(tmp_path: Path, home: Path) -> None:
    root = tmp_path / "w"
    root.mkdir()
    connections = Connections()
    registry = builtin_registry(connections)
    try:
        assert execute(registry, "write_file", {"path": "x", "content": "1"}, root).success
        assert execute(registry, "read_file", {"path": "x"}, str(root)).output == "     1\t1"
        assert execute(registry, "nope", {}, root).error.code == "UNKNOWN_TOOL"
    finally:
        connections.close()
    with open_store() as store:
        calls = store.workspace(root).timeline.calls()
        assert [call.tool for call in calls] == ["nope", "read_file", "write_file"]


def test_many_at_once_in_one_workspace_share_one_session(tmp_path: Path, home: Path) -> None:
    root = tmp_path / "w"
    root.mkdir()
    connections = Connections()
    registry = builtin_registry(connections)

    async def main() -> None:
        async with anyio.create_task_group() as group:
            for n in range(20):
                arguments = {"path": f"f{n}", "content": str(n)}
                group.start_soon(registry.execute, "write_file", arguments, root)

    try:
        anyio.run(main)
    finally:
        connections.close()
    assert len([*root.iterdir()]) == 20
    with open_store() as store:
        assert len(store.workspace(root).timeline.sessions()) == 1


@pytest.mark.parametrize("path", ["/", "/nonexistent/dir", os.devnull])
def test_a_directory_that_can_be_no_workspace_is_an_error_result(home: Path, path: str) -> None:
    connections = Connections()
    try:
        result = execute(builtin_registry(connections), "read_file", {"path": "x"}, path)
    finally:
        connections.close()
    assert not result.success and result.error.code in ("INVALID_PATH", "FILE_NOT_FOUND")


def test_a_registry_given_nothing_finds_the_default_store_by_itself(
    tmp_path: Path, home: Path
) -> None:
    """In a process of its own, at whose end the session is closed."""
    root = tmp_path / "w"
    root.mkdir()
    program = (
        "import anyio, sys; from loom_audit import ToolRegistry, builtin_registry\n"
        "registry = ToolRegistry()\n"
        "registry.register(builtin_registry().get('write_file'))\n"
        "arguments = {'path': 'x', 'content': '1'}\n"
        "print(anyio.run(registry.execute, 'write_file', arguments, sys.argv[1]).to_json())\n"
    )
    done = subprocess.run([sys.executable, "-c", program, root], capture_output=True, text=True)
    assert json.loads(done.stdout)["success"], done.stderr
    with open_store() as store:
        timeline = store.workspace(root).timeline
        assert [call.tool for call in timeline.calls()] == ["write_file"]
        (session,) = timeline.sessions()
        assert (session.agent, session.status) == ("registry", "completed")


@pytest.mark.parametrize(
    ("name", "text"), [("approvals.toml", "timeout = 5\n"), ("tools.toml", "network = true\n")]
)
def test_settings_that_lie_in_the_workspace_let_no_registry_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str
) -> None:
    root = tmp_path / "w"
    monkeypatch.delenv("LOOM_AUDIT_HOME")
    for variable in ("XDG_DATA_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / variable))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(root))
    (root / "loom-audit").mkdir(parents=True)
    (root / "loom-audit" / name).write_text(text)
    connections = Connections()
    try:
        arguments = {"path": "x", "content": "1"}
        result = execute(builtin_registry(connections), "write_file", arguments, root)
    finally:
        connections.close()
    assert "lies in the workspace" in str(result.error) and not (root / "x").exists()


def test_other_packages_tools_are_registered_and_broken_ones_left_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Point:
        def __init__(self, value: str, loaded: Any) -> None:
            self.value, self.loaded = value, loaded

        def load(self) -> Any:
            if isinstance(self.loaded, Exception):
                raise self.loaded
            return self.loaded

    def twice() -> list[Echo]:
        return [Echo()]

    points = [
        Point("a", Echo),
        Point("b", ImportError("no module named b")),
        Point("c", twice),
        Point("d", Echo()),
    ]
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: points)
    registry = builtin_registry()
    assert [t.name for t in registry.list()][len(builtin_tools()) :] == ["echo"]
    assert "the tools of b cannot be loaded" in caplog.text
    assert "a tool named echo is registered already" in caplog.text


def test_a_function_is_a_tool_without_parentheses_too() -> None:
    @tool
    def add(a: int, b: int = 2) -> int:
        """Add two numbers."""
        return a + b

    assert (add.name, add.description, add.effect) == ("add", "Add two numbers.", "read")
    assert add(1, 1) == 2


def test_a_function_is_a_tool_by_its_hints() -> None:
    @tool()
    def add(a: int, b: int = 2) -> int:
        """Add two numbers."""
        return a + b

    registry = ToolRegistry()
    registry.register(add)
    assert add.schema("anthropic") == {
        "name": "add",
        "description": "Add two numbers.",
        "input_schema": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer", "default": 2}},
            "required": ["a"],
            "additionalProperties": False,
        },
    }
    result = execute(registry, "add", {"a": 3})
    assert result.data == {"result": 5} and result.output == "5" and add(1, 1) == 2
    assert execute(registry, "add", {"a": "3"}).error.code == "INVALID_ARGUMENTS"


def test_an_async_function_is_given_the_context_and_writes_on_record(bench: Bench) -> None:
    @tool(effect="write", needs_workspace=True)
    async def stamp(ctx: ToolContext, path: str) -> dict[str, str]:
        """Write a stamp."""
        await ctx.write(path, b"stamped")
        return {"path": path}

    bench.registry.register(stamp)
    result = bench.call("stamp", {"path": "s"})
    assert result.data == {"path": "s"} and result.files_changed == ["s"]
    bench.assert_every_call_has_one_finish()


def test_a_function_without_hints_is_not_a_tool() -> None:
    with pytest.raises(InvalidArguments):

        @tool()
        def bad(a):  # type: ignore[no-untyped-def] # that is what is refused
            return a


def test_views_of_a_result() -> None:
    error = ToolError("TIMEOUT", "too slow", {"seconds": 3})
    failed = ToolResult(False, "Error: too slow", {"part": 1}, error=error)
    assert (failed.ok, failed.value, str(failed.error)) == (False, None, "too slow")
    done = ToolResult(True, "x", {"n": 1}, ["a"])
    assert (done.ok, done.value) == (True, {"n": 1})
    assert json.loads(failed.to_json()) == {
        "success": False,
        "output": "Error: too slow",
        "data": {"part": 1},
        "files_changed": [],
        "error": {"code": "TIMEOUT", "message": "too slow", "details": {"seconds": 3}},
        "message_truncated": False,
    }


def test_a_function_that_executes_has_its_own_file_changes_recorded(bench: Bench) -> None:
    @tool(effect="execute", needs_workspace=True)
    def build(ctx: ToolContext) -> str:
        """Build something."""
        assert ctx.workspace is not None
        (ctx.workspace / "built").write_text("1")
        (ctx.workspace / "notes.txt").unlink()
        return "done"

    bench.registry.register(build)
    result = bench.call("build", {})
    assert result.output == "done" and result.files_changed == ["built", "notes.txt"]
    bench.assert_every_call_has_one_finish()
    bench.assert_log_agrees_with_disk()


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.lists(st.text()), st.text(max_size=3)
)


@pytest.mark.few(8)
@pytest.mark.parametrize("tool", builtin_registry().list(), ids=lambda tool: tool.name)
@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_what_plainly_fits_is_what_the_schema_allows(tool: Tool, data: st.DataObject) -> None:
    properties = tool.parameters.get("properties", {})
    given_names = st.sampled_from([*properties, "else"])
    arguments = data.draw(st.dictionaries(given_names, VALUES))
    for name, said in properties.items():
        if said.get("type") == "string" and data.draw(st.booleans()):
            arguments[name] = data.draw(st.sampled_from(said.get("enum", ["", "text"])))
    if surely_fits(tool.parameters, arguments):
        Draft202012Validator(tool.parameters).validate(arguments)


def test_a_usual_write_plainly_fits_and_is_not_checked_twice() -> None:
    tool = builtin_registry().get("write_file")
    fit = {"path": "a", "content": "", "encoding": "utf-8", "createDirs": True}
    assert surely_fits(tool.parameters, fit)
    for odd in ({"path": ""}, {"path": 1}, {"encoding": "utf-16"}, {"createDirs": 1}, {"more": ""}):
        assert not surely_fits(tool.parameters, {**fit, **odd})
    assert not surely_fits(tool.parameters, {"path": "a"})


def test_flat_schemas_hold_name_description_and_parameters() -> None:
    registry = builtin_registry()
    flat = registry.all_schemas("openai-flat")
    assert [schema["name"] for schema in flat] == [tool.name for tool in registry.list()]
    for schema, one in zip(flat, registry.list(), strict=True):
        assert schema["description"].partition(" Cannot work here: ")[0] == one.description
        assert schema["parameters"] == one.parameters


def test_a_registry_gives_tools_by_name_in_their_order_and_nothing_for_another_name() -> None:
    registry = builtin_registry()
    names = [tool.name for tool in registry.list()]
    assert names[:3] == ["read_file", "write_file", "edit_file"]
    assert all(
        registry.get(name) is tool for name, tool in zip(names, registry.list(), strict=True)
    )
    assert registry.get("nothing") is None


def test_tools_of_one_name_are_refused_by_the_registry() -> None:
    registry = builtin_registry()
    with pytest.raises(Conflict, match="read_file"):
        registry.register(ReadFile())


def test_a_tool_that_lacks_something_here_is_listed_with_that_and_not_offered() -> None:
    registry = builtin_registry()
    lacking = {"web_search", "web_search_google", "web_search_serper", "oracle"}
    schemas = {one["name"]: one["description"] for one in registry.all_schemas("mcp")}
    assert {name for name, said in schemas.items() if "Cannot work here: no" in said} == lacking
    usable = {tool.name for tool in registry.usable(ToolSettings())}
    assert usable == schemas.keys() - lacking
    assert usable | lacking == {
        tool.name for tool in registry.usable(ToolSettings(proxy_url="http://127.0.0.1:1"))
    }
    chosen = registry.tools_for_subtask("Search the web for the newest release", "anthropic")
    assert "web_fetch" in {one["name"] for one in chosen}
    assert not lacking & {one["name"] for one in chosen}
    [named] = registry.tools_for_subtask({"tools": ["oracle"]}, "anthropic")
    assert named["name"] == "oracle"
