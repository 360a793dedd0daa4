"""An undo of what was done to git, killed at each step: nothing is half, and nothing stays locked.

The git that is first on PATH counts how often it is asked, and kills who asked at a given time.
"""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.history.undo.test_git_taken_back import as_git_says, broken, differences
from tests.places.git_person import as_ann, git, planted_git

KILLING = """#!/bin/sh
PATH=/usr/bin:/bin  # that of git has git alone
count=$(cat {counter} 2>/dev/null || echo 0)
echo $((count + 1)) > {counter}
if [ "$count" = {at} ]; then
  if {is_made}; then {git} "$@"; fi
  kill -{by} $PPID
  {then}
fi
exec {git} "$@"
"""

DONE = (
    "echo agent > f0; git commit -qam agent; git branch -D feat; git branch feat/inner;"
    "git stash drop -q; git checkout -q -b new; echo staged > g; git add g"
)

STEPS = [*range(0, 36, 5), *(pytest.param(n, marks=pytest.mark.deep) for n in range(36) if n % 5)]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    as_ann(monkeypatch)
    monkeypatch.setenv("LOOM_AUDIT_HOME", str(tmp_path / "home"))
    root = tmp_path / "workspace"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    for n in range(2):
        (root / "f0").write_text(f"{n}\n")
        git(root, "add", "-A")
        git(root, "commit", "-q", "-m", f"c{n}")
    git(root, "branch", "feat", "HEAD~1")
    (root / "f0").write_text("work\n")
    git(root, "stash", "-q")
    return root


def killing_git(tmp_path: Path, at: int, *, is_made: bool, by: str = "KILL") -> Path:
    """A folder with a `git` that kills who starts it at a time of being asked, before or after it
    has done what it was asked; by another signal it then does what it was asked.
    """
    made, counter = str(is_made).lower(), tmp_path / "counter"
    then = "exit 1" if by == "KILL" or is_made else ":"
    return planted_git(
        tmp_path / "bin", KILLING, counter=counter, at=at, is_made=made, by=by, then=then
    )


def run(root: Path, *words: str, path: Path | None = None) -> subprocess.CompletedProcess[bytes]:
    environment = dict(os.environ)
    if path:
        environment["PATH"] = f"{path}:{environment['PATH']}"
    command = [sys.executable, "-m", "loom_audit", *words]
    return subprocess.run(command, cwd=root, env=environment, capture_output=True)


def undo_until(root: Path, before: dict[str, object], ran: bytes) -> None:
    """Undo what was left half done, as any call, and then the call itself, as `ran` names it.

    What was abandoned and is in the way is reverted by its number first.
    """
    for _ in range(2):
        if differences(before, as_git_says(root)):
            done = run(root, "undo", "--yes")
            said = done.stdout + done.stderr
            if done.returncode == 5 and (by := re.search(rb"\(call (\d+)\)", said)):
                assert run(root, "revert", by[1].decode(), "--git", "--yes").returncode in (0, 7)
                [number] = re.findall(rb"^\[loom-audit\] call (\d+):", ran, re.MULTILINE)
                done = run(root, "revert", number.decode(), "--git", "--yes")
            assert done.returncode in (0, 7), done.stderr + done.stdout


@pytest.mark.few(2)
@pytest.mark.parametrize("at", STEPS)
@pytest.mark.parametrize("way", ["--continue", "--abandon"])
@pytest.mark.parametrize("is_made", [False, True], ids=["before", "after"])
def test_an_undo_killed_when_it_asks_git_is_continued_or_abandoned(
    root: Path, tmp_path: Path, at: int, way: str, is_made: bool
) -> None:
    assert run(root, "init").returncode == 0
    before, was_broken = as_git_says(root), broken(root)
    ran = run(root, "run", "--", "sh", "-c", DONE).stderr
    after = as_git_says(root)
    assert differences(before, after)
    killing = killing_git(tmp_path, at, is_made=is_made)
    done = run(root, "undo", "--yes", path=killing)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    recovered = run(root, "recover", way)
    assert recovered.returncode in (0, 7), recovered.stderr
    assert not (root / ".git" / "index.lock").exists()
    assert not [*(root / ".git" / "objects" / "pack").glob("*.keep")]
    nothing = b"nothing to recover" in recovered.stdout + recovered.stderr
    if way == "--continue" and recovered.returncode == 0 and not nothing:
        assert not differences(before, as_git_says(root))
    assert broken(root) == was_broken
    undo_until(root, before, ran)
    assert not differences(before, as_git_says(root))
    assert run(root, "verify").returncode == 0


@pytest.mark.few(2)
@pytest.mark.parametrize("at", STEPS)
@pytest.mark.parametrize("by", ["TERM", "INT"])
def test_an_undo_that_is_told_to_stop_when_it_asks_git_is_done_or_gone_on_with(
    root: Path, tmp_path: Path, at: int, by: str
) -> None:
    assert run(root, "init").returncode == 0
    before, was_broken = as_git_says(root), broken(root)
    ran = run(root, "run", "--", "sh", "-c", DONE).stderr
    stopped = run(root, "undo", "--yes", path=killing_git(tmp_path, at, is_made=False, by=by))
    assert run(root, "recover", "--continue").returncode in (0, 7), stopped.stderr
    assert not (root / ".git" / "index.lock").exists()
    assert not [*(root / ".git" / "objects" / "pack").glob("*.keep")]
    assert broken(root) == was_broken
    undo_until(root, before, ran)
    assert not differences(before, as_git_says(root)), stopped.stderr
    assert run(root, "verify").returncode in (0, 3)  # 3: who was stopped kept no newer head


def test_a_branch_that_another_worktree_has_by_now_is_not_moved_under_it_by_going_on(
    root: Path, tmp_path: Path
) -> None:
    assert run(root, "init").returncode == 0
    run(root, "run", "--", "sh", "-c", "git branch -f feat main; echo made > made")
    script = '#!/bin/sh\ncase "$*" in *update-ref*) kill -9 $PPID; exit 1;; esac\nexec {git} "$@"\n'
    killed = run(root, "undo", "--yes", path=planted_git(tmp_path / "bin", script))
    assert killed.returncode == -9
    git(root, "worktree", "add", "-q", str(tmp_path / "beside"), "feat")
    moved = git(root, "rev-parse", "feat")
    stopped = run(root, "recover", "--continue")
    assert stopped.returncode == 5 and b"feat is checked out in the worktree /" in stopped.stderr
    assert git(root, "rev-parse", "feat") == moved
    git(root, "worktree", "remove", str(tmp_path / "beside"))
    assert run(root, "recover", "--continue").returncode == 0
    assert git(root, "rev-parse", "feat") == git(root, "rev-parse", "main~1")
    assert not (root / "made").exists()
