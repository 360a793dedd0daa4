"""What the four documents behind the tools ask for and no other test shows: see demands.md.

Examples of the documents run as they are written there, with our spelling.
"""

import asyncio
import base64
import json
import logging
import re
import socket
import sys
from datetime import datetime
from pathlib import Path
from typing import Literal

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import BaseModel, Field

from loom_audit import errors
from loom_audit.errors import Conflict, InvalidArguments
from loom_audit.model.events import ChangeIntended
from loom_audit.tools.approvals.asking import AskingGate
from loom_audit.tools.bundled.builtin import builtin_registry, builtin_tools
from loom_audit.tools.bundled.project import install_package as packages
from loom_audit.tools.bundled.search.search_files import SearchFiles
from loom_audit.tools.calls.gate import Decision
from loom_audit.tools.calls.registry import ToolRegistry
from loom_audit.tools.calls.result import ToolResult
from loom_audit.tools.calls.settings import ToolSettings
from loom_audit.tools.calls.tool import Arguments, Tool
from tests.tools.bundled.test_bad_input import BAD

ROOT = Path(__file__).parents[2]


class Seeing(Tool):
    """Keeps the context it was called with."""

    name = "seeing"
    description = "looks around"
    seen = None

    async def execute(self, args, ctx):
        self.seen = ctx
        return ToolResult(True, "seen")


@pytest.fixture
def seeing(bench):
    tool = Seeing()
    bench.registry.register(tool)
    return tool


# --- tools and registry -------------------------------------------------------------------


def test_a_tool_must_say_what_it_is_and_do_something():
    with pytest.raises(TypeError, match="abstract"):
        Tool()  # type: ignore[abstract]

    class Nameless(Tool):
        description = "has no name"

        async def execute(self, args, ctx):
            return ToolResult(True)

    with pytest.raises(InvalidArguments):
        ToolRegistry().register(Nameless())
    assert Nameless().timeout_seconds == 30


def test_a_schema_is_what_the_first_document_writes():
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


def test_flat_schemas_hold_name_description_and_parameters():
    registry = builtin_registry()
    flat = registry.all_schemas("openai-flat")
    assert [schema["name"] for schema in flat] == [tool.name for tool in registry.list()]
    for schema, tool in zip(flat, registry.list(), strict=True):
        assert schema["description"] == tool.description
        assert schema["parameters"] == tool.parameters


def test_a_registry_gives_tools_by_name_in_their_order_and_nothing_for_another_name():
    registry = builtin_registry()
    names = [tool.name for tool in registry.list()]
    assert names[:3] == ["read_file", "write_file", "edit_file"]
    assert all(
        registry.get(name) is tool for name, tool in zip(names, registry.list(), strict=True)
    )
    assert registry.get("nothing") is None


def test_a_registry_gives_the_schemas_for_a_subtask():
    registry = builtin_registry()
    wanted = registry.tools_for_subtask({"tools": ["read_file"]})
    assert wanted == [registry.get("read_file").schema()]
    several = registry.tools_for_subtask("Fix the spelling in the notes", "anthropic")
    assert {"read_file", "edit_file"} <= {schema["name"] for schema in several}
    assert all("input_schema" in schema for schema in several)


def test_tools_of_one_name_are_refused_by_the_registry():
    registry = builtin_registry()
    with pytest.raises(Conflict, match="read_file"):
        registry.register(registry.get("read_file"))


def test_every_tool_says_what_it_takes_and_what_it_gives():
    for tool in builtin_tools():
        assert tool.description
        for schema in (tool.parameters, tool.output_schema):
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
def test_arguments_the_documents_need_are_needed_and_no_others(bench, name, arguments):
    before = bench.tree()
    for left_out in arguments:
        some = {key: value for key, value in arguments.items() if key != left_out}
        result = bench.call(name, some)
        assert result.error.code == "INVALID_ARGUMENTS" and left_out in result.error.message
    assert bench.tree() == before
    result = bench.call(name, arguments)
    assert result.success or result.error.code == "EXECUTION_ERROR"  # nobody to ask in the web


