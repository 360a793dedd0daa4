"""Who commits in a confined command: the person, unless the repository or the settings say else."""

import os
from pathlib import Path

import pytest

from loom_audit.tools.bundled.git import repository
from loom_audit.tools.bundled.git.identity import gitconfig
from loom_audit.tools.bundled.git.person_config import Setting
from loom_audit.tools.calls.settings import ToolSettings
from tests.tools.bundled.git.test_git import git, person, repo
from tests.tools.conftest import Bench

__all__ = ["person", "repo"]

COMMIT = "date >> notes.txt; git commit --quiet --all --message=by-command"
AUTHOR = "--format=%an <%ae>"
NOBODY = ToolSettings(git_identity="none")


@pytest.fixture(autouse=True)
def confined(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    if bench.session.writer.attachment.on_disk.runner.name == "plain":
        pytest.skip("no sandbox works on this machine")
    for who in ("AUTHOR", "COMMITTER"):
        monkeypatch.delenv(f"GIT_{who}_NAME", raising=False)
        monkeypatch.delenv(f"GIT_{who}_EMAIL", raising=False)


def author(root: Path) -> str:
    return git(root, "log", "--max-count=1", AUTHOR)


def test_a_commit_in_bash_bears_the_person_s_name(bench: Bench, repo: Path) -> None:
    result = bench.call("bash", {"command": COMMIT})
    assert result.success, result.output
    assert git(repo, "log", "--max-count=1", "--format=%s %an %cn <%ce>") == (
        "by-command Ann Ann <ann@example.org>"
    )
    code = {"language": "bash", "code": COMMIT.replace("by-command", "by-code")}
    assert bench.call("run_code", code).success
    assert git(repo, "log", "--max-count=1", "--format=%s %an") == "by-code Ann"


def test_what_the_repository_says_wins(bench: Bench, repo: Path) -> None:
    git(repo, "config", "user.name", "Of The Repository")
    assert bench.call("bash", {"command": COMMIT}).success
    assert author(repo) == "Of The Repository <ann@example.org>"


def test_what_the_person_says_for_this_folder_holds(
    bench: Bench, repo: Path, person: Path, tmp_path: Path
) -> None:
    work = tmp_path / "gitconfig-work"
    work.write_text("[user]\n\temail = ann@work.example\n")
    more = f'[includeIf "gitdir:{repo}/"]\n\tpath = {work}\n'
    person.write_text(person.read_text() + more)
    assert bench.call("bash", {"command": COMMIT}).success
    assert author(repo) == "Ann <ann@work.example>"
    work.write_text("[user]\n\temail = ann@new.example\n")  # it is looked at again
    assert bench.call("bash", {"command": COMMIT}).success
    assert author(repo) == "Ann <ann@new.example>"


def test_a_repository_that_is_made_by_the_command_has_it_too(bench: Bench) -> None:
    made = "git init -q && git add -A && git commit -q -m first && git log --format=%an"
    assert bench.call("bash", {"command": made}).data["stdout"] == "Ann\n"


def test_nothing_else_of_the_person_s_configuration_is_shown(
    bench: Bench, repo: Path, person: Path
) -> None:
    person.write_text(person.read_text() + "[github]\n\ttoken = secret\n")
    listed = bench.call("bash", {"command": "git config --global --list"}).data["stdout"]
    assert listed.splitlines() == ["user.email=ann@example.org", "user.name=Ann"]


def test_with_none_nobody_s_name_is_used(
    bench: Bench, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for who in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{who}_NAME", "Ann")
        monkeypatch.setenv(f"GIT_{who}_EMAIL", "ann@example.org")
    before = git(repo, "rev-parse", "HEAD")
    refused = bench.call("bash", {"command": COMMIT}, settings=NOBODY)
    assert not refused.success and git(repo, "rev-parse", "HEAD") == before
    tool = bench.call("git_commit", {"message": "x", "all": True}, settings=NOBODY)
    assert tool.error.code == "PERMISSION_DENIED" and "git_identity" in tool.error.hint
    git(repo, "config", "user.name", "Robot")
    git(repo, "config", "user.email", "robot@example.org")
    assert bench.call("bash", {"command": COMMIT}, settings=NOBODY).success
    assert author(repo) == "Robot <robot@example.org>"
    assert bench.call("bash", {"command": "echo x >> notes.txt"}).success
    tool = bench.call("git_commit", {"message": "x", "all": True}, settings=NOBODY)
    assert tool.success and author(repo) == "Robot <robot@example.org>"


def test_a_name_is_written_as_git_reads_it(bench: Bench, person: Path) -> None:
    name = 'A "B" \\ C # D; \u00c9'
    git(bench.root, "config", "--file", str(person), "user.name", name)
    told = bench.call("bash", {"command": "git config user.name"}).data["stdout"]
    assert told == f"{name}\n"


def test_only_what_the_person_set_is_written() -> None:
    listed = [
        Setting("global", "file:/x", "user.name", "Ann\n[core]\n\tpager = evil"),
        Setting("local", "file:.git/config", "user.email", "planted@example.org"),
        Setting("global", "file:/x", "core.pager", "less"),
    ]
    assert gitconfig(listed) == b'[user]\n\tname = "Ann\\n[core]\\n\tpager = evil"\n'


def test_which_commit_a_command_made_is_in_its_result_and_on_record(
    bench: Bench, repo: Path
) -> None:
    made = bench.call("bash", {"command": COMMIT})
    commit = git(repo, "rev-parse", "HEAD")
    assert f"[HEAD: {commit[:12]} on main]" in made.output
    assert f"[HEAD: {commit[:12]} on main]" in bench.last().result["output"]
    assert "HEAD" not in bench.call("bash", {"command": "git status"}).output
    git(repo, "branch", "other")
    git(repo, "pack-refs", "--all")
    assert "HEAD" not in bench.call("bash", {"command": "git log"}).output.split("\n")[-1]
    switched = bench.call("bash", {"command": "git checkout -q other"})
    assert f"[HEAD: {commit[:12]} on other]" in switched.output
    code = {"language": "bash", "code": "git checkout -q --detach"}
    assert f"[HEAD: {commit[:12]}, detached]" in bench.call("run_code", code).output


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", ["pipe", "folder", "link", "other text"])
def test_a_head_that_is_none_is_not_told(
    bench: Bench, repo: Path, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repository, "SECONDS", 2.0)  # git waits for who writes into the pipe
    head = repo / ".git/HEAD"
    head.unlink()
    if kind == "pipe":
        os.mkfifo(head)
    elif kind == "folder":
        head.mkdir()
    elif kind == "link":
        (tmp_path / "secret").write_text("0123456789" * 4)
        head.symlink_to(tmp_path / "secret")
    else:
        head.write_text("ref: refs/heads/../../../../secret")
    assert bench.call("bash", {"command": "echo x"}).output == "x"
    head.rmdir() if kind == "folder" else head.unlink()
    head.write_text("ref: refs/heads/main\n")
