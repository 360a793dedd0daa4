"""git is asked for the state of a repository that names programs: none runs, nothing is written."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from loom_audit.disk.access.identity import identity_at
from loom_audit.errors import ExecutionFailed
from loom_audit.model.files import is_within
from loom_audit.model.git.record import is_untold
from loom_audit.sandbox.git.program_git import ProgramGit
from tests.places.git_person import as_ann

ABSENT = "1" * 40


def git(root: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of two commits, with a stash, a tag, and attributes for each file."""
    as_ann(monkeypatch)
    root = tmp_path / "workspace"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    (root / ".gitattributes").write_text("* filter=x diff=x\n")
    for text in ("1", "2"):
        (root / "a").write_text(text)
        git(root, "add", ".")
        git(root, "commit", "-q", "-m", text)
    (root / "a").write_text("3")
    git(root, "stash", "-q")
    git(root, "tag", "v1")
    return root


def program(root: Path) -> str:
    """A program that leaves a mark beside the workspace."""
    path = root.parent / "program"
    path.write_text(f"#!/bin/sh\ntouch '{root.parent}/mark'\n")
    path.chmod(0o755)
    return str(path)


def has_run(root: Path) -> bool:
    return (root.parent / "mark").exists()


def written(root: Path) -> dict[str, tuple[int, int, int]]:
    """The state of everything in the git folder, but when it was read."""
    return {
        str(path): ((found := path.lstat()).st_mtime_ns, found.st_ctime_ns, found.st_size)
        for path in [root / ".git", *(root / ".git").rglob("*")]
    }


COMMANDS = ("symbolic-ref", "rev-parse", "for-each-ref", "ls-files", "log", "rev-list")
RUNNING = (
    *("core.fsmonitor", "core.pager", "core.sshCommand", "core.editor", "core.gitProxy"),
    *("core.askPass", "core.alternateRefsCommand", "filter.x.clean", "filter.x.smudge"),
    *("filter.x.process", "diff.x.textconv", "diff.x.command", "diff.external", "gpg.program"),
    *("uploadpack.packObjectsHook", "credential.helper", "interactive.diffFilter"),
    *(f"alias.{one}" for one in COMMANDS),
    *(f"pager.{one}" for one in COMMANDS),
)
"""The settings by which a repository names a program."""


def test_a_program_that_a_repository_names_runs_for_others(root: Path) -> None:
    git(root, "config", "core.fsmonitor", program(root))
    git(root, "status")
    assert has_run(root)


@pytest.mark.few(8)
@pytest.mark.parametrize("setting", RUNNING)
def test_no_program_that_a_repository_names_is_run(root: Path, setting: str) -> None:
    shell = "!" if setting.startswith(("alias", "credential")) else ""
    git(root, "config", setting, shell + program(root))
    check_nothing_happens(root)


def test_no_hook_is_run(root: Path) -> None:
    hooks = root / "hooks"
    hooks.mkdir()
    for name in ("reference-transaction", "post-index-change", "fsmonitor-watchman"):
        os.symlink(program(root), hooks / name)
        os.symlink(program(root), root / ".git/hooks" / name)
    git(root, "-c", "core.hooksPath=/dev/null", "config", "core.hooksPath", str(hooks))
    check_nothing_happens(root)


def test_an_object_that_is_not_there_is_not_fetched(root: Path) -> None:
    git(root, "config", "core.repositoryformatversion", "1")
    git(root, "config", "extensions.partialClone", "origin")
    git(root, "config", "remote.origin.promisor", "true")
    git(root, "config", "remote.origin.url", f"ext::{program(root)}")
    git(root, "config", "protocol.allow", "always")
    git(root, "config", "protocol.ext.allow", "always")
    check_nothing_happens(root)


def test_another_folder_that_settings_name_is_not_looked_at(root: Path) -> None:
    other = root.parent / "other"
    other.mkdir()
    git(root, "config", "core.worktree", str(other))
    check_nothing_happens(root)


def check_nothing_happens(root: Path) -> None:
    """Every command is asked: the state is told, nothing runs, and nothing is written."""
    head = (root / ".git/refs/heads/main").read_text().strip()
    before = written(root)
    asked = ProgramGit(str(root), identity_at)
    assert asked.stamps(0).text
    seen = asked.seen()
    told = asked.distances([(head, None), (ABSENT, head), (None, head)])
    assert (seen.names["HEAD"], seen.names["refs/heads/main"]) == ("ref: refs/heads/main", head)
    assert seen.names["stashes"].endswith("WIP on main: " + head[:7] + " 2")
    assert [one.partition(b"\t")[2] for one in seen.entries.split(b"\0") if one] == [
        b".gitattributes",
        b"a",
    ]
    assert told[:2] == ["", ""]
    assert not has_run(root)
    assert written(root) == before


