"""A repository whose own configuration names programs: none of them runs."""

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from loom_audit.tools.calls.settings import ToolSettings
from tests.tools.bundled.git.test_git import git, person, remote, repo
from tests.tools.conftest import Bench

__all__ = ["person", "remote", "repo"]


EMPTY = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
"""The id of an empty file's content."""


def program(root: Path, name: str = "it") -> str:
    """A program that leaves a mark outside the workspace and passes its input on."""
    name = re.sub("[^A-Za-z0-9.]", "-", name)  # some are run by a shell, and some are not
    script = root.parent / f"program-{name}"
    script.write_text(f"#!/bin/sh\ntouch {shlex.quote(f'{root.parent}/mark-{name}')}\ncat\n")
    script.chmod(0o755)
    return str(script)


def marked(root: Path) -> list[str]:
    """What ran."""
    return sorted(path.name for path in root.parent.glob("mark-*"))


def everything(bench: Bench, root: Path) -> None:
    """Every git tool once, with something for each to do."""
    (root / "notes.txt").write_text("again")
    os.utime(root / "src/main.py", ns=(1, 1))
    for tool, arguments in (
        ("git_status", {}),
        ("git_diff", {}),
        ("git_diff", {"from": "HEAD"}),
        ("git_diff", {"staged": True}),
        ("git_log", {}),
        ("git_log", {"paths": ["notes.txt"]}),
        ("git_commit", {"message": "one", "all": True}),
        ("git_push", {"set_upstream": True}),
    ):
        bench.call(tool, arguments)
    (root / "added.txt").write_text("1")
    bench.call("git_commit", {"message": "two\n\nTrailer: x", "paths": ["added.txt", "notes.txt"]})
    git(
        root,
        "-c",
        "core.fsmonitor=false",
        "-c",
        "core.hooksPath=/dev/null",
        "update-index",
        "--add",
        "--cacheinfo",
        f"100644,{EMPTY},staged.txt",
    )
    bench.call("git_commit", {"message": "three"})


KEYS = {
    "for everything": [
        "core.fsmonitor",
        "core.pager",
        "core.editor",
        "core.sshCommand",
        "core.askPass",
        "core.gitProxy",
        "core.alternateRefsCommand",
        "pager.log",
        "pager.diff",
        "pager.status",
        "credential.helper",
        "credential.https://example.org.helper",
        "diff.external",
        "diff.evil.command",
        "diff.evil.textconv",
        "gpg.program",
        "gpg.openpgp.program",
        "gpg.ssh.program",
        "gpg.ssh.defaultKeyCommand",
        "merge.evil.driver",
        "trailer.x.command",
        "trailer.x.cmd",
        "interactive.diffFilter",
        "sequence.editor",
        "alias.status",
        "alias.log",
        "alias.commit",
        "man.x.cmd",
        "browser.x.cmd",
        "uploadpack.packObjectsHook",
    ],
    "filters": ["filter.evil.clean", "filter.evil.smudge", "filter.evil.required"],
    "a filter's process": ["filter.evil.process"],
    "the remote": ["remote.origin.uploadpack", "remote.origin.receivepack"],
    "the remote's kind": ["remote.origin.vcs"],
}


@pytest.mark.few(1)
@pytest.mark.parametrize("keys", KEYS.values(), ids=KEYS)
def test_a_program_the_repository_names_does_not_run(
    bench: Bench, repo: Path, remote: Path, keys: list[str]
) -> None:
    (repo / ".gitattributes").write_text("* diff=evil filter=evil merge=evil\n")
    for key in keys:
        value = program(repo, key)
        if key.startswith("alias."):
            value = "!" + value
        git(repo, "config", key, "true" if key.endswith(".required") else value)
    git(repo, "config", "commit.gpgSign", "true")
    git(repo, "config", "push.gpgSign", "if-asked")
    git(repo, "config", "log.showSignature", "true")
    everything(bench, repo)
    assert marked(repo) == []


