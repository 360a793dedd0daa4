"""A branch that another worktree uses is not moved under it, unless that goes back, too."""

import subprocess
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, AuditStore, Session
from loom_audit.errors import Conflict
from loom_audit.model.plans.request import PlanRequest
from tests.history.undo.test_git_taken_back import act, as_git_says, differences, root
from tests.places.git_person import git

__all__ = ["root"]

EDITED = "GIT_SEQUENCE_EDITOR='sed -i s/pick/edit/'"
MOVED = "git branch -f feat HEAD"
USED = {
    "checked out": (MOVED, "git worktree add -q ../beside feat"),
    "checked out and locked": (MOVED, "git worktree add -q --lock ../beside feat"),
    "checked out under an alias": (
        MOVED,
        "git worktree add -q ../beside feat; cd ../beside; "
        "git symbolic-ref refs/heads/alias refs/heads/feat; git symbolic-ref HEAD refs/heads/alias",
    ),
    "being rebased": (
        MOVED,
        f"git worktree add -q ../beside feat; cd ../beside; {EDITED} git rebase -q -i HEAD~1",
    ),
    "being rebased by patches": (
        f"{MOVED}; git checkout -q -b other HEAD~1; echo x > f0; git commit -qam x",
        "git worktree add -q ../beside feat; cd ../beside; git rebase -q --apply other || true",
    ),
    "being rebased with the one on top": (
        MOVED,
        "git worktree add -q -b top ../beside feat; cd ../beside; git commit -q --allow-empty"
        f" -m top; {EDITED} git rebase -q -i --update-refs HEAD~2",
    ),
    "being bisected": (
        MOVED,
        "git worktree add -q ../beside feat; cd ../beside; git bisect start -q; git bisect bad;"
        " git checkout -q --detach",
    ),
    "in a worktree in the workspace": (MOVED, "git worktree add -q linked feat"),
    "rebased in the repository itself": (
        MOVED,
        f"git checkout -q feat; {EDITED} git rebase -q -i HEAD~1",
    ),
    "deleted again": ("git branch made", "git worktree add -q ../beside made"),
    "named by HEAD again": ("git checkout -q feat", "git worktree add -q ../beside main"),
}


def do(root: Path, command: str) -> None:
    subprocess.run(["sh", "-c", command], cwd=root, check=True, capture_output=True)


def all_told(root: Path) -> list[object]:
    folders = (root, root.parent / "beside", root / "linked")
    return [as_git_says(one) for one in folders if one.exists()]


@pytest.mark.parametrize("name", USED)
def test_a_branch_that_a_person_uses_in_another_worktree_blocks_the_plan(
    workspace: AuditedWorkspace, root: Path, session: Session, name: str
) -> None:
    by_agent, by_person = USED[name]
    session.run(["true"])
    point = workspace.log.head()
    act(session, f"{by_agent}; echo made > made")
    number = workspace.timeline.calls()[0].seq
    do(root, by_person)
    before = all_told(root)
    for request in (
        PlanRequest("undo"),
        PlanRequest("rollback", (point,)),
        PlanRequest("revert", (number or 0,), with_git=True),
    ):
        plan = workspace.plan(request)
        assert any(" in the worktree /" in one.reason for one in plan.blocked), plan.blocked
        with pytest.raises(Conflict):
            workspace.carry_out(plan)
    assert all_told(root) == before
    workspace.carry_out(workspace.plan(PlanRequest("undo", no_git=True)))
    assert not (root / "made").exists()


def test_so_does_a_redo(workspace: AuditedWorkspace, root: Path, session: Session) -> None:
    act(session, MOVED)
    workspace.carry_out(workspace.plan_undo())
    do(root, "git worktree add -q ../beside feat")
    with pytest.raises(Conflict, match=r"feat is checked out in the worktree /.*/beside"):
        workspace.carry_out(workspace.plan_redo())
    do(root, "git worktree remove ../beside")
    workspace.carry_out(workspace.plan_redo())


