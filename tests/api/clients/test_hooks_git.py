"""What a client's call did to git in a folder below is on record when its hooks are told."""

import subprocess
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace
from loom_audit.model.coverage import FULL
from loom_audit.model.git.record import NOT_TAKEN_BACK
from loom_audit.model.git.words import words_of
from tests.api.clients.test_hooks import claude as claude
from tests.api.clients.test_hooks import root as root
from tests.api.clients.test_hooks import workspace as workspace
from tests.history.look.test_git_tape import TAPES, play
from tests.places.git_person import as_ann
from tests.processes.clients import client as client
from tests.processes.hooked import HookedClaude

GIT = ("git", "-c", "user.name=ann", "-c", "user.email=ann@example.org")


def git(folder: Path, *words: str) -> None:
    subprocess.run([*GIT, *words], cwd=folder, check=True, capture_output=True)


def test_a_client_s_command_in_a_nested_repository_is_on_record_in_git_s_words(
    claude: HookedClaude, workspace: AuditedWorkspace, root: Path
) -> None:
    lib = root / "vendor/lib"
    lib.mkdir(parents=True)
    git(lib, "init", "-q", "-b", "main")
    git(lib, "commit", "-q", "--allow-empty", "-m", "first")
    git(lib, "branch", "feat")
    (lib / "a").write_text("staged\n")
    git(lib, "add", "a")
    git(lib, "stash", "-q")
    claude.hook("SessionStart", source="startup")
    for id, words, said in (
        ("c1", ("branch", "-D", "feat"), "vendor/lib: branch feat deleted (was "),
        ("c2", ("stash", "drop"), 'vendor/lib: stash dropped: "WIP on main: '),
        ("c3", ("commit", "--allow-empty", "-m", "more"), "vendor/lib: HEAD main "),
    ):
        claude.bash(id, "git", partial(git, lib, *words))
        newest, *_ = workspace.timeline.calls()
        told = words_of(workspace.timeline.call(newest.requested).git)
        assert any(one.startswith(said) for one in told), told
        assert newest.coverage == FULL
    claude.hook("SessionEnd", reason="exit")


def test_a_hook_in_a_folder_of_the_workspace_is_marked_that_a_client_writes(
    claude: HookedClaude, workspace: AuditedWorkspace, root: Path
) -> None:
    git(root, "init", "-q", "-b", "main")
    git(root, "config", "core.hooksPath", ".hooks")
    (root / ".hooks").mkdir()
    claude.hook("SessionStart", source="startup")
    claude.writes("c1", root / ".hooks/pre-push", "true\n")
    newest, *_ = workspace.timeline.calls()
    [found] = workspace.timeline.call(newest.requested).git
    assert found.led_to == (".hooks/pre-push",) and not found.is_of_git
    assert not any(NOT_TAKEN_BACK in reason for reason in newest.coverage.reasons)
    claude.hook("SessionEnd", reason="exit")


@TAPES
@pytest.mark.timeout(3600)
def test_after_each_step_of_a_client_the_record_is_what_git_says(
    claude: HookedClaude,
    workspace: AuditedWorkspace,
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    steps: int,
) -> None:
    as_ann(monkeypatch)
    monkeypatch.setenv("GIT_EDITOR", "true")
    claude.hook("SessionStart", source="startup")
    ids = (f"c{n}" for n in count())

    def act(command: str) -> None:
        words = ["sh", "-c", command]
        does = partial(subprocess.run, words, cwd=root, capture_output=True)
        claude.bash(next(ids), command, does)

    play(workspace, root, seed, steps, act)
    claude.hook("SessionEnd", reason="exit")
