"""A linked worktree that a call removed comes back: its entry, its `.git` and its files."""

import subprocess
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, AuditStore
from loom_audit.errors import Conflict
from loom_audit.model.plans.git_things import NO_WORKTREE
from loom_audit.model.plans.request import PlanRequest
from tests.history.undo.test_git_taken_back import act, as_git_says, broken, differences, root
from tests.places.git_person import git

__all__ = ["root"]

REMOVED = {
    "removed": "git worktree remove --force linked",
    "deleted": "rm -rf linked",
    "unnamed": "rm linked/.git",
    "pruned": "rm -rf linked; git worktree prune",
    "with its branch": "git worktree remove --force linked; git branch -D feat; rm -rf .git/logs/*;"
    "git gc -q --prune=now",
    "and another": "git worktree remove --force linked; mkdir -p other; git worktree add -q"
    " --detach other/linked; git worktree remove other/linked",
}
STATES = {
    "plain": "true",
    "work": "echo work > f0; echo staged > staged; git add staged; echo new > new; git add -N new",
    "detached": "git checkout -q --detach; git commit -q --allow-empty -m alone",
    "merging": "echo s > f0; git commit -qam side; git merge main; true",
    "bisecting": "git bisect start; git bisect bad; git bisect good HEAD~1",
}


def linked_as_git_says(root: Path) -> dict[str, object]:
    """All that git says of the linked worktree, and of its repository about it."""
    linked = root / "linked"
    told = as_git_says(linked)
    entry = Path(git(linked, "rev-parse", "--git-dir").strip())
    told["begun"] = [one for one in ("MERGE_HEAD", "BISECT_LOG") if (entry / one).exists()]
    told["log"] = git(linked, "reflog", "show", "--date=raw", "HEAD")
    told["own"] = git(linked, "for-each-ref", "refs/bisect")
    told["listed"] = git(root, "worktree", "list", "--porcelain")
    return told


def begun(root: Path, state: str = "plain") -> dict[str, object]:
    """A linked worktree in a state, and what git says of it."""
    git(root, "worktree", "add", "-q", "linked", "feat")
    done = ["sh", "-c", STATES[state]]
    subprocess.run(done, cwd=root / "linked", check=True, capture_output=True)
    return linked_as_git_says(root)


@pytest.mark.few(6)
@pytest.mark.parametrize(
    ("how", "state"),
    [*((one, "work") for one in REMOVED), *(("removed", one) for one in STATES)],
)
def test_a_linked_worktree_comes_back_as_git_says(
    store: AuditStore, root: Path, how: str, state: str
) -> None:
    before = begun(root, state)
    workspace = store.attach(root)
    main, was_broken = as_git_says(root), broken(root)
    with workspace.session("tester") as session:
        act(session, REMOVED[how])
        plan = workspace.plan_undo()
        assert not plan.blocked
        assert any("linked worktree comes back: HEAD " in one for one in plan.git_words)
        assert not [one for one in plan.irreversible if NO_WORKTREE in one.reason]
        workspace.carry_out(plan)
    assert not differences(before, linked_as_git_says(root))
    assert not differences(main, as_git_says(root))
    assert {*broken(root).splitlines()} <= {*was_broken.splitlines()}
    assert not [one for one in root.rglob("*") if "loom-audit" in one.name]
    assert workspace.verify().findings == ()
    assert not workspace.plan_rollback(workspace.log.head()).drifted
    newest, *_ = workspace.timeline.calls()
    told = workspace.timeline.git_of([newest])[newest.requested]
    assert {"linked"} <= {one.folder for one in told}
    outside = [one for one in workspace.timeline.outside() if one.seq > newest.requested]
    assert not outside


@pytest.fixture
def removed(store: AuditStore, root: Path) -> AuditedWorkspace:
    """A workspace in which a call removed a linked worktree of the branch `feat`."""
    begun(root)
    workspace = store.attach(root)
    with workspace.session("tester") as session:
        act(session, "git worktree remove --force linked")
    return workspace


