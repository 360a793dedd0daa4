"""What two commands may both have done is taken back only when somebody says so."""

from pathlib import Path

from loom_audit import AuditedWorkspace
from loom_audit.ports import Command


def overlap(workspace: AuditedWorkspace, root: Path) -> int:
    """One command runs while another does; the number of the one that ended last."""
    with workspace.session("one") as one, workspace.session("two") as two:
        outer = one.recorder.begin("run", {}, "execute", call_id="outer")
        with outer.capture(final=True):
            inner = two.recorder.begin("run", {}, "execute", call_id="inner")
            runner = workspace.attachment.runner
            assert runner
            inner.run(runner, Command(("sh", "-c", "echo new > made; echo x > a.txt")), final=True)
            inner.finish("ok", {"success": True})
        return outer.finish("ok", {"success": True}).seq


def test_it_is_kept_and_the_call_is_not_said_to_be_taken_back(
    workspace: AuditedWorkspace, root: Path
) -> None:
    overlap(workspace, root)
    plan = workspace.plan_undo()
    assert plan.changes == ()
    assert {note.path for note in plan.kept} == {"a.txt", "made"}
    assert plan.reverts == ()


def test_it_is_taken_back_where_it_is_chosen(workspace: AuditedWorkspace, root: Path) -> None:
    overlap(workspace, root)
    plan = workspace.plan_undo(choices={"made": "old", "a.txt": "old"})
    workspace.carry_out(plan)
    assert not (root / "made").exists()
    assert (root / "a.txt").read_bytes() == b"one\ntwo\nthree\n"
    assert workspace.status().drift == ()
