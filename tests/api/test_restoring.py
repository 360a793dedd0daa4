"""Versions of a file that some program has kept, and one of them put back."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, AuditStore, Conflict
from loom_audit.api.upkeep.restoring import KeptVersion, plan_restoring, restore, versions_of

RECORDINGS = Path(__file__).parent.parent / "data" / "clients"
needs_git = pytest.mark.skipif(not shutil.which("git"), reason="git is not installed")


@pytest.fixture
def home(home: Path, tmp_path: Path) -> Path:
    """The user's folder, beside the test's own data folder."""
    assert home != tmp_path / "home"
    home = tmp_path / "home"
    home.mkdir()
    return home


def versions(
    file: Path, home: Path, workspace: AuditedWorkspace | None = None
) -> Sequence[KeptVersion]:
    return versions_of(file, workspace, {"HOME": str(home)})


def git(root: Path, *words: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main")
    environment = {**os.environ, "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null"}
    subprocess.run(
        ["git", *identity, *words], cwd=root, env=environment, check=True, capture_output=True
    )


def committed(root: Path, *contents: bytes) -> None:
    """A repository with these versions of one file, which a last commit deletes."""
    root.mkdir(parents=True, exist_ok=True)
    git(root, "init")
    for n, content in enumerate(contents):
        (root / "f.txt").write_bytes(content)
        git(root, "add", "f.txt")
        git(root, "commit", "-m", f"{n}")
    git(root, "rm", "f.txt")
    git(root, "commit", "-m", "gone")


def everything(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Each file below a folder with its time of change, size and content."""
    return {
        str(path): (path.stat().st_mtime_ns, path.stat().st_size, path.read_bytes())
        for path in folder.rglob("*")
        if path.is_file()
    }


@needs_git
def test_a_file_that_was_deleted_is_found_in_git_with_what_may_differ(
    tmp_path: Path, home: Path
) -> None:
    root = tmp_path / "w"
    committed(root, b"one\n", b"two\r\n")
    found = versions(root / "f.txt", home)
    assert {one.content for one in found} == {b"one\n", b"two\r\n"}
    assert all("line ends" in one.differs for one in found)
    assert any("commit" in one.origin for one in found)


@needs_git
def test_looking_into_a_hostile_repository_runs_nothing_and_writes_nothing(
    tmp_path: Path, home: Path
) -> None:
    root, ran = tmp_path / "w", tmp_path / "ran"
    committed(root, b"one\n", b"two\n")
    (root / "f.txt").write_bytes(b"three\n")
    git(root, "add", "f.txt")
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {ran}\ncat\n")
    program.chmod(0o755)
    hooks = root / ".git" / "hooks"
    for name in ("post-index-change", "reference-transaction", "fsmonitor-watchman"):
        (hooks / name).write_text(program.read_text())
        (hooks / name).chmod(0o755)
    (root / ".git" / "info" / "attributes").write_text("* filter=evil diff=evil\n")
    with (root / ".git" / "config").open("a") as config:
        config.write(
            f"[core]\n\tfsmonitor = {program}\n\tpager = {program}\n"
            f"\talternateRefsCommand = {program}"
            f'\n[filter "evil"]\n\tsmudge = {program}\n\tclean = {program}\n\trequired = true\n'
            f'[diff "evil"]\n\ttextconv = {program}\n\tcommand = {program}\n'
            f'[remote "origin"]\n\turl = ext::{program}\n\tpromisor = true\n'
            f"[extensions]\n\tpartialClone = origin\n[gpg]\n\tprogram = {program}\n"
            "[log]\n\tshowSignature = true\n"
        )
    before = everything(root)
    found = versions(root / "f.txt", home)
    assert {one.content for one in found} == {b"one\n", b"two\n", b"three\n"}
    assert not ran.exists()
    assert everything(root) == before
    subprocess.run(["git", "status"], cwd=root, capture_output=True, check=False)
    assert ran.exists(), "git by itself runs what the repository says"


