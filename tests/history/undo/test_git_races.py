"""An undo of what was done to git while another git runs: CONFLICT or done, and never mixed.

What git says itself, before the agent's call and after it, tells which of the two it is.
"""

import os
import random
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec import Struct

from loom_audit import AuditedWorkspace, Session
from loom_audit.errors import Conflict
from loom_audit.history.read.call_detail import git_now
from tests.crash.programs.faults import check_finishes
from tests.given.cases import some
from tests.history.look.test_git_tape import as_git_says
from tests.history.undo.test_git_taken_back import act, broken, root, said
from tests.places.git_person import git, planted_git

__all__ = ["root"]

RACES = 10

DONE = (
    "echo agent{n} > f0; git commit -qam agent{n}",
    "echo staged{n} > g{n}; git add g{n}",
    "git checkout -q -b new{n}; echo {n} > h{n}; git add h{n}; git commit -qm new{n}",
    "git checkout -q --detach; echo agent{n} > f0; git commit -qam detached{n}",
    "echo {n} > f0; git stash -q; git branch b{n}; git tag t{n}; echo more{n} > f0; git add f0",
    "git stash drop -q; git reset -q --soft HEAD~1; git branch -D feat; git branch feat/x{n}",
    "git branch -q -m renamed{n}; echo agent{n} > f0; git commit -qam r{n}",
)
"""What an agent does: HEAD, its branch and the index, and beside them refs and stashes."""

MEANWHILE = {
    "commit": "echo $n > p{n}_$n; git add p{n}_$n; git commit -qm p{n}_$n",
    "commit what is staged": "git commit -q --allow-empty -m p{n}_$n",
    "add": "echo $n > p{n}_$n; git add p{n}_$n",
    "checkout": "git checkout -q -b p{n}_$n && git checkout -q -",
    "gc": "git gc -q --prune=now",
    "branch": "git branch -f p{n}; git tag -f p{n}",
}
"""What a person does in a loop: nothing of it is an agent's file, branch or tag."""

PERSON = "cd {root}; n=0; while [ ! -e {stop} ]; do n=$((n+1)); {{ {command}; }} 2>/dev/null; done"


class Said(Struct, frozen=True):
    """What git says of all that is no person's."""

    head: str
    refs: Mapping[str, str]
    stashes: str
    index: Mapping[str, str]
    files: Mapping[str, bytes]


def is_persons(path: str) -> bool:
    return path.rpartition("/")[2].startswith("p")


def now(root: Path) -> Said:
    entries = (line.split("\t") for line in git(root, "ls-files", "-s").splitlines())
    refs = (
        line.split(" ")
        for line in git(root, "for-each-ref", "--format=%(refname) %(objectname)").splitlines()
    )
    files = (one for one in root.iterdir() if one.is_file() and not is_persons(one.name))
    return Said(
        git(root, "rev-parse", "HEAD").strip(),
        {name: id for name, id in refs if not is_persons(name) and name != "refs/stash"},
        said(root, "stash", "list", "--date=raw", "--format=%H %gd %gs"),
        {path: entry for entry, path in entries if not is_persons(path)},
        {one.name: one.read_bytes() for one in files},
    )


def on_record(workspace: AuditedWorkspace) -> dict[str, str]:
    """What the log has of HEAD, refs and stashes, as git says it."""
    state = git_now(workspace.log).states[""]
    names = {k: v for k, v in state.names.items() if k in ("HEAD", "stashes") or k[:5] == "refs/"}
    lines = (one.split(" ", 2) for one in names.pop("stashes", "").split("\n") if one)
    if stashes := "\n".join(f"{found} {message}" for found, _, message in lines):
        names["stashes"] = stashes
    return names


def differing(root: Path, expected: Said) -> dict[str, object]:
    """What git says otherwise than expected, but for what a person did on top of it."""
    found: dict[str, object] = {}
    is_now = now(root)
    for name in ("stashes", "index", "files"):
        if getattr(expected, name) != getattr(is_now, name):
            found[name] = getattr(expected, name), getattr(is_now, name)
    commits = {"HEAD": (expected.head, is_now.head)}
    names = {*expected.refs, *is_now.refs}
    commits |= {one: (expected.refs.get(one, ""), is_now.refs.get(one, "")) for one in names}
    for one, (old, new) in commits.items():
        if old != new and not (old and new and only_persons(root, old, new, expected.index)):
            found[one] = old, new
    return found


def only_persons(root: Path, old: str, new: str, index: Mapping[str, str]) -> bool:
    """Whether a commit has only a person's commits on top of another one: of what is no person's
    they can have what was in the index.
    """
    subjects = git(root, "log", "--format=%s", f"{old}..{new}").splitlines()
    is_on_top = said(root, "merge-base", "--is-ancestor", old, new).startswith("0 ")
    paths = git(root, "diff", "--name-only", old, new).splitlines()
    lines = git(root, "ls-tree", "-r", new).splitlines()
    found = {path: entry.split(" ") for entry, _, path in (one.partition("\t") for one in lines)}
    staged = {path: entry.split(" ") for path, entry in index.items()}
    others = [path for path in paths if not is_persons(path)]
    return (
        is_on_top
        and all(map(is_persons, subjects))
        and all(found.get(one, [])[::2] == staged.get(one, [])[:2] for one in others)
    )