def test_results_of_the_file_tools_fit_their_output_schemas(bench):
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
        Draft202012Validator(dict(schema)).validate(json.loads(result.to_json())["data"])


class Raw(Seeing):
    name = "raw"
    gives: object = None
    parameters = {"type": "object", "properties": {"n": {"type": "integer"}}}  # noqa: RUF012
    output_schema = {  # noqa: RUF012
        "type": "object",
        "properties": {"sum": {"type": "integer"}},
        "required": ["sum"],
    }

    async def execute(self, args, ctx):
        return ToolResult(True, "", self.gives)


class Modelled(Raw):
    class Sum(BaseModel):
        sum: int

    output = Sum


@pytest.mark.parametrize("kind", [Raw, Modelled])
def test_a_result_that_does_not_fit_the_output_schema_is_an_error_on_record(bench, kind):
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


def test_an_output_schema_that_is_none_is_refused():
    class Bad(Raw):
        output_schema = {"type": 7}  # noqa: RUF012

    with pytest.raises(InvalidArguments, match="output of raw"):
        ToolRegistry().register(Bad())


def test_a_context_carries_workspace_directory_session_scratch_and_environment(bench, seeing):
    bench.call("seeing", {}, call_id="call_1", environment={"STAGE": "test"})
    ctx = seeing.seen
    assert ctx.workspace == bench.root and ctx.cwd == ""
    assert ctx.session == bench.session.id and ctx.call_id == "call_1"
    assert ctx.environment["STAGE"] == "test"
    assert ctx.scratch_dir.is_dir() and bench.root not in ctx.scratch_dir.parents
    assert ctx.environment["SCRATCH_DIR"] == str(ctx.scratch_dir)


def test_a_context_without_a_workspace_says_so(bench):
    tool = Seeing()
    tool.needs_workspace = False
    registry = ToolRegistry()
    registry.register(tool)

    async def main():
        assert (await registry.execute("seeing", {})).success
        assert tool.seen.workspace is None and tool.seen.scratch_dir is None
        with pytest.raises(errors.NoWorkspace):
            await tool.seen.read("notes.txt")

    anyio.run(main)


def test_a_session_s_directory_is_for_commands_and_its_environment_too(bench, seeing):
    (bench.root / "src" / "deep").mkdir()
    seen = []

    async def work(session):
        for name, arguments in (
            ("shell_execute", {"command": "pwd; echo $STAGE"}),
            ("bash", {"command": "pwd; echo $STAGE"}),
            ("run_code", {"language": "bash", "code": "pwd; echo $STAGE"}),
            ("bash", {"command": "pwd; echo $STAGE", "cwd": "src/deep"}),
            ("bash", {"command": "pwd; echo $STAGE", "cwd": "."}),
        ):
            seen.append((await session.call(name, arguments)).data["stdout"])
        # paths begin at the workspace all the same
        assert (await session.call("read_file", {"path": "src/main.py"})).success
        assert not (await session.call("read_file", {"path": "main.py"})).success
        assert (await session.call("git_status", {})).error.code == "NOT_FOUND"
        await session.call("seeing", {})

    options = {"registry": bench.registry, "cwd": "src", "environment": {"STAGE": "test"}}
    with bench.workspace.session("inner", **options) as session:
        anyio.run(work, session)
    inner, root = f"{bench.root}/src", str(bench.root)
    assert seen == [f"{where}\ntest\n" for where in (inner, inner, inner, f"{inner}/deep", root)]
    assert seeing.seen.cwd == "src" and seeing.seen.environment["STAGE"] == "test"


@pytest.mark.parametrize(
    ("cwd", "code"),
    [("../", "INVALID_PATH"), ("no", "FILE_NOT_FOUND"), ("notes.txt", "INVALID_PATH")],
)
def test_a_directory_that_is_none_of_the_workspace_runs_nothing(bench, cwd, code):
    for name, arguments in (
        ("bash", {"command": "touch made"}),
        ("run_code", {"language": "bash", "code": "touch made"}),
    ):
        assert bench.call(name, arguments, cwd=cwd).error.code == code
    assert not [*bench.root.rglob("made")]


