"""Calls as they are recorded: failed and unknown ones, several recorders at once."""

from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from loom_audit import (
    AuditedWorkspace,
    Session,
    ToolResult,
)
from tests.oracles.trees import everything

Call = Callable[..., ToolResult]


def test_failed_and_unknown_calls_are_on_record(workspace: AuditedWorkspace, call: Call) -> None:
    call("shell_execute", command="exit 3", fails="EXECUTION_ERROR")
    call("no_such_tool", fails="UNKNOWN_TOOL")
    call("write_file", path="../x", content="", fails="INVALID_PATH")
    assert [c.status for c in workspace.timeline.calls()[:3]] == ["error"] * 3


def test_two_recorders_of_one_workspace_lose_nothing(
    home: Path, workspace: AuditedWorkspace, root: Path
) -> None:
    async def both(one: Session, two: Session) -> None:
        async with anyio.create_task_group() as group:
            for n in range(20):
                arguments = {"path": f"f{n}", "content": str(n)}
                group.start_soon(one.call if n % 2 else two.call, "write_file", arguments)

    with workspace.session("one") as one, workspace.session("two") as two:
        anyio.run(both, one, two)
    recorded = {call.paths[0] for call in workspace.timeline.calls() if call.paths}
    assert recorded == {f"f{n}" for n in range(20)}


@pytest.mark.parametrize("target", [".git/a.txt", ".loom-audit-tmp-x", "src/.git/hooks/post"])
def test_a_move_to_where_nothing_may_be_written_leaves_the_source(
    root: Path, call: Call, target: str
) -> None:
    before = everything(root)
    call("move_file", **{"from": "a.txt", "to": target}, fails="INVALID_PATH")
    assert everything(root) == before