@contextmanager
def a_person(root: Path, command: str, after: float) -> Iterator[None]:
    """Run commands of a person's in a loop, from so many seconds on until the block ends."""
    stop = root.parent / "stop"
    script = f"sleep {after:.3f}; {PERSON.format(root=root, stop=stop, command=command)}"
    with subprocess.Popen(["sh", "-c", script]) as running:
        try:
            yield
        finally:
            stop.touch()
            running.wait()
    stop.unlink()


@pytest.fixture
def undo_beside(
    workspace: AuditedWorkspace, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str, str], None]:
    """Undoes, and runs a command of a person's just before git is asked something for the undo."""

    def run(asked: str, command: str) -> None:
        plan = workspace.plan_undo()
        script = 'case "$*" in *{asked}*) [ -e {done} ] || {{ touch {done}; {command}; }};; esac'
        whole = "#!/bin/sh\nPATH=/usr/bin:/bin:/usr/local/bin\n" + script + '\nexec {git} "$@"\n'
        bin = planted_git(
            tmp_path / "bin", whole, asked=asked, done=tmp_path / "done", command=command
        )
        monkeypatch.setenv("PATH", f"{bin}:{os.environ['PATH']}")
        try:
            workspace.carry_out(plan)
        finally:
            assert (tmp_path / "done").exists()

    return run


AGENT = (
    "git stash drop -q; git branch -D feat; git tag made; git checkout -q -b new;"
    " git commit -q --allow-empty -m agent; git branch -D main;"
    " git reflog expire --expire=now --all"
)


def test_where_head_was_moved_just_now_all_that_was_moved_before_it_goes_back(
    workspace: AuditedWorkspace,
    root: Path,
    session: Session,
    undo_beside: Callable[[str, str], None],
) -> None:
    (root / "f0").write_text("work\n")
    git(root, "stash", "-q")
    session.run(["true"])
    act(session, AGENT)
    after = now(root)
    with pytest.raises(Conflict, match="HEAD was moved by somebody else"):
        undo_beside("symbolic-ref\\ -m", "exit 1")
    assert now(root) == after
    assert not [*(root / ".git").rglob("*.lock"), *(root / ".git").rglob("*.keep")]


@pytest.mark.parametrize("command", ["gc -q --prune=now", "repack -adq"])
def test_what_another_git_would_throw_away_meanwhile_stays(
    workspace: AuditedWorkspace,
    root: Path,
    session: Session,
    undo_beside: Callable[[str, str], None],
    command: str,
) -> None:
    (root / "f0").write_text("work\n")
    git(root, "stash", "-q")
    session.run(["true"])
    before, was_broken = now(root), broken(root)
    act(session, AGENT)
    other = f"cd {root}; git {command}; git prune --expire=now"
    undo_beside("update-ref", f"(unset GIT_DIR GIT_COMMON_DIR GIT_WORK_TREE; {other}) < /dev/null")
    assert now(root) == before
    assert broken(root) == was_broken
    assert not [*(root / ".git").rglob("*.lock"), *(root / ".git").rglob("*.keep")]


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", some(range(20), 1))
def test_of_two_at_once_an_undo_is_done_or_refused(
    workspace: AuditedWorkspace, root: Path, session: Session, seed: int
) -> None:
    chance, longest = random.Random(f"races {seed}"), 1.0
    outcomes = {"done": 0, "conflict": 0}
    for n in range(RACES):
        call, (name, command) = chance.choice(DONE), chance.choice([*MEANWHILE.items()])
        said(root, "branch", "-f", "feat", "HEAD~1")
        (root / "f0").write_text(f"work {seed} {n}\n")
        git(root, "stash", "-q")
        session.run(["true"])
        before, was_broken = now(root), broken(root)
        act(session, call.format(n=n))
        after = now(root)
        step = f"race {n} of {seed}: {call.format(n=n)}, meanwhile {name}"
        started = time.monotonic()
        with a_person(root, command.format(n=n), chance.uniform(0, longest)):
            try:
                workspace.carry_out(workspace.plan_undo())
                expected, outcome = before, "done"
            except Conflict as error:
                expected, outcome = after, "conflict"
                step = f"{step}: {error}"
            longest = time.monotonic() - started
        outcomes[outcome] += 1
        assert not differing(root, expected), step
        assert broken(root) == was_broken, step
        assert not [*(root / ".git").rglob("*.lock")], step
        session.run(["true"])
        assert on_record(workspace) == as_git_says(root), step
    check_finishes(workspace)
    assert workspace.verify().findings == ()
