"""A batch that changed files ends with a commit of them, when somebody wants that."""

from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from loom_audit.model.events import TreeHead
from loom_audit.tools.bundled.git.commit_hook import AutoCommit, message_of
from loom_audit.tools.calls.batch import BatchOutcome
from loom_audit.tools.calls.messages import ToolCall
from loom_audit.tools.calls.result import ToolResult
from loom_audit.tools.calls.settings import tool_settings
from tests.tools.bundled.git.test_git import git, person, repo
from tests.tools.conftest import Bench

__all__ = ["person", "repo"]


def answer(after: int, *calls: tuple[str, dict[str, str]]) -> list[dict[str, Any]]:
    """A model's message, its calls numbered from the head of the log: no id comes twice."""
    return [
        {"type": "tool_use", "id": f"call-{after}-{n}", "name": name, "input": arguments}
        for n, (name, arguments) in enumerate(calls)
    ]


def run(
    bench: Bench, *calls: tuple[str, dict[str, str]], hooks: list[AutoCommit] | None = None
) -> BatchOutcome:
    hooks = [AutoCommit(bench.workspace.head, bench.root)] if hooks is None else hooks

    async def main() -> BatchOutcome:
        asked = answer(bench.workspace.log.head(), *calls)
        return await bench.session.batch(asked, hooks=hooks).run()

    return anyio.run(main)


def write(path: str, content: str = "1") -> tuple[str, dict[str, str]]:
    return "write_file", {"path": path, "content": content}


def test_a_folder_the_batch_changed_brings_nothing_else_that_lies_in_it(
    bench: Bench, repo: Path
) -> None:
    (repo / "src/main.py").write_text("a person's own")
    (repo / "src/secret").write_text("a person's own")
    call = "shell_execute", {"command": "chmod 750 src; echo 2 > src/made; mv notes.txt src"}
    [said] = run(bench, call).hooks
    assert said.ok
    assert git(repo, "show", "--name-only", "--no-renames", "--format=", "HEAD").split() == [
        "notes.txt",
        "src/made",
        "src/notes.txt",
    ]
    [said] = run(bench, ("shell_execute", {"command": "chmod 700 src"})).hooks
    assert said.ok and said.text == "nothing committed: no file changed"


def test_exactly_what_the_batch_changed_is_committed(bench: Bench, repo: Path) -> None:
    (repo / "mine").write_text("a person's own")
    (repo / "staged").write_text("a person's own")
    git(repo, "add", "staged")
    outcome = run(
        bench,
        write("src/new.py"),
        ("read_file", {"path": "gone"}),
        ("shell_execute", {"command": "echo 2 > made; rm notes.txt"}),
    )
    [said] = outcome.hooks
    assert said.ok and said.name == "auto-commit" and said.text.startswith("committed ")
    assert git(repo, "show", "--name-only", "--format=", "HEAD").split() == [
        "made",
        "notes.txt",
        "src/new.py",
    ]
    assert git(repo, "status", "--porcelain").split() == ["A", "staged", "??", "mine"]
    assert git(repo, "log", "-1", "--format=%s%n%b").splitlines()[:5] == [
        "write_file, shell_execute: 3 files",
        "- write_file src/new.py",
        "- read_file (FILE_NOT_FOUND)",
        "- shell_execute made, notes.txt",
        "",
    ]
    assert bench.requested()[-1].tool == "git_commit"
    bench.assert_every_call_has_one_finish()
    bench.assert_log_agrees_with_disk()


def test_the_trailer_names_the_tree_head_before_the_commit(bench: Bench, repo: Path) -> None:
    seen = []

    def head() -> TreeHead:
        seen.append(bench.workspace.head())
        return seen[-1]

    run(bench, write("new"), hooks=[AutoCommit(head, bench.root)])
    trailer = git(repo, "log", "-1", "--format=%(trailers:key=Loom-Audit-Head,valueonly)")
    assert trailer == f"{seen[0].size}:{seen[0].root.hex()}"
    assert bench.workspace.verify(against=seen[0]).ok


@pytest.mark.parametrize(
    ("calls", "said"),
    [
        ([("shell_execute", {"command": "true"})], "no file changed"),
        ([("shell_execute", {"command": "echo > a.log"})], "there is nothing to commit"),
        ([write("scratch://x")], "no file changed"),
    ],
)
def test_a_batch_that_changed_nothing_git_keeps_is_not_committed(
    bench: Bench, repo: Path, calls: list[tuple[str, dict[str, str]]], said: str
) -> None:
    (repo / ".git/info/exclude").write_text("*.log\n")
    outcome = run(bench, *calls)
    assert [(hook.ok, said in hook.text) for hook in outcome.hooks] == [(True, True)]
    assert git(repo, "log", "--format=%s") == "first"


def test_without_a_repository_or_without_git_the_batch_is_as_it_was(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    [said] = run(bench, write("x")).hooks
    assert said.ok and "not a git repository" in said.text
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/env").symlink_to("/usr/bin/env")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    outcome = run(bench, write("y"))
    [said] = outcome.hooks
    assert not said.ok and "git is not installed" in said.text
    assert outcome.results[0].success


def test_it_is_off_until_the_settings_say_so(bench: Bench, repo: Path) -> None:
    assert run(bench, write("x"), hooks=[]).hooks == ()
    bench.session.settings = replace(bench.session.settings, auto_commit=True)
    [said] = run(bench, write("y"), hooks=[]).hooks
    assert said.ok and git(repo, "show", "--name-only", "--format=", "HEAD") == "y"
    assert len(run(bench, write("z")).hooks) == 1
    assert tool_settings({"auto_commit": True}).auto_commit
    assert not tool_settings({}).auto_commit


def test_names_of_any_kind_make_a_message_of_lines(bench: Bench) -> None:
    odd = "a\nb\udcff" + "x" * 200
    results = tuple(ToolResult(True, files_changed=[odd]) for _ in range(150))
    calls = tuple(ToolCall(f"{n}", "bad\nname", {}) for n in range(150))
    message = message_of(BatchOutcome(calls, results, True), [odd], TreeHead("l", 7, b"\1" * 32))
    lines = message.splitlines()
    assert all(len(line) <= 100 for line in lines) and len(lines[0]) <= 72
    assert lines[1] == "" and len(lines) == 2 + 101 + 2 and "50 calls more" in message
    assert lines[-1] == "Loom-Audit-Head: 7:" + "01" * 32
    message.encode()
