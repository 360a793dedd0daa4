"""Git is confined: what changes the repository while git reads it runs nothing outside."""

import os
import shlex
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from loom_audit.history.ground.questions import ApprovalRequest
from loom_audit.tools.approvals.asking_gate import AskingGate
from loom_audit.tools.bundled.git.repository import Repository
from loom_audit.tools.bundled.text import decode
from loom_audit.tools.calls.context import ToolContext
from loom_audit.tools.calls.gate import Decision
from loom_audit.tools.calls.result import ToolResult
from loom_audit.tools.calls.settings import ToolSettings
from loom_audit.tools.calls.tool import Tool
from tests.tools.bundled.git.test_git import git, person, remote, repo
from tests.tools.conftest import Bench

__all__ = ["person", "remote", "repo"]

OFF = ToolSettings(confinement="off")


@pytest.fixture
def confined(bench: Bench) -> Bench:
    """Only where a sandbox works here."""
    if bench.session.writer.attachment.on_disk.runner.name == "plain":
        pytest.skip("no sandbox works on this machine")
    return bench


@contextmanager
def swapping(repo: Path, added: str) -> Iterator[None]:
    """Put settings into the repository's configuration and out again, all the time."""
    config, over = repo / ".git/config", threading.Event()
    clean = config.read_text()

    def run() -> None:
        while not over.is_set():
            for text in (clean + added, clean):
                new = repo / ".git/config.new"
                new.write_text(text)
                new.rename(config)
                os.utime(repo / "notes.txt")
                over.wait(0.004)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def marking(repo: Path) -> tuple[Path, Path]:
    """A program in the workspace, and the mark it leaves outside of it."""
    program, mark = repo / "prog", repo.parent / "mark"
    program.write_text(f"#!/bin/sh\ntouch {shlex.quote(str(mark))}\ncat\n")
    program.chmod(0o755)
    (repo / ".gitattributes").write_text("* filter=zz\n")
    return program, mark


@pytest.mark.parametrize("times", [1, pytest.param(5, marks=pytest.mark.deep)])
def test_a_filter_that_comes_and_goes_while_git_looks_runs_nothing_outside(
    confined: Bench, repo: Path, times: int
) -> None:
    program, mark = marking(repo)
    added = f'[filter "zz"]\n\tclean = {program}\n'
    with swapping(repo, added):
        ended = [confined.call("git_status", {}).success for _ in range(8 * times)]
        ended += [confined.call("git_diff", {}).success for _ in range(times)]
        for n in range(times):
            (repo / "notes.txt").write_text(f"{n}")
            confined.call("git_commit", {"message": "x", "paths": ["notes.txt"]})
    assert any(ended) and not mark.exists()
    # the trap is real: plain git runs it
    with (repo / ".git/config").open("a") as stream:
        stream.write(added)
    git(repo, "hash-object", "--path=notes.txt", "notes.txt")
    assert mark.exists()


@pytest.mark.parametrize("times", [3, pytest.param(10, marks=pytest.mark.deep)])
def test_a_remote_s_program_that_comes_and_goes_does_not_run_in_a_push(
    bench: Bench, repo: Path, remote: Path, times: int
) -> None:
    program, mark = marking(repo)
    program.write_text(f"#!/bin/sh\ntouch {shlex.quote(str(mark))}\nexit 1\n")
    with swapping(repo, f'[remote "origin"]\n\treceivepack = {program}\n'):
        ended = [bench.call("git_push", {}).success for _ in range(times)]
    assert any(ended) and not mark.exists()
    git(repo, "config", "remote.origin.receivepack", str(program))
    words = ["git", "push", "origin", "main"]
    subprocess.run(words, cwd=repo, capture_output=True, check=False, timeout=30)
    assert mark.exists()


