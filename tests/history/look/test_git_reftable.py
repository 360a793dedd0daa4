"""Repositories whose refs are in tables, with ids of either length, as git 3.0 makes them."""

import random
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, ToolResult
from loom_audit.api.upkeep.git_mirror import kept_git
from loom_audit.model.git.record import GitChanged
from loom_audit.model.git.words import words_of
from tests.history.look.test_git_nested import facts, repository
from tests.history.look.test_git_tape import check, git, play
from tests.history.look.test_git_tape_elsewhere import STEPS, check_folder, check_objects, states
from tests.places.git_person import as_ann

Call = Callable[..., ToolResult]


@pytest.fixture(params=["sha1", "sha256"])
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Path:
    """An empty folder, in which every repository that git makes has tables."""
    version = re.findall(r"\d+", git(tmp_path, "--version"))
    if [*map(int, version[:2])] < [2, 45]:
        pytest.skip(f"git {'.'.join(version[:2])} has no tables of refs: from 2.45 on")
    as_ann(monkeypatch)
    monkeypatch.setenv("GIT_EDITOR", "true")
    monkeypatch.setenv("GIT_DEFAULT_REF_FORMAT", "reftable")
    monkeypatch.setenv("GIT_DEFAULT_HASH", request.param)
    root = tmp_path / "workspace"
    root.mkdir()
    return root


def newest(workspace: AuditedWorkspace) -> list[GitChanged]:
    """What is on record of the newest call."""
    [call] = workspace.timeline.calls()[:1]
    return [*workspace.timeline.git_of([call]).get(call.requested, [])]


def test_a_branch_that_came_and_went_is_on_record_and_its_commit_is_kept(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    repository(root)
    call("shell_execute", command="true")
    command = "git checkout -q -b x; echo x > x; git add x; git commit -qm x"
    call("shell_execute", command=f"{command}; git checkout -q main; git branch -qD x")
    assert "HEAD moved and came back, as its reflog tells" in words_of(newest(workspace))
    lost = git(root, "rev-parse", "HEAD@{1}").strip()
    call("shell_execute", command="git reflog expire --expire=now --all; git gc -q --prune=now")
    assert any("reflog of HEAD" in one for one in words_of(newest(workspace)))
    assert git(root, "cat-file", "-t", lost, code=None) == ""
    kept = kept_git(workspace, workspace.log.head())
    assert kept.ask(["cat-file", "-p", f"{lost}:x"]).output == b"x\n"
    check(workspace, root, "at the end")


def test_a_reflog_that_git_does_not_tell_is_not_said_to_be_gone(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    repository(root)
    call("shell_execute", command="true")
    call("shell_execute", command="git switch -q --orphan unborn")
    [newest_call] = workspace.timeline.calls()[:1]
    assert "git does not tell .git/logs/HEAD" in str(newest_call.coverage.reasons)
    told = words_of(newest(workspace))
    assert "HEAD main → unborn" in told and not any("reflog" in one for one in told)
    call("shell_execute", command="git switch -q main")
    assert not any("reflog" in one for one in words_of(newest(workspace)))
    check(workspace, root, "at the end")


def test_after_each_step_of_a_tape_the_record_is_what_git_says(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    play(workspace, root, 27, 20, lambda one: call("shell_execute", command=one))
    check_objects(workspace)
    assert workspace.verify().findings == ()


def test_a_nested_repository_and_a_linked_worktree_are_on_record_as_git_says(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    folders = ["", "inner", "linked"]
    for folder in folders[:2]:
        repository(root / folder)
    git(root, "worktree", "add", "-q", "-b", "side", "linked")
    chance = random.Random(3)
    for n in range(12):
        folder = chance.choice(folders)
        command = chance.choice(STEPS[:44]).format(n=n, m=chance.randrange(3))
        call("shell_execute", command=f"cd {folder or '.'} && {{ {command}; }}; true")
        for one, state in states(workspace).items():
            check_folder(workspace, root / one, state, f"{one} at step {n}: {command}")
    assert {fact.folder for fact in facts(workspace)} == {*folders}
    check_objects(workspace)
    subprocess.run(["git", "-C", "linked", "status"], cwd=root, check=True, capture_output=True)
