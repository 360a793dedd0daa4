"""An undo of what was done to git where nobody may write: a clear error, and nothing is changed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.test_git_restores import root, run
from tests.history.undo.test_git_brought_back import left_over
from tests.history.undo.test_git_taken_back import as_git_says, differences
from tests.places.git_person import git

__all__ = ["root"]

WITHOUT_RIGHTS = ("setpriv", "--bounding-set", "-dac_override,-dac_read_search")
"""Lets root be refused as anybody is."""


def refused(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A command of ours by who may not write where a mode forbids it."""
    lowered: tuple[str, ...] = ()
    if os.geteuid() == 0:
        if not shutil.which("setpriv"):
            pytest.skip("root is refused nothing without setpriv")
        lowered = WITHOUT_RIGHTS
    command = [*lowered, sys.executable, "-m", "loom_audit", *words]
    return subprocess.run(command, cwd=root, capture_output=True, text=True)


@pytest.mark.few(1)
@pytest.mark.parametrize("where", ["", ".git", ".git/refs/heads"])
def test_a_folder_in_which_nobody_may_write(root: Path, where: str) -> None:
    assert run(root, "init").returncode == 0
    before = as_git_says(root)
    done = "echo a > f0; git commit -qam agent; git branch b" if where else "rm -rf .git f0"
    assert run(root, "run", "--", "sh", "-c", done).returncode == 0
    after, folder = as_git_says(root), root / where
    mode = folder.stat().st_mode
    folder.chmod(0o555)
    found = refused(root, "undo", "--yes")
    assert found.returncode not in (0, 7)
    assert "Permission denied" in found.stderr and "chmod u+w" in found.stderr
    folder.chmod(mode)
    assert not differences(after, as_git_says(root))
    assert not left_over(root)
    assert not (root / ".git" / "index.lock").exists()
    assert refused(root, "undo", "--yes").returncode == 0
    assert not differences(before, as_git_says(root))


def test_one_in_a_folder_that_the_call_closed_comes_back_once_that_is_open(root: Path) -> None:
    inner = root / "lib"
    inner.mkdir()
    git(inner, "init", "-q", "-b", "main")
    git(inner, "commit", "-q", "--allow-empty", "-m", "inner")
    assert run(root, "init").returncode == 0
    before, mode = as_git_says(inner), inner.stat().st_mode
    run(root, "run", "--", "sh", "-c", "rm -rf lib/.git; chmod 555 lib")
    found = refused(root, "undo", "--yes")
    assert found.returncode == 0, found.stderr
    assert not differences(before, as_git_says(inner))
    assert inner.stat().st_mode == mode
