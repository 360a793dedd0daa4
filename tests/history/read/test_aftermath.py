"""Whether what a call changed stands, also where the call was not alone or the path is left out."""

from pathlib import Path

from loom_audit import AuditedWorkspace, Session
from loom_audit.api.review.later_changes import Aftermath, aftermath_of
from tests.history.read.lines.test_net_change import run


def became(workspace: AuditedWorkspace, number: int) -> dict[str, Aftermath]:
    detail = workspace.timeline.call(number)
    return {one.path: one for one in aftermath_of(workspace, detail)}


def test_what_another_call_changed_before_a_call_s_end_does_not_stand(
    workspace: AuditedWorkspace, session: Session, root: Path
) -> None:
    with workspace.session("two") as two, two.recording("slow"):
        (root / "a.txt").write_text("slow\n")
        run(session, "write_file", path="a.txt", content="quick\n")
        (root / "last").write_text("last\n")
    slow = next(call for call in workspace.timeline.calls() if call.tool == "slow")
    found = became(workspace, slow.seq or 0)
    assert [(path, one.stands) for path, one in found.items()] == [("a.txt", False), ("last", True)]


def test_a_path_that_is_not_recorded_any_more_is_not_as_its_call_left_it(
    workspace: AuditedWorkspace, session: Session, root: Path
) -> None:
    number = run(session, "write_file", path="a.txt", content="one\n")
    assert became(workspace, number)["a.txt"].stands
    (root / ".loomignore").write_text("a.txt\n")
    workspace.accept_scope()
    run(session, "shell_execute", command="true")
    found = became(workspace, number)["a.txt"]
    assert (found.stands, found.lost, found.next) == (False, True, None)
