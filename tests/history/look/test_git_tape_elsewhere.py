"""The tape of git commands over a repository with nested ones, a submodule and linked worktrees.

After each step the record of each is what git says there; at its end every object that the log
names is in the mirror, or was said not to be.
"""

import random
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, ToolResult
from loom_audit.history.look.git.changes import MOST_NESTED
from loom_audit.model.git.record import (
    HEAD_COMMIT,
    OBJECT_ID,
    OF_WORKTREE,
    SHARED_REFS,
    GitChanged,
    GitState,
)
from loom_audit.ports import EventFilter
from tests.history.look.test_git_nested import repository
from tests.history.look.test_git_tape import COMMANDS, as_git_says, git, logs_as_git_says
from tests.places.git_person import as_ann

NESTED, SUBMODULE, LINKED = "vendor/lib", "module", "linked"
STEPS = (
    *COMMANDS,
    "git worktree prune",
    "git worktree remove --force ../linked{n}",
    "git init -q inner{m}; git -C inner{m} commit -q --allow-empty -m inner{n}",
    "rm -rf inner{m}",
    "mv inner{m} outer{m}",
    "git submodule update -q --init",
)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    as_ann(monkeypatch)
    monkeypatch.setenv("GIT_EDITOR", "true")
    for folder in ("upstream", "workspace", f"workspace/{NESTED}"):
        repository(tmp_path / folder)
    root = tmp_path / "workspace"
    upstream = str(tmp_path / "upstream")
    git(root, "-c", "protocol.file.allow=always", "submodule", "add", upstream, SUBMODULE)
    git(root, "commit", "-q", "-m", "with a submodule")
    git(root, "worktree", "add", "-q", "-b", "side", LINKED)
    return root


def states(workspace: AuditedWorkspace) -> Mapping[str, GitState]:
    """What is on record, by folder."""
    found: dict[str, GitState] = {}
    for event in workspace.timeline.events(EventFilter(kinds=(GitChanged.kind,))):
        assert isinstance(event.fact, GitChanged)
        found.setdefault(event.fact.folder, GitState()).follow(event.fact)
    return {folder: state for folder, state in found.items() if state.names}


def repositories(root: Path) -> Iterator[str]:
    """The folders of the workspace that are the top of one, as git says."""
    for path in root.rglob(".git"):
        inside = path.relative_to(root).parent
        if ".git" not in inside.parts:
            said = git(path.parent, "rev-parse", "--show-prefix", "--git-dir", code=None)
            if said.startswith("\n"):
                yield "" if inside == Path() else str(inside)


def check_folder(workspace: AuditedWorkspace, here: Path, state: GitState, step: str) -> None:
    said = as_git_says(here)
    named = {k: v for k, v in state.names.items() if k in ("HEAD", "stashes") or k[:5] == "refs/"}
    if "stashes" in named:
        lines = (one.split(" ", 2) for one in named["stashes"].split("\n"))
        named["stashes"] = "\n".join(f"{found} {message}" for found, _, message in lines)
    if SHARED_REFS in state.names:
        commit = git(here, "rev-parse", "-q", "--verify", "HEAD", code=None).strip()
        is_on_branch = said["HEAD"].startswith("ref: ")
        assert state.names.get(HEAD_COMMIT, "") == (commit if is_on_branch else ""), step
        own = ("HEAD", *OF_WORKTREE)
        said = {name: value for name, value in said.items() if name.startswith(own)}
    assert named == said, step
    entries = workspace.timeline.content(state.files["index entries"]).decode()
    assert entries.replace("intended ", "") == git(here, "ls-files", "-s", "-v", "-z"), step
    own_folder = Path(git(here, "rev-parse", "--absolute-git-dir").strip())
    on_disk = {
        str(one.relative_to(own_folder)): one.read_bytes()
        for one in (own_folder / "logs").rglob("*")
        if one.is_file()
    }
    if git(here, "rev-parse", "--show-ref-format", code=None) == "reftable\n":
        told = logs_as_git_says(here)
        shared = SHARED_REFS in state.names
        on_disk = {k: v for k, v in told.items() if not shared or k == "logs/HEAD"}
        if git(here, "rev-parse", "-q", "--verify", "HEAD", code=None) == "":
            on_disk["logs/HEAD"] = workspace.timeline.content(state.files["logs/HEAD"])
    kept = {
        path: workspace.timeline.content(one)
        for path, one in state.files.items()
        if path.startswith("logs/")
    }
    assert kept == on_disk, step


def check_objects(workspace: AuditedWorkspace) -> int:
    """Every object that the log names is whole in the mirror, or is counted as missing there; how
    many it names.
    """
    ids: set[str] = set()
    for event in workspace.timeline.events(EventFilter(kinds=(GitChanged.kind,))):
        assert isinstance(event.fact, GitChanged)
        values = [one.after or "" for one in event.fact.names if one.name != "index"]
        words = (word for value in values for word in value.replace("\n", " ").split(" "))
        ids |= {word for word in words if OBJECT_ID.fullmatch(word) and word.strip("0")}
        for change in event.fact.changes:
            if change.path == "index entries" and change.after:
                lines = workspace.timeline.content(change.after).decode().split("\0")
                staged = (line.split("\t")[0].split(" ") for line in lines if line)
                ids |= {one[-2] for one in staged if one[-3] != "160000"}
    mirror = workspace.attachment.on_disk.mirror
    assert mirror is not None
    long_ids = any(len(one) == 64 for one in ids)
    folder, missing = Path(mirror.folder(long_ids=long_ids)), {*mirror.missing().some}
    given = "".join(f"{id}\n" for id in sorted(ids))
    for asked in (["cat-file", "--batch-check"], ["rev-list", "--objects", "--stdin"]):
        if asked[0] == "rev-list":
            given = "".join(f"{id}\n" for id in sorted(ids - missing))
        done = subprocess.run(
            ["git", *asked], cwd=folder, input=given, capture_output=True, text=True
        )
        gone = {line.split(" ")[0] for line in done.stdout.splitlines() if line[-7:] == "missing"}
        assert done.returncode == 0 and gone <= missing, (asked, done.stderr, gone - missing)
    assert not any(one.strip("0") == "" for one in missing)
    git(folder, "fsck", "--full", "--no-dangling", "--no-reflogs")
    return len(ids)


@pytest.mark.parametrize(
    ("seed", "steps"),
    [(27, 25), *(pytest.param(n, 500, marks=pytest.mark.deep) for n in range(3))],
)
@pytest.mark.timeout(7200)
def test_after_each_step_the_record_of_each_repository_is_what_git_says(
    workspace: AuditedWorkspace, root: Path, call: Callable[..., ToolResult], seed: int, steps: int
) -> None:
    chance = random.Random(seed)
    for n in range(steps):
        folder = chance.choice(("", NESTED, SUBMODULE, LINKED))
        command = chance.choice(STEPS).format(n=n, m=chance.randrange(3))
        command = f"cd {folder or '.'} && {{ {command}; }}"
        by_person = chance.random() < 0.2
        if by_person:
            subprocess.run(["sh", "-c", command], cwd=root, capture_output=True)
        call("shell_execute", command="true" if by_person else f"{command}; true")
        step = f"step {n}{' by a person' if by_person else ''}: {command}"
        on_record, here = states(workspace), {*repositories(root)}
        if len(here) <= MOST_NESTED:
            assert on_record.keys() == here, step
        for one in here & on_record.keys():
            check_folder(workspace, root / one, on_record[one], f"{one or '.'} at {step}")
    assert check_objects(workspace) > 5
    assert workspace.verify().findings == ()
