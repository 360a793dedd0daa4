"""The first hour of a newcomer: a folder that is not under audit yet, a client, a repository."""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.cli.shells import Shell, at_terminal, new_shell


@pytest.fixture
def person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A person in a folder that is not under audit, whose data folder is not a temporary one."""
    elsewhere = tmp_path / "temporary"
    elsewhere.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(elsewhere))
    shell = new_shell(tmp_path)
    shell.extra |= {"HOME": str(tmp_path)}
    return shell


@pytest.fixture
def below(person: Shell) -> Shell:
    """The same, in a folder of a git repository."""
    subprocess.run(["git", "init", "-q", str(person.workspace)], check=True)
    person.workspace = person.workspace / "src"
    return person


def repository(shell: Shell) -> Path:
    return shell.workspace.parent


# --- run ----------------------------------------------------------------------------------


def test_a_run_puts_the_folder_under_audit_when_it_is_told_to(person: Shell) -> None:
    refused = person("run", "--", "touch", "made", code=125)
    assert "`loom-audit run --init -- COMMAND`" in refused.errors
    assert not (person.workspace / "made").exists() and not person.home.exists()
    ran = person("run", "--init", "--", "touch", "made")
    assert f"{person.workspace} is under audit" in ran.errors and not ran.text
    assert "git repository" not in ran.errors
    assert person.records("log")[0]["paths"] == ["made"]
    again = person("run", "--init", "--", "touch", "more")
    assert "is under audit" not in again.errors


@pytest.mark.parametrize(("answer", "code"), [(b"y\n", 0), (b"n\n", 125), (b"\n", 125)])
def test_at_a_terminal_a_run_asks_whether_to_put_the_folder_under_audit(
    person: Shell, answer: bytes, code: int
) -> None:
    ended, printed = at_terminal(
        person, "run", "--", "touch", "made", answer=answer, after=b"[y/N]"
    )
    assert (ended, f"Put {person.workspace} under audit?" in printed) == (code, True)
    assert ("nothing was run" in printed) == (code != 0)
    assert (person.workspace / "made").exists() == (code == 0)
    assert person.home.exists() == (code == 0)


@pytest.mark.parametrize("answer", ["r", "f", "n"])
def test_below_a_repository_a_run_asks_which_of_both_is_meant(below: Shell, answer: str) -> None:
    ended, printed = at_terminal(
        below, "run", "--", "touch", "made", answer=answer.encode() + b"\n", after=b"[n]:"
    )
    assert f"is in the git repository {repository(below)}" in printed
    roots = {"r": repository(below), "f": below.workspace}
    if answer == "n":
        assert ended == 125 and not below.home.exists()
        return
    assert ended == 0 and (below.workspace / "made").exists()
    assert [one["root"] for one in below.records("workspaces")] == [str(roots[answer])]


def test_below_a_repository_a_run_that_is_told_to_names_the_way_to_take_all(below: Shell) -> None:
    told = below("run", "--init", "--", "true").errors
    assert "only a part of the git repository" in told
    assert "branches, stashes and commits is not on record" in told
    assert f"`loom-audit workspaces forget {below.workspace}`" in told
    assert f"`loom-audit init {repository(below)}`" in told


def test_nothing_is_put_under_audit_for_a_command_that_is_not_there(person: Shell) -> None:
    refused = person("run", "--init", "--", "no-such-client-xyz", code=125)
    assert "Command not found: no-such-client-xyz" in refused.errors
    assert "Nothing was put under audit" in refused.errors and not person.home.exists()


def test_a_run_makes_no_store_where_one_was_lost(person: Shell) -> None:
    person("run", "--init", "--", "true")  # of which a head is kept
    person.database.unlink()
    (person.home / "audit.db-wal").unlink(missing_ok=True)
    refused = person("run", "--init", "--", "touch", "made", code=125)
    assert "Restore it from a backup" in refused.errors
    assert not (person.workspace / "made").exists() and not person.database.exists()


def test_a_client_that_is_not_installed_is_said_to_be_missing(person: Shell) -> None:
    person("init")
    person.extra["PATH"] = "/usr/bin:/bin"
    told = person("run", "--", "codex", code=127).errors
    assert "Command not found: codex" in told and "trusts" not in told


# --- init ---------------------------------------------------------------------------------


def test_init_says_what_is_recorded_and_where(person: Shell) -> None:
    (person.workspace / ".env").write_text("TOKEN=1\n")
    (person.workspace / "src" / "server.key").write_text("key\n")
    (person.workspace / "node_modules").mkdir()
    told = person("init")
    assert "that git ignores, and secrets (.env, src/server.key)\n" in told.text
    assert "not recorded: what is in .git, in node_modules, and what .loomignore names" in told.text
    assert f"store: {person.database}\n" in told.text
    assert re.search(r"\n       [\d.]+ [KM]iB on disk", told.text)
    assert f"`loom-audit workspaces forget {person.workspace}` erases what is" in told.errors
    assert "git repository" not in told.errors
    (where,) = person.records("db", "path")
    assert where["on_disk"] > 0 and " on disk" in person("db", "path").errors


def test_init_below_a_repository_names_the_way_to_take_all(below: Shell) -> None:
    told = below("init")
    assert f"part of the git repository {repository(below)}" in told.errors
    assert "part of" not in below("init", code=None, cwd=repository(below)).errors


# --- connect ------------------------------------------------------------------------------


def test_a_client_is_connected_by_what_is_typed_to_start_it(person: Shell) -> None:
    assert "claude-code is connected" in person("connect", "claude").text
    assert "claude-code is not connected any more" in person("connect", "--remove", "claude").text


def test_what_would_be_written_is_printed_where_there_is_no_store(person: Shell) -> None:
    printed = person("connect", "--print", "claude").text
    assert "hook_client.py claude-code" in printed
    assert not person.home.exists() and not (person.workspace / ".claude").exists()
    assert "was not connected" in person("connect", "--remove", "codex").text
    assert not person.home.exists()


def test_a_connected_client_that_is_not_found_is_said(person: Shell, tmp_path: Path) -> None:
    person.extra["PATH"] = str(tmp_path / "bin")
    assert "`codex` is not found on your PATH" in person("connect", "codex").text
    program = tmp_path / "bin" / "codex"
    program.parent.mkdir()
    program.write_text("")
    program.chmod(0o755)
    assert "not found" not in person("connect", "codex").text


def test_connect_below_a_repository_names_the_way_to_take_all(below: Shell) -> None:
    told = below("connect", "gemini")
    assert f"part of the git repository {repository(below)}" in told.errors
    assert "part of" not in below("connect", "gemini").errors


@pytest.mark.parametrize("answer", ["r", "n"])
def test_at_a_terminal_connect_asks_below_a_repository(below: Shell, answer: str) -> None:
    below.extra["TMPDIR"] = str(below.home.parent / "temporary")
    ended, printed = at_terminal(
        below, "connect", "gemini", answer=answer.encode() + b"\n", after=b"[n]:"
    )
    settings = repository(below) / ".gemini" / "settings.json"
    assert (ended == 0, settings.exists()) == (answer == "r", answer == "r"), printed
    assert not (below.workspace / ".gemini").exists()


def test_in_a_linked_worktree_a_client_that_does_not_look_there_is_advised(person: Shell) -> None:
    git = ["git", "-C", str(person.workspace), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", "init", "-q", str(person.workspace)], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "one"], check=True)
    assert "linked worktree" not in person("connect", "codex").text
    tree = person.workspace.parent / "tree"
    subprocess.run([*git, "worktree", "add", "-q", str(tree)], check=True, capture_output=True)
    person.workspace = tree
    told = person("connect", "codex").text
    assert "in a linked worktree" in told and "`loom-audit connect --user codex`" in told
    assert "linked worktree" not in person("connect", "claude").text


def test_codex_waits_three_seconds_at_an_end_and_its_question_is_named(person: Shell) -> None:
    told = person("connect", "codex").text
    assert "`Hooks need review`" in told and "`Trust all and continue`" in told
    settings = json.loads((person.workspace / ".codex" / "hooks.json").read_text())
    seconds = {name: one[0]["hooks"][0]["timeout"] for name, one in settings["hooks"].items()}
    assert (seconds.pop("SessionEnd"), seconds.pop("Interrupt")) == (3, 3)
    assert set(seconds.values()) == {600}


# --- lists --------------------------------------------------------------------------------


def test_lists_show_the_command_as_typed_and_what_was_started_is_on_record(
    person: Shell, tmp_path: Path
) -> None:
    program = tmp_path / "bin" / "claude"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\n")
    program.chmod(0o755)
    person("init")
    person.extra["PATH"] = f"{program.parent}:/usr/bin:/bin"
    person("run", "--", "claude", "do it")
    (call,) = person.records("log")
    assert call["summary"] == "claude 'do it'"
    (shown,) = person.records("show", str(call["seq"]))
    assert shown["arguments"]["argv"][:2] == ["claude", "--settings"]


# --- words that somebody tries ------------------------------------------------------------


def test_help_and_an_undo_of_a_call_say_what_is_meant(person: Shell) -> None:
    assert "It is `loom-audit undo --help`" in person("help", "undo", code=2).errors
    assert "It is `loom-audit --help`" in person("help", code=2).errors
    for verb in ("undo", "redo"):
        assert "`loom-audit revert CALL`" in person(verb, "42", code=2).errors


def test_a_workspace_that_is_not_there_is_said_to_be_missing(person: Shell) -> None:
    person("init")
    missing = person("--workspace", str(person.workspace / "gone"), "log", code=4).errors
    assert f"there is no {person.workspace / 'gone'}" in missing


def test_a_file_that_never_was_a_store_is_not_taken_for_a_damaged_one(person: Shell) -> None:
    other = person.home.parent / "notes.txt"
    other.write_text("milk, bread\n" * 100)
    assert "If it never was one" in person("--store", str(other), "log", code=6).errors
    assert other.read_text() == "milk, bread\n" * 100


def test_a_store_in_the_folder_that_is_to_be_recorded_is_refused_and_said_so(person: Shell) -> None:
    store = person.workspace / "audit.db"
    errors = person("--store", str(store), "init", code=5).errors
    assert f"{person.workspace} lies in the folder of the store" in errors
    assert "Give the store a folder of its own" in errors


def test_forgetting_what_is_not_a_workspace_names_the_list(person: Shell) -> None:
    person("init")
    errors = person("workspaces", "forget", "/nowhere", "--yes", code=4).errors
    assert "`loom-audit workspaces` lists them" in errors


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be in the folder of somebody else")
def test_root_that_connects_in_the_folder_of_somebody_else_is_told_who_cannot_run_the_hook(
    person: Shell,
) -> None:
    person.workspace.mkdir(exist_ok=True)
    os.chown(person.workspace, 65534, -1)
    said = person("connect", "claude").errors
    assert "you are root, and" in said and "connect as they" in said
    os.chown(person.workspace, 0, -1)
    assert "you are root" not in person("connect", "claude").errors