def test_calls_are_logged_for_debugging(bench, caplog):
    with caplog.at_level(logging.DEBUG, "loom_audit.tools.call"):
        bench.call("read_file", {"path": "notes.txt"}, call_id="one")
        bench.call("read_file", {"path": "missing.txt"}, call_id="two")
    lines = [r.getMessage() for r in caplog.records if r.name == "loom_audit.tools.call"]
    assert len(lines) == 4
    assert lines[0] == "call one: read_file begins"
    assert re.fullmatch(r"call one: read_file ends ok after \d+\.\d{3} s", lines[1])
    assert lines[2] == "call two: read_file begins"
    assert re.fullmatch(r"call two: read_file ends FILE_NOT_FOUND after \d+\.\d{3} s", lines[3])


# --- files --------------------------------------------------------------------------------


def prior_content(bench, monkeypatch, tool, arguments):
    """What the log knows of the file in the moment it is about to be replaced."""
    kept = []
    disk = type(bench.session.recorder.workspace)
    whole = disk.replace

    def replace(self, change, content):
        for event in bench.events("change.intended"):
            assert isinstance(event.fact, ChangeIntended)
            for intended in event.fact.changes:
                before = intended.before
                kept.append(None if before is None else bench.blobs.get(before.blob))
        return whole(self, change, content)

    monkeypatch.setattr(disk, "replace", replace)
    assert bench.call(tool, arguments).success
    return kept


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("write_file", {"path": "notes.txt", "content": "new"}),
        ("edit_file", {"path": "notes.txt", "old_str": "second", "new_str": "2nd"}),
        ("delete_file", {"path": "notes.txt"}),
    ],
)
def test_what_was_there_is_on_record_before_it_is_changed(bench, monkeypatch, tool, arguments):
    bench.blobs = bench.workspace.blobs
    before = (bench.root / "notes.txt").read_bytes()
    kept = prior_content(bench, monkeypatch, tool, arguments)
    assert kept and kept[0] == before
    bench.workspace.carry_out(bench.workspace.plan_undo())
    assert (bench.root / "notes.txt").read_bytes() == before


def test_read_file_takes_a_megabyte_unless_told_otherwise(bench):
    (bench.root / "exact").write_bytes(b"x" * 2**20)
    (bench.root / "more").write_bytes(b"x" * (2**20 + 1))
    exact = bench.call("read_file", {"path": "exact"}).data
    assert (len(exact["contents"]), exact["truncated"]) == (2**20, False)
    more = bench.call("read_file", {"path": "more"}).data
    assert (len(more["contents"]), more["truncated"], more["size"]) == (2**20, True, 2**20 + 1)


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(content=st.from_regex(r"[a-zA-Z0-9 \n]{0,1000}", fullmatch=True))
def test_roundtrip_file_content(bench, content):
    (bench.root / "test.txt").write_text(content)
    result = bench.call("read_file", {"path": "test.txt"})
    assert result.data["contents"] == content


def test_write_file_counts_bytes_and_not_characters(bench):
    data = bench.call("write_file", {"path": "a/é.txt", "content": "é€"}).data
    assert data["path"] == "a/é.txt" and data["size"] == 5
    raw = base64.b64encode(b"\0\xff").decode()
    wrote = bench.call("write_file", {"path": "b", "content": raw, "encoding": "base64"})
    assert wrote.data["size"] == 2 and (bench.root / "b").read_bytes() == b"\0\xff"


def test_an_edit_of_everything_without_a_match_is_an_error(bench):
    edits = [{"old_str": "nowhere", "new_str": "x", "replace_all": True}]
    result = bench.call("edit_file", {"path": "notes.txt", "edits": edits})
    assert result.error.code == "INVALID_ARGUMENTS"
    assert result.error.message.startswith("old_str not found in notes.txt: 'nowhere'")


def test_an_edit_of_what_stands_several_times_says_how_often_and_what_to_do(bench):
    edits = [{"old_str": "print", "new_str": "log"}]
    result = bench.call("edit_file", {"path": "src/main.py", "edits": edits})
    assert result.error.message.startswith("old_str found 2 times in src/main.py")
    assert "replace_all" in result.error.hint
    edits[0]["replace_all"] = True
    assert bench.call("edit_file", {"path": "src/main.py", "edits": edits}).success
    assert (bench.root / "src/main.py").read_text().count("log(") == 2