@needs_git
@pytest.mark.parametrize("form", ["file", "link", "objects", "refs"])
def test_the_git_folder_of_a_victim_is_not_read(tmp_path: Path, home: Path, form: str) -> None:
    root, victim = tmp_path / "w", tmp_path / "victim"
    committed(victim, b"secret\n", b"another\n")
    committed(root, b"mine\n")
    mine, theirs = root / ".git", victim / ".git"
    if form in ("file", "link"):
        shutil.rmtree(mine)
    if form == "file":
        mine.write_text(f"gitdir: {theirs}\n")
    elif form == "link":
        mine.symlink_to(theirs)
    else:
        for name in {"objects", form}:
            shutil.rmtree(mine / name)
            (mine / name).symlink_to(theirs / name)
    assert versions(root / "f.txt", home) == []


@needs_git
def test_a_linked_worktree_and_a_submodule_of_the_workspace_are_read(
    store: AuditStore, tmp_path: Path, home: Path
) -> None:
    root, other = tmp_path / "w", tmp_path / "other"
    committed(root, b"mine\n")
    committed(other, b"of the submodule\n")
    git(root, "-c", "protocol.file.allow=always", "submodule", "add", str(other), "lib")
    git(root, "worktree", "add", "linked")
    workspace = store.attach(root)
    for folder, content in (("lib", b"of the submodule\n"), ("linked", b"mine\n")):
        found = versions(root / folder / "f.txt", home, workspace)
        assert {one.content for one in found} == {content}
    assert {one.content for one in versions(root / "linked/f.txt", home)} == {b"mine\n"}


def test_versions_are_found_in_transcripts_of_this_folder(tmp_path: Path, home: Path) -> None:
    root = tmp_path / "w"
    root.mkdir()
    for place, name, old in (
        (".claude/projects/x/a.jsonl", "claude-code/session.jsonl", "/home/dev/projects/claude"),
        (".codex/sessions/r.jsonl", "codex/rollout.jsonl", "/home/dev/projects/codex"),
    ):
        file = home / place
        file.parent.mkdir(parents=True)
        told = (RECORDINGS / name).read_bytes()
        file.write_bytes(told.replace(old.encode(), str(root).encode()))
    found = versions(root / "notes.txt", home)
    assert [one.content for one in found] == [
        b"one\nTWO\nthree\nfour\n",
        b"one\nTWO\nthree\n",
        b"one\ntwo\nthree\n",
    ]
    assert "after Claude Code, Bash toolu_7" in found[0].origin
    deleted = versions(root / "src/mod1/file2.py", home)
    assert [one.origin.split(",")[0] for one in deleted] == ["before Codex"]
    assert deleted[0].content.startswith(b"def f1_2(x):\n") and "client told" in deleted[0].differs


def test_a_version_on_record_is_exact_and_stands_for_equal_ones(
    workspace: AuditedWorkspace, root: Path, home: Path
) -> None:
    with workspace.session("agent") as session, session.recording("change"):
        (root / "a.txt").write_bytes(b"two\n")
    found = versions(root / "a.txt", home, workspace)
    assert [(one.content, one.differs) for one in found] == [(b"two\n", ""), (b"one\n", "")]


def test_what_is_put_back_is_on_record_and_taken_back(
    workspace: AuditedWorkspace, root: Path, home: Path
) -> None:
    with workspace.session("agent") as session, session.recording("delete"):
        (root / "a.txt").unlink()
    [version] = versions(root / "a.txt", home, workspace)
    plan = plan_restoring(workspace, root / "a.txt", version)
    assert plan.changes and not (root / "a.txt").exists()
    call = restore(workspace, plan)
    assert (root / "a.txt").read_bytes() == b"one\n"
    assert (call.tool, call.status) == ("restore", "ok")
    workspace.carry_out(workspace.plan_undo())
    assert not (root / "a.txt").exists()
    assert workspace.verify().ok


def test_a_file_that_changed_since_the_plan_is_left_alone(
    workspace: AuditedWorkspace, root: Path, home: Path
) -> None:
    version = KeptVersion(None, "somewhere", "", 0o644, b"old\n")
    plan = plan_restoring(workspace, root / "a.txt", version)
    (root / "a.txt").write_bytes(b"mine\n")
    with pytest.raises(Conflict):
        restore(workspace, plan)
    assert (root / "a.txt").read_bytes() == b"mine\n"


def test_nothing_is_put_outside_of_the_workspace(
    store: AuditStore, workspace: AuditedWorkspace, tmp_path: Path
) -> None:
    version = KeptVersion(None, "somewhere", "", 0o644, b"old\n")
    with pytest.raises(Exception, match="outside"):
        plan_restoring(workspace, tmp_path / "x", version)
