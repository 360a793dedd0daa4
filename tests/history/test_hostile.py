"""What a hostile look at recording and taking back has found, each as the situation it was in."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from loom_audit import AuditedWorkspace, AuditStore, Session, ToolResult, tool
from loom_audit.tools.builtin import builtin_registry

Call = Callable[..., ToolResult]


def everything(root: Path) -> dict[str, tuple[int, bytes]]:
    """Every path below the root with its mode and content."""
    found = {}
    for folder, folders, files in os.walk(root):
        for path in (Path(folder, name) for name in folders + files):
            seen = path.lstat()
            content = b""
            if stat.S_ISREG(seen.st_mode):
                content = path.read_bytes()
            elif stat.S_ISLNK(seen.st_mode):
                content = os.fsencode(path.readlink())
            found[str(path.relative_to(root))] = (seen.st_mode, content)
    return found


def run(session: Session, command: str, call_id: str | None = None) -> ToolResult:
    return anyio.run(lambda: session.call("shell_execute", {"command": command}, call_id=call_id))


# --- changes that fail half-way -----------------------------------------------------------


@pytest.mark.parametrize("target", [".git/a.txt", ".loom-audit-tmp-x", "src/.git/hooks/post"])
def test_a_move_to_where_nothing_may_be_written_leaves_the_source(
    root: Path, call: Call, target: str
) -> None:
    before = everything(root)
    call("move_file", **{"from": "a.txt", "to": target}, fails="INVALID_PATH")
    assert everything(root) == before


# --- which call did it --------------------------------------------------------------------


def test_two_sessions_whose_calls_have_the_same_id_are_told_apart(
    workspace: AuditedWorkspace,
) -> None:
    with workspace.session("a") as one, workspace.session("b") as other:
        assert run(one, "echo > one", "1").files_changed == ["one"]
        assert run(other, "echo > two", "1").files_changed == ["two"]
    first, second = workspace.timeline.calls()[::-1]
    assert [change.path for change in workspace.timeline.changes_of(first)] == ["one"]
    assert [change.path for change in workspace.timeline.changes_of(second)] == ["two"]
    assert (first.paths, second.paths) == (("one",), ("two",))


def test_an_agents_function_named_rollback_is_no_rollback_of_ours(
    store: AuditStore, workspace: AuditedWorkspace, root: Path, session: Session
) -> None:
    @session.tool
    def rollback() -> None:
        with store.workspace(workspace.id).session("another"):
            (root / "b.txt").write_text("b")

    rollback()
    assert [call.status for call in workspace.timeline.calls()] == ["ok"]
    assert [change.path for change in workspace.plan_undo(session=session.id).changes] == ["b.txt"]


@pytest.mark.parametrize("name", ["undo", "redo", "revert", "rollback"])
def test_no_tool_that_writes_can_be_registered_under_the_name_of_an_undo(name: str) -> None:
    @tool(name=name, description="something else", effect="write")
    def pretender() -> None:
        """Do something else."""

    with pytest.raises(Exception, match="is kept for"):
        builtin_registry().register(pretender)