def test_an_edit_gives_counts_and_appends_with_an_empty_old_str(bench):
    edits = [
        {"old_str": "first", "new_str": "1st"},
        {"old_str": "second", "new_str": "2nd"},
        {"old_str": "", "new_str": "\r\nfourth"},
    ]
    size = (bench.root / "notes.txt").stat().st_size
    result = bench.call("edit_file", {"path": "notes.txt", "edits": edits})
    after = (bench.root / "notes.txt").read_bytes()
    assert after == b"1st\r\n2nd\r\nthird\r\nfourth"
    assert result.data == {
        "path": "notes.txt",
        "edits_applied": 3,
        "original_bytes": size,
        "new_bytes": len(after),
    }


def test_entries_have_name_type_size_and_an_iso_time(bench):
    (bench.root / "link").symlink_to("notes.txt")
    (bench.root / ".hidden").touch()
    result = bench.call("list_directory", {"path": ".", "recursive": False})
    entries = {entry["name"]: entry for entry in result.data["entries"]}
    assert {name: entry["type"] for name, entry in entries.items()} == {
        "link": "symlink",
        "notes.txt": "file",
        "src": "directory",
    }
    assert entries["notes.txt"]["size"] == (bench.root / "notes.txt").stat().st_size
    for entry in entries.values():
        assert {*entry} == {"name", "type", "size", "modified"}
        assert datetime.fromisoformat(entry["modified"]).tzinfo is not None
    shown = bench.call("list_directory", {"recursive": False, "includeHidden": True})
    assert ".hidden" in [entry["name"] for entry in shown.data["entries"]]


def test_a_move_that_overwrites_nothing_and_a_reading_tool_ask_nobody(bench):
    gate = AskingGate(wait=False)
    for name, arguments in (
        ("list_directory", {}),
        ("list_files", {}),
        ("search_files", {"pattern": "x"}),
        ("read_file", {"path": "notes.txt"}),
        ("write_file", {"path": "fresh.txt", "content": ""}),
        ("move_file", {"from": "fresh.txt", "to": "moved.txt"}),
        ("shell_execute", {"command": "true"}),
        ("run_code", {"language": "bash", "code": "true"}),
    ):
        assert bench.call(name, arguments, gate=gate).success, name
    for name in ("web_search", "web_search_google", "web_search_serper"):
        assert bench.registry.get(name).requires_approval is False
    for name, arguments in (
        ("write_file", {"path": "notes.txt", "content": ""}),
        ("delete_file", {"path": "notes.txt"}),
        ("move_file", {"from": "notes.txt", "to": "moved.txt", "overwrite": True}),
    ):
        assert bench.call(name, arguments, gate=gate).error.code == "APPROVAL_DENIED"


# --- commands -----------------------------------------------------------------------------


def test_a_command_runs_in_the_workspace_by_sh_and_gives_both_streams(bench):
    result = bench.call("bash", {"command": "pwd; ps -o args= -p $$; echo oops >&2"})
    where, shell = result.data["stdout"].splitlines()
    assert where == str(bench.root) and shell.startswith("sh -c ")
    assert result.data["stderr"] == "oops\n" and result.data["exit_code"] == 0
    assert {"exit_code", "stdout", "stderr", "timed_out", "truncated"} <= {*result.data}


def test_the_model_sees_ten_kilobytes_of_what_a_command_prints(bench):
    result = bench.call("shell_execute", {"command": "seq 1 20000"})
    assert len(result.output.encode()) <= 10 * 1024
    assert "bytes left out" in result.output and len(result.data["stdout"]) > 100_000


@pytest.mark.parametrize("tool", ["shell_execute", "bash"])
def test_a_command_may_take_300_seconds_and_no_more(bench, tool):
    assert bench.call(tool, {"command": "true", "timeout": 300}).success
    refused = bench.call(tool, {"command": "touch made", "timeout": 301})
    assert refused.error.code == "INVALID_ARGUMENTS" and not (bench.root / "made").exists()
    assert (
        "60 by default"
        in bench.registry.get(tool).parameters["properties"]["timeout"]["description"]
    )


