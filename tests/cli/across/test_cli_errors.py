"""Whatever goes wrong with whatever command: the exit code, and what to do next."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.shells import Shell


def test_errors_with_json_are_one_object(audited: Shell) -> None:
    failed = audited("show", "9999", "--json", code=4)
    assert failed.stdout == b""
    assert json.loads(failed.errors)["error"]["code"] == "NOT_FOUND"
    assert json.loads(audited("undo", "--json", code=4).errors)["error"]["code"] == "NOT_FOUND"


def test_the_store_named_before_or_after_the_command_is_used(shell: Shell, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'other' / 'audit.db'}"
    shell("--store", store, "init")
    assert shell("status", "--store", store)
    assert "hint: " in shell("status", code=4).errors


@pytest.mark.parametrize("command", ["status", "undo", "recover"])
def test_looking_at_a_workspace_that_vanished_says_how_to_get_it_back(
    audited: Shell, command: str
) -> None:
    audited.call("write_file", path="a.txt", content="x")
    audited.workspace.rename(audited.workspace.with_name("moved"))
    place = ("--workspace", str(audited.workspace))
    refused = audited(command, *place, code=None if command == "recover" else 4, cwd=audited.home)
    assert refused.code in (0, 4)
    assert refused.code == 0 or "replay" in refused.errors


@pytest.mark.parametrize("number", ["9" * 19, "9" * 30])
def test_a_number_beyond_any_event_is_not_found(audited: Shell, number: str) -> None:
    for command in (("show", number), ("revert", number), ("diff", "--call", number)):
        refused = audited(*command, code=4)
        assert "hint: " in refused.errors and "internal" not in refused.errors
    for command in (("log", "--from", number), ("diff", number), ("rollback", number)):
        audited(*command, code=4)


def test_a_folder_that_is_not_there_is_in_no_workspace(audited: Shell) -> None:
    assert "hint: " in audited("--workspace", "typo", "log", code=4).errors
    audited("--workspace", "src", "log")


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "command", [("init",), ("status",), ("doctor",), ("mcp",), ("run", "true")]
)
def test_a_data_folder_that_is_relative_is_refused(shell: Shell, command: tuple[str, ...]) -> None:
    """Each folder in which a command is run would have a store of its own."""
    relative = replace(shell, extra={"LOOM_AUDIT_HOME": "kept/here"}, real=True)
    refused = relative(*command, code=None)
    assert refused.code in (2, 125)
    assert "LOOM_AUDIT_HOME is a relative path: kept/here" in refused.errors
    assert "hint: " in refused.errors and not (shell.workspace / "kept").exists()


def test_an_agent_without_a_name_is_refused(audited: Shell) -> None:
    audited("call", "read_file", '{"path": "a.txt"}', "--agent", "", code=2)
    audited("run", "--agent", " ", "--", "true", code=125)
    assert audited.records("session") == []


def test_a_group_named_alone_asks_for_a_command(shell: Shell) -> None:
    refused = shell("db", code=2)
    assert (
        refused.errors
        == "error: loom-audit db needs a command\nhint: See `loom-audit db --help`.\n"
    )


@pytest.mark.parametrize(
    "words",
    [
        ("--workspace", "", "undo"),
        ("--store", "", "log"),
        ("init", ""),
        ("replay", "head", "--to", ""),
        ("salvage", "--to", ""),
        ("undo", "--choose", "=old"),
        ("log", "--since", ""),
        ("log", "--until", ""),
        ("log", "--from", ""),
        ("log", "--to", ""),
        ("rollback", ""),
        ("revert", ""),
    ],
)
def test_an_empty_text_is_refused_and_never_taken_for_the_default(
    audited: Shell, words: tuple[str, ...]
) -> None:
    audited.call("write_file", path="b.txt", content="x")
    disk, head = audited.tree(), audited.records("status")[0]["head"]
    refused = audited(*words, code=2)
    assert "hint: " in refused.errors and refused.text == ""
    assert (audited.tree(), audited.records("status")[0]["head"]) == (disk, head)


def test_the_program_named_alone_prints_its_help(shell: Shell) -> None:
    alone = shell(code=2)
    assert "Take back:\n" in alone.text and "rollback" in alone.text
    assert alone.errors.startswith("error: loom-audit needs a command\n")
    assert shell("--json", "db", code=2).text == ""


def test_an_option_without_its_value_is_of_the_command_it_was_given_to(shell: Shell) -> None:
    refused = shell("--store", "x.db", "run", "--agent", code=125)
    assert "`loom-audit run --help`" in refused.errors
    assert "`loom-audit log --help`" in shell("log", "--tool", code=2).errors


def test_where_no_workspace_is_the_error_names_what_lists_them(audited: Shell) -> None:
    for words in (("--workspace", "typo", "log"), ("--workspace", "/", "log")):
        refused = audited(*words, code=4)
        assert "`loom-audit workspaces` lists" in refused.errors and "--workspace" in refused.errors


def test_looking_makes_no_store(shell: Shell) -> None:
    for arguments in (("status",), ("log",), ("workspaces",), ("db", "current"), ("verify",)):
        refused = shell(*arguments, code=4)
        assert "hint: " in refused.errors
    assert not shell.home.exists()


def test_a_corrupted_store_is_an_error_with_a_hint_and_no_traceback(audited: Shell) -> None:
    audited.database.write_bytes(b"\0" * 8192)
    for arguments in (("log",), ("undo",), ("status",)):
        refused = audited(*arguments, code=None)
        assert refused.code in (3, 4, 6), refused
        assert "hint: " in refused.errors
    assert audited("verify", code=4)
    assert audited("run", "--", "touch", "made", code=125)
    assert not (audited.workspace / "made").exists()
