"""What the call of a process that has ended changed is its own, until recovery closes it."""

from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace
from loom_audit.history.call import OpenCall
from loom_audit.history.writer import Writer


def owners(workspace: AuditedWorkspace, path: str) -> tuple[str | None, tuple[str, ...]]:
    [*_, last] = workspace.attachment.projections.changes(paths=[path])
    return last.call_id, last.causes


def dead_call(workspace: AuditedWorkspace) -> None:
    """An open call of a session that holds no lock, as that of a process that was killed."""
    writer = Writer(workspace.attachment, session="gone", actor="agent:gone")
    OpenCall(writer, "sh", {}, "execute", call_id="dead").announce()


def test_what_a_command_finds_of_a_dead_call_is_that_one_s_and_what_follows_is_not(
    workspace: AuditedWorkspace, root: Path
) -> None:
    with workspace.session("agent") as session:
        dead_call(workspace)
        (root / "its").touch()
        with session.recording("block"):
            (root / "mine").touch()
        (root / "later").touch()
        session.run(["true"])
    assert owners(workspace, "its") == ("dead", ())
    assert owners(workspace, "mine")[1] == ()
    block = next(call for call in workspace.timeline.calls() if call.tool == "block")
    assert (block.paths, block.coverage.level) == (("mine",), "full")


def test_a_call_that_began_and_died_during_a_command_may_have_changed_what_it_finds(
    workspace: AuditedWorkspace, root: Path
) -> None:
    with workspace.session("agent") as session, session.recording("block"):
        dead_call(workspace)
        (root / "made").touch()
    assert "dead" in owners(workspace, "made")[1]


@pytest.mark.parametrize("ours", [True, False])
def test_an_undo_attributes_what_it_finds_before_it(
    workspace: AuditedWorkspace, root: Path, ours: bool
) -> None:
    with workspace.session("agent") as session:
        session.run(["touch", "made"])
    if ours:
        dead_call(workspace)
    (root / "found").touch()
    workspace.carry_out(workspace.plan_undo(session=None if not ours else session.id))
    assert owners(workspace, "found")[0] == ("dead" if ours else None)
