"""`call`: results, exit codes, and calls that are refused or told to end."""

import json
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from loom_audit.api.registry import builtin_registry
from loom_audit.sandbox.scratch import scratch_folder
from loom_audit.tools.calls.tool import Dialect
from tests.cli.processes import SECONDS, calling, scratches
from tests.cli.shells import Shell

HUNG_UP = """
import os, signal, sys
from loom_audit.cli import main
function, moment = sys.argv.pop(1), sys.argv.pop(1)
def hang_up(frame, event, _):
    if (frame.f_code.co_name, event) == (function, moment):
        sys.setprofile(None)
        os.kill(os.getpid(), signal.SIGHUP)
sys.setprofile(hang_up)
main()
"""
"""`loom-audit` which is hung up on as a function of Python's begins or ends."""


INTERRUPTED_TWICE = """
import os, signal, sys, threading, time
from loom_audit.cli import main
came = []
def interrupt(frame, event, _):
    name, file = frame.f_code.co_name, frame.f_code.co_filename
    if (name, event) == ("_on_sigint", "call"):
        came.append(1)
    elif came and (name, event) == ("__exit__", "call") and file.endswith("_asyncio.py"):
        sys.setprofile(None)
        os.kill(os.getpid(), signal.SIGINT)
def first():
    while not os.path.exists("ready"):
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=first, daemon=True).start()
sys.setprofile(interrupt)
main()
"""
"""`loom-audit` to which Ctrl-C comes once `ready` is there, and again as anyio leaves a scope."""


def test_a_failed_call_prints_why_and_exits_by_its_error(audited: Shell) -> None:
    failed = audited("call", "read_file", '{"path": "/etc/passwd"}', code=2)
    assert failed.errors.startswith("error: ")
    assert "Error" not in failed.text
    (result,) = audited.records("call", "read_file", '{"path": "nope"}', code=4)
    assert result["error"]["code"] == "FILE_NOT_FOUND"
    assert [r["status"] for r in audited.records("log")] == ["error", "error"]


def test_a_long_output_is_printed_whole_as_no_later_call_can_page_through_it(
    audited: Shell,
) -> None:
    lines = [str(n) for n in range(5_000)]
    (audited.workspace / "data.py").write_text(f"print(*range({len(lines)}), sep='\\n')")
    asked = ("call", "shell_execute", "command=python3 data.py")
    assert audited(*asked).text.splitlines() == lines
    (result,) = audited.records(*asked)
    assert result["output"].splitlines() == lines


def test_call_reads_its_arguments_from_standard_input(audited: Shell) -> None:
    arguments = json.dumps({"path": "in.txt", "content": "x" * 10}).encode()
    audited("call", "write_file", "-", stdin=arguments)
    assert (audited.workspace / "in.txt").read_text() == "x" * 10
    assert "JSON" in audited("call", "write_file", "{nope", code=2).errors


def test_arguments_are_typed_as_the_tool_takes_them(audited: Shell) -> None:
    audited("call", "write_file", "path=in.txt", "content=a=b\n[1]\n")
    assert (audited.workspace / "in.txt").read_text() == "a=b\n[1]\n"
    shown = audited("call", "read_file", "path=in.txt", "line_range=2", "line_range=2")
    assert "[1]" in shown.text and "a=b" not in shown.text
    audited("call", "read_file", "path=in.txt", "line_range=[1,1]", "max_bytes=1000")
    audited("call", "delete_file", "path=.", "recursive=maybe", code=2)
    numbers = [str(call["seq"]) for call in reversed(audited.records("log"))]
    asked = [audited.records("show", number)[0]["arguments"] for number in numbers]
    assert asked[1:] == [
        {"path": "in.txt", "line_range": [2, 2]},
        {"path": "in.txt", "line_range": [1, 1], "max_bytes": 1000},
        {"path": ".", "recursive": "maybe"},
    ]


def test_arguments_that_are_neither_pairs_nor_one_text_are_refused_before_anything(
    audited: Shell,
) -> None:
    refused = audited("call", "write_file", "path=a.txt", "{}", code=2)
    assert "must all be NAME=VALUE" in refused.errors
    assert audited.records("log") == []


def test_the_tools_are_listed_and_one_is_shown_with_its_arguments(audited: Shell) -> None:
    listed = audited("tools").text
    assert "read_file          read " in listed and "git_push           network " in listed
    shown = audited("tools", "bash").text
    assert "effect execute" in shown and "number, ≥ 1, ≤ 300" in shown
    assert "there is no tool nope" in audited("tools", "nope", code=4).errors


