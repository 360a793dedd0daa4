"""A plan says that git cannot come back, before it begins: what is not kept, and who needs it."""

from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, AuditStore, Session
from loom_audit.errors import Conflict
from loom_audit.model.plans.request import PlanRequest
from tests.history.undo.test_git_taken_back import act, as_git_says, differences, root
from tests.places.git_person import git

__all__ = ["root"]

NOWHERE = "1" * 40
BROKEN = f"git update-index --add --cacheinfo 100644,{NOWHERE},nope"


def is_blocked_and_the_files_come(workspace: AuditedWorkspace, *said: str) -> None:
    """The plan for an undo names what is not kept, does nothing, and `--no-git` brings files."""
    root = Path(workspace.root)
    plan = workspace.plan_undo()
    [note] = plan.blocked
    assert not [one for one in (*said, "--no-git") if one not in note.reason], note.reason
    events = workspace.log.head()
    with pytest.raises(Conflict):
        workspace.carry_out(plan)
    assert [one.kind for one in workspace.timeline.events()][events:] == []
    workspace.carry_out(workspace.plan(PlanRequest("undo", no_git=True)))
    assert (root / "f0").read_text() == "2\n"


@pytest.mark.parametrize("removed", [True, False])
def test_an_entry_of_the_index_that_names_nothing(
    workspace: AuditedWorkspace, root: Path, session: Session, removed: bool
) -> None:
    act(session, BROKEN)
    act(session, "rm -rf .git f0" if removed else "git reset -q; rm f0")
    is_blocked_and_the_files_come(workspace, NOWHERE, "nope in the index")


@pytest.mark.parametrize("removed", [True, False])
def test_a_branch_that_names_a_blob(
    workspace: AuditedWorkspace, root: Path, session: Session, removed: bool
) -> None:
    act(session, "git rev-parse HEAD:f0 > .git/refs/heads/odd")
    act(session, "rm -rf .git f0" if removed else "rm .git/refs/heads/odd f0")
    is_blocked_and_the_files_come(workspace, "refs/heads/odd names a blob")


@pytest.mark.parametrize("kind", ["--shared", "--filter=blob:none"])
def test_a_clone_whose_objects_are_elsewhere(
    store: AuditStore, root: Path, tmp_path: Path, kind: str
) -> None:
    git(root, "config", "uploadpack.allowFilter", "true")
    here = str(root) if kind == "--shared" else f"file://{root}"
    git(tmp_path, "clone", "-q", kind, here, "clone")
    clone = tmp_path / "clone"
    workspace = store.attach(clone)
    with workspace.session("tester") as session:
        act(session, "git commit -q --allow-empty -m x; git branch y")
        before = as_git_says(clone)
        act(session, "git branch -D y; git reset -q --hard HEAD~1")
        workspace.carry_out(workspace.plan_undo())  # the repository itself has all it needs
        assert not differences(before, as_git_says(clone))
        act(session, "rm -rf .git f0")
        is_blocked_and_the_files_come(workspace, "would come back not kept whole")


def test_objects_that_git_does_not_take_back_are_told_where_they_are_needed(
    workspace: AuditedWorkspace, root: Path, session: Session
) -> None:
    (root / ".gitmodules").write_text('[submodule "x"]\n\tpath = x\n\turl = -u./x\n')
    act(session, "git add .gitmodules; git commit -qm modules; git branch y")
    before = as_git_says(root)
    undone = "git branch -D y; git reset -q --hard HEAD~1; rm f0"
    act(session, undone)
    workspace.carry_out(workspace.plan_undo())  # the repository has them
    assert not differences(before, as_git_says(root))
    act(session, undone)
    git(root, "reflog", "expire", "--expire=now", "--all")
    git(root, "gc", "-q", "--prune=now")
    is_blocked_and_the_files_come(workspace, "does not take", "gitmodules")


def test_objects_that_were_kept_and_are_gone_from_the_repository_do_not_block(
    workspace: AuditedWorkspace, root: Path, session: Session
) -> None:
    act(session, "git commit -q --allow-empty -m x; git branch y")
    before = as_git_says(root)
    act(session, "git branch -D y; git reset -q --hard HEAD~1")
    git(root, "reflog", "expire", "--expire=now", "--all")
    git(root, "gc", "-q", "--prune=now")
    plan = workspace.plan_undo()
    assert not plan.blocked
    workspace.carry_out(plan)
    assert not differences(before, as_git_says(root))
