"""What a tool is told about the call: workspace, directory, session, environment."""

from typing import Any

import anyio
import pytest

from loom_audit import errors
from loom_audit.api.face import Session
from loom_audit.api.registry import ToolRegistry
from loom_audit.tools.calls.context import ToolContext
from loom_audit.tools.calls.result import ToolResult
from loom_audit.tools.calls.tool import Tool
from tests.tools.conftest import Bench


class Seeing(Tool):
    """Keeps the context it was called with."""

    name = "seeing"
    description = "looks around"
    seen = None

    async def execute(self, args: Any, ctx: ToolContext) -> ToolResult:
        self.seen = ctx
        return ToolResult(True, "seen")


@pytest.fixture
def seeing(bench: Bench) -> Seeing:
    tool = Seeing()
    bench.registry.register(tool)
    return tool


def test_a_context_carries_workspace_directory_session_scratch_and_environment(
    bench: Bench, seeing: Seeing
) -> None:
    bench.call("seeing", {}, call_id="call_1", environment={"STAGE": "test"})
    ctx = seeing.seen
    assert ctx.workspace == bench.root and ctx.cwd == ""
    assert ctx.session == bench.session.id and ctx.call_id == "call_1"
    assert ctx.environment["STAGE"] == "test"
    assert ctx.scratch_dir.is_dir() and bench.root not in ctx.scratch_dir.parents
    assert ctx.environment["SCRATCH_DIR"] == str(ctx.scratch_dir)


def test_a_context_without_a_workspace_says_so(bench: Bench) -> None:
    tool = Seeing()
    tool.needs_workspace = False
    registry = ToolRegistry()
    registry.register(tool)

    async def main() -> None:
        assert (await registry.execute("seeing", {})).success
        assert tool.seen.workspace is None and tool.seen.scratch_dir is None
        with pytest.raises(errors.NoWorkspace):
            await tool.seen.read("notes.txt")

    anyio.run(main)


def test_a_session_s_directory_is_for_commands_and_its_environment_too(
    bench: Bench, seeing: Seeing
) -> None:
    (bench.root / "src" / "deep").mkdir()
    seen = []

    async def work(session: Session) -> None:
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

    options: dict[str, Any] = {
        "registry": bench.registry,
        "cwd": "src",
        "environment": {"STAGE": "test"},
    }
    with bench.workspace.session("inner", **options) as session:
        anyio.run(work, session)
    inner, root = f"{bench.root}/src", str(bench.root)
    assert seen == [f"{where}\ntest\n" for where in (inner, inner, inner, f"{inner}/deep", root)]
    assert seeing.seen.cwd == "src" and seeing.seen.environment["STAGE"] == "test"


@pytest.mark.parametrize(
    ("cwd", "code"),
    [("../", "INVALID_PATH"), ("no", "FILE_NOT_FOUND"), ("notes.txt", "NOT_A_DIRECTORY")],
)
def test_a_directory_that_is_none_of_the_workspace_runs_nothing(
    bench: Bench, cwd: str, code: str
) -> None:
    for name, arguments in (
        ("bash", {"command": "touch made"}),
        ("run_code", {"language": "bash", "code": "touch made"}),
    ):
        assert bench.call(name, arguments, cwd=cwd).error.code == code
    assert not [*bench.root.rglob("made")]