def test_that_the_programs_would_run_without_care(bench: Bench, repo: Path) -> None:
    """The traps above are real: plain git runs them."""
    value = program(repo)
    (repo / ".gitattributes").write_text("* diff=evil filter=evil\n")
    (repo / "notes.txt").write_text("again")
    for key, words in (
        ("core.fsmonitor", ["status"]),
        ("filter.evil.clean", ["status"]),
        ("diff.evil.textconv", ["diff"]),
        ("diff.external", ["diff"]),
        ("gpg.program", ["commit", "--gpg-sign", "--all", "--message=x"]),
    ):
        os.utime(repo / "src/main.py")
        git(repo, "config", key, value)
        subprocess.run(["git", *words], cwd=repo, capture_output=True, check=False)
        git(repo, "config", "--unset", key)
        assert marked(repo), key
        (repo.parent / "mark-it").unlink()


HOOKS = [
    "pre-commit",
    "prepare-commit-msg",
    "commit-msg",
    "post-commit",
    "pre-push",
    "post-index-change",
    "reference-transaction",
    "fsmonitor-watchman",
    "pre-auto-gc",
    "post-rewrite",
    "update",
    "pre-receive",
    "post-receive",
    "post-update",
    "proc-receive",
    "push-to-checkout",
]


@pytest.mark.few(1)
@pytest.mark.parametrize("configured", [False, True])
def test_hooks_do_not_run_neither_here_nor_in_a_remote_on_this_machine(
    bench: Bench, repo: Path, remote: Path, configured: bool
) -> None:
    value = program(repo)
    for place in (repo / ".git", remote):
        folder = place / "hooks"
        if configured:
            folder = repo.parent / f"hooks of {place.name}"
            git(place, "config", "core.hooksPath", str(folder))
        folder.mkdir(exist_ok=True)
        for name in HOOKS:
            (folder / name).unlink(missing_ok=True)
            (folder / name).symlink_to(program(repo, name))
    git(remote, "config", "core.alternateRefsCommand", value)
    (remote / "objects/info/alternates").write_text(f"{repo}/.git/objects\n")
    everything(bench, repo)
    assert bench.call("git_push", {}).success
    assert marked(repo) == []


def test_hooks_run_when_asked_for_and_what_they_change_is_on_record(
    bench: Bench, repo: Path
) -> None:
    hook = repo / ".git/hooks/pre-commit"
    hook.write_text("#!/bin/sh\necho hooked > hooked\n")
    hook.chmod(0o755)
    (repo / "notes.txt").write_text("2")
    result = bench.call("git_commit", {"message": "x", "all": True, "hooks": True})
    assert result.success and result.files_changed == ["hooked"]
    hook.write_text("#!/bin/sh\necho not so >&2; exit 1\n")
    (repo / "notes.txt").write_text("3")
    result = bench.call("git_commit", {"message": "x", "all": True, "hooks": True})
    assert result.error.code == "EXECUTION_ERROR" and "not so" in result.output


@pytest.mark.few(1)
@pytest.mark.parametrize("filter", ["evil", "a=b", "with space"])
def test_a_file_that_goes_through_the_repository_s_own_filter_is_not_committed(
    bench: Bench, repo: Path, filter: str
) -> None:
    value = program(repo)
    (repo / ".git/info/attributes").write_text('*.txt filter="x"\n')
    if " " not in filter:
        (repo / ".git/info/attributes").write_text(f"*.txt filter={filter}\n")
        git(repo, "config", f"filter.{filter}.clean", value)
        git(repo, "config", f"filter.{filter}.required", "true")
    else:
        git(repo, "config", "filter.x.process", value)
    (repo / "notes.txt").write_text("2")
    (repo / "src/main.py").write_text("2")
    head = git(repo, "rev-parse", "HEAD")
    assert bench.call("git_status", {}).data["entries"][0]["unstaged"] == "modified"
    assert bench.call("git_diff", {}).success
    for arguments in ({"all": True}, {"paths": ["."]}, {"paths": ["notes.txt"]}):
        result = bench.call("git_commit", {"message": "x", **arguments})
        if filter != "with space":
            assert result.error.code == "PERMISSION_DENIED" and result.error.hint
            assert result.error.details == {"path": "notes.txt", "filter": filter}
    if filter != "with space":
        assert git(repo, "rev-parse", "HEAD") == head
        assert bench.call("git_commit", {"message": "x", "paths": ["src"]}).success
    assert marked(repo) == []


