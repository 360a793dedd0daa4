"""An undo that stops half-way says how far it came, and that part can be taken back."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loom_audit import AuditedWorkspace, ToolResult
from loom_audit.errors import PermissionDenied
from loom_audit.ports import CallFilter
from tests.trees import tree_of


def test_it_says_what_is_changed_already(
    workspace: AuditedWorkspace,
    root: Path,
    call: Callable[..., ToolResult],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    call("shell_execute", command="echo 2 > a.txt; echo 2 > src/main.py")
    before = tree_of(root)
    kind = type(workspace.attachment.workspace)
    real = kind.replace

    def replace(self: Any, change: Any, content: Any) -> Any:
        if change.path == "src/main.py":
            raise PermissionDenied("permission denied: src/main.py", hint="Check its mode.")
        return real(self, change, content)

    with monkeypatch.context() as patch, pytest.raises(PermissionDenied) as caught:
        patch.setattr(kind, "replace", replace)
        workspace.carry_out(workspace.plan_undo())
    assert caught.value.details["changed"] == ["a.txt"]
    assert "1 of 2 paths" in caught.value.hint
    assert tree_of(root) != before
    (stopped, *_) = workspace.timeline.calls(CallFilter(tool="undo"))
    workspace.carry_out(workspace.plan_revert([stopped.seq or 0]))
    assert tree_of(root) == before
