"""The workspace's own folder is not on record, and a call that changes its mode says so."""

from collections.abc import Callable
from pathlib import Path

from loom_audit import AuditedWorkspace, ToolResult


def test_a_command_that_changes_the_mode_of_the_workspace_itself_is_not_captured_whole(
    root: Path, workspace: AuditedWorkspace, call: Callable[..., ToolResult]
) -> None:
    call("shell_execute", command="chmod 710 . && echo x > new")
    (done,) = workspace.timeline.calls()
    assert done.coverage.level == "partial"
    assert "own mode" in done.coverage.reasons[0]
    assert set(done.paths) == {"new"}
    call("shell_execute", command="true")
    assert workspace.timeline.calls()[0].coverage.level == "full"


def test_a_mode_that_a_person_gave_the_workspace_before_is_no_commands_doing(
    root: Path, workspace: AuditedWorkspace, call: Callable[..., ToolResult]
) -> None:
    call("shell_execute", command="true")
    root.chmod(0o710)
    call("shell_execute", command="true")
    assert {done.coverage.level for done in workspace.timeline.calls()} == {"full"}
