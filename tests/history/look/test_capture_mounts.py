"""What is mounted inside a workspace is not a part of it, also for tools."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, ToolResult
from loom_audit.model.events import Event, FilesChanged
from loom_audit.model.files import FileChange
from tests.oracles.trees import tree_of


@pytest.fixture
def mounted(root: Path, workspace: AuditedWorkspace) -> Iterator[Path]:
    """A folder of the workspace that a small filesystem is mounted on."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a tmpfs")
    folder = root / "in"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"needs the right to mount a tmpfs: {done.stderr.strip()}")
    (folder / "theirs").write_text("on the mount")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], capture_output=True)


def changes_of(event: Event) -> tuple[FileChange, ...]:
    return event.fact.changes if isinstance(event.fact, FilesChanged) else ()


def test_a_file_that_a_tool_writes_on_a_mount_is_on_record_as_not_captured(
    mounted: Path, workspace: AuditedWorkspace, call: Callable[..., ToolResult]
) -> None:
    call("write_file", path="in/new/a", content="x")
    assert (mounted / "new" / "a").read_text() == "x"
    (wrote,) = workspace.timeline.calls()
    assert wrote.coverage.level == "partial"
    assert any("in/new/a" in reason for reason in wrote.coverage.reasons)
    subprocess.run(["umount", str(mounted)], check=True)
    call("shell_execute", command="true")
    assert "in/new/a" not in workspace.timeline.tree()
    changed = [change.path for event in workspace.log.read() for change in changes_of(event)]
    assert not [path for path in changed if path.startswith("in/new")]


def test_what_lies_on_a_mount_is_not_deleted_by_a_tool(
    mounted: Path, root: Path, call: Callable[..., ToolResult]
) -> None:
    before = tree_of(root)
    call("delete_file", path="in/theirs", fails="CONFLICT")
    call("delete_file", path="in", recursive=True, fails="CONFLICT")
    assert tree_of(root) == before


def deleted(workspace: AuditedWorkspace) -> set[str]:
    return {
        change.path
        for event in workspace.log.read()
        for change in changes_of(event)
        if change.after is None
    }


@pytest.fixture
def uncovered(root: Path) -> Iterator[None]:
    """Nothing is mounted on the folder when the test has ended, however it ended."""
    yield
    subprocess.run(["umount", "-l", str(root / "src")], capture_output=True)


def cover(folder: Path) -> None:
    """Mount another filesystem on a folder, as anybody beside may."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a tmpfs")
    command = ["mount", "-t", "tmpfs", "-o", "size=1m,mode=1777", "tmpfs", str(folder)]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("needs the right to mount a tmpfs")
    (folder / "theirs").write_text("on the mount")


def uncover(folder: Path) -> None:
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.usefixtures("uncovered")
def test_of_a_recorded_folder_that_is_covered_nothing_is_deleted_and_no_mode_is_taken(
    root: Path, workspace: AuditedWorkspace, call: Callable[..., ToolResult]
) -> None:
    before, head = tree_of(root), workspace.log.head()
    cover(root / "src")
    assert [one.path for one in workspace.status().drift] == []
    assert [one.path for one in workspace.status().untracked] == ["src"]
    call("shell_execute", command="echo x > src/x; rm -f src/main.py")
    assert "src" not in workspace.timeline.tree() and deleted(workspace) == set()
    assert "src" in {one.path for one in workspace.status().untracked}
    uncover(root / "src")
    call("shell_execute", command="true")
    assert tree_of(root) == before and workspace.status().drift == ()
    assert workspace.timeline.tree() == workspace.timeline.tree(head)
    assert workspace.verify().ok


@pytest.mark.usefixtures("uncovered")
def test_a_folder_that_is_covered_during_a_command_and_uncovered_in_the_next_keeps_its_mode(
    root: Path, workspace: AuditedWorkspace
) -> None:
    before = tree_of(root)
    with workspace.session("agent") as session:
        with session.recording("covers"):
            cover(root / "src")
            (root / "one").write_text("1")
        first = workspace.timeline.calls()[0]
        assert set(first.paths) == {"one"}
        assert first.coverage.level == "partial" and "mount: src" in first.coverage.reasons
        with session.recording("uncovers"):
            uncover(root / "src")
            (root / "two").write_text("2")
        assert set(workspace.timeline.calls()[0].paths) == {"two"}
    assert deleted(workspace) == set() and workspace.status().drift == ()
    for _ in range(2):
        workspace.carry_out(workspace.plan_undo())
    assert tree_of(root) == before
