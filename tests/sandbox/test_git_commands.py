"""Each git command of ours is run in a repository that names programs everywhere: none is run."""

import ast
import os
import subprocess
from pathlib import Path

import pytest

import loom_audit.sandbox.git
from loom_audit.sandbox.git.program import ask_git, find_git
from tests.places.git_person import as_ann

READING: dict[str, tuple[tuple[str, ...], ...]] = {
    "for-each-ref": (("--format=%(HEAD)%(objectname) %(refname) %(symref)",),),
    "symbolic-ref": (("-q", "HEAD"),),
    "rev-parse": (("-q", "--verify", "HEAD"),),
    "ls-files": (("-s", "-v", "-z", "--debug"),),
    "log": (
        ("-g", "-z", "--no-patch", "--format=%H%x09%gd%x09%gs", "refs/stash", "--"),
        ("-g", "--all", "-z", "--no-patch", "--format=%H%x09%gn", "--"),
    ),
    "worktree": (("list", "--porcelain", "-z"),),
    "rev-list": (
        ("--count", "--left-right", "HEAD~1...HEAD", "--"),
        ("--objects", "--quiet", "--missing=print", "--stdin"),
        ("--objects", "--stdin"),
    ),
    "cat-file": (("--batch-check=%(objectname) %(objecttype)",), ("--batch",)),
    "pack-objects": (("--stdout", "-q"),),
    "fsck": (("--full", "--no-dangling", "--no-progress"),),
}
WRITING: dict[str, tuple[tuple[str, ...], ...]] = {
    "update-ref": (
        ("--no-deref", "-m", "note", "refs/heads/other", "HEAD"),
        ("--create-reflog", "-m", "note", "refs/stash", "HEAD"),
    ),
    "symbolic-ref": (("-m", "note", "HEAD", "refs/heads/other"),),
    "pack-refs": (("--all",),),
    "index-pack": (("--strict", "--stdin"),),
}
COMMANDS = [
    (name, *words)
    for commands in (READING, WRITING)
    for name, ways in commands.items()
    for words in ways
]
SETTINGS = (
    *("core.fsmonitor", "core.pager", "core.sshCommand", "core.editor", "core.gitProxy"),
    *("core.askPass", "core.alternateRefsCommand", "filter.x.clean", "filter.x.smudge"),
    *("filter.x.process", "diff.x.textconv", "diff.x.command", "diff.external", "gpg.program"),
    *("uploadpack.packObjectsHook", "interactive.diffFilter", "sequence.editor", "gpg.ssh.program"),
    *(f"pager.{name}" for name in {**READING, **WRITING}),
)
SHELL_SETTINGS = (
    "credential.helper",
    *(f"alias.{name}" for name in {**READING, **WRITING}),
)
HOOKS = ("reference-transaction", "post-index-change", "fsmonitor-watchman", "pre-auto-gc")


def git(root: Path, *words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=root, capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a stash, a tag and a linked worktree, which names a program everywhere."""
    as_ann(monkeypatch)
    monkeypatch.setenv("PAGER", str(tmp_path / "program"))
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
    git(root, "worktree", "add", "-q", "--detach", str(tmp_path / "linked"))
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\necho \"$0 $*\" >> '{tmp_path}/mark'\n")
    program.chmod(0o755)
    for name in HOOKS:
        os.symlink(program, root / ".git/hooks" / name)
    config = root / ".git/config"
    # written at once: git itself would run what the first of them names
    lines = [(setting, str(program)) for setting in SETTINGS]
    lines += [(setting, f"!{program}") for setting in SHELL_SETTINGS]
    lines += [("extensions.partialClone", "origin"), ("remote.origin.promisor", "true")]
    lines += [("remote.origin.url", f"ext::{program}"), ("protocol.ext.allow", "always")]
    text = config.read_text().replace("repositoryformatversion = 0", "repositoryformatversion = 1")
    for setting, value in lines:
        section, _, key = setting.rpartition(".")
        outer, _, inner = section.partition(".")
        header = f'{outer} "{inner}"' if inner else outer
        text += f'[{header}]\n\t{key} = "{value}"\n'
    config.write_text(text)
    return root


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_no_command_of_ours_runs_a_program_that_the_repository_names(
    root: Path, words: tuple[str, ...]
) -> None:
    head = (root / ".git/refs/heads/main").read_bytes()
    given = head + b"1" * 40 + b"\n"
    if words[0] == "pack-objects":
        given = head
    if words[0] == "index-pack":
        packing = ["git", "-c", "core.fsmonitor=false", "pack-objects", "--stdout", "-q"]
        given = subprocess.run(
            packing, cwd=root, input=head, capture_output=True, check=True
        ).stdout
        (root.parent / "mark").unlink(missing_ok=True)
    folders = {"GIT_DIR": f"{root}/.git", "GIT_COMMON_DIR": f"{root}/.git"}
    folders["GIT_WORK_TREE"] = str(root)
    program = find_git(str(root))
    [done] = ask_git(program, str(root), folders, words, seconds=20, given=given)
    assert not (root.parent / "mark").exists(), (root.parent / "mark").read_text()
    assert done.code == 0 or words[0] in ("fsck", "rev-list"), done.errors


@pytest.mark.parametrize("words", [("status",), ("update-ref", "refs/heads/other", "HEAD")])
def test_the_repository_s_programs_run_for_others(root: Path, words: tuple[str, ...]) -> None:
    subprocess.run(["git", *words], cwd=root, capture_output=True)
    assert (root.parent / "mark").exists()


def test_every_command_of_ours_is_tried_here() -> None:
    listed = subprocess.check_output(["git", "--list-cmds=main"], text=True).split()
    used = set()
    for module in Path(loom_audit.sandbox.git.__path__[0]).glob("*.py"):
        for node in ast.walk(ast.parse(module.read_text("utf-8"))):
            if isinstance(node, ast.Tuple) and node.elts:
                first = node.elts[0]
                if isinstance(first, ast.Constant) and first.value in listed:
                    used.add(first.value)
    assert used - {"config"} == {*READING, *WRITING}  # "config" is the name of a file there
