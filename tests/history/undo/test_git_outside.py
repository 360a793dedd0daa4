"""A linked worktree whose repository is outside of the workspace goes back only when chosen."""

from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, Session
from tests.history.undo.test_git_taken_back import act, as_git_says, root
from tests.places.git_person import git

__all__ = ["root"]


@pytest.fixture
def outside(root: Path, tmp_path: Path) -> Path:
    """A repository beside the workspace, with a linked worktree in it."""
    outside = tmp_path / "outside"
    outside.mkdir()
    git(outside, "init", "-q", "-b", "main")
    git(outside, "commit", "-q", "--allow-empty", "-m", "first")
    git(outside, "worktree", "add", "-q", str(root / "linked"), "-b", "linked")
    (root / "linked" / "made").write_text("made\n")
    return outside


def test_shared_refs_outside_move_only_when_a_person_chose_the_worktree(
    workspace: AuditedWorkspace, root: Path, session: Session, outside: Path
) -> None:
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


@pytest.mark.parametrize(
    "command", ["commit -q --allow-empty -m x", "branch b", "stash -q", "config user.name x"]
)
def test_what_a_worktree_elsewhere_may_have_done_blocks_no_undo(
    workspace: AuditedWorkspace, session: Session, root: Path, outside: Path, command: str
) -> None:
    git(root, "add", "f0")
    session.run(["true"])
    (outside / "kept").write_text("kept\n")
    git(outside, "add", "kept")
    act(session, f"echo more > f0; cd {outside}; git {command}")
    refs = git(outside, "for-each-ref")
    plan = workspace.plan_undo()
    assert not plan.blocked and not plan.git
    stays = [one.reason for one in plan.irreversible if "outside of the workspace" in one.reason]
    assert len(stays) == ("config" not in command)
    workspace.carry_out(plan)
    assert (root / "f0").read_text() == "2\n"
    assert git(outside, "for-each-ref") == refs
    plan = workspace.plan_redo()
    assert not plan.blocked
    workspace.carry_out(plan)
    chosen = workspace.plan_undo(choices={"linked/.git": "old"}).blocked
    assert all("nobody saw by whom" in one.reason for one in chosen)
    assert len(chosen) == ("config" not in command)


def test_a_choice_for_git_that_no_plan_speaks_of_says_nothing_else(
    workspace: AuditedWorkspace, root: Path, session: Session
) -> None:
    act(session, "git branch made")
    plan = workspace.plan_undo(choices={".git": "old"})
    assert [one.name for one in plan.git] == ["refs/heads/made"]