def test_a_command_takes_sixty_seconds_unless_told_otherwise(bench):
    asked = []

    class Runner:
        def run(self, root, command, **options):
            asked.append(command.timeout)
            return bench.workspace.attachment.runner.run(root, command, **options)

    for tool, more in (
        ("shell_execute", {"command": "true"}),
        ("bash", {"command": "true"}),
        ("run_code", {"language": "bash", "code": "true"}),
        ("bash", {"command": "true", "timeout": 7}),
    ):
        assert bench.call(tool, more, runner=Runner()).success
    assert asked == [60, 60, 60, 7]


def test_run_code_gives_streams_exit_code_and_milliseconds(bench):
    code = "import time, sys; time.sleep(0.2); print('out'); print('err', file=sys.stderr)"
    data = bench.call("run_code", {"language": "python", "code": code}).data
    assert (data["stdout"], data["stderr"], data["exitCode"]) == ("out\n", "err\n", 0)
    assert 200 <= data["duration"] < 60_000


@pytest.mark.parametrize("tool", ["run_code", "bash", "shell_execute"])
def test_commands_and_code_have_the_network_only_when_a_person_enables_it(bench, tool):
    with socket.create_server(("127.0.0.1", 0)) as server:
        code = (
            "import socket\n"
            f"socket.create_connection(('127.0.0.1', {server.getsockname()[1]}), 5)\n"
            "print('reached')"
        )
        (bench.root / "reach.py").write_text(code)
        shell = {"command": f"{sys.executable} reach.py"}
        arguments = {"language": "python", "code": code} if tool == "run_code" else shell
        closed = bench.call(tool, arguments)
        if closed.data and closed.data["sandbox"] == "plain":
            pytest.skip(f"no confining backend works here: {closed.output}")
        assert not closed.success and "reached" not in closed.data["stdout"]
        enabled = bench.call(tool, arguments, settings=ToolSettings(network=True))
        assert enabled.data["stdout"] == "reached\n"


# --- web ----------------------------------------------------------------------------------


def test_searching_again_waits_twice_as_long_each_time(bench, monkeypatch):
    waits = []
    whole = asyncio.sleep

    async def sleep(seconds, *more):
        if seconds:
            waits.append(seconds)
        await whole(0, *more)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        result = bench.call("web_search", {"query": "x"}, settings=ToolSettings(proxy_url=url))
    assert result.error.code == "EXECUTION_ERROR"
    assert [round(wait - wait % 0.5, 1) for wait in waits] == [0.5, 1.0, 2.0]


# --- approvals ----------------------------------------------------------------------------


def test_a_request_names_step_tool_arguments_and_reason_and_waits(bench):
    asked = []

    def person(request):
        asked.append(request)
        assert (bench.root / "notes.txt").exists()
        return Decision("allowed", "person:me", arguments={"path": "src/main.py"})

    gate = AskingGate(ask=person)
    result = bench.call("delete_file", {"path": "notes.txt"}, gate=gate, call_id="step_1")
    assert (asked[0].call_id, asked[0].tool) == ("step_1", "delete_file")
    assert asked[0].arguments == {"path": "notes.txt"}
    assert asked[0].reason == "deletes notes.txt"
    # another path than the one shown: it is asked again, and then it is what is deleted
    assert asked[1].arguments == {"path": "src/main.py"} and len(asked) == 2
    assert result.data == {"deleted": ["src/main.py"]}
    assert (bench.root / "notes.txt").exists()


def test_a_tool_may_need_approval_only_where_something_is_overwritten(bench):
    class WriteFileTool(Tool):
        name = "write_once"
        description = "write a file"
        effect = "write"
        parameters = {"type": "object", "properties": {"path": {"type": "string"}}}  # noqa: RUF012

        def requires_approval(self, args, ctx):
            return ctx.exists(args["path"])

        async def execute(self, args, ctx):
            await ctx.write(args["path"], b"once")
            return ToolResult(True, "written")

    bench.registry.register(WriteFileTool())
    gate = AskingGate(wait=False)
    assert bench.call("write_once", {"path": "fresh"}, gate=gate).success
    assert bench.call("write_once", {"path": "fresh"}, gate=gate).error.code == "APPROVAL_DENIED"


