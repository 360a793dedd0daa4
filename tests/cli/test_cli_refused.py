"""Calls that are refused: each is on record, and ends with the exit code of its error."""

import json
from pathlib import Path

import pytest

from loom_audit.api import open_store
from loom_audit.history.recorder import Recorder
from loom_audit.model.events import SessionStarted
from tests.cli.shells import Shell


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("read_file", {"path": "a.txt"}),
        ("write_file", {"path": "a.txt", "content": "x"}),
        ("list_directory", {"path": "."}),
        ("search_files", {"pattern": "one"}),
        ("shell_execute", {"command": "true"}),
    ],
)
def test_a_call_in_a_workspace_that_vanished_is_refused_on_record(
    audited: Shell, tool: str, arguments: dict[str, str]
) -> None:
    audited.workspace.rename(audited.workspace.with_name("moved"))
    place = ("--workspace", str(audited.workspace))
    (result,) = audited.records(
        "call", tool, json.dumps(arguments), *place, code=4, cwd=audited.home
    )
    assert result["error"]["code"] == "NO_WORKSPACE" and result["error"]["hint"]
    (call,) = audited.records("log", *place, cwd=audited.home)
    assert (call["tool"], call["status"]) == (tool, "error")
    (shown,) = audited.records("show", str(call["seq"]), *place, cwd=audited.home)
    assert shown["arguments"] == arguments
    assert not audited.workspace.exists()


def test_a_command_in_a_workspace_that_vanished_is_refused_on_record(audited: Shell) -> None:
    audited.workspace.rename(audited.workspace.with_name("moved"))
    place = ("--workspace", str(audited.workspace))
    refused = audited("run", *place, "--", "touch", "x", code=125, cwd=audited.home)
    assert "hint: " in refused.errors
    (call,) = audited.records("log", *place, cwd=audited.home)
    assert (call["tool"], call["status"]) == ("run", "error")
    assert not audited.workspace.exists()


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


def test_what_a_crash_left_waits_until_the_workspace_is_back(audited: Shell) -> None:
    with open_store(f"sqlite:///{audited.home / 'audit.db'}") as store:
        attachment = store.workspace(audited.workspace).attachment
        crashed = Recorder(attachment, session="gone", actor="agent:x")  # holds no session's lock
        crashed.record(SessionStarted("x"))
        crashed.begin("sh", {}, "execute", call_id="c").announce()
    moved = audited.workspace.rename(audited.workspace.with_name("moved"))
    place = ("--workspace", str(audited.workspace))
    arguments = json.dumps({"path": "a.txt"})
    audited("call", "read_file", arguments, *place, code=4, cwd=audited.home)
    calls = audited.records("log", *place, cwd=audited.home)
    assert {call["tool"]: call["status"] for call in calls} == {"sh": "open", "read_file": "error"}
    moved.rename(audited.workspace)
    audited("call", "read_file", arguments)
    assert [c["status"] for c in audited.records("log") if c["tool"] == "sh"] == ["interrupted"]


@pytest.mark.parametrize(
    "text", ["{", "", "nonsense", '{"path": "a.txt"', "[" * 100_000, '{"path": "\ud800'[:11]]
)
def test_arguments_that_are_not_json_are_refused_on_record(audited: Shell, text: str) -> None:
    refused = audited("call", "read_file", text, code=2)
    assert "no JSON" in refused.errors and "hint: " in refused.errors
    assert len(refused.errors.splitlines()) == 2
    (call,) = audited.records("log")
    assert (call["tool"], call["status"]) == ("read_file", "error")
    (shown,) = audited.records("show", str(call["seq"]))
    assert shown["arguments"] == text


def test_standard_input_that_is_no_text_is_refused_on_record(audited: Shell) -> None:
    audited("call", "read_file", "-", stdin=b'{"path": "\xff\xfe"', code=2)
    (call,) = audited.records("log")
    (shown,) = audited.records("show", str(call["seq"]))
    assert shown["arguments"] == '{"path": "\\xff\\xfe"'


@pytest.mark.parametrize(
    ("tool", "arguments", "code"),
    [
        ("read_file", {"path": "none"}, 4),
        ("read_file", {"path": "../x"}, 2),
        ("read_file", {"path": 7}, 2),
        ("read_file", [], 2),
        ("no_such_tool", {}, 4),
        ("edit_file", {"path": "a.txt", "old_str": "nowhere", "new_str": ""}, None),
        ("shell_execute", {"command": "exit 9"}, 1),
    ],
)
def test_a_failed_call_exits_by_the_table_of_errors(
    audited: Shell, tool: str, arguments: object, code: int | None
) -> None:
    from loom_audit.cli.shared import exits

    ran = audited("call", tool, json.dumps(arguments), "--json", code=code)
    (result,) = ran.records
    assert ran.code == exits.exit_code(result["error"]["code"]) != 0


def test_the_help_of_call_has_the_codes_its_errors_end_with(shell: Shell) -> None:
    text = shell("call", "--help").text
    for code in (0, 1, 2, 3, 4, 5, 6):
        assert f"\n  {code:>3}  " in text or f" {code}  " in text


def test_wrong_usage_of_run_exits_as_its_help_says(shell: Shell, tmp_path: Path) -> None:
    shell("run", "--no-such-option", code=125, cwd=tmp_path)
    shell("run", "--", "true", code=125, cwd=tmp_path)
    shell("run", code=125, cwd=tmp_path)
    assert "\n    2  " not in shell("run", "--help").text
    assert "also for wrong usage" in " ".join(shell("run", "--help").text.split())


@pytest.mark.parametrize("number", ["9" * 19, "9" * 30])
def test_a_number_beyond_any_event_is_not_found(audited: Shell, number: str) -> None:
    for command in (("show", number), ("revert", number), ("diff", "--call", number)):
        refused = audited(*command, code=4)
        assert "hint: " in refused.errors and "internal" not in refused.errors
    for command in (("log", "--from", number), ("diff", number), ("rollback", number)):
        audited(*command, code=4)


def test_a_file_of_rules_that_is_not_there_or_no_rules_makes_no_workspace(shell: Shell) -> None:
    refused = shell("init", "--ignore", "nowhere", code=4)
    assert "hint: " in refused.errors
    (shell.workspace / "rules").write_bytes(b"\xff\xfe\n!\n")
    assert "not a pattern" in shell("init", "--ignore", "rules", code=2).errors
    assert shell.records("db", "path") and shell("status", code=4).errors
    shell("init")


def test_a_folder_that_is_not_there_is_in_no_workspace(audited: Shell) -> None:
    assert "hint: " in audited("--workspace", "typo", "log", code=4).errors
    audited("--workspace", "src", "log")


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
        ("undo", "--choose", ".=old"),
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


def test_a_choice_for_nothing_is_refused_also_where_the_plan_has_a_note_without_a_path(
    audited: Shell,
) -> None:
    """What was not captured whole is such a note: it let `--choose =old` pass for a choice."""
    audited("run", "--", "sh", "-c", "echo x > made; setsid sleep 1000 & exit 0")
    assert audited.records("undo", "--dry-run")[0]["irreversible"]
    audited("undo", "--choose", "=old", code=2)
    assert (audited.workspace / "made").exists()
