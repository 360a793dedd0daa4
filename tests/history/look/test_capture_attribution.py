"""Which call, or nobody on record, a change on disk is attributed to."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import anyio
import pytest

from loom_audit import AuditedWorkspace, Session, ToolResult
from loom_audit.disk.workspace import DiskWorkspace
from loom_audit.history.ground.questions import ApprovalRequest
from loom_audit.model.files import FileChange
from loom_audit.ports import Displaced
from loom_audit.tools.approvals.asking_gate import AskingGate
from loom_audit.tools.approvals.policy import read_policy
from loom_audit.tools.calls.gate import Decision

Call = Callable[..., ToolResult]
ASK = read_policy({"rule": [{"tool": "shell_execute", "action": "ask"}]})


def tree(session: Session) -> set[str]:
    return set(session.workspace.timeline.tree())


def run(session: Session, command: str, call_id: str | None = None) -> ToolResult:
    return anyio.run(lambda: session.call("shell_execute", {"command": command}, call_id=call_id))


def test_what_a_running_command_wrote_at_the_same_moment_as_a_tool_is_the_commands(
    root: Path, session: Session, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = session.workspace
    replace = DiskWorkspace.replace

    def overtaken(
        disk: DiskWorkspace, change: FileChange, content: BinaryIO | None, *more: Any
    ) -> Displaced:
        (root / change.path).write_bytes(b"the command's\n")
        return replace(disk, change, content, *more)

    with session.recording("command"):
        with monkeypatch.context() as patched:
            patched.setattr(DiskWorkspace, "replace", overtaken)
            call("write_file", path="a.txt", content="the tool's\n", fails="CONFLICT")
        assert (root / "a.txt").read_bytes() == b"the command's\n"
    assert [change.path for change in workspace.plan_undo().changes] == ["a.txt"]


def test_what_somebody_made_at_the_same_moment_and_deleted_before_the_next_look_is_gone(
    root: Path, session: Session, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = DiskWorkspace.replace

    def overtaken(
        disk: DiskWorkspace, change: FileChange, content: BinaryIO | None, *more: Any
    ) -> Displaced:
        (root / change.path).write_bytes(b"a person's\n")
        return replace(disk, change, content, *more)

    with monkeypatch.context() as patched:
        patched.setattr(DiskWorkspace, "replace", overtaken)
        call("write_file", path="new", content="the tool's\n", fails="CONFLICT")
    assert "new" in tree(session)
    (root / "new").unlink()
    call("shell_execute", command="true")
    assert "new" not in tree(session)


def test_what_others_change_while_a_command_waits_is_not_its_doing(
    session: Session, root: Path, workspace: AuditedWorkspace
) -> None:
    async def ask(request: ApprovalRequest) -> Decision:
        (root / "a.txt").write_text("by a person\n")
        other = workspace.session("other")
        with other:
            assert (await other.call("write_file", {"path": "a.txt", "content": "x"})).success
        (root / "late.txt").write_text("by a person\n")
        return Decision("allowed", "person:me")

    session.gate = AskingGate(ASK, ask=ask)
    result = anyio.run(session.call, "shell_execute", {"command": "echo x > made.txt"})
    assert result.files_changed == ["made.txt"]
    found = {c.change.path: c.origin for c in workspace.timeline.projections.changes()}
    assert found["late.txt"] == "outside" and found["made.txt"] == "command"
    assert workspace.timeline.history("a.txt")[1].origin == "outside"
    assert all(call.coverage.level == "full" for call in workspace.timeline.calls())


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


def test_commands_at_once_with_the_same_id_in_two_sessions_share_what_changed(
    workspace: AuditedWorkspace, root: Path
) -> None:
    async def both(one: Session, other: Session) -> None:
        wait = "while [ ! -e go ]; do sleep 0.01; done"
        async with anyio.create_task_group() as group:
            slow = {"command": f"echo > one; {wait}"}
            group.start_soon(lambda: one.call("shell_execute", slow, call_id="1"))
            while not (root / "one").exists():
                await anyio.sleep(0.01)
            await other.call("shell_execute", {"command": "F=$(echo two); echo > $F"}, call_id="1")
            (root / "go").touch()

    with workspace.session("a") as one, workspace.session("b") as other:
        anyio.run(both, one, other)
        assert [c.coverage.level for c in workspace.timeline.calls()] == ["partial", "partial"]
        plan = workspace.plan_undo(session=other.id)
    assert plan.changes == ()
