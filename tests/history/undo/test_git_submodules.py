"""Submodules whose `.git` or git folder a call removed: named, and the undo is not used up."""

import subprocess
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, AuditStore
from loom_audit.api.upkeep.git_mirror import write_kept_git
from loom_audit.errors import Conflict
from loom_audit.model.git.record import GitChanged
from loom_audit.model.plans.request import PlanRequest
from tests.history.undo.test_git_taken_back import act, as_git_says, differences, root
from tests.places.git_person import git

__all__ = ["root"]


@pytest.fixture
def superproject(store: AuditStore, root: Path, tmp_path: Path) -> AuditedWorkspace:
    library = tmp_path / "library"
    library.mkdir()
    git(library, "init", "-q", "-b", "main")
    git(library, "commit", "-q", "--allow-empty", "-m", "library")
    allowed = ("-c", "protocol.file.allow=always")
    git(root, *allowed, "submodule", "--quiet", "add", str(library), "sub")
    git(root, "commit", "-q", "-m", "sub")
    return store.attach(root)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "done",
    [
        "rm sub/.git",
        "rm -rf .git/modules/sub",
        "rm sub/.git; mkdir sub/.git",
        "echo x > sub/.git",
    ],
)
def test_what_cannot_be_built_blocks_and_is_had_beside(
    superproject: AuditedWorkspace, root: Path, tmp_path: Path, done: str
) -> None:
    with superproject.session("tester") as session:
        act(session, "true")
        commit = git(root / "sub", "rev-parse", "HEAD").strip()
        act(session, done)
        told = [one for one in superproject.timeline.events() if isinstance(one.fact, GitChanged)]
        assert told[-1].fact.folder == "sub" and told[-1].fact.is_gone
        plan = superproject.plan_undo()
        [note] = plan.blocked
        assert "git of sub" in note.reason and "--no-git" in note.reason
        with pytest.raises(Conflict):
            superproject.carry_out(plan)
        assert superproject.plan_undo().calls == plan.calls
        [point] = [int(one) for one in note.reason.split() if one.isdecimal()]
        made, *_ = write_kept_git(superproject, point, "sub", tmp_path / "beside")
        assert git(made.parent, "rev-parse", "HEAD").strip() == commit
        act(session, "true")  # what cannot be read any more is said, and new calls go on


@pytest.mark.parametrize("done", ["rm -rf .git", "rm -rf sub"])
def test_the_rest_comes_back_and_what_stays_gone_is_named(
    superproject: AuditedWorkspace, root: Path, done: str
) -> None:
    before = as_git_says(root)
    with superproject.session("tester") as session:
        act(session, f"{done}; echo more > more")
        plan = superproject.plan_undo()
        assert not plan.blocked
        said = " ".join(one.reason for one in plan.irreversible)
        assert ("repositories of submodules" if done == "rm -rf .git" else "--to DIR") in said
        superproject.carry_out(plan)
    told = {"status", "diff"} if done == "rm -rf .git" else set()
    assert {*differences(before, as_git_says(root))} <= told
    assert not (root / "more").exists()


def test_files_come_back_without_git(superproject: AuditedWorkspace, root: Path) -> None:
    with superproject.session("tester") as session:
        act(session, "rm sub/.git f0")
        superproject.carry_out(superproject.plan(PlanRequest("undo", no_git=True)))
    assert (root / "f0").exists()


@pytest.mark.parametrize("kind", ["submodule", "linked worktree"])
def test_what_comes_back_with_the_repository_that_was_moved_is_not_called_gone(
    superproject: AuditedWorkspace, root: Path, kind: str
) -> None:
    inner = root / ("sub" if kind == "submodule" else "linked")
    if kind != "submodule":
        git(root, "worktree", "add", "-q", "linked")
    with superproject.session("tester") as session:
        act(session, "true")
        before = as_git_says(inner)
        act(session, "mv .git old")
        plan = superproject.plan_undo()
        assert not [one for one in (*plan.blocked, *plan.irreversible) if "git of" in one.reason]
        superproject.carry_out(plan)
        assert not differences(before, as_git_says(inner))


def test_a_linked_worktree_whose_entry_is_gone_blocks(store: AuditStore, root: Path) -> None:
    git(root, "worktree", "add", "-q", "linked")
    workspace = store.attach(root)
    with workspace.session("tester") as session:
        act(session, "true")
        act(session, "rm -rf .git/worktrees/linked")
        plan = workspace.plan_undo()
        assert plan.blocked or plan.git
    done = subprocess.run(["git", "status"], cwd=root / "linked", capture_output=True)
    assert done.returncode != 0
