"""Somebody puts another repository in the place of the one that is brought back, meanwhile."""

import os
import subprocess
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, Session
from loom_audit.errors import AuditError
from tests.history.undo.test_git_taken_back import act, root
from tests.places.git_person import planted_git

__all__ = ["root"]

SWAPPING = """#!/bin/sh
PATH=/usr/bin:/bin  # that of git has git alone
count=$(cat {counter} 2>/dev/null || echo 0)
echo $((count + 1)) > {counter}
# two of them may run at once
if [ "$count" = {at} ] && mkdir {counter}.reached; then
  mv {root}/.git {away}
  {then}
fi
exec {git} "$@"
"""
DONE = (
    "echo agent > f0; git commit -qam agent; git branch -D feat; git branch feat/inner;"
    "git checkout -q -b new; echo staged > g; git add g"
)
STEPS = [*range(0, 24, 5), *(pytest.param(n, marks=pytest.mark.deep) for n in range(24) if n % 5)]


def told(folder: Path) -> dict[str, bytes]:
    """All files of a git folder but objects."""
    inside = (one for one in folder.rglob("*") if one.is_file())
    paths = {str(one.relative_to(folder)): one for one in inside}
    return {path: one.read_bytes() for path, one in paths.items() if not path.startswith("objects")}


@pytest.mark.few(3)
@pytest.mark.parametrize("at", STEPS)
@pytest.mark.parametrize("way", ["folder", "link"])
def test_nothing_is_written_into_a_repository_that_took_its_place(
    workspace: AuditedWorkspace,
    root: Path,
    session: Session,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    at: int,
    way: str,
) -> None:
    other, away = tmp_path / "other", tmp_path / "away"
    act(session, DONE)
    subprocess.run(["cp", "-a", str(root / ".git"), str(other)], check=True)
    was = told(other)
    plan = workspace.plan_undo()
    then = f"ln -s {other} {root}/.git" if way == "link" else f"cp -a {other} {root}/.git"
    counter = tmp_path / "counter"
    swapping = planted_git(
        tmp_path / "bin", SWAPPING, counter=counter, at=at, root=root, away=away, then=then
    )
    with monkeypatch.context() as patched:
        patched.setenv("PATH", f"{swapping}:{os.environ['PATH']}")
        try:
            workspace.carry_out(plan)
            is_done = True
        except AuditError:
            is_done = False
    if away.exists():
        assert told(root / ".git") == was
        assert told(other) == was
    else:
        assert is_done