def test_for_a_tool_that_is_spelled_wrong_those_nearest_are_named(audited: Shell) -> None:
    refused = audited("tools", "raed", code=4).errors
    assert "hint: Did you mean read_file" in refused and "`loom-audit tools` lists them" in refused
    assert "Did you mean write_file?" in audited("tools", "wriet_file", code=4).errors
    assert "Did you mean" not in audited("tools", "zzzz", code=4).errors


@pytest.mark.parametrize("dialect", ["openai", "openai-flat", "anthropic", "mcp"])
def test_the_tools_are_given_as_each_dialect_wants_them(audited: Shell, dialect: Dialect) -> None:
    registry = builtin_registry()
    assert audited.records("tools", "--schema", dialect) == registry.all_schemas(dialect)
    audited("tools", "--schema", "other", code=2)


def test_a_run_of_a_named_agent_is_that_agents(audited: Shell) -> None:
    audited("call", "write_file", '{"path": "g", "content": "x"}', "--agent", "bot")
    (call,) = audited.records("log")
    assert call["actor"] == "agent:bot"


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


@pytest.mark.parametrize(
    "text", ["{", "", "nonsense", '{"path": "a.txt"', "[" * 100_000, '{"path": "\ud800'[:11]]
)
def test_arguments_that_are_not_json_are_refused_on_record(audited: Shell, text: str) -> None:
    refused = audited("call", "read_file", text, code=2)
    assert "are not JSON" in refused.errors and "hint: " in refused.errors
    assert len(refused.errors.splitlines()) == 2
    (call,) = audited.records("log")
    assert (call["tool"], call["status"]) == ("read_file", "error")
    (shown,) = audited.records("show", str(call["seq"]))
    assert shown["arguments"] == text


def test_standard_input_that_is_not_text_is_refused_on_record(audited: Shell) -> None:
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


@pytest.mark.few(1)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_call_told_to_end_is_cancelled_and_leaves_nothing(audited: Shell, number: int) -> None:
    process = calling(audited)
    process.send_signal(number)
    output, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == 128 + number, output
    assert b"Traceback" not in output
    (record,) = audited.records("log")
    assert (record["status"], record["paths"]) == ("cancelled", ["ready"])
    (found,) = audited.records("status")
    assert found["interrupted"] == []
    assert scratches(audited) == []


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("function", "moment"), [("_make_self_pipe", "call"), ("_close_self_pipe", "return")]
)
def test_a_call_told_to_end_as_its_event_loop_is_made_or_closed_says_no_more_than_that(
    audited: Shell, function: str, moment: str
) -> None:
    asked = ("call", "write_file", "path=new.txt", "content=x")
    process = subprocess.run(
        [sys.executable, "-c", HUNG_UP, function, moment, *asked],
        cwd=audited.workspace,
        env=audited.environment,
        capture_output=True,
        timeout=SECONDS,
    )
    assert (process.returncode, process.stderr) == (128 + signal.SIGHUP, b"interrupted\n")
    written = [record["status"] for record in audited.records("log")]
    assert written == (["ok"] if moment == "return" else [])


def test_a_second_interrupt_within_the_event_loop_changes_nothing(audited: Shell) -> None:
    asked = ("call", "shell_execute", "command=touch ready; exec sleep 1000")
    process = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_TWICE, *asked],
        cwd=audited.workspace,
        env=audited.environment,
        capture_output=True,
        timeout=SECONDS,
    )
    assert (process.returncode, process.stderr) == (128 + signal.SIGINT, b"interrupted\n")
    (record,) = audited.records("log")
    assert (record["status"], record["paths"]) == ("cancelled", ["ready"])


def test_where_a_hangup_is_ignored_it_stays_ignored(audited: Shell) -> None:
    process = calling(audited, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=SECONDS)
    assert process.returncode == 128 + signal.SIGTERM


def test_the_next_session_deletes_the_scratch_of_killed_ones_and_no_living_ones(
    audited: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = calling(audited)
    (left,) = scratches(audited)
    foreign = audited.home / "loom-audit-scratch-link"
    foreign.symlink_to(audited.workspace)
    monkeypatch.setattr(tempfile, "tempdir", str(audited.home))
    with scratch_folder() as living:
        assert (audited.home / left).is_dir()
        process.kill()
        process.communicate(timeout=SECONDS)
        assert (audited.home / left).is_dir()
        audited("call", "read_file", '{"path": "a.txt"}')
        assert not (audited.home / left).exists()
        assert Path(living).is_dir()
    assert scratches(audited) == [foreign.name]
    assert (audited.workspace / "a.txt").exists()