def test_a_branch_that_an_agent_moved_in_a_worktree_outside_stays_with_that(
    workspace: AuditedWorkspace, root: Path, session: Session
) -> None:
    do(root, "git worktree add -q ../beside feat")
    session.run(["true"])
    act(session, "cd ../beside; echo x > f0; git commit -qam inside")
    before = all_told(root)
    with pytest.raises(Conflict, match="checked out in the worktree"):
        workspace.carry_out(workspace.plan_undo())
    assert all_told(root) == before


def test_one_in_the_workspace_goes_back_with_its_branch_from_wherever_that_was_moved(
    store: AuditStore, root: Path
) -> None:
    do(root, "git worktree add -q linked feat")
    workspace = store.attach(root)
    before = as_git_says(root), as_git_says(root / "linked")
    with workspace.session("tester") as session:
        act(session, "git update-ref refs/heads/feat main; cd linked; git checkout -q -b more")
        after = as_git_says(root), as_git_says(root / "linked")
        for plan, told in ((workspace.plan_undo, before), (workspace.plan_redo, after)):
            workspace.carry_out(plan())
            for one, other in zip(told, (root, root / "linked"), strict=True):
                assert not differences(one, as_git_says(other))


def test_what_was_in_progress_before_and_is_again_keeps_no_branch(
    workspace: AuditedWorkspace, root: Path, session: Session
) -> None:
    do(root, "git bisect start -q; git bisect bad; git checkout -q feat")
    session.run(["true"])
    point, before = workspace.log.head(), as_git_says(root)
    act(session, "git bisect reset -q; git commit -q --allow-empty -m more")
    act(session, "git bisect start -q; git bisect bad")
    workspace.carry_out(workspace.plan_rollback(point))
    assert not differences(before, as_git_says(root))


@pytest.mark.parametrize("folder", ["../beside", "linked"])
def test_a_branch_that_came_with_a_worktree_stays_with_it(
    workspace: AuditedWorkspace, root: Path, session: Session, folder: str
) -> None:
    session.run(["true"])
    act(session, f"git worktree add -q -b made {folder}; git branch other; echo x > x")
    plan = workspace.plan_undo()
    assert not plan.blocked
    [note] = [one.reason for one in plan.irreversible if "so that the branch stays" in one.reason]
    assert note.startswith("git: refs/heads/made is checked out in the worktree /")
    workspace.carry_out(plan)
    assert git(root, "branch", "--format=%(refname:short)").split() == ["feat", "made", "main"]
    assert git(root / folder, "rev-parse", "HEAD") == git(root, "rev-parse", "main")
    assert not (root / "x").exists()


def test_one_that_is_gone_keeps_no_branch(
    workspace: AuditedWorkspace, root: Path, session: Session
) -> None:
    do(root, "git worktree add -q ../beside feat")
    session.run(["true"])
    act(session, "git update-ref refs/heads/feat main")
    do(root, "rm -rf ../beside")
    before = git(root, "rev-parse", "main~1")
    workspace.carry_out(workspace.plan_undo())
    assert git(root, "rev-parse", "feat") == before


def test_what_is_chosen_outside_is_not_moved_under_its_repository(
    store: AuditStore, root: Path, tmp_path: Path
) -> None:
    do(root, "git worktree add -q --detach ../workspace2")
    workspace = store.attach(tmp_path / "workspace2")
    with workspace.session("tester") as session:
        session.run(["true"])
        head = workspace.log.head()
        act(session, "git checkout -q feat; git commit -q --allow-empty -m agent")
        do(tmp_path / "workspace2", "git checkout -q --detach")
        do(root, "git checkout -q feat")
        plan = workspace.plan_rollback(head, choices={".git": "old"})
        assert plan.blocked
        do(root, "git checkout -q main")
        do(tmp_path / "workspace2", "git checkout -q feat")
        do(root, "git checkout -q --ignore-other-worktrees feat")
        plan = workspace.plan_rollback(head, choices={".git": "old"})
        said = f"refs/heads/feat is checked out in the worktree {root},"
        assert any(said in one.reason for one in plan.blocked), plan.blocked