# --- errors -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (errors.FileNotFound, "FILE_NOT_FOUND"),
        (errors.InvalidPath, "INVALID_PATH"),
        (errors.PermissionDenied, "PERMISSION_DENIED"),
        (errors.ToolTimeout, "TIMEOUT"),
        (errors.ExecutionFailed, "EXECUTION_ERROR"),
        (errors.InvalidArguments, "INVALID_ARGUMENTS"),
        (errors.NotFound, "NOT_FOUND"),
        (errors.StorageFailed, "IO"),
        (errors.NotSerializable, "SERIALIZATION"),
    ],
)
def test_each_kind_of_error_reaches_the_model_with_code_message_and_details(bench, kind, code):
    class Failing(Tool):
        name = "failing"
        description = "fails"

        async def execute(self, args, ctx):
            raise kind("it went wrong", hint="try again", details={"where": "here"})

    bench.registry.register(Failing())
    result = bench.call("failing", {})
    assert not result.ok and result.value is None
    assert (result.error.code, str(result.error)) == (code, "it went wrong")
    assert result.error.details == {"where": "here"}
    assert result.output == "Error: it went wrong\ntry again"
    assert bench.last().result["error"]["code"] == code


def test_an_error_goes_back_as_the_message_of_its_call_and_the_model_may_go_on(bench):
    first = [{"id": "call_123", "name": "read_file", "arguments": {"path": "missing.txt"}}]
    outcome = anyio.run(bench.session.batch(first).run)
    (message,) = outcome.messages()
    assert message["role"] == "tool" and message["tool_call_id"] == "call_123"
    assert message["content"].splitlines()[0] == "Error: File not found: missing.txt"
    again = [{"id": "call_124", "name": "read_file", "arguments": {"path": "notes.txt"}}]
    assert anyio.run(bench.session.batch(again).run).results[0].success


@pytest.mark.parametrize("path", ["../../../etc/passwd", "/etc/shadow", "src/../../x", "way/out"])
def test_no_file_tool_leaves_the_workspace(bench, path):
    (bench.root / "way").symlink_to("/")
    before = bench.tree()
    for name, arguments in (
        ("read_file", {"path": path}),
        ("write_file", {"path": path, "content": "x"}),
        ("edit_file", {"path": path, "old_str": "", "new_str": "x"}),
        ("delete_file", {"path": path}),
        ("move_file", {"from": path, "to": "x"}),
        ("move_file", {"from": "notes.txt", "to": path}),
        ("list_directory", {"path": path}),
        ("list_files", {"path": path}),
        ("search_files", {"pattern": "x", "path": path}),
        ("shell_execute", {"command": "true", "cwd": path}),
        ("bash", {"command": "true", "cwd": path}),
    ):
        assert bench.call(name, arguments).error.code == "INVALID_PATH", name
    assert bench.tree() == before


