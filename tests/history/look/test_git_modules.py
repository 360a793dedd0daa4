"""Submodules that are not checked out: HEAD and refs are on record, and objects are kept."""

import shutil
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, Session
from loom_audit.model.git.words import git_words
from tests.history.look.test_git_nested import LIB, facts, repository
from tests.history.look.test_git_untold import on_record, reasons
from tests.history.undo.test_git_taken_back import act
from tests.places.git_person import as_ann, git

AT = f"modules/{LIB}"
MODULE = f".git/{AT}"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace that is a repository with a submodule which is not checked out."""
    as_ann(monkeypatch)
    repository(tmp_path / "upstream")
    root = tmp_path / "workspace"
    repository(root)
    allowed = ("-c", "protocol.file.allow=always")
    git(root, *allowed, "submodule", "--quiet", "add", str(tmp_path / "upstream"), LIB)
    git(root, "commit", "-q", "-m", "with a submodule")
    git(root / LIB, "commit", "-q", "--allow-empty", "-m", "only here")
    git(root / LIB, "branch", "own")
    git(root, "submodule", "--quiet", "deinit", "-f", LIB)
    return root


def modules(workspace: AuditedWorkspace) -> dict[str, str]:
    """What the log has of the submodule, by name."""
    names = on_record(workspace).names.items()
    return {k.removeprefix(f"{AT} "): v for k, v in names if k.startswith(f"{AT} ")}


def as_git_says(root: Path) -> dict[str, str]:
    there = ("--git-dir", MODULE, "--work-tree", MODULE)
    refs = git(root, *there, "for-each-ref", "--format=%(refname) %(objectname) %(symref)")
    lines = (one.split(" ") for one in refs.splitlines())
    found = {name: f"ref: {led} {id}" if led else id for name, id, led in lines}
    return {"HEAD": "ref: " + git(root, *there, "symbolic-ref", "HEAD").strip(), **found}


def words(workspace: AuditedWorkspace) -> list[str]:
    return [*git_words(facts(workspace, "")[-1])]


def test_head_and_refs_there_are_on_record_and_their_objects_are_kept(
    workspace: AuditedWorkspace, root: Path, session: Session
) -> None:
    act(session, "true")
    assert modules(workspace) == as_git_says(root)
    own = modules(workspace)["refs/heads/own"]
    act(session, f"git --git-dir {MODULE} --work-tree {MODULE} branch -D own")
    assert words(workspace) == [f"{AT} refs/heads/own deleted (was {own[:7]})"]
    assert modules(workspace) == as_git_says(root)
    newest, *_ = workspace.timeline.calls()
    assert newest.coverage.reasons == (f"not taken back of git: {AT} refs/heads/own",)
    act(session, f"rm -rf {MODULE}")
    assert words(workspace) == [f"{AT} is checked out, or gone (HEAD was main)"]
    mirror = workspace.attachment.on_disk.mirror
    assert mirror is not None
    kept = git(Path(mirror.folder(long_ids=False)), "log", "-1", "--format=%s", own)
    assert kept == "only here\n"
    assert workspace.verify().findings == ()


def test_one_that_is_checked_out_is_told_there_and_not_here(
    workspace: AuditedWorkspace, root: Path, session: Session
) -> None:
    act(session, "true")
    act(session, f"git submodule --quiet update --init {LIB}")
    assert modules(workspace) == {}
    assert f"{AT} is checked out, or gone (HEAD was main)" in words(workspace)
    assert facts(workspace, LIB)[-1].is_first
    act(session, f"git submodule --quiet deinit -f {LIB}")
    assert modules(workspace).keys() >= {"HEAD", "refs/heads/own"}
    assert any(one.startswith(f"{AT} is not checked out: HEAD ") for one in words(workspace))
    assert facts(workspace, LIB)[-1].is_gone


def test_a_detached_head_there_and_a_submodule_in_it_are_told(
    workspace: AuditedWorkspace, root: Path, session: Session
) -> None:
    inner = root / MODULE / "modules/inner"
    shutil.copytree(root / MODULE, root.parent / "inner")
    shutil.move(root.parent / "inner", inner)
    act(session, "true")
    assert f"{AT}/modules/inner refs/heads/own" in on_record(workspace).names
    commit = modules(workspace)["refs/heads/own"]
    act(session, f"git --git-dir {MODULE} update-ref --no-deref HEAD {commit}")
    assert modules(workspace)["HEAD"] == commit


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (f"mv {MODULE}/objects o; ln -s $PWD/o {MODULE}/objects", "is a symbolic link"),
        (f"mv {MODULE}/refs r; ln -s $PWD/r {MODULE}/refs", "is a symbolic link"),
        (f"echo '[core' >> {MODULE}/config", "git cannot read the repository"),
    ],
)
def test_what_cannot_be_told_there_is_named_and_hides_nothing_else(
    workspace: AuditedWorkspace, root: Path, session: Session, damage: str, said: str
) -> None:
    act(session, "true")
    before = modules(workspace)
    act(session, f"{damage}; git tag made")
    [reason] = reasons(workspace)
    assert reason.startswith(f"git cannot be told: {AT}: ") and said in reason
    assert modules(workspace) == before
    assert "refs/tags/made" in on_record(workspace).names


def test_no_program_that_its_settings_name_is_run(
    workspace: AuditedWorkspace, root: Path, session: Session
) -> None:
    mark, program = root.parent / "mark", root.parent / "program"
    program.write_text(f"#!/bin/sh\necho run >> '{mark}'\n")
    program.chmod(0o755)
    with (root / MODULE / "config").open("a") as config:
        for section, key in (("core", "fsmonitor"), ("core", "pager"), ("pager", "for-each-ref")):
            config.write(f'[{section}]\n\t{key} = "{program}"\n')
        config.write(f"[core]\n\thooksPath = {root.parent}\n")
    act(session, "true")
    assert not mark.exists() and "refs/heads/own" in modules(workspace)


def test_more_than_are_looked_at_are_named(
    workspace: AuditedWorkspace, root: Path, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loom_audit.sandbox.git.modules.MOST_MODULES", 1)
    shutil.copytree(root / MODULE, root / ".git/modules/zz")
    act(session, "true")
    [said] = reasons(workspace)
    assert "more submodules, or folders of them" in said


def test_a_repository_that_comes_back_has_none_and_its_undo_is_whole(
    workspace: AuditedWorkspace, root: Path, session: Session
) -> None:
    act(session, "true")
    act(session, "rm -rf .git")
    workspace.carry_out(workspace.plan_undo())
    assert git(root, "log", "-1", "--format=%s") == "with a submodule\n"
    assert modules(workspace) == {} and workspace.verify().findings == ()
