"""Hostile and large repositories: nothing runs, nothing is written, all is said."""

import os
import subprocess
from collections.abc import Callable
from hashlib import sha1
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, ToolResult
from loom_audit.api.upkeep.git_mirror import kept_git, mirror_state
from loom_audit.model.git.words import words_of
from tests.history.look.test_git_nested import LIB, check_against_git, facts, repository
from tests.places.git_person import as_ann, git
from tests.sandbox.test_git import RUNNING, has_run, program

Call = Callable[..., ToolResult]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace with a repository at its top, and one below."""
    as_ann(monkeypatch)
    root = tmp_path / "workspace"
    repository(root)
    repository(root / LIB)
    return root


def written(root: Path) -> dict[str, tuple[int, int, int]]:
    """The state of everything in all git folders, but when it was read."""
    found = [path for path in root.rglob("*") if ".git" in path.parts]
    return {
        str(path): ((seen := path.lstat()).st_mtime_ns, seen.st_ctime_ns, seen.st_size)
        for path in found
    }


def newest_words(workspace: AuditedWorkspace) -> list[str]:
    newest, *_ = workspace.timeline.calls()
    return words_of(workspace.timeline.call(newest.requested).git)


def test_what_a_planted_repository_names_is_not_run_by_a_look_nor_by_what_reads_the_mirror(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    marking = program(root)
    for here in (root, root / LIB):
        (here / ".gitattributes").write_text("* filter=x diff=x merge=x\n")
        (here / ".git/info").mkdir(exist_ok=True)
        (here / ".git/info/attributes").write_text("* filter=x diff=x\n")
        for hook in ("reference-transaction", "post-index-change", "pre-auto-gc", "post-rewrite"):
            os.symlink(marking, here / ".git/hooks" / hook)
        settings = "".join(
            f'[{section}]\n\t{name} = "{"!" if section in ("alias", "credential") else ""}'
            f'{marking}"\n'
            for setting in RUNNING
            for first, _, rest in [setting.partition(".")]
            for second, dot, last in [rest.rpartition(".")]
            for section, name in [(f'{first} "{second}"' if dot else first, last)]
        )
        (here / "more").write_text(settings)
        with (here / ".git/config").open("a") as file:
            file.write(f"[include]\n\tpath = {here}/more\n{settings}")
        # as a command without git would move a branch
        head = (here / ".git/refs/heads/main").read_text()
        (here / ".git/refs/heads/made").write_text(head)
    before = written(root)
    call("shell_execute", command="true")
    assert written(root) == before
    call("shell_execute", command=f"rm .git/refs/heads/made {LIB}/.git/refs/heads/made")
    assert [one.split(" (was")[0] for one in newest_words(workspace)] == [
        "branch made deleted",
        f"{LIB}: branch made deleted",
    ]
    kept = kept_git(workspace, workspace.log.head())
    for words in (["log", "-p", "--all"], ["show", "HEAD"], ["blame", "HEAD", "--", "a.txt"]):
        kept.ask(words)
    state = mirror_state(workspace)
    assert state is not None and state.is_whole
    assert not has_run(root)


def test_names_of_250_bytes_are_on_record_and_shown_cut(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    long = "ü" * 125
    call("shell_execute", command="true")
    call(
        "shell_execute",
        command=f"git branch {long}; git tag {'t' * 250}; echo x > {long}; git add {long};"
        f" git commit -qm '{'m' * 250}'; echo y > {long}; git stash push -qm '{'s' * 250}';"
        f" git init -q {'r' * 250}; git -C {'r' * 250} commit -q --allow-empty -m one;"
        f" git worktree add -q {'w' * 250} {long}; echo true > .git/hooks/{'h' * 250}",
    )
    folders = {fact.folder for fact in facts(workspace)}
    assert folders == {"", LIB, "r" * 250, "w" * 250}
    told = newest_words(workspace)
    cut = f"{'ü' * 30}…{'ü' * 30}"
    assert any(f"branch {cut} created at" in one for one in told)
    assert any(f'stash made: "On main: {"s" * 250}"' in one for one in told)
    assert any(one.startswith("…rrr") and "HEAD" in one for one in told)
    check_against_git(workspace, "r" * 250)
    then = kept_git(workspace, workspace.log.head())
    assert then.blob("main", long) == b"x\n"
    assert then.blob("stash@{0}", long) == b"y\n"
    assert then.ask(["rev-parse", "--verify", long]).code == 0


def test_a_pack_that_says_it_has_more_objects_than_it_has_is_named_and_not_kept(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    call("shell_execute", command="true")
    lost = git(root, "commit-tree", "-m", "in the pack only", "HEAD^{tree}").strip()
    words = ["git", "pack-objects", "-q", ".git/objects/pack/pack"]
    subprocess.run(words, cwd=root, input=lost, text=True, check=True, capture_output=True)
    (root / ".git/objects" / lost[:2] / lost[2:]).unlink()
    [pack] = (root / ".git/objects/pack").glob("*.pack")
    content = bytearray(pack.read_bytes()[:-20])
    content[8:12] = (int.from_bytes(content[8:12], "big") + 1).to_bytes(4, "big")
    pack.chmod(0o600)
    pack.write_bytes(bytes(content) + sha1(content).digest())
    call("shell_execute", command="echo ref: refs/heads/other > .git/HEAD")
    newest, *_ = workspace.timeline.calls()
    said = "; ".join(one for one in newest.coverage.reasons if "git: " in one)
    assert f"first {pack.name}" in said and "not what they are named" in said, said
    mirror = workspace.attachment.on_disk.mirror
    assert mirror is not None
    asked = ["git", "cat-file", "-e", lost]
    folder = mirror.folder(long_ids=False)
    assert subprocess.run(asked, cwd=folder, capture_output=True).returncode != 0


@pytest.mark.parametrize("count", [300, pytest.param(50_000, marks=pytest.mark.deep)])
def test_each_of_many_packed_refs_is_on_record(
    workspace: AuditedWorkspace, root: Path, call: Call, count: int
) -> None:
    head = git(root, "rev-parse", "HEAD").strip()
    lines = "".join(f"create refs/heads/many/{n} {head}\n" for n in range(count))
    words = ["git", "update-ref", "--stdin"]
    subprocess.run(words, cwd=root, input=lines, text=True, check=True)
    git(root, "pack-refs", "--all")
    before = written(root)
    call("shell_execute", command="true")
    call("shell_execute", command="true")
    assert written(root) == before
    call("shell_execute", command=f"git branch -qD many/7 many/{count - 1}")
    told = sorted(one for one in newest_words(workspace) if "many/" in one)
    gone = (f"branch many/{n} deleted (was {head[:7]})" for n in (7, count - 1))
    assert told == sorted(gone)
    listed = kept_git(workspace, workspace.log.head()).ask(["for-each-ref", "--count=100000"])
    assert listed.output.count(b"refs/heads/many/") == count - 2
