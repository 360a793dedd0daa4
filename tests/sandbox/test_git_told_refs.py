"""Of refs that did not change git is not asked again; what is told is what git says of all."""

import random
import subprocess
import time
from pathlib import Path

import pytest

from loom_audit.disk.access.identity import identity_at
from loom_audit.ports import SETTLED
from loom_audit.sandbox.git.files import STAMPED_REFS
from loom_audit.sandbox.git.program_git import ProgramGit
from tests.places.git_person import as_ann

STEPS = (
    "git commit -q --allow-empty -m {n}",
    "git commit -q --allow-empty -m {n}",
    "git branch b{m}",
    "git branch -D b{m}",
    "git branch -f b{m} HEAD~1",
    "git branch a/b/c{m}",
    "git branch -D a/b/c{m}",
    "git checkout -q --detach",
    "git checkout -q main",
    "git checkout -q -B b{m}",
    "git tag t{n}",
    "git tag -d t{m}",
    "git tag -f kept{m}",
    "git update-ref refs/remotes/origin/main HEAD",
    "git symbolic-ref refs/remotes/origin/HEAD refs/remotes/origin/main",
    "git symbolic-ref refs/odd/alias{m} refs/heads/b{m}",
    "git symbolic-ref -d refs/odd/alias{m}",
    "git symbolic-ref refs/odd/o refs/heads/b1; git symbolic-ref refs/heads/b1 refs/odd/o",
    "git symbolic-ref HEAD refs/odd/head",
    "git update-ref refs/odd/{m} HEAD",
    "git notes add -f -m {n}",
    "git pack-refs --all",
    "git pack-refs",
    "echo {n} > f; git add f; git stash -q",
    "git stash drop -q",
    "echo broken > .git/refs/heads/b2",
    "echo broken > .git/refs/tags/t2",
    "rm -rf .git/refs/odd .git/refs/tags/t2 .git/refs/heads/b*",
    "git rev-parse main > .git/refs/heads/b0",
)


def git(root: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    as_ann(monkeypatch)
    git(tmp_path, "init", "-q", "-b", "main")
    for n in range(3):
        git(tmp_path, "commit", "-q", "--allow-empty", "-m", f"c{n}")
    for n in range(3):
        git(tmp_path, "tag", f"kept{n}")
    return tmp_path


@pytest.mark.parametrize(
    ("seed", "steps"), [(27, 60), *(pytest.param(n, 600, marks=pytest.mark.deep) for n in range(3))]
)
@pytest.mark.timeout(1800)
def test_after_each_step_all_refs_are_told_as_to_one_who_asks_first(
    root: Path, seed: int, steps: int
) -> None:
    chance, asked = random.Random(seed), ProgramGit(str(root), identity_at)
    for n in range(steps):
        for _ in range(chance.randrange(1, 3)):
            command = chance.choice(STEPS).format(n=n, m=chance.randrange(3))
            subprocess.run(["sh", "-c", command], cwd=root, capture_output=True)
        asked.stamps(0)
        assert asked.seen().names == ProgramGit(str(root), identity_at).seen().names, (n, command)


def test_refs_whose_stamps_are_as_before_are_told_as_before_but_anyway(root: Path) -> None:
    for n in range(STAMPED_REFS):
        git(root, "branch", f"b{n}")
    asked, tag = ProgramGit(str(root), identity_at), "refs/tags/kept2"
    old, new = git(root, "rev-parse", "HEAD", "HEAD~1").split()
    time.sleep(3 * SETTLED / 1e9)
    asked.stamps(0)
    assert asked.seen().names[tag] == old
    (root / ".git" / tag).write_text(f"{new}\n")  # in place, and after those that are stamped
    git(root, "commit", "-q", "--allow-empty", "-m", "more")
    asked.stamps(0)
    seen = asked.seen().names
    assert seen[tag] == old and seen["refs/heads/main"] == git(root, "rev-parse", "HEAD")
    asked.stamps(0)
    assert asked.seen(anyway=True).names[tag] == new
    (root / ".git" / tag).write_text(f"{old}\n")
    assert asked.seen().names[tag] == old  # no stamps were taken before it
