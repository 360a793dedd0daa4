"""Of a linked worktree outside of the workspace of its repository: its index and what goes on."""

import os
import shutil
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, Session
from loom_audit.history.record.git.not_back import ELSEWHERE
from loom_audit.model.git.record import GitState
from loom_audit.model.git.words import git_words
from tests.history.look import test_git_tape as tape
from tests.history.look.test_git_nested import facts, repository
from tests.history.look.test_git_untold import on_record, reasons
from tests.history.undo.test_git_taken_back import act
from tests.places.git_person import as_ann, git

ENTRY = "worktrees/outside"


STEPS = (
    "git worktree add -q ../linked{m} --detach",
    "git worktree remove --force ../linked{m}",
    "rm -rf ../linked{m}; git worktree prune",
    "cd ../linked{m} && echo x{n} > g{n} && git add -A",
    "cd ../linked{m} && git add -N .",
    "cd ../linked{m} && git rm -q --cached f0",
    "cd ../linked{m} && git commit -qam w{n}",
    "cd ../linked{m} && git reset -q --hard HEAD~1",
    "cd ../linked{m} && git checkout -q --detach main",
    "cd ../linked{m} && git rebase -q main",
    "cd ../linked{m} && git bisect start",
    "cd ../linked{m} && git status",
    "cd ../linked{m} && git update-index --split-index",
    "cd ../linked{m} && git update-index --skip-worktree f0",
    "cd ../linked{m} && git sparse-checkout set --no-cone f1",
)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace that is a repository with a linked worktree beside it."""
    as_ann(monkeypatch)
    root = tmp_path / "workspace"
    repository(root)
    git(root, "worktree", "add", "-q", "-b", "side", "../outside")
    return root


def words(workspace: AuditedWorkspace) -> list[str]:
    return [*git_words(facts(workspace)[-1])]


def content(workspace: AuditedWorkspace, state: GitState, path: str) -> bytes:
    return workspace.timeline.content(state.files[path])


def check_against_git(workspace: AuditedWorkspace, linked: Path) -> None:
    """The index on record is what git says there, and the file is on record."""
    state = on_record(workspace)
    entries = content(workspace, state, f"{ENTRY}/index entries").decode()
    assert entries == git(linked, "ls-files", "-s", "-v", "-z")
    assert f"{ENTRY}/index" in state.files
    assert workspace.verify().findings == ()


def test_what_is_staged_there_is_on_record_and_kept(
    workspace: AuditedWorkspace, root: Path, session: Session
) -> None:
    linked = root.parent / "outside"
    act(session, "true")
    check_against_git(workspace, linked)
    (linked / "f.txt").write_text("staged elsewhere\n")
    act(session, "git -C ../outside add f.txt")
    assert words(workspace) == ["worktree outside: index changed"]
    check_against_git(workspace, linked)
    newest, *_ = workspace.timeline.calls()
    assert newest.coverage.reasons == (f"not taken back of git: {ELSEWHERE}",)
    staged = git(linked, "rev-parse", ":f.txt").strip()
    act(session, "git -C ../outside reset -q --hard; git gc -q --prune=now")
    mirror = workspace.attachment.on_disk.mirror
    assert mirror is not None
    kept = git(Path(mirror.folder(long_ids=False)), "cat-file", "-p", staged)
    assert kept == "staged elsewhere\n"


def test_that_git_only_reads_there_is_no_change(
    workspace: AuditedWorkspace, root: Path, session: Session
) -> None:
    act(session, "true")
    before = len(facts(workspace))
    os.utime(root.parent / "outside/f.txt", (1, 1))
    act(session, "git -C ../outside status")
    assert len(facts(workspace)) == before


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("git merge -q --no-commit --no-ff feat", "merge in progress"),
        ("git bisect start", "bisect in progress"),
        ("git commit -q --allow-empty -m x; git rebase -q -x false feat", "rebase in progress"),
        ("git sparse-checkout set --no-cone other", "index changed"),
        ("git update-ref ORIG_HEAD HEAD~1", "changed there: ORIG_HEAD"),
    ],
)
def test_what_goes_on_there_is_on_record(
    workspace: AuditedWorkspace, root: Path, session: Session, command: str, said: str
) -> None:
    act(session, "true")
    act(session, f"cd ../outside; {command}; true")
    told = words(workspace)
    assert any(one.startswith("worktree outside: ") and said in one for one in told), told
    check_against_git(workspace, root.parent / "outside")


def test_one_that_comes_is_recorded_and_one_that_goes_is_said_once(
    workspace: AuditedWorkspace, root: Path, session: Session
) -> None:
    act(session, "true")
    act(session, "git worktree add -q ../second feat")
    assert "worktree second: recorded" in words(workspace)
    act(session, "git worktree remove ../second")
    [said] = (one for one in words(workspace) if "second" in one)
    assert said.startswith(f"worktree {root.parent}/second deleted (was feat ")
    assert not any(one.startswith("worktrees/second/") for one in on_record(workspace).files)


def test_one_in_the_workspace_is_told_there_only(
    workspace: AuditedWorkspace, root: Path, session: Session
) -> None:
    git(root, "worktree", "add", "-q", "inside", "feat")
    act(session, "true")
    assert not any(one.startswith("worktrees/inside/") for one in on_record(workspace).files)


def test_an_undo_leaves_it_and_a_repository_that_comes_back_has_none(
    workspace: AuditedWorkspace, root: Path, session: Session
) -> None:
    act(session, "true")
    linked = root.parent / "outside"
    (linked / "f.txt").write_text("staged\n")
    act(session, "git -C ../outside add f.txt; git tag made")
    workspace.carry_out(workspace.plan_undo())
    assert "made" not in git(root, "tag") and git(linked, "diff", "--cached", "--name-only")
    check_against_git(workspace, linked)
    act(session, "rm -rf .git")
    workspace.carry_out(workspace.plan_undo())
    assert git(root, "log", "-1", "--format=%s").strip() == "c1"
    assert not (root / ".git/worktrees").exists()
    assert workspace.verify().findings == ()


@pytest.mark.parametrize("path", ["index", "logs", "rebase-merge"])
def test_what_is_behind_a_link_there_is_named_and_not_read(
    workspace: AuditedWorkspace, root: Path, session: Session, path: str
) -> None:
    act(session, "true")
    secret = root.parent / "secret"
    secret.mkdir()
    (secret / "HEAD").write_text("secret\n")
    there = root / ".git" / ENTRY / path
    if path == "index":
        shutil.copy(there, secret / "index")
        git(root, "worktree", "add", "-q", "../other")
        target = secret / "index"
        there.unlink()
    else:
        target = secret
        shutil.rmtree(there, ignore_errors=True)
    there.symlink_to(target)
    act(session, "true")
    state = on_record(workspace)
    assert all(
        content(workspace, state, one) != b"secret\n" for one in state.files if "entries" not in one
    )
    if path == "rebase-merge":
        assert state.files[f"{ENTRY}/{path}"].kind == "symlink"
    else:
        assert f"git cannot be told: .git/{ENTRY}/{path} is a symbolic link" in reasons(workspace)


def test_an_index_there_that_git_cannot_read_is_named_and_hides_nothing_else(
    workspace: AuditedWorkspace, root: Path, session: Session
) -> None:
    act(session, "true")
    (root / ".git" / ENTRY / "index").write_bytes(b"no index")
    act(session, "git tag made")
    [said] = reasons(workspace)
    assert said.startswith(f"git cannot be told: the index in {ENTRY}: git cannot read")
    state = on_record(workspace)
    assert "refs/tags/made" in state.names and f"{ENTRY}/index entries" in state.files
    (root / ".git" / ENTRY / "index").unlink()
    git(root.parent / "outside", "reset", "-q")
    act(session, "true")
    check_against_git(workspace, root.parent / "outside")


def test_more_than_are_looked_at_are_named(
    workspace: AuditedWorkspace, root: Path, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loom_audit.sandbox.git.elsewhere.MOST_ELSEWHERE", 1)
    git(root, "worktree", "add", "-q", "../second", "feat")
    act(session, "true")
    [said] = reasons(workspace)
    assert "linked worktrees outside of the workspace" in said
    assert f"{ENTRY}/index" in on_record(workspace).files


def test_no_program_that_settings_there_name_is_run(
    workspace: AuditedWorkspace, root: Path, session: Session
) -> None:
    mark, linked = root.parent / "mark", root.parent / "outside"
    program = root.parent / "program"
    program.write_text(f"#!/bin/sh\necho run >> '{mark}'\n")
    program.chmod(0o755)
    git(root, "config", "extensions.worktreeConfig", "true")
    (linked / "f.txt").write_text("more\n")
    git(linked, "add", "f.txt")
    lines = ("core.fsmonitor", "core.pager", "pager.ls-files", "filter.x.clean", "diff.external")
    settings = "".join(
        f'[{section}]\n\t{key} = "{program}"\n'
        for section, _, key in (one.partition(".") for one in lines)
        if "." not in key
    )
    (root / ".git" / ENTRY / "config.worktree").write_text(
        f"{settings}[core]\n\tworktree = /\n\thooksPath = {root.parent}\n"
    )
    act(session, "true")
    assert not mark.exists()
    entries = content(workspace, on_record(workspace), f"{ENTRY}/index entries")
    assert git(root, "hash-object", str(linked / "f.txt")).strip().encode() in entries


@pytest.mark.parametrize(
    ("seed", "steps"), [(27, 25), pytest.param(0, 300, marks=pytest.mark.deep)]
)
@pytest.mark.timeout(3600)
def test_after_each_step_of_a_tape_the_record_of_those_outside_is_what_git_says(
    workspace: AuditedWorkspace,
    root: Path,
    session: Session,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    steps: int,
) -> None:
    monkeypatch.setenv("GIT_EDITOR", "true")
    monkeypatch.setattr(tape, "COMMANDS", (*tape.COMMANDS, *STEPS, *STEPS))
    tape.play_on(workspace, root, seed, steps, lambda one: act(session, one))
    tape.check_mirror(workspace)
    assert workspace.verify().findings == ()
