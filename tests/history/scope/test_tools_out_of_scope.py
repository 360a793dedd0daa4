"""What our tools write out of scope: a left-out folder that they make is on record as theirs."""

from collections.abc import Callable
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, Session, ToolResult
from loom_audit.model.events import ChangeIntended, FilesChanged
from tests.history.record.test_recovery import ends_cannot_be_recorded

Call = Callable[..., ToolResult]


def changed_by(workspace: AuditedWorkspace) -> dict[str, list[str]]:
    """Who changed what since the baseline, by the log."""
    found: dict[str, list[str]] = {}
    for event in workspace.log.read():
        if isinstance(event.fact, FilesChanged) and event.fact.origin != "baseline":
            found.setdefault(event.actor, []).extend(c.path for c in event.fact.changes)
    return found


def kinds(workspace: AuditedWorkspace) -> dict[str, str]:
    return {path: state.kind for path, state in workspace.timeline.tree().items()}


@pytest.mark.few(2)
@pytest.mark.parametrize("interrupted", [False, True], ids=["finished", "interrupted"])
@pytest.mark.parametrize(
    ("path", "made"),
    [
        ("node_modules/x", {"node_modules": "opaque"}),
        ("node_modules/lib/x", {"node_modules": "opaque"}),
        ("new/venv/x", {"new": "directory", "new/venv": "opaque"}),
        ("src/__pycache__/x", {}),
    ],
)
def test_a_left_out_folder_that_a_tool_makes_is_the_calls(
    workspace: AuditedWorkspace,
    root: Path,
    session: Session,
    call: Call,
    path: str,
    made: dict[str, str],
    interrupted: bool,
) -> None:
    before = kinds(workspace)
    if interrupted:
        with ends_cannot_be_recorded(workspace):
            call("write_file", fails="AUDIT_UNAVAILABLE", path=path, content="text\n")
    else:
        result = call("write_file", path=path, content="text\n")
        assert set(result.files_changed) == set(made)
    call("shell_execute", command="true")
    _, written = workspace.timeline.calls()
    assert set(written.paths) == set(made)
    if not interrupted:
        assert f"outside the scope: {path}" in written.coverage.reasons
    assert changed_by(workspace) == ({"agent:tester": sorted(made)} if made else {})
    assert kinds(workspace) == before | made
    assert workspace.status().drift == () and workspace.verify().ok
    plan = workspace.plan_undo() if made else None
    if plan:
        assert not plan.blocked
        if plan.changes:
            workspace.carry_out(plan)
    assert (root / path).read_text() == "text\n"


@pytest.mark.parametrize("interrupted", [False, True], ids=["finished", "interrupted"])
def test_a_file_that_is_left_out_stays_so_when_a_tool_writes_it(
    workspace: AuditedWorkspace, root: Path, session: Session, call: Call, interrupted: bool
) -> None:
    (root / ".loomignore").write_text("*.log\n")
    workspace.accept_scope()
    before = kinds(workspace)
    if interrupted:
        with ends_cannot_be_recorded(workspace):
            call("write_file", fails="AUDIT_UNAVAILABLE", path="x.log", content="text\n")
    else:
        call("write_file", path="x.log", content="text\n")
    with session.recording("append"), (root / "x.log").open("a") as file:
        file.write("more\n")
    assert kinds(workspace) == before
    assert changed_by(workspace).get("agent:tester", []) == []
    assert workspace.status().drift == ()


@pytest.mark.few(3)
@pytest.mark.parametrize("interrupted", [False, True], ids=["finished", "interrupted"])
@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("write_file", {"path": "venv/x", "content": "new\n"}),
        ("edit_file", {"path": "venv/x", "old_str": "old", "new_str": "new"}),
        ("write_file", {"path": "link", "content": "new\n"}),
        ("move_file", {"from": "a.txt", "to": "venv/x", "overwrite": True}),
    ],
)
def test_what_a_tool_overwrites_out_of_scope_is_kept_and_the_call_and_the_plan_say_where(
    workspace: AuditedWorkspace,
    root: Path,
    session: Session,
    call: Call,
    tool: str,
    arguments: dict[str, object],
    interrupted: bool,
) -> None:
    (root / "venv").mkdir()
    (root / "venv/x").write_text("old\n")
    (root / "link").symlink_to("venv/x")
    if interrupted:
        with ends_cannot_be_recorded(workspace):
            call(tool, fails="AUDIT_UNAVAILABLE", **arguments)
        call("shell_execute", command="true")
    else:
        call(tool, **arguments)
    assert (root / "venv/x").read_text() != "old\n"
    done = next(one for one in workspace.timeline.calls() if one.tool == tool)
    [intention] = [e for e in workspace.log.read() if isinstance(e.fact, ChangeIntended)]
    way = f"`loom-audit cat PATH --at {intention.seq}` prints what it held"
    assert f"outside the scope: venv/x ({way})" in done.coverage.reasons
    assert done.seq is not None
    assert any(way in note.reason for note in workspace.plan_revert([done.seq]).irreversible)
    kept = workspace.timeline.found("venv/x", intention.seq)
    assert kept is not None and workspace.timeline.content(kept) == b"old\n"
    assert workspace.timeline.found("venv/x", intention.seq - 1) is None
    assert workspace.verify().ok and "venv/x" not in workspace.timeline.tree()
