"""What a person did with HEAD, its branch or the index since goes with it: the plan is blocked."""

import subprocess
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, Session
from loom_audit.errors import Conflict
from tests.history.undo.test_git_taken_back import act, as_git_says, root

__all__ = ["root"]

COMMIT = "echo agent > f0; git commit -qam agent"
EMPTY = "git commit -q --allow-empty -m agent"
EDITED = "GIT_SEQUENCE_EDITOR='sed -i s/pick/edit/' git rebase -q -i HEAD~1"
SINCE = {
    "a commit of what an agent staged": ("echo made > made; git add made", "git commit -qm mine"),
    "another branch": (COMMIT, "git checkout -q -b mine"),
    "no branch": (COMMIT, "git checkout -q --detach"),
    "another branch and nothing staged": (EMPTY, "git checkout -q -b mine"),
    "a staged file": (EMPTY, "echo mine > mine; git add mine"),
    "a rebase": (EMPTY, EDITED),
    "a bisect": (EMPTY, "git bisect start -q; git bisect bad"),
    "a branch that an agent moved": ("git branch -f feat HEAD", "git checkout -q feat"),
}


@pytest.mark.parametrize("name", SINCE)
def test_what_a_person_did_since_with_what_goes_with_it_blocks_all_of_it(
    workspace: AuditedWorkspace, root: Path, session: Session, name: str
) -> None:
    by_agent, by_person = SINCE[name]
    act(session, by_agent)
    subprocess.run(["sh", "-c", by_person], cwd=root, check=True)
    before = as_git_says(root)
    with pytest.raises(Conflict, match="was changed since"):
        workspace.carry_out(workspace.plan_undo())
    assert as_git_says(root) == before


@pytest.mark.parametrize(
    ("by_agent", "by_person"),
    [
        (EMPTY, "git tag mine; git branch other; git status; git stash list; git gc -q"),
        ("git tag made", "git commit -q --allow-empty -m mine"),
        ("git reset -q", "git commit -q --allow-empty -m mine"),
        (EMPTY, "git checkout -q feat; git checkout -q main"),
    ],
)
def test_what_a_person_did_with_other_things_keeps_nothing_back(
    workspace: AuditedWorkspace, root: Path, session: Session, by_agent: str, by_person: str
) -> None:
    (root / "f0").write_text("work\n")
    act(session, "git update-ref ORIG_HEAD HEAD~1; echo other > other")
    before = as_git_says(root)
    act(session, f"{by_agent}; echo file > file")
    subprocess.run(["sh", "-c", by_person], cwd=root, check=True, capture_output=True)
    plan = workspace.plan_undo()
    assert not plan.blocked
    workspace.carry_out(plan)
    assert not (root / "file").exists()
    if by_agent == EMPTY:
        assert as_git_says(root)["head"] == before["head"]


@pytest.mark.parametrize(
    ("by_person", "by_agent"),
    [
        ("git commit -q --allow-empty -m mine", EMPTY),
        ("git checkout -q -b mine", EMPTY),
        ("echo mine > mine; git add mine", "git rm -qf --cached mine"),
    ],
)
def test_a_rollback_over_what_a_person_did_between_two_calls_is_blocked(
    workspace: AuditedWorkspace, root: Path, session: Session, by_person: str, by_agent: str
) -> None:
    session.run(["true"])
    point = workspace.log.head()
    act(session, COMMIT)
    subprocess.run(["sh", "-c", by_person], cwd=root, check=True)
    session.run(["true"])
    act(session, by_agent)
    before = as_git_says(root)
    plan = workspace.plan_rollback(point)
    assert any("was changed since" in one.reason for one in plan.blocked)
    assert as_git_says(root) == before
    assert not workspace.plan_rollback(point, outside=True).blocked
