"""A branch comes back where the log of one is left that cannot be there beside it."""

from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, Session
from loom_audit.errors import Conflict
from loom_audit.history.look.git.changes import look_at_git
from tests.history.look.test_git_nested import facts
from tests.history.undo.test_git_coverage import ENTRIES
from tests.history.undo.test_git_taken_back import act, as_git_says, differences, root
from tests.places.git_person import git

__all__ = ["root"]

LOGS = ".git/logs/refs/heads"
WAYS = {
    "above": ("feat/inner", f"rm -rf {LOGS}/feat; cp .git/logs/HEAD {LOGS}/feat"),
    "below": ("feat", f"mkdir {LOGS}/feat; cp .git/logs/HEAD {LOGS}/feat/inner"),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_log_that_is_left_without_its_branch_is_no_hindrance(
    workspace: AuditedWorkspace, root: Path, session: Session, way: str
) -> None:
    branch, left = WAYS[way]
    if branch != "feat":
        git(root, "branch", "-m", "feat", branch)
    act(session, "true")
    before = as_git_says(root)
    act(session, f"git branch -qD {branch}; {left}")
    done = workspace.carry_out(workspace.plan_undo())
    assert not differences(before, as_git_says(root))
    assert (root / LOGS / branch).is_file()
    assert done.call.coverage.reasons == (ENTRIES,)
    assert [fact.origin for fact in facts(workspace)[-2:]] == ["command", "undo"]
    assert workspace.verify().findings == ()
    with workspace.attachment.exclusive():
        assert not any(one.change for one in look_at_git(workspace.attachment))


@pytest.mark.parametrize("way", WAYS)
def test_the_log_of_a_branch_that_is_there_stays(
    workspace: AuditedWorkspace, root: Path, session: Session, way: str
) -> None:
    other = {"feat": "feat/inner", "feat/inner": "feat"}
    branch, _ = WAYS[way]
    if branch != "feat":
        git(root, "branch", "-m", "feat", branch)
    act(session, f"git branch -qD {branch}")
    git(root, "branch", other[branch])
    log = (root / LOGS / other[branch]).read_bytes()
    plan = workspace.plan_undo()
    if not plan.blocked:
        with pytest.raises(Conflict, match="moved by somebody else"):
            workspace.carry_out(plan)
    assert (root / LOGS / other[branch]).read_bytes() == log