def test_a_filter_of_the_person_s_own_is_applied(bench: Bench, repo: Path, person: Path) -> None:
    with person.open("a") as stream:
        stream.write('[filter "mine"]\n\tclean = tr 2 3\n')
    (repo / ".gitattributes").write_text("*.txt filter=mine\n")
    (repo / "notes.txt").write_text("2")
    assert bench.call("git_commit", {"message": "x", "all": True}).success
    assert git(repo, "show", "HEAD:notes.txt") == "3"


def test_a_filter_of_the_person_s_own_that_cannot_be_seen_stops_the_commit(
    bench: Bench, repo: Path, person: Path
) -> None:
    """Passed over, it would let in what it is there to keep out."""
    value = program(repo)
    with person.open("a") as stream:
        stream.write(f'[filter "mine"]\n\tclean = {value}\n')
    (repo / ".gitattributes").write_text("*.txt filter=mine\n")
    (repo / "notes.txt").write_text("2")
    head, commit = git(repo, "rev-parse", "HEAD"), {"message": "x", "all": True}
    if bench.session.writer.attachment.on_disk.runner.name != "plain":
        result = bench.call("git_commit", commit)
        assert "filter" in str(result.error) and "docs/project-tools.md" in result.error.hint
        assert marked(repo) == [] and git(repo, "rev-parse", "HEAD") == head
    assert bench.call("git_commit", commit, settings=ToolSettings(confinement="off")).success
    assert marked(repo)


def test_a_repository_s_own_word_on_a_filter_of_the_person_s_is_not_heard(
    bench: Bench, repo: Path, person: Path
) -> None:
    value = program(repo)
    with person.open("a") as stream:
        stream.write('[filter "mine"]\n\tclean = cat\n[filter "same"]\n\tclean = cat\n')
    (repo / ".gitattributes").write_text("*.txt filter=mine\n*.py filter=same\n")
    git(repo, "config", "filter.mine.smudge", value)
    git(repo, "config", "filter.same.clean", "cat")
    (repo / "notes.txt").write_text("2")
    (repo / "src/main.py").write_text("2")
    assert bench.call("git_commit", {"message": "x", "paths": ["notes.txt"]}).error.code == (
        "PERMISSION_DENIED"
    )
    assert bench.call("git_commit", {"message": "x", "paths": ["src"]}).success
    git(repo, "config", "lfs.extension.x.clean", value)
    assert bench.call("git_status", {}).success
    assert marked(repo) == []


