"""An undo of hooks and settings of git, killed at each exchange: each is before or after."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.test_git_restores import root, run
from tests.places.git_person import git

__all__ = ["root"]

PROGRAM = Path(__file__).parent / "programs" / "killed_at_settings.py"

CHANGED = (
    "git config user.name evil; echo '*.o' >> .git/info/exclude; echo evil > .git/hooks/mine;"
    "git branch made"
)
PATHS = ("config", "info/exclude", "hooks/mine")


@pytest.mark.few(1)
@pytest.mark.parametrize("way", ["--continue", "--abandon"])
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("at", [0, 1, 2])
def test_each_is_before_or_after_and_recovery_goes_on_or_leaves_them(
    root: Path, at: int, moment: str, way: str
) -> None:
    settings = [root / ".git" / path for path in PATHS]
    settings[-1].write_text("mine\n")
    assert run(root, "init").returncode == 0
    before = [one.read_bytes() for one in settings]
    run(root, "run", "--", "sh", "-c", CHANGED)
    after = [one.read_bytes() for one in settings]
    killed = [sys.executable, str(PROGRAM), str(at), moment, "undo", "--git-config", "--yes"]
    done = subprocess.run(killed, cwd=root, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    now = [one.read_bytes() for one in settings]
    came = sum(one == old for one, old in zip(now, before, strict=True))
    stayed = sum(one == new for one, new in zip(now, after, strict=True))
    assert (came, stayed) == (at + (moment == "after"), 3 - at - (moment == "after"))
    recovered = run(root, "recover", way)
    assert recovered.returncode in (0, 7), recovered.stderr
    found = [one.read_bytes() for one in settings]
    assert found == (before if way == "--continue" else now)
    assert not (root / ".git" / "index.lock").exists()
    assert not (root / ".git" / "loom-audit.unfinished").exists()
    # nothing of git moves before them
    branches = git(root, "branch", "--format=%(refname:short)").split()
    assert ("made" in branches) == (way == "--abandon")
    assert run(root, "verify").returncode == 0


@pytest.mark.few(0)
def test_what_somebody_wrote_since_the_kill_stays(root: Path) -> None:
    hook = root / ".git" / "hooks" / "mine"
    hook.write_text("mine\n")
    assert run(root, "init").returncode == 0
    run(root, "run", "--", "sh", "-c", CHANGED)
    killed = [sys.executable, str(PROGRAM), "1", "before", "undo", "--git-config", "--yes"]
    done = subprocess.run(killed, cwd=root, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    hook.write_text("by hand\n")
    recovered = run(root, "recover", "--continue")
    assert b"hooks/mine was moved since the undo stopped" in recovered.stderr + recovered.stdout
    assert run(root, "recover", "--abandon").returncode in (0, 7)
    assert hook.read_text() == "by hand\n"
    assert run(root, "verify").returncode == 0


def test_what_somebody_wrote_since_of_what_a_setting_leads_to_stays(root: Path) -> None:
    hook = root / ".git" / "my" / "mine"
    hook.parent.mkdir()
    hook.write_text("mine\n")
    git(root, "config", "core.hooksPath", ".git/my")
    assert run(root, "init").returncode == 0
    run(root, "run", "--", "sh", "-c", "echo evil >> .git/my/mine")
    killed = [sys.executable, str(PROGRAM), "0", "before", "undo", "--git-config", "--yes"]
    done = subprocess.run(killed, cwd=root, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    hook.write_text("by hand\n")
    recovered = run(root, "recover", "--continue")
    assert b"my/mine was moved since the undo stopped" in recovered.stderr + recovered.stdout
    assert run(root, "recover", "--abandon").returncode in (0, 7)
    assert hook.read_text() == "by hand\n"
