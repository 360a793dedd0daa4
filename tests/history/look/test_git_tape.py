"""A tape of git commands, with a person beside: after each step the record is what git says."""

import random
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, Session, ToolResult
from loom_audit.model.git.record import GitChanged, GitState
from loom_audit.model.git.words import git_words
from loom_audit.ports import EventFilter
from tests.places.git_person import as_ann

COMMANDS = (
    "echo {n} > f{m}; git add -A; git commit -qm c{n}",
    "git commit -q --allow-empty -m empty{n}",
    "git commit -q --amend --allow-empty -m amended{n}",
    "git branch b{m}",
    "git branch -D b{m}",
    "git branch -f b{m} HEAD~1",
    "git branch -m b{m} renamed{n}",
    "git checkout -q b{m}",
    "git checkout -q -b new{n}",
    "git checkout -q main",
    "git checkout -q --detach",
    "git switch -q --orphan orphan{n}",
    "git reset -q --hard HEAD~1",
    "git reset -q --soft HEAD~1",
    "git reset -q ORIG_HEAD",
    "echo w{n} > f{m}; git stash -q -u",
    "git stash pop -q",
    "git stash drop -q",
    "git stash clear",
    "git tag t{n}",
    "git tag -a -m annotated{n} a{n}",
    "git tag -d t{m}",
    "git merge -q --no-edit b{m}",
    "git merge --abort",
    "git rebase -q b{m}",
    "git rebase --abort",
    "git cherry-pick b{m}",
    "git cherry-pick --abort",
    "git revert --no-edit HEAD",
    "git add -N .; git add -A f{m}",
    "echo i{n} > f{m}; git add f{m}",
    "git rm -q --cached f{m}",
    "git mv f{m} moved{n}",
    "git update-index --assume-unchanged f{m}",
    "git update-index --skip-worktree f{m}",
    "git symbolic-ref refs/heads/alias{m} refs/heads/main",
    "git notes add -f -m note{n}",
    "git update-ref refs/odd/{n} HEAD",
    "git pack-refs --all",
    "git gc -q --prune=now",
    "git reflog expire --expire=now --all",
    "git config user.tape{n} {n}",
    "echo true > .git/hooks/h{m}",
    "git worktree add -q --force ../linked{n} main~0 --detach",
    "git clean -qfdx; git status",
    "git bisect start; git bisect bad; git bisect good HEAD~2",
    "git bisect reset",
    "git read-tree HEAD",
    "git checkout -q -- .",
)


def git(root: Path, *words: str, code: int | None = 0) -> str:
    """What git says, asked without what the record asks with."""
    done = subprocess.run(["git", *words], cwd=root, capture_output=True)
    assert code is None or done.returncode == code, done.stderr
    return done.stdout.decode("utf-8", "surrogateescape")


def as_git_says(root: Path) -> dict[str, str]:
    """The names of a repository: HEAD, every ref, the stashes, as git lists them."""
    head = git(root, "symbolic-ref", "-q", "HEAD", code=None).strip()
    names = {"HEAD": f"ref: {head}" if head else git(root, "rev-parse", "HEAD").strip()}
    for line in git(root, "for-each-ref", "--format=%(refname) %(objectname) %(symref)").split(
        "\n"
    ):
        if line:
            name, found, target = line.split(" ")
            names[name] = f"ref: {target} {found}" if target else found
    for path in (root / ".git/refs").rglob("*"):
        name = str(path.relative_to(root / ".git"))
        if (
            path.is_file()
            and name not in names
            and git(root, "symbolic-ref", "--no-recurse", "-q", name, code=None)
        ):
            names[name] = "broken"  # it leads to none, or in a circle
    stashes = git(root, "stash", "list", "--format=%H %gs").splitlines()
    if stashes:
        names["stashes"] = "\n".join(stashes)
    return names


def logs_as_git_says(root: Path) -> dict[str, bytes]:
    """The reflogs that are in tables, but for those of names without a commit."""
    found = {}
    for name in git(root, "reflog", "list").splitlines():
        form = "--format=%H %gn <%ge>%x09%gD%x09%gs"
        told = git(root, "reflog", "show", "--date=raw", form, name, code=None).splitlines()
        said = (line.replace(f"\t{name}@{{", " ", 1).replace("}\t", "\t", 1) for line in told)
        if text := "".join(f"{line}\n" for line in reversed([*said])):
            found[f"logs/{name}"] = text.encode("utf-8", "surrogateescape")
    return found


def on_record(workspace: AuditedWorkspace) -> GitState:
    state = GitState()
    for event in workspace.timeline.events(EventFilter(kinds=(GitChanged.kind,))):
        assert isinstance(event.fact, GitChanged)
        assert event.fact.is_first or [*git_words(event.fact)] or event.fact.names
        state.follow(event.fact)
    return state


