"""What is mounted inside a workspace is not a part of it, also for tools."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, ToolResult
from loom_audit.model.events import Event, FilesChanged
from loom_audit.model.files import FileChange
from tests.trees import tree_of


@pytest.fixture
def mounted(root: Path, workspace: AuditedWorkspace) -> Iterator[Path]:
    """A folder of the workspace that a small filesystem is mounted on."""
    if os.geteuid() != 0:
        pytest.skip("needs root for a tmpfs")
    folder = root / "in"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"needs root for a tmpfs: {done.stderr.strip()}")
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