def test_a_replaced_object_is_told_as_it_is(root: Path) -> None:
    head, older = git(root, "rev-parse", "HEAD", "HEAD~1").split("\n")
    git(root, "replace", older, git(root, "commit-tree", "HEAD^{tree}", "-m", "no parents"))
    asked = ProgramGit(str(root), identity_at)
    assert asked.distances([(head, older)]) == ["1 commit back"]
    assert f"refs/replace/{older}" in asked.seen().names


REFS = frozenset({"refs", "logs", "stashes", "HEAD commit", "worktree", "worktrees"})
HEAD = frozenset({"HEAD", "logs/HEAD", "HEAD commit"})
LINKED = {
    "hooks": frozenset({"behind hooks"}),
    "info": frozenset({"behind info"}),
    "objects": frozenset({"objects"}),
    "objects/pack": frozenset({"objects"}),
    "index": frozenset({"index"}),
    "refs": REFS,
    "refs/heads": REFS,
    "refs/heads/main": REFS,
    "packed-refs": REFS,
    "logs": frozenset({"logs", "stashes"}),
    "logs/HEAD": frozenset({"logs/HEAD"}),
    "worktrees": frozenset({"worktree", "worktrees"}),
    "worktrees/linked": frozenset({"worktree", "worktrees"}),
    "worktrees/linked/HEAD": frozenset({"worktree", "worktrees"}),
    "worktrees/linked/gitdir": frozenset({"worktree", "worktrees"}),
    "HEAD": REFS | HEAD | {"index"},
    "config": REFS | HEAD | {"index"},
}
"""What is not told where each of these is a link, or what it leads to; all else is told."""


def link(root: Path, name: str) -> Path:
    """Let something in the git folder be a link; where it lies now."""
    elsewhere = root.parent / "elsewhere"
    (root / ".git" / name).rename(elsewhere)
    os.symlink(elsewhere, root / ".git" / name)
    return elsewhere


@pytest.fixture
def full(root: Path) -> Path:
    """The repository with a linked worktree, and refs that are packed and loose."""
    git(root, "pack-refs")
    git(root, "commit", "-q", "--allow-empty", "-m", "more")
    git(root, "worktree", "add", "-q", "-b", "side", str(root.parent / "linked"))
    return root


@pytest.mark.few(6)
@pytest.mark.parametrize("name", LINKED)
def test_what_is_a_link_is_named_and_not_read_through_and_the_rest_is_told(
    full: Path, name: str
) -> None:
    before = ProgramGit(str(full), identity_at).seen()
    link(full, name)
    asked = ProgramGit(str(full), identity_at)
    seen = asked.seen()
    assert seen.untold.keys() == LINKED[name]
    assert {*seen.untold.values()} - {""} <= {
        f"{what}.git/{name} is a symbolic link"
        for what in ("", "the refs: ", "the index: ", "the linked worktrees: ")
    }
    told = {k: v for k, v in before.names.items() if not is_untold(k, seen.untold)}
    assert seen.names == told
    found = seen.files.get(name)
    assert found is None or found.kind == "symlink"
    inside = (f"{name}/", *seen.untold)
    assert {path for path in before.files if not path.startswith(inside)} <= seen.files.keys()


SCRIPT = """
import sys
from loom_audit.disk.access.identity import identity_at
from loom_audit.sandbox.git.program_git import ProgramGit

asked = ProgramGit(sys.argv[1], identity_at)
asked.distances([(one, None) for one in asked.seen().names.values() if len(one) == 40])
"""


@pytest.mark.few(2)
@pytest.mark.parametrize("name", LINKED)
def test_nothing_is_opened_behind_a_link(full: Path, name: str) -> None:
    if not shutil.which("strace"):
        pytest.skip("without strace it is not seen what is opened")
    elsewhere, said = str(link(full, name)), full.parent / "said"
    words = ("strace", "-f", "-e", "trace=open,openat", "-o", str(said))
    subprocess.run([*words, sys.executable, "-c", SCRIPT, str(full)], check=True)
    assert '".git"' in said.read_text()
    for line in said.read_text().splitlines():
        if "= -1" not in line and "O_NOFOLLOW" not in line:
            opened = line.partition('"')[2].partition('"')[0]
            paths = opened, opened.rpartition(".git/")[2]
            assert not any(is_within(one, (elsewhere, name)) for one in paths), line


def test_what_stands_in_a_file_that_git_cannot_read_is_not_repeated(root: Path) -> None:
    (root / ".git/packed-refs").write_text("machine x password secret\n")
    untold = ProgramGit(str(root), identity_at).seen().untold
    assert untold["refs"] == "the refs: git cannot read the repository (exit 128)"
    assert "index" not in untold and "HEAD" not in untold
    assert "secret" not in str(untold)