def test_reading_writes_nothing_in_the_workspace_whatever_runs(confined: Bench, repo: Path) -> None:
    """Also when a program gets by: here nothing of the repository's is switched off."""

    class Status(Tool):
        name = "status"
        description = "asks git, and switches nothing off"
        effect = "read"

        async def execute(self, args: Any, ctx: ToolContext) -> ToolResult:
            asked = Repository(ctx, root=str(ctx.workspace), confinement="preferred")
            done = await asked.ask("status", "--porcelain")
            return ToolResult(True, decode(done.stdout + done.stderr))

    confined.registry.register(Status())
    program = repo / "prog"
    program.write_text("#!/bin/sh\necho x > written\nhead -c 1 ~/.gitconfig >&2\ncat\n")
    program.chmod(0o755)
    (repo / ".gitattributes").write_text("* filter=zz\n")
    git(repo, "config", "filter.zz.clean", f"{program}; touch {repo}/ran")
    os.utime(repo / "notes.txt", ns=(1, 1))
    said = confined.call("status", {})
    assert said.success and str(program) in said.output, "the program ran"
    assert not (repo / "written").exists() and not (repo / "ran").exists()


def test_the_person_s_files_are_read_those_they_include_too(
    confined: Bench, repo: Path, person: Path, tmp_path: Path
) -> None:
    (tmp_path / "more").write_text("[user]\n\tname = Bea\n\temail = bea@example.org\n")
    (tmp_path / "ignored").write_text("*.log\n")
    person.write_text(
        f"[include]\n\tpath = {tmp_path}/more\n[core]\n\texcludesFile = {tmp_path}/ignored\n"
    )
    (repo / "a.log").write_text("1")
    assert confined.call("git_status", {}).data["clean"]
    (repo / "notes.txt").write_text("2")
    assert confined.call("git_commit", {"message": "x", "all": True}).success
    assert git(repo, "log", "-1", "--format=%an") == "Bea"
    assert confined.last().sandbox != "plain"