LOCAL_SERVER = "http://127.0.0.1:9/"
CAUSES = {
    ("write_file", "FILE_NOT_FOUND"): {"path": "a/b", "content": "", "createDirs": False},
    ("write_file", "TOO_LARGE"): {"path": "a", "content": "x" * 2000},
    ("edit_file", "TOO_LARGE"): {"path": "huge", "old_str": "a", "new_str": "b"},
    ("list_files", "INVALID_PATH"): {"path": "notes.txt"},
    ("list_files", "FILE_NOT_FOUND"): {"path": "nowhere"},
    ("search_files", "TIMEOUT"): {"pattern": "(a+)+$"},
    ("shell_execute", "TIMEOUT"): {"command": "sleep 60", "timeout": 1},
    ("shell_execute", "EXECUTION_ERROR"): {"command": "exit 1"},
    ("shell_execute", "BLOCKED_COMMAND"): {"command": "mkfs /dev/null"},
    ("bash", "INVALID_PATH"): {"command": "true", "cwd": ".."},
    ("bash", "FILE_NOT_FOUND"): {"command": "true", "cwd": "nowhere"},
    ("bash", "TIMEOUT"): {"command": "sleep 60", "timeout": 1},
    ("bash", "EXECUTION_ERROR"): {"command": "exit 1"},
    ("bash", "BLOCKED_COMMAND"): {"command": "mkfs /dev/null"},
    ("run_code", "TIMEOUT"): {"language": "bash", "code": "sleep 60", "timeout": 1},
    ("run_code", "EXECUTION_ERROR"): {"language": "python", "code": "raise SystemExit(1)"},
    ("run_code", "BLOCKED_COMMAND"): {"language": "bash", "code": "mkfs /dev/null"},
    ("git_status", "NOT_FOUND"): {},
    ("git_diff", "NOT_FOUND"): {},
    ("git_log", "NOT_FOUND"): {},
    ("git_commit", "NOT_FOUND"): {"message": "x"},
    ("git_push", "NOT_FOUND"): {},
    ("run_tests", "NOT_FOUND"): {},
    ("run_tests", "INVALID_PATH"): {"paths": ["../x"]},
    ("run_tests", "FILE_NOT_FOUND"): {"paths": ["nowhere.py"]},
    ("run_tests", "EXECUTION_ERROR"): {"framework": "unittest", "paths": ["failing.py"]},
    ("run_tests", "TIMEOUT"): {"framework": "unittest", "paths": ["slow.py"], "timeout": 1},
    ("format_code", "NOT_FOUND"): {"paths": ["notes.txt"]},
    ("format_code", "INVALID_PATH"): {"paths": ["../x.py"]},
    ("format_code", "FILE_NOT_FOUND"): {"paths": ["gone.py"]},
    ("install_package", "PERMISSION_DENIED"): {"manager": "pip", "packages": ["tiny"]},
    ("install_package", "EXECUTION_ERROR"): {"manager": "pip", "packages": ["tiny"]},
    ("install_package", "TIMEOUT"): {"manager": "pip", "packages": ["tiny"]},
    ("search_code", "EXECUTION_ERROR"): {"query": "x"},
    ("search_code", "INVALID_PATH"): {"query": "x", "path": "../y"},
    ("search_code", "FILE_NOT_FOUND"): {"query": "x", "path": "no/such"},
    ("web_fetch", "PERMISSION_DENIED"): {"url": LOCAL_SERVER},
    ("web_fetch", "EXECUTION_ERROR"): {"url": "http://nobody.invalid/"},
    ("web_fetch", "TIMEOUT"): {"url": "http://127.0.0.1:{silent}/", "timeout": 0.3},
    ("web_search", "EXECUTION_ERROR"): {"query": "x"},
    ("web_search_google", "EXECUTION_ERROR"): {"query": "x"},
    ("web_search_serper", "EXECUTION_ERROR"): {"query": "x"},
    ("oracle", "EXECUTION_ERROR"): {"question": "x"},
    ("oracle", "TIMEOUT"): {"question": "x", "timeout": 0.3},
}