def check(workspace: AuditedWorkspace, root: Path, step: str) -> None:
    state = on_record(workspace)
    names = {k: v for k, v in state.names.items() if k in ("HEAD", "stashes") or k[:5] == "refs/"}
    if "stashes" in names:  # on record with the time of each
        lines = (one.split(" ", 2) for one in names["stashes"].split("\n"))
        names["stashes"] = "\n".join(f"{found} {message}" for found, _, message in lines)
    assert names == as_git_says(root), step
    entries = workspace.timeline.content(state.files["index entries"]).decode()
    assert entries.replace("intended ", "") == git(root, "ls-files", "-s", "-v", "-z"), step
    known = {path: workspace.timeline.content(one) for path, one in state.files.items()}
    here = root / ".git"
    found = [here / "config", *(here / "logs").rglob("*"), *(here / "hooks").glob("h*")]
    on_disk = {str(one.relative_to(here)): one.read_bytes() for one in found if one.is_file()}
    kept = {path for path in known if path == "config" or path.startswith(("logs/", "hooks/h"))}
    if (here / "reftable").is_dir():
        on_disk |= logs_as_git_says(root)
        if git(root, "rev-parse", "-q", "--verify", "HEAD", code=None) == "":  # git tells none
            kept.discard("logs/HEAD")
    assert {path: known[path] for path in kept} == on_disk, step
    assert {path for path in known if path.endswith("/index entries")} == {
        f"worktrees/{one.name}/index entries" for one in here.glob("worktrees/*")
    }, step
    for one in here.glob("worktrees/*"):  # all are outside of the workspace
        linked = Path((one / "gitdir").read_text().strip()).parent
        if linked.is_dir():
            told = known[f"worktrees/{one.name}/index entries"].decode()
            assert told.replace("intended ", "") == git(linked, "ls-files", "-s", "-v", "-z"), step


def play(
    workspace: AuditedWorkspace, root: Path, seed: int, steps: int, act: Callable[[str], object]
) -> None:
    """Make a repository, and play a tape; in the end git finds the mirror whole."""
    git(root, "init", "-q", "-b", "main")
    for n in range(3):
        (root / "f0").write_text(f"{n}\n")
        git(root, "add", "-A")
        git(root, "commit", "-q", "-m", f"c{n}")
    play_on(workspace, root, seed, steps, act)
    check_mirror(workspace)


def play_on(
    workspace: AuditedWorkspace, root: Path, seed: int, steps: int, act: Callable[[str], object]
) -> None:
    """Play a tape over a repository: most steps are acted out by calls, some by a person.

    After each the record is what git says.
    """
    chance = random.Random(seed)
    for n in range(steps):
        command = chance.choice(COMMANDS).format(n=n, m=chance.randrange(3))
        by_person = chance.random() < 0.2
        if by_person:
            subprocess.run(["sh", "-c", command], cwd=root, capture_output=True)
            command = f"by a person: {command}"
        act("true" if by_person else f"{command}; true")
        check(workspace, root, f"step {n}: {command}")


def check_mirror(workspace: AuditedWorkspace) -> None:
    """Let git check every object that is kept of the workspace's repositories, and its history."""
    mirror = workspace.attachment.on_disk.mirror
    for kept in mirror.folders() if mirror else ():  # with all that its objects lead to
        told = ["git", "--git-dir", kept, "fsck", "--full", "--no-dangling", "--no-progress"]
        done = subprocess.run(told, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


TAPES = pytest.mark.parametrize(
    ("seed", "steps"),
    [(27, 30), *(pytest.param(n, 500, marks=pytest.mark.deep) for n in range(2))],
)


@TAPES
@pytest.mark.timeout(3600)
def test_after_each_step_of_a_tape_the_record_is_what_git_says(
    workspace: AuditedWorkspace,
    root: Path,
    call: Callable[..., ToolResult],
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    steps: int,
) -> None:
    as_ann(monkeypatch)
    monkeypatch.setenv("GIT_EDITOR", "true")
    play(workspace, root, seed, steps, lambda one: call("shell_execute", command=one))
    assert workspace.verify().findings == ()


@TAPES
@pytest.mark.timeout(3600)
def test_after_each_step_under_run_the_record_is_what_git_says(
    workspace: AuditedWorkspace,
    root: Path,
    session: Session,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    steps: int,
) -> None:
    as_ann(monkeypatch)
    monkeypatch.setenv("GIT_EDITOR", "true")
    play(workspace, root, seed, steps, lambda one: session.run(["sh", "-c", one]))
    assert workspace.verify().findings == ()
