"""An undo of `rm -rf .git`, killed at each step: the repository is gone, or it is back, never half.

The git that is first on PATH counts how often it is asked, and kills who asked at a given time.
"""

import signal
from pathlib import Path

import pytest

from tests.crash.test_git_restores import killing_git, root, run, undo_until
from tests.history.undo.test_git_taken_back import as_git_says, broken, differences

__all__ = ["root"]

STEPS = [*range(0, 28, 5), *(pytest.param(n, marks=pytest.mark.deep) for n in range(28) if n % 5)]


def left_over(root: Path) -> list[str]:
    """The temporary names in the workspace."""
    return [one.name for one in root.rglob("*") if "loom-audit" in one.name]


@pytest.mark.few(6)
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
