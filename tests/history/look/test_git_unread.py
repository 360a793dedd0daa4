"""Where git cannot be read each call says so, and what is found afterwards is no call's alone."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from loom_audit import AuditedWorkspace, Session
from loom_audit.history.look.doers import UNKNOWN
from loom_audit.model.git.words import git_words
from tests.history.look.test_git_nested import facts, repository
from tests.places.git_person import as_ann


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace that is a repository."""
    as_ann(monkeypatch)
    root = tmp_path / "workspace"
    repository(root)
    return root


@pytest.fixture
def refusing(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A path: while a file is there the git that looks find cannot read any repository."""
    there, real = root / "refusing", shutil.which("git")
    (tmp_path / "bin").mkdir()
    made = tmp_path / "bin/git"
    made.write_text(f'#!/bin/sh\n[ -e {there} ] && exit 7\nexec {real} "$@"\n')
    made.chmod(0o755)
    monkeypatch.setenv("PATH", f"{made.parent}:{os.environ['PATH']}")
    return there


@contextmanager
def running(workspace: AuditedWorkspace) -> Iterator[Callable[[str], None]]:
    """A session that runs commands, each of which succeeds."""
    with workspace.session("tester") as session:

        def run(command: str) -> None:
            result = anyio.run(session.call, "shell_execute", {"command": command})
            assert result.success, result.error

        yield run


def git_reasons(workspace: AuditedWorkspace) -> list[list[str]]:
    """What each call says of git that was not read, the newest first."""
    calls = workspace.timeline.calls()
    return [
        [one for one in call.coverage.reasons if one.startswith("git cannot")] for call in calls
    ]


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (
            "echo gitdir: away >.git",
            "git cannot be told: .git is a file that names a folder elsewhere",
        ),
        (
            "ln -s away .git",
            "git cannot be told: .git is a symbolic link, which is not read through",
        ),
    ],
)
def test_each_call_says_that_a_git_folder_elsewhere_is_not_read(
    workspace: AuditedWorkspace, root: Path, made: str, why: str
) -> None:
    (root / ".git").rename(root / "away")
    with running(workspace) as run:
        run(made)
        for _ in range(2):
            run("true")
        run("rm .git && mv away .git && git branch topic")
        newest, *_ = workspace.timeline.calls()
        [fact] = facts(workspace)
        since = sorted(one.requested for one in workspace.timeline.calls())
        assert (fact.call_id, fact.causes) == (newest.call_id, (UNKNOWN, *since))
    for reasons in git_reasons(workspace)[1:]:
        assert len(reasons) == 1 and reasons[0].startswith(why)
    assert workspace.verify().findings == ()


def test_what_changed_while_git_could_not_be_read_is_found_in_the_end(
    workspace: AuditedWorkspace, refusing: Path
) -> None:
    with running(workspace) as run:
        run("true")
        run(f"git branch topic; touch {refusing.name}")
        run("true")
        refusing.unlink()
        run("true")
        why = "git cannot be told: git cannot read the repository (exit 7)"
        assert git_reasons(workspace) == [[why], [why], [why], []]
    _, found = facts(workspace)
    calls = [*workspace.timeline.calls()][:3]
    assert (found.origin, {*found.causes}) == ("outside", {one.requested for one in calls})
    assert any(one.startswith("branch topic ") for one in git_words(found))
    for one in calls:
        assert any(text.startswith("found later: ") for text in one.coverage.reasons)


def test_what_is_found_once_git_is_read_again_is_no_call_s_alone(
    workspace: AuditedWorkspace, refusing: Path
) -> None:
    with running(workspace) as run:
        run("true")
        run(f"git branch topic; touch {refusing.name}")
        run(f"rm {refusing.name}; git branch more")
        run("git branch last")
        _, found, last = facts(workspace)
        newest, before, unread, _ = workspace.timeline.calls()
        causes = (UNKNOWN, unread.requested, before.requested)
        assert (found.call_id, found.causes) == (before.call_id, causes)
        assert any(one.startswith("found later: ") for one in unread.coverage.reasons)
        assert (last.call_id, last.causes) == (newest.call_id, ())


def test_where_git_is_not_read_in_the_end_either_nothing_is_said_twice(
    workspace: AuditedWorkspace, refusing: Path
) -> None:
    with running(workspace) as run:
        run(f"git branch topic; touch {refusing.name}")
        before = git_reasons(workspace)
        assert before == [["git cannot be told: git cannot read the repository (exit 7)"]]
    assert git_reasons(workspace) == before


def test_what_comes_in_place_unread_is_not_alone_of_a_call_that_went_on_meanwhile(
    workspace: AuditedWorkspace, root: Path
) -> None:
    replacing = "mv .git away && git init -q && echo junk > .git/HEAD"
    mending = "while [ ! -e mend ]; do sleep 0.01; done; echo ref: refs/heads/main > .git/HEAD"

    async def beside(session: Session) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(session.call, "shell_execute", {"command": mending})
            while not [*workspace.timeline.calls()]:
                await anyio.sleep(0.01)
            await session.call("shell_execute", {"command": replacing})
            (root / "mend").touch()

    with workspace.session("tester") as session:
        anyio.run(beside, session)
    _, gone, came = facts(workspace)
    assert gone.is_gone and came.is_first
    assert UNKNOWN in came.causes
