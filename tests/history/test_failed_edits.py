"""A call that fails after it has looked: what somebody else had changed stays to be found."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loom_audit import AuditedWorkspace, ToolResult

Call = Callable[..., ToolResult]


@pytest.mark.parametrize(
    ("tool", "arguments", "code"),
    [
        ("edit_file", {"path": "a.txt", "old_str": "one", "new_str": "1"}, "INVALID_ARGUMENTS"),
        ("move_file", {"from": "src/main.py", "to": "a.txt"}, "CONFLICT"),
        ("move_file", {"from": "a.txt", "to": "a.txt"}, "INVALID_PATH"),
    ],
)
def test_what_a_person_wrote_is_found_although_a_call_looked_at_it_and_failed(
    workspace: AuditedWorkspace,
    root: Path,
    call: Call,
    tool: str,
    arguments: dict[str, Any],
    code: str,
) -> None:
    call("shell_execute", command="true")
    (root / "a.txt").write_bytes(b"mine\n")
    time.sleep(0.1)  # a stamp this old is believed
    call(tool, **arguments, fails=code)
    assert [change.path for change in workspace.status().drift] == ["a.txt"]
    call("shell_execute", command="echo theirs > a.txt")
    command = workspace.timeline.calls()[0]
    before = workspace.timeline.changes_of(command)[0].before
    assert before is not None and workspace.timeline.content(before) == b"mine\n"
