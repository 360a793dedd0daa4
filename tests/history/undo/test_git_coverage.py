"""The coverage of a call that changed git: full where all of that can be taken back."""

from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, AuditStore, Session
from loom_audit.model.coverage import FULL, Coverage
from loom_audit.model.git.record import CHANGED_GIT
from tests.history.undo.test_git_taken_back import act, root
from tests.places.git_person import git

__all__ = ["root"]

NOT = "not taken back of git"
ENTRIES = f"{NOT}: entries that went from reflogs"
ODD = f"{NOT}: what names another ref, or is broken"


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("git commit -q --allow-empty -m more", ""),
        ("git reset -q --hard HEAD~1", ""),
        ("git branch -D feat", ""),
        ("git branch -m feat renamed", ""),
        ("git checkout -q feat; git tag t; git gc -q", ""),
        ("echo x > f0; git stash -q; git stash drop -q", ""),
        ("git config user.tape x; echo true > .git/hooks/post-commit", ""),
        ("git reflog expire --expire=now --all", ENTRIES),
        ("git commit -q --allow-empty -m more; git reflog delete HEAD@{1}", ENTRIES),
        ("git branch -D feat; git branch feat main", ENTRIES),
        ("git symbolic-ref refs/heads/alias refs/heads/main", ODD),
        ("echo rubbish > .git/refs/heads/rubbish", ODD),
        ("git push -q origin main", f"{NOT}: remote branch origin/main"),
        ("git fetch -q --depth=1 origin main", f"{NOT}: remote branch origin/main, shallow"),
        ("git worktree add -q ../beside feat", f"{NOT}: worktree "),
        ("git init -q new", f"{NOT} in new/.git: a repository that came"),
    ],
)
def test_the_coverage_of_a_call_says_what_of_git_cannot_be_taken_back(
    workspace: AuditedWorkspace,
    root: Path,
    session: Session,
    tmp_path: Path,
    command: str,
    reason: str,
) -> None:
    git(tmp_path, "clone", "-q", "--bare", str(root), "remote")
    git(root, "remote", "add", "origin", f"file://{tmp_path}/remote")
    act(session, "true")
    act(session, command)
    newest, *_ = workspace.timeline.calls()
    assert workspace.timeline.git_of([newest])
    own = [one for one in newest.coverage.reasons if one.startswith(NOT)]
    assert len(own) == bool(reason) and all(one.startswith(reason) for one in own)
    if not reason:
        assert newest.coverage == FULL


def test_what_an_undo_did_to_git_is_covered_in_full_too(
    workspace: AuditedWorkspace, root: Path, session: Session
) -> None:
    act(session, "echo more > more; git add -A; git commit -qm more; git branch -D feat")
    undone = workspace.carry_out(workspace.plan_undo()).call
    redone = workspace.carry_out(workspace.plan_redo()).call
    assert (undone.coverage, redone.coverage) == (FULL, FULL)


def test_a_call_that_changed_only_git_is_found_also_where_its_coverage_is_full(
    workspace: AuditedWorkspace, root: Path, session: Session
) -> None:
    point = workspace.log.head()
    act(session, "git branch -D feat")
    act(session, "true")
    (deleted,) = [one for one in workspace.timeline.calls() if workspace.timeline.git_of([one])]
    assert deleted.coverage == FULL
    assert workspace.plan_undo().calls == (deleted.seq,)
    assert workspace.plan_rollback(point).reverts == (deleted.seq,)
    [note] = [one for one in workspace.plan_rollback(point, no_git=True).irreversible if one.calls]
    assert note.reason.startswith(f"call {deleted.seq} changed git, which stays: branch feat")


def test_what_no_undo_takes_back_of_git_is_not_said_to_be_uncaptured(
    workspace: AuditedWorkspace, root: Path, session: Session
) -> None:
    act(session, "git commit -q --allow-empty -m more; git reflog expire --expire=now --all")
    plan = workspace.plan_undo()
    assert plan.git and not [one for one in plan.irreversible if "not captured" in one.reason]


@pytest.mark.parametrize("reason", sorted(CHANGED_GIT))
def test_a_call_of_an_earlier_record_is_found_as_before(
    store: AuditStore,
    workspace: AuditedWorkspace,
    root: Path,
    session: Session,
    monkeypatch: pytest.MonkeyPatch,
    reason: str,
) -> None:
    with monkeypatch.context() as earlier:
        earlier.setattr("loom_audit.history.record.looks.why_not_back", lambda *_: (reason,))
        act(session, "git branch -D feat")
    newest, *_ = workspace.timeline.calls()
    assert newest.coverage == Coverage("partial", (reason,))
    plan = workspace.plan_undo()
    assert (plan.calls, plan.irreversible) == ((newest.seq,), ())
    workspace.carry_out(plan)
    assert "feat" in git(root, "branch")
    assert workspace.verify().findings == ()