@pytest.mark.few(0)
def test_settings_that_are_included_count_as_the_repository_s(
    bench: Bench, repo: Path, remote: Path
) -> None:
    value = program(repo)
    (repo.parent / "included").write_text(
        f"[core]\n\tfsmonitor = {value}\n\tsshCommand = {value}\n"
        f'[filter "evil"]\n\tclean = {value}\n'
    )
    git(repo, "config", "include.path", str(repo.parent / "included"))
    (repo / ".gitattributes").write_text("* filter=evil\n")
    everything(bench, repo)
    git(repo, "config", "extensions.worktreeConfig", "true")
    (repo / ".git/config.worktree").write_text(f"[diff]\n\texternal = {value}\n")
    everything(bench, repo)
    assert marked(repo) == []


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "url", ["ext::sh -c %S{}", "ssh://example.invalid/x", "git://example.invalid/x", "evil::x"]
)
def test_a_remote_s_address_runs_nothing(
    bench: Bench, repo: Path, remote: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = program(repo)
    (repo.parent / "bin").mkdir()
    (repo.parent / "bin/git-remote-evil").symlink_to(value)
    monkeypatch.setenv("PATH", f"{repo.parent}/bin:{os.environ['PATH']}")
    url = f"ext::{value}" if url.startswith("ext") else url
    git(repo, "config", "protocol.allow", "always")
    git(repo, "config", "protocol.ext.allow", "always")
    git(repo, "config", "core.sshCommand", value)
    git(repo, "config", "core.gitProxy", value)
    git(repo, "config", f"url.{url}.insteadOf", str(remote))
    result = bench.call("git_push", {})
    assert not result.success
    assert marked(repo) == []


def test_objects_that_are_missing_are_not_fetched(bench: Bench, repo: Path, remote: Path) -> None:
    value = program(repo)
    git(repo, "config", "core.repositoryFormatVersion", "1")
    git(repo, "config", "extensions.partialClone", "origin")
    git(repo, "config", "remote.origin.promisor", "true")
    git(repo, "config", "remote.origin.uploadpack", value)
    blob = git(repo, "rev-parse", "HEAD:notes.txt")
    (repo / ".git/objects" / blob[:2] / blob[2:]).unlink()
    (repo / "notes.txt").write_text("2")
    for tool in ("git_status", "git_diff", "git_log"):
        bench.call(tool, {})
    assert marked(repo) == []


def test_a_submodule_s_configuration_is_not_heard(bench: Bench, repo: Path) -> None:
    value = program(repo)
    inner = repo / "inner"
    inner.mkdir()
    git(inner, "init", "--quiet")
    (inner / "a.txt").write_text("1")
    git(inner, "add", "--all")
    git(inner, "commit", "--quiet", "--message=inner")
    git(repo, "add", "inner")
    git(repo, "commit", "--quiet", "--message=outer")
    git(inner, "config", "core.fsmonitor", value)
    git(inner, "config", "filter.evil.clean", value)
    (inner / ".git/info/attributes").write_text("* filter=evil\n")
    (inner / "a.txt").write_text("2")
    git(repo, "config", "diff.submodule", "diff")
    git(repo, "config", "submodule.recurse", "true")
    everything(bench, repo)
    assert marked(repo) == []


def test_a_bare_repository_among_the_workspace_s_own_files_is_none(bench: Bench) -> None:
    git(bench.root, "init", "--quiet", "--bare", ".")
    git(bench.root, "config", "core.fsmonitor", program(bench.root))
    assert not bench.call("git_status", {}).success
    assert marked(bench.root) == []


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "name",
    ["COMMIT_EDITMSG", "logs/HEAD", "logs/refs/heads/main", "index", "HEAD.lock/x", "logs", "lfs"],
)
def test_a_link_in_the_repository_is_not_written_through(
    bench: Bench, repo: Path, name: str
) -> None:
    """A confined command can make it, and where no sandbox works git follows."""
    outside = repo.parent / "outside"
    outside.mkdir()
    link = repo / ".git" / name
    link.parent.mkdir(exist_ok=True)
    if link.exists():
        link.rename(repo / "moved")
    link.symlink_to(outside / "profile")
    (repo / "notes.txt").write_text("again")
    for arguments in ({"all": True}, {"paths": ["notes.txt"]}):
        result = bench.call("git_commit", {"message": "touch mark", **arguments})
        assert result.error.code == "PERMISSION_DENIED", result
        assert result.error.details["path"] == str(link)
    assert not [*outside.iterdir()]


@pytest.mark.few(1)
@pytest.mark.parametrize("way", ["{root}/.venv/bin", "{way}/.venv/bin", ".venv/bin", ""])
def test_programs_in_the_workspace_are_not_taken_for_ours(
    bench: Bench, repo: Path, remote: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """The project's own environment is often first on PATH."""
    (repo.parent / "way").symlink_to(repo)
    folder = repo / ".venv/bin" if way else repo
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("git", "env", "ssh", "rg", "grep"):
        Path(program(repo, name)).rename(folder / name)
    first = way.format(root=repo, way=repo.parent / "way")
    monkeypatch.setenv("PATH", f"{first}:{os.environ['PATH']}")
    (repo / "notes.txt").write_text("again")
    for tool in ("git_status", "git_diff", "git_log"):
        assert bench.call(tool, {}).success
    assert bench.call("git_commit", {"message": "one", "all": True}).success
    bench.call("git_push", {})
    bench.call("search_files", {"pattern": "again"})
    assert marked(repo) == []
