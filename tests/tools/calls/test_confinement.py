"""Confinement as a caller sees it: which backend ran a command is on record, or nothing ran."""

import socket
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest

from loom_audit.api.face import open_store
from loom_audit.api.ground.connections import Connections
from loom_audit.api.registry import builtin_registry
from loom_audit.errors import ExecutionFailed, InvalidArguments
from loom_audit.ports import Command, CommandResult, Confinement, Moments, Runner
from loom_audit.sandbox import BACKENDS, ConfiningRunner
from loom_audit.sandbox.plain import PlainRunner
from loom_audit.tools.calls.context import ToolContext
from loom_audit.tools.calls.models import Arguments
from loom_audit.tools.calls.result import ToolResult
from loom_audit.tools.calls.settings import ToolSettings
from loom_audit.tools.calls.tool import Tool
from tests.tools.conftest import Bench


class Missing:
    """A backend that this machine does not let work."""

    name = "bubblewrap"

    def __init__(self) -> None:
        self.asked = 0

    def run(self, root: str, command: Command, _: Moments = Moments()) -> CommandResult:
        self.asked += 1
        raise ExecutionFailed("no user namespaces here")


def nowhere() -> Runner:
    return ConfiningRunner(PlainRunner, lambda: [Missing()])


class Marking(Tool):
    """Leaves a file, through a command."""

    name = "marking"
    description = "Leaves a file."
    input = Arguments
    effect = "execute"

    def __init__(self, confinement: Confinement = "off") -> None:
        self.confinement = confinement

    async def execute(self, args: Any, ctx: ToolContext) -> ToolResult:
        done = await ctx.run("sh", "-c", "echo x > mark")
        return ToolResult(True, done.sandbox)


def test_the_backend_that_ran_is_on_record_and_in_the_result(bench: Bench) -> None:
    result = bench.call("shell_execute", {"command": "true"})
    assert bench.last().sandbox == result.data["sandbox"]
    assert bench.last().sandbox in BACKENDS
    assert ("not confined" in result.output) == (bench.last().sandbox == "plain")


def test_preferred_confinement_that_is_not_to_be_had_is_said_in_words(bench: Bench) -> None:
    result = bench.call("shell_execute", {"command": "echo hi"}, runner=nowhere())
    assert result.success
    assert bench.last().sandbox == "plain" == result.data["sandbox"]
    assert "[not confined: bubblewrap: no user namespaces here]" in result.output
    assert "no user namespaces here" in bench.last().result["output"]


@pytest.mark.parametrize("settings", [ToolSettings("required"), None])
def test_nothing_runs_when_confinement_is_required_and_not_to_be_had(
    bench: Bench, settings: ToolSettings | None
) -> None:
    bench.registry.register(Marking("off" if settings else "required"))
    result = bench.call("marking", {}, runner=nowhere(), settings=settings)
    assert result.error.code == "EXECUTION_ERROR"
    assert "no user namespaces here" in result.error.message
    assert "doctor" in result.error.hint and "bubblewrap" in result.error.hint
    assert "mark" not in bench.tree()
    assert bench.last().sandbox == "" and bench.last().status == "error"


def test_a_tool_that_is_not_confined_does_not_probe(bench: Bench) -> None:
    bench.registry.register(Marking())
    missing = Missing()
    runner = ConfiningRunner(PlainRunner, lambda: [missing])
    assert bench.call("marking", {}, runner=runner).output == "plain"
    assert missing.asked == 0
    bench.call("marking", {}, runner=runner, settings=ToolSettings("preferred"))
    assert missing.asked > 0


def test_the_settings_replace_what_tools_say(bench: Bench) -> None:
    off = bench.call("shell_execute", {"command": "true"}, settings=ToolSettings("off"))
    assert off.data["sandbox"] == "plain" == bench.last().sandbox
    assert "not confined" not in off.output  # nobody asked for it


