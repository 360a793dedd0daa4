"""An undo of `rm -rf .git`, killed at each step: the repository is gone, or it is back, never half.

The git that is first on PATH counts how often it is asked, and kills who asked at a given time.
"""

import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from loom_audit import open_store
from loom_audit.api.upkeep.git_mirror import write_kept_git
from loom_audit.errors import Conflict
from loom_audit.history.record.git import restoring
from loom_audit.model.scope import TEMPORARY
from loom_audit.sandbox.git.builder import ProgramGitBuilding
from tests.crash.test_git_restores import killing_git, root, run, undo_until
from tests.crash.test_leftover_temporaries import killed
from tests.history.undo.test_git_taken_back import as_git_says, broken, differences

__all__ = ["root"]

STEPS = [*range(0, 28, 5), *(pytest.param(n, marks=pytest.mark.deep) for n in range(28) if n % 5)]


def left_over(root: Path) -> list[str]:
    """The temporary names in the workspace."""
    return [one.name for one in root.rglob("*") if "loom-audit" in one.name]


@pytest.mark.few(2)
@pytest.mark.parametrize("at", STEPS)
@pytest.mark.parametrize("way", ["--continue", "--abandon"])
@pytest.mark.parametrize("is_made", [False, True], ids=["before", "after"])
def test_a_killed_undo_of_a_removed_repository_is_continued_or_abandoned(
    root: Path, tmp_path: Path, at: int, way: str, is_made: bool
) -> None:
    assert run(root, "init").returncode == 0
    before, was_broken = as_git_says(root), broken(root)
    ran = run(root, "run", "--", "sh", "-c", "rm -rf .git; echo more > more").stderr
    killing = killing_git(tmp_path, at, is_made=is_made)
    done = run(root, "undo", "--yes", path=killing)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    if (root / ".git").exists():
        assert as_git_says(root)["refs"] == before["refs"]
        assert broken(root) == was_broken
    recovered = run(root, "recover", way)
    assert recovered.returncode in (0, 7), recovered.stderr
    assert not left_over(root)
    nothing = b"nothing to recover" in recovered.stdout + recovered.stderr
    if way == "--continue" and recovered.returncode == 0 and not nothing:
        assert not differences(before, as_git_says(root))
    undo_until(root, before, ran)
    assert not differences(before, as_git_says(root))
    assert broken(root) == was_broken
    assert not left_over(root)
    assert run(root, "verify").returncode == 0


BEFORE: dict[str, tuple[Any, str]] = {
    "the intention": (restoring, "GitIntended"),
    "filling": (ProgramGitBuilding, "fill"),
    "the rename": (ProgramGitBuilding, "finish"),
    "the record of it": (restoring, "collect_restored"),
}


@pytest.mark.few(2)
@pytest.mark.parametrize("where", BEFORE)
@pytest.mark.parametrize("place", ["absent", "an empty folder"])
def test_nothing_stays_under_a_temporary_name_wherever_it_is_killed(
    root: Path, where: str, place: str
) -> None:
    assert run(root, "init").returncode == 0
    before = as_git_says(root)
    removed = "rm -rf .git" if place == "absent" else "rm -rf .git; mkdir .git"
    run(root, "run", "--", "sh", "-c", removed)

    def undo() -> None:
        with open_store() as store:
            workspace = store.workspace(root)
            workspace.carry_out(workspace.plan_undo())

    assert killed(undo, BEFORE[where], 1)
    assert run(root, "recover").returncode in (0, 5)
    assert not left_over(root)
    assert run(root, "recover", "--continue").returncode in (0, 7)
    if differences(before, as_git_says(root)):
        assert run(root, "undo", "--yes").returncode == 0
    assert not differences(before, as_git_says(root))
    assert not left_over(root)
    assert run(root, "verify").returncode == 0


def test_a_killed_writing_of_a_kept_repository_says_what_it_left(
    root: Path, tmp_path: Path
) -> None:
    assert run(root, "init").returncode == 0
    run(root, "run", "--", "true")
    beside = tmp_path / "beside"

    def write() -> None:
        with open_store() as store:
            workspace = store.workspace(root)
            write_kept_git(workspace, workspace.log.head(), "", beside)

    assert killed(write, BEFORE["the rename"], 1)
    [left] = beside.iterdir()
    with pytest.raises(Conflict) as refused:
        write()
    assert left.name.startswith(TEMPORARY) and f"Delete {TEMPORARY}" in refused.value.hint
    shutil.rmtree(left)
    write()
    assert (beside / ".git" / "HEAD").exists()
    assert not left_over(beside)