@pytest.mark.parametrize(
    ("by_person", "said"),
    [
        (
            "git update-ref refs/heads/feat main",
            "refs/heads/feat, which goes with HEAD, was changed",
        ),
        ("git checkout -q feat", "refs/heads/feat is checked out in another worktree"),
        ("git worktree add -q beside feat", "refs/heads/feat is checked out in another worktree"),
    ],
)
def test_a_branch_that_a_person_moved_or_took_blocks_it(
    removed: AuditedWorkspace, root: Path, by_person: str, said: str
) -> None:
    subprocess.run(["sh", "-c", by_person], cwd=root, check=True)
    with pytest.raises(Conflict, match=said):
        removed.carry_out(removed.plan_undo())
    assert not (root / "linked").exists()
    removed.carry_out(removed.plan(PlanRequest("undo", no_git=True)))
    assert (root / "linked" / "f0").exists() and not (root / "linked" / ".git").exists()


def test_an_entry_that_is_not_as_it_was_is_not_named_again(store: AuditStore, root: Path) -> None:
    begun(root)
    workspace = store.attach(root)
    with workspace.session("tester") as session:
        act(session, "rm -rf linked")
        (root / ".git" / "worktrees" / "linked" / "HEAD").write_text("ref: refs/heads/main\n")
        with pytest.raises(Conflict, match="is not as it was: HEAD"):
            workspace.carry_out(workspace.plan_undo())
    assert not (root / "linked" / ".git").exists()


def test_a_name_that_another_worktree_has_by_now_is_left_to_it(
    removed: AuditedWorkspace, root: Path
) -> None:
    (root / "other").mkdir()
    git(root, "worktree", "add", "-q", "--detach", "other/linked")
    removed.carry_out(removed.plan_undo())
    assert git(root / "linked", "rev-parse", "--git-dir").strip().endswith("worktrees/linked1")
    assert git(root / "linked", "status", "--porcelain") == ""
    assert git(root / "other" / "linked", "status", "--porcelain") == ""
    assert broken(root) == ""


def test_what_a_worktree_s_own_settings_said_does_not_come_back(
    store: AuditStore, root: Path
) -> None:
    git(root, "config", "extensions.worktreeConfig", "true")
    begun(root)
    git(root / "linked", "config", "--worktree", "core.fsmonitor", f"touch {root}/ran; false")
    workspace = store.attach(root)
    with workspace.session("tester") as session:
        act(session, "rm -rf linked/* .git/worktrees linked")
        workspace.carry_out(workspace.plan_undo())
    git(root / "linked", "status")
    assert not (root / "ran").exists()


def test_one_whose_files_were_not_under_audit_is_said_to_stay_gone(
    store: AuditStore, root: Path, tmp_path: Path
) -> None:
    git(root, "worktree", "add", "-q", str(tmp_path / "beside"), "feat")
    workspace = store.attach(root)
    with workspace.session("tester") as session:
        act(session, "git worktree remove --force ../beside; git branch -D feat")
        newest, *_ = workspace.timeline.calls()
        assert any("worktree /" in one for one in newest.coverage.reasons)
        plan = workspace.plan_undo()
        [note] = [one for one in plan.irreversible if NO_WORKTREE in one.reason]
        assert f"worktree {tmp_path}/beside" in note.reason
        workspace.carry_out(plan)
    assert "feat" in git(root, "branch") and not (tmp_path / "beside").exists()


def test_an_undo_of_it_is_redone_but_for_the_entry(removed: AuditedWorkspace, root: Path) -> None:
    removed.carry_out(removed.plan_undo())
    plan = removed.plan_redo()
    assert any("is not removed again" in one.reason for one in plan.irreversible)
    removed.carry_out(plan)
    assert not (root / "linked" / "f0").exists()
    assert broken(root) == ""