def test_a_git_folder_that_is_a_link_is_named_and_not_read_through(root: Path) -> None:
    (root / ".git").rename(root.parent / "elsewhere")
    os.symlink(root.parent / "elsewhere", root / ".git")
    git = ProgramGit(str(root), identity_at)
    assert git.stamps(0).text
    with pytest.raises(ExecutionFailed, match="symbolic link, which is not read through"):
        git.seen()


def test_a_repository_above_the_workspace_is_not_looked_at(root: Path) -> None:
    below = root / "below"
    below.mkdir()
    assert ProgramGit(str(below), identity_at).stamps(0).text == ""
    (below / ".git").mkdir()
    assert ProgramGit(str(below), identity_at).seen().names == {}
    (below / ".git/HEAD").write_text("ref: refs/heads/main\n")
    assert ProgramGit(str(below), identity_at).seen().names == {}


def test_a_git_that_lies_in_the_workspace_is_not_run(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path(program(root)).rename(root / "git")
    monkeypatch.setenv("PATH", str(root), prepend=os.pathsep)
    assert ProgramGit(str(root), identity_at).seen().names["HEAD"] == "ref: refs/heads/main"
    assert not has_run(root)


def test_settings_that_are_a_pipe_are_waited_for_a_limited_time(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loom_audit.sandbox.git.program_git.SECONDS", 0.2)
    (root / ".git/config").unlink()
    os.mkfifo(root / ".git/config")
    untold = ProgramGit(str(root), identity_at).seen().untold
    assert untold["refs"] == untold["HEAD"] == untold["index"] == "git gave no answer in time"
    assert untold["config"] == ".git/config is not a file, or too large"


def test_a_ref_that_is_broken_is_named(root: Path) -> None:
    (root / ".git/refs/heads/broken").write_text("not an id\n")
    names = ProgramGit(str(root), identity_at).seen().names
    assert names["refs/heads/broken"] == "broken"
    assert names["refs/tags/v1"]


def test_a_detached_head_and_ids_of_sha_256_are_told(root: Path) -> None:
    git(root, "checkout", "-q", "--detach")
    assert ProgramGit(str(root), identity_at).seen().names["HEAD"] == git(root, "rev-parse", "HEAD")
    other = root.parent / "sha256"
    git(root, "init", "-q", "--object-format=sha256", str(other))
    git(other, "commit", "-q", "--allow-empty", "-m", "1")
    names = ProgramGit(str(other), identity_at).seen().names
    assert git(other, "rev-parse", "HEAD") in names.values()


@pytest.mark.parametrize("name", ["HEAD", "index", "refs/heads/other", "logs/HEAD", "packed-refs"])
def test_what_is_written_in_place_has_other_contents_until_it_is_as_before(
    root: Path, name: str
) -> None:
    git(root, "pack-refs")
    git(root, "branch", "other")
    path = root / ".git" / name
    content, asked = path.read_bytes(), ProgramGit(str(root), identity_at)
    first = asked.stamps(0)
    path.write_bytes(content[:-1] + b"?")
    second = asked.stamps(0)
    assert first.contents is not None and first.contents != second.contents
    path.write_bytes(content)
    third = asked.stamps(0)
    assert third.contents == first.contents and third.text != first.text


def test_a_ref_of_many_that_was_just_written_is_among_the_contents(root: Path) -> None:
    git(root, "pack-refs", "--all")
    for n in range(40):
        git(root, "branch", f"b{n:02}")
    asked = ProgramGit(str(root), identity_at)
    before = asked.stamps(0)
    (root / ".git/refs/heads/b39").write_text(f"{ABSENT}\n")
    assert asked.stamps(0).contents != before.contents


def test_contents_of_what_changed_long_ago_are_not_read(root: Path) -> None:
    assert ProgramGit(str(root), identity_at).stamps(2**62).contents == "['']"


def test_where_what_changed_cannot_be_read_there_are_no_contents(root: Path) -> None:
    os.mkfifo(root / ".git/refs/heads/pipe")
    assert ProgramGit(str(root), identity_at).stamps(0).contents is None


def test_of_too_many_reflogs_the_first_are_told_and_no_other_is_gone(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loom_audit.sandbox.git.files.MAX_LOGS", 3)
    for n in range(5):
        git(root, "branch", f"b{n}")
    seen = ProgramGit(str(root), identity_at).seen()
    logs = {path for path in seen.files if path.startswith("logs/")}
    assert len(logs) == 3 and {"logs/HEAD", "logs/refs/stash"} < logs
    assert seen.unseen == ("too many files in .git/logs",) and seen.untold == {"logs": ""}
    assert seen.names["stashes"]