def test_a_home_with_a_configuration_in_each_of_its_places(
    confined: Bench, repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "someone"
    (own / ".config/git").mkdir(parents=True)
    (own / ".gitconfig").write_text("[user]\n\tname = Cy\n")
    (own / ".config/git/config").write_text("[user]\n\temail = cy@example.org\n")
    (own / ".config/git/ignore").write_text("*.log\n")
    monkeypatch.setenv("HOME", str(own))
    monkeypatch.delenv("GIT_CONFIG_GLOBAL")
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    (repo / "a.log").write_text("1")
    (repo / "notes.txt").write_text("2")
    assert confined.call("git_commit", {"message": "x", "paths": ["."]}).success
    assert git(repo, "log", "-1", "--format=%an %ae") == "Cy cy@example.org"
    assert "a.log" not in git(repo, "ls-files")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("own", [False, True])
def test_as_root_in_a_repository_of_another_user_the_error_says_what_to_do(
    confined: Bench, repo: Path, own: bool
) -> None:
    (repo / "notes.txt").write_text("2")
    folders = [repo / ".git", *(p for p in (repo / ".git").rglob("*") if p.is_dir())]
    for folder in folders[own:]:
        os.chown(folder, 12345, 12345)
    result = confined.call("git_commit", {"message": "x", "all": True})
    assert result.error.code == "EXECUTION_ERROR", result
    assert "tools.toml" in result.error.hint, result


# --- where a push goes --------------------------------------------------------------------


class Person:
    """Answers yes as often as told, and moves the remote while deciding."""

    def __init__(self, repo: Path, yes: int, target: str, *, lasting: bool = False) -> None:
        self.repo, self.yes, self.target, self.lasting = repo, yes, target, lasting
        self.shown: list[tuple[str, str]] = []

    def __call__(self, request: ApprovalRequest) -> Decision:
        self.shown.append((request.reason, request.preview))
        if self.target:
            git(self.repo, "config", "remote.origin.url", self.target)
        allowed = len(self.shown) <= self.yes
        return Decision("allowed" if allowed else "denied", "person:test", lasting=self.lasting)


@pytest.fixture
def other(tmp_path: Path) -> Path:
    git(tmp_path, "init", "--quiet", "--bare", str(tmp_path / "other.git"))
    return tmp_path / "other.git"


def test_a_remote_moved_while_somebody_decides_is_asked_about_again(
    bench: Bench, repo: Path, remote: Path, other: Path
) -> None:
    person = Person(repo, 1, str(other))
    result = bench.call("git_push", {}, gate=AskingGate(ask=person))
    assert result.error.code == "APPROVAL_DENIED"
    assert [str(remote) in person.shown[0][n] for n in (0, 1)] == [True, True]
    assert str(other) in person.shown[1][1] and str(remote) not in person.shown[1][1]
    assert git(other, "for-each-ref") == git(remote, "for-each-ref") == ""


def test_a_yes_for_the_session_holds_for_this_address_only(
    bench: Bench, repo: Path, remote: Path, other: Path
) -> None:
    person = Person(repo, 1, "", lasting=True)
    gate = AskingGate(ask=person)
    assert bench.call("git_push", {}, gate=gate).success
    assert bench.call("git_push", {}, gate=gate).success and len(person.shown) == 1
    git(repo, "config", "remote.origin.url", str(other))
    assert bench.call("git_push", {}, gate=gate).error.code == "APPROVAL_DENIED"
    assert len(person.shown) == 2 and git(other, "for-each-ref") == ""


def test_a_remote_that_moves_after_the_answer_is_a_conflict(
    bench: Bench, repo: Path, remote: Path, other: Path
) -> None:
    class Gate:
        async def decide(
            self, tool: Tool, args: Any, ctx: ToolContext, *, asked: str = ""
        ) -> Decision:
            git(repo, "config", "remote.origin.pushurl", str(other))
            return Decision("allowed", "gate:test")

    result = bench.call("git_push", {}, gate=Gate())
    assert result.error.code == "CONFLICT" and str(other) in str(result.error)
    assert git(other, "for-each-ref") == git(remote, "for-each-ref") == ""


def test_an_address_is_written_anew_as_git_would_write_it(
    bench: Bench, repo: Path, remote: Path, other: Path, person: Path
) -> None:
    """By the person's settings and by the repository's, odd names included."""
    name = 'a "b" \\ c'
    git(repo, "config", f"url.{other}.insteadOf", f"x:{name}")
    git(repo, "remote", "add", "second", f"x:{name}")
    assert bench.call("git_push", {"remote": "second"}).data["url"] == str(other)
    with person.open("a") as stream:
        stream.write(f'[url "{remote}"]\n\tpushInsteadOf = y:\n')
    git(repo, "remote", "add", "third", "y:")
    assert bench.call("git_push", {"remote": "third"}).data["url"] == str(remote)
    git(repo, "remote", "add", "fourth", "../other.git")
    assert bench.call("git_push", {"remote": "fourth"}).data["status"] == "[up to date]"


def test_a_shallow_clone_and_a_tag_with_a_message_are_pushed(
    bench: Bench, repo: Path, remote: Path
) -> None:
    for n in range(3):
        git(repo, "commit", "--quiet", "--allow-empty", f"--message={n}")
    git(repo, "push", "--quiet", "origin", "main")
    git(repo, "fetch", "--quiet", "--depth=1", "origin", "main")
    assert git(repo, "rev-parse", "--is-shallow-repository") == "true"
    git(repo, "tag", "--annotate", "--message=it", "v1")
    (repo / "notes.txt").write_text("2")
    assert bench.call("git_commit", {"message": "x", "all": True}).success
    assert bench.call("git_push", {"set_upstream": True}).success
    assert bench.call("git_push", {"ref": "v1"}).success
    assert git(remote, "cat-file", "-t", "v1") == "tag"
    assert git(remote, "rev-list", "--count", "main") == "5"
    status = bench.call("git_status", {}).data
    assert (status["upstream"], status["ahead"], status["behind"]) == ("origin/main", 0, 0)
