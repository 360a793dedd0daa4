"""A linked worktree whose repository is outside of the workspace goes back only when chosen."""

from pathlib import Path

from loom_audit import AuditedWorkspace, Session
from tests.history.undo.test_git_taken_back import act, as_git_says, root
from tests.places.git_person import git

__all__ = ["root"]


def test_shared_refs_outside_move_only_when_a_person_chose_the_worktree(
    workspace: AuditedWorkspace, root: Path, session: Session, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    git(outside, "init", "-q", "-b", "main")
    git(outside, "commit", "-q", "--allow-empty", "-m", "first")
    git(outside, "worktree", "add", "-q", str(root / "linked"), "-b", "linked")
    (root / "linked" / "made").write_text("made\n")
    session.run(["true"])
    linked, main = root / "linked", as_git_says(outside)
    before, head = git(linked, "rev-parse", "HEAD"), workspace.log.head()
    act(session, "cd linked; git add made; git commit -q -m by-agent")
    plan = workspace.plan_rollback(head)
    [note] = (one for one in plan.irreversible if "outside of the workspace" in one.reason)
    assert not plan.git and note.reason.endswith("`--choose linked/.git=old` takes it back there")
    plan = workspace.plan_rollback(head, choices={"linked/.git": "old"})
    assert [one.folder for one in plan.git] == ["linked"] and not plan.blocked
    workspace.carry_out(plan)
    assert git(linked, "rev-parse", "HEAD") == before == git(outside, "rev-parse", "linked")
    assert git(linked, "status", "--porcelain") == "?? made\n"
    assert (as_git_says(outside)["head"], as_git_says(outside)["index"]) == (
        main["head"],
        main["index"],
    )
    assert git(outside, "fsck", "--connectivity-only") == ""


def test_a_choice_for_git_that_no_plan_speaks_of_says_nothing_else(
    workspace: AuditedWorkspace, root: Path, session: Session
) -> None:
    act(session, "git branch made")
    plan = workspace.plan_undo(choices={".git": "old"})
    assert [one.name for one in plan.git] == ["refs/heads/made"]