def test_limits_of_the_settings_hold_in_a_confined_command(bench: Bench) -> None:
    command = "head -c 3000000 /dev/zero > big"
    settings = ToolSettings(file_mib=1)
    result = bench.call("shell_execute", {"command": command}, settings=settings)
    if result.data["sandbox"] == "plain":
        pytest.skip(f"no confining backend works here: {result.output}")
    assert (bench.root / "big").stat().st_size == 1024 * 1024


def test_the_scratch_folder_is_there_for_a_confined_command(tmp_path: Path, home: Path) -> None:
    (tmp_path / "work").mkdir()
    with open_store() as store, store.attach(tmp_path / "work").session("agent") as session:

        async def one() -> ToolResult:
            command = 'echo x > "$SCRATCH_DIR/note"'
            await session.call("shell_execute", {"command": command})
            return await session.call("read_file", {"path": "scratch://note"})

        assert anyio.run(one).data["content"] == "x\n"


def test_a_session_takes_the_settings_of_its_store(tmp_path: Path, home: Path) -> None:
    (home / "config").mkdir(parents=True)
    (home / "config" / "tools.toml").write_text('confinement = "off"\n')
    (tmp_path / "work").mkdir()
    with open_store() as store, store.attach(tmp_path / "work").session("agent") as session:

        async def one() -> ToolResult:
            return await session.call("shell_execute", {"command": "true"})

        assert anyio.run(one).data["sandbox"] == "plain"


def test_a_session_does_not_begin_with_settings_that_are_malformed(
    tmp_path: Path, home: Path
) -> None:
    (home / "config").mkdir(parents=True)
    (home / "config" / "tools.toml").write_text('confinement = "none"\n')
    (tmp_path / "work").mkdir()
    with open_store() as store:
        workspace = store.attach(tmp_path / "work")
        with pytest.raises(InvalidArguments):
            workspace.session("agent")


def test_settings_that_an_agent_could_write_are_refused(tmp_path: Path, home: Path) -> None:
    (tmp_path / "work").mkdir()
    home.mkdir()
    (home / "config").symlink_to(tmp_path / "work", target_is_directory=True)
    with open_store() as store:
        workspace = store.attach(tmp_path / "work")
        workspace.session("agent")
        (tmp_path / "work" / "tools.toml").write_text('confinement = "off"\n')
        with pytest.raises(InvalidArguments, match="lies in the workspace"):
            workspace.session("agent")


def test_a_registry_takes_the_settings_of_the_default_store(tmp_path: Path, home: Path) -> None:
    (home / "config").mkdir(parents=True)
    (home / "config" / "tools.toml").write_text('confinement = "off"\n')
    (tmp_path / "work").mkdir()

    with closing(Connections()) as connections:
        registry = builtin_registry(connections)
        done = anyio.run(registry.execute, "shell_execute", {"command": "true"}, tmp_path / "work")
    assert done.data["sandbox"] == "plain"


def test_a_confined_command_sees_neither_the_store_nor_what_names_it(
    bench: Bench, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOOM_AUDIT_STORE", "sqlite:///secret.db")
    monkeypatch.setenv("SSH_AUTH_SOCK", "/run/agent.sock")
    monkeypatch.setenv("SOME_API_KEY", "k-123")
    folder = bench.workspace.adapters.settings.home
    command = f"env; cat /proc/*/environ /proc/*/cmdline; ls {folder}; echo end"
    result = bench.call("shell_execute", {"command": command})
    if result.data["sandbox"] == "plain":
        pytest.skip(f"no confining backend works here: {result.output}")
    assert "end" in result.data["stdout"]
    for word in ("audit.db", "secret.db", "agent.sock", "k-123", "LOOM_AUDIT"):
        assert word not in result.data["stdout"]


@pytest.mark.few(1)
@pytest.mark.parametrize("tool", ["run_code", "bash", "shell_execute"])
def test_commands_and_code_have_the_network_only_when_a_person_enables_it(
    bench: Bench, tool: str
) -> None:
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