@pytest.fixture
def silent():
    """A server that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: " ".join(cause))
def test_each_error_of_a_tool_happens(bench, monkeypatch, silent, cause):
    name, code = cause
    arguments = dict(CAUSES[cause])
    given = ToolSettings()
    with (bench.root / "huge").open("wb") as file:
        file.truncate(2**30)
    for name_of, body in (("failing", "assert 0"), ("slow", "__import__('time').sleep(60)")):
        text = f"import unittest\nclass T(unittest.TestCase):\n    def test_it(self): {body}\n"
        (bench.root / f"{name_of}.py").write_text(text)
    if cause == ("write_file", "TOO_LARGE"):
        object.__setattr__(bench.session.recorder.attachment.scope, "max_file_bytes", 1000)
    if cause == ("install_package", "PERMISSION_DENIED"):
        (bench.root / ".venv").mkdir()  # no environment: it is left alone
    if cause == ("install_package", "EXECUTION_ERROR"):
        (bench.root / ".venv" / "bin").mkdir(parents=True)
        (bench.root / ".venv" / "pyvenv.cfg").touch()
        (bench.root / ".venv" / "bin" / "python").symlink_to("/bin/false")
    if cause == ("install_package", "TIMEOUT"):
        monkeypatch.setattr(packages, "SECONDS", 0.01)
    if cause == ("search_code", "EXECUTION_ERROR"):
        object.__setattr__(bench.session.recorder.attachment, "code", None)
    if cause == ("search_files", "TIMEOUT"):
        (bench.root / "b").write_text("a" * 60 + "!\n")
        monkeypatch.setattr(SearchFiles, "timeout_seconds", 6)
    if cause == ("oracle", "TIMEOUT"):
        given = ToolSettings(proxy_url=f"http://127.0.0.1:{silent}")
    if cause == ("web_fetch", "TIMEOUT"):
        arguments["url"] = arguments["url"].format(silent=silent)
        given = ToolSettings(private_hosts=("127.0.0.1",))
    result = bench.call(name, arguments, settings=given)
    assert result.error.code == code, result.error
    assert bench.last().result["error"]["code"] == code


EVERYWHERE = {
    "UNKNOWN_TOOL", "INVALID_ARGUMENTS", "SERIALIZATION", "NO_WORKSPACE", "APPROVAL_DENIED",
    "AUDIT_UNAVAILABLE", "*",
}  # fmt: skip


def test_the_table_of_errors_is_what_happens():
    text = (ROOT / "docs" / "tools.md").read_text("utf-8")
    written = {
        (name, code)
        for line in text.splitlines()
        if (row := re.fullmatch(r"\| (`\w+`(?:, `\w+`)*) \| ([A-Z_ ]+) \|", line))
        for name in re.findall(r"`(\w+)`", row[1])
        for code in row[2].split()
    }
    happens = {(tool, code) for tool, _, code in BAD.values() if code not in EVERYWHERE}
    assert written == happens | {*CAUSES}
    assert {name for name, _ in written} == {tool.name for tool in builtin_tools()}
    assert EVERYWHERE - {"*"} <= {*re.findall(r"`([A-Z_]+)`", text)}


# --- examples as the documents write them -------------------------------------------------


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

    async def execute(self, args, ctx):
        entry = await ctx.stat(args.path)
        raw = await ctx.read(args.path)
        content = base64.b64encode(raw).decode() if args.encoding == "base64" else raw.decode()
        data = {"content": content, "size": entry.size, "modified": entry.modified.isoformat()}
        return ToolResult(True, content, data)


def test_the_tool_of_the_third_document_works_as_written(bench):
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

    async def execute(self, args, ctx):
        return ToolResult(True, "success", {"result": "success"})


def test_the_tool_of_the_second_document_works_as_written(bench):
    bench.registry.register(MyTool())
    result = bench.call("my_tool", {"arg1": "test"})
    assert result.data["result"] == "success"
    assert bench.call("my_tool", {}).error.code == "INVALID_ARGUMENTS"
    assert bench.registry.get("my_tool").schema()["function"]["parameters"] == MyTool.parameters


def test_the_flow_of_the_fourth_document_from_a_models_answer_to_the_hook(bench):
    answer = {
        "role": "assistant",
        "tool_calls": [
            {
                "id": "call_1",
                "type": "function",
                "function": {"name": "bash", "arguments": '{"command": "echo x > made"}'},
            },
            {
                "id": "call_2",
                "type": "function",
                "function": {"name": "read_file", "arguments": '{"path": "made"}'},
            },
        ],
    }
    ran = []

    class Hook:
        name = "commit"

        async def __call__(self, outcome, call):
            ran.append([result.files_changed for result in outcome.results])
            return "done"

    batch = bench.session.batch(answer, hooks=[Hook()])
    assert batch.status == {"call_1": "pending", "call_2": "pending"}
    outcome = anyio.run(batch.run)
    assert batch.status == {"call_1": "done", "call_2": "done"}
    assert outcome.mutated and ran == [[["made"], []]]
    assert [message["content"] for message in outcome.messages()] == ["[no output]", "x\n"]
    reading = bench.session.batch(
        [{"id": "call_3", "name": "read_file", "arguments": {"path": "made"}}], hooks=[Hook()]
    )
    assert not anyio.run(reading.run).mutated and len(ran) == 1
