"""What a plan says of git in words, and the commits that it lists as on no ref any more."""

import shutil
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, Session
from tests.history.undo.test_git_taken_back import act, root
from tests.places.git_person import git

__all__ = ["root"]


def id_of(root: Path, name: str) -> str:
    return git(root, "rev-parse", "--short=7", name).strip()


def test_a_reset_is_said_with_the_commits_that_come_back(
    workspace: AuditedWorkspace, root: Path, session: Session
) -> None:
    was = id_of(root, "HEAD")
    act(session, "git reset -q --hard HEAD~1")
    head, index, *_ = workspace.plan_undo().git_words
    assert head == f'HEAD main {id_of(root, "HEAD")} → {was}: brings back 1 commit "c2" by ann'
    assert index == "index comes back as it was"
    workspace.carry_out(workspace.plan_undo())
    head, *_ = workspace.plan_redo().git_words
    assert head.endswith(': takes back 1 commit "c2" by ann')
    act(session, "git reset -q --hard HEAD~2; git commit -q --allow-empty -m other")
    head, *_ = workspace.plan_undo().git_words
    both = 'brings back 2 commits, the newest "c2" by ann, takes back 1 commit "other" by ann'
    assert head.endswith(f": {both}")


def test_stashes_are_said_with_the_place_that_they_come_back_to(
    workspace: AuditedWorkspace, root: Path, session: Session
) -> None:
    for n in range(3):
        (root / "f0").write_text(f"stashed {n}\n")
        git(root, "stash", "push", "-q", "-m", f"s{n}")
    act(session, "git stash drop -q stash@{1}")
    assert workspace.plan_undo().git_words == ('stash "On main: s1" comes back as stash@{1}',)
    workspace.carry_out(workspace.plan_undo())
    act(session, "echo x > f0; git stash -q")
    [said] = (one for one in workspace.plan_undo().git_words if one.startswith("stash"))
    assert said.startswith('stash "WIP on main: ') and "(stash@{0}) goes, and stays" in said


def test_a_branch_comes_back_with_what_only_it_had(
    workspace: AuditedWorkspace, root: Path, session: Session
) -> None:
    git(root, "checkout", "-q", "feat")
    git(root, "commit", "-q", "--allow-empty", "-m", "only here")
    git(root, "checkout", "-q", "main")
    session.run(["true"])
    was = id_of(root, "feat")
    act(session, "git branch -D feat; git tag t")
    back, gone = workspace.plan_undo().git_words
    assert back == f'branch feat comes back at {was}: brings back 1 commit "only here" by ann'
    assert gone == f"tag t deleted (was {id_of(root, 'HEAD')})"
    assert workspace.plan_undo().lost_commits == ()


@pytest.mark.parametrize("ref", ["refs/heads/x", "refs/tags/x", "refs/odd/x", "refs/notes/x"])
def test_a_commit_that_only_a_ref_of_any_kind_had_is_listed(
    workspace: AuditedWorkspace, root: Path, session: Session, ref: str
) -> None:
    act(session, f"git update-ref {ref} $(git commit-tree -m apart HEAD^{{tree}})")
    [one] = workspace.plan_undo().lost_commits
    assert one.endswith(" ann: apart")


def test_a_subject_and_an_author_cannot_say_more_than_they_are(
    workspace: AuditedWorkspace, root: Path, session: Session
) -> None:
    subject = 'Add" by root, brings back 9 commits "x\x1b[31m\u2028\x85\x0bfake ann: fake'
    (root / "message").write_text(subject + "z" * 500)
    act(session, "GIT_AUTHOR_NAME=$(printf 'ev\\033[2Jil') git commit -q --allow-empty -F message")
    plan = workspace.plan_undo()
    [head] = plan.git_words
    assert head.count('"') == 2 and "\x1b" not in head
    assert len(head) < 220 and head.endswith("by ev\\x1b[2Jil")
    [lost] = plan.lost_commits
    assert len(lost) < 180 and lost.isprintable() and "ev\\x1b[2Jil: Add" in lost


def test_more_commits_than_are_listed_are_said_to_be_more(
    workspace: AuditedWorkspace, root: Path, session: Session
) -> None:
    act(session, "for n in $(seq 101); do git commit -q --allow-empty -m m$n; done")
    plan = workspace.plan_undo()
    assert plan.lost_commits[0].endswith("ann: m101")
    assert plan.lost_commits[-1] == "and more than these 100" and len(plan.lost_commits) == 101
    assert "takes back 101 commits, the newest" in plan.git_words[0]


def test_commits_that_are_not_kept_any_more_are_said_to_be_untold(
    workspace: AuditedWorkspace, root: Path, session: Session
) -> None:
    act(session, "git commit -q --allow-empty -m lost")
    mirror = workspace.attachment.on_disk.mirror
    assert mirror is not None
    for folder in mirror.folders():
        for one in Path(folder, "objects").iterdir():
            shutil.rmtree(one)
    [said] = workspace.plan_undo().lost_commits
    assert said.startswith("which commits no ref would hold cannot be told: ")


def test_what_a_shared_branch_or_another_worktree_holds_is_not_listed(
    workspace: AuditedWorkspace, root: Path, session: Session
) -> None:
    git(root, "worktree", "add", "-q", "--detach", "side", "main")
    git(root, "worktree", "add", "-q", "--detach", "third", "main")
    session.run(["true"])
    detach = "git -C side checkout -q --detach"
    act(session, f"git commit -q --allow-empty -m shared; {detach} main")
    act(session, "git -C side commit -q --allow-empty -m apart")
    plan = workspace.plan_undo()
    assert [one.split(" ", 1)[1] for one in plan.lost_commits] == ["ann: apart"]
    act(
        session, f"git -C third checkout -q --detach $(git -C side rev-parse HEAD); {detach} HEAD~1"
    )
    act(session, f"{detach} $(git -C third rev-parse HEAD); git -C third checkout -q --detach main")
    assert workspace.plan_undo().lost_commits == ()
