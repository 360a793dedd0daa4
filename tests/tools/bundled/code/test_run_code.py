"""run_code and bash: confined, bounded, with what they changed on record."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loom_audit.sandbox import open_runner
from loom_audit.tools.calls.gate import DenyAll
from loom_audit.tools.calls.result import ToolResult
from loom_audit.tools.calls.settings import ToolSettings
from tests.tools.conftest import Bench

Run = Callable[..., ToolResult]


@pytest.fixture
def run(bench: Bench) -> Run:
    def call(
        code: str, language: str = "python", settings: ToolSettings | None = None, **more: Any
    ) -> ToolResult:
        arguments = {"language": language, "code": code, **more}
        return bench.call("run_code", arguments, settings=settings)

    return call


def test_python_code_runs_with_arguments_and_variables(bench: Bench, run: Run) -> None:
    result = run(
        "import os, sys; print(sys.argv[1:], os.environ['MOOD'])",
        args=["a b", "ü"],
        env={"MOOD": "x"},
    )
    assert result.data["stdout"] == "['a b', 'ü'] x\n"
    assert result.data["exitCode"] == 0 and isinstance(result.data["duration"], int)
    assert result.data["sandbox"] in ("bubblewrap", "landlock")
    assert bench.last().sandbox == result.data["sandbox"]


def test_bash_code_runs_with_arguments(run: Run) -> None:
    result = run('printf "%s\\n" "$@"; echo oops >&2', "bash", args=["one", "two words"])
    assert result.data["stdout"] == "one\ntwo words\n" and result.data["stderr"] == "oops\n"


def test_files_the_code_changes_are_recorded(bench: Bench, run: Run) -> None:
    result = run("open('made.txt', 'w').write('x'); open('notes.txt', 'a').write('y')")
    assert result.files_changed == ["made.txt", "notes.txt"]


def test_code_that_fails_is_a_failure_with_its_streams(run: Run) -> None:
    result = run("import sys; print('before'); sys.exit(3)")
    assert not result.success and result.error.code == "EXECUTION_ERROR"
    assert result.data["exitCode"] == 3 and result.data["stdout"] == "before\n"


def test_code_that_runs_too_long_is_killed_and_keeps_what_it_printed(
    run: Run,
) -> None:
    result = run("print('begun', flush=True); import time; time.sleep(60)", timeout=4)
    assert result.error.code == "TIMEOUT" and result.data["stdout"] == "begun\n"
    assert result.data["exitCode"] is None


def test_code_has_no_network_and_cannot_read_outside(tmp_path: Path, run: Run) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("outside")
    assert not run(f"print(open({str(secret)!r}).read())").success
    code = "import socket; socket.create_connection(('127.0.0.1', 9), 1)"
    assert (
        "refused" in (text := run(code).data["stderr"])
        or "denied" in text.lower()
        or ("unreachable" in text or "permitted" in text)
    )


def test_without_a_sandbox_nothing_runs(
    bench: Bench, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"runner": open_runner("plain")}
    code = "open('made.txt', 'w')"
    result = bench.call("run_code", {"language": "python", "code": code}, **options)
    assert not result.success and not (bench.root / "made.txt").exists()
    assert result.error.hint


def test_a_person_can_switch_confinement_off(run: Run) -> None:
    result = run("print(1)", settings=ToolSettings(confinement="off"))
    assert result.data["sandbox"] == "plain"


@pytest.mark.parametrize(
    "more",
    [
        {"language": "ruby"},
        {"code": ""},
        {"code": "a\0b"},
        {"code": "#" * 130_000},
        {"args": ["x\0"]},
        {"env": {"A=B": "x"}},
        {"env": {"": "x"}},
        {"env": {"LOOM_AUDIT_HOME": "x"}},
        {"timeout": 301},
        {"timeout": 0},
        {"args": "x"},
        {"code": "\ud800"},
    ],
)
def test_arguments_no_process_can_be_given_are_refused(
    bench: Bench, more: dict[str, object]
) -> None:
    arguments = {"language": "python", "code": "print(1)", **more}
    assert bench.call("run_code", arguments).error.code in ("INVALID_ARGUMENTS", "SERIALIZATION")


def test_bash_code_goes_through_the_blocklist(run: Run) -> None:
    assert run("mkfs /dev/null", "bash").error.code == "BLOCKED_COMMAND"


@pytest.mark.parametrize("tool", ["bash", "shell_execute"])
def test_both_names_of_the_shell_do_the_same(bench: Bench, tool: str) -> None:
    (bench.root / "sub").mkdir()
    result = bench.call(tool, {"command": "pwd; echo e >&2; exit 2", "cwd": "sub", "timeout": 5})
    assert not result.success
    assert result.data["exit_code"] == 2 and result.data["stdout"].endswith("/sub\n")
    assert result.data["stderr"] == "e\n" and result.data["timed_out"] is False
    assert result.data["truncated"] is False
    assert bench.call(tool, {"command": "x", "timeout": 301}).error.code == "INVALID_ARGUMENTS"
    assert bench.call(tool, {"command": "x", "cwd": ".."}).error.code == "INVALID_PATH"
    long = bench.call(tool, {"command": "#" * 130_000})
    assert long.error.code == "INVALID_ARGUMENTS"


def test_each_stream_keeps_256_kilobytes(bench: Bench) -> None:
    command = "head -c 600000 /dev/zero | tr '\\0' x; head -c 600000 /dev/zero | tr '\\0' y >&2"
    data = bench.call("bash", {"command": command}).data
    assert data["truncated"]
    assert 250_000 < len(data["stdout"]) <= 256 * 1024 + 100
    assert 250_000 < len(data["stderr"]) <= 256 * 1024 + 100
    assert json.dumps(data)


def test_the_workspace_is_at_its_own_path_in_the_sandbox(bench: Bench, run: Run) -> None:
    assert Path(run("import os; print(os.getcwd())").data["stdout"].strip()) == bench.root


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("bash", {"command": "mkfs /dev/null"}),
        ("shell_execute", {"command": "mkfs /dev/null"}),
        ("run_code", {"language": "bash", "code": "mkfs /dev/null"}),
    ],
)
def test_nobody_is_asked_about_a_blocked_command(
    bench: Bench, tool: str, arguments: dict[str, str]
) -> None:
    result = bench.call(tool, arguments, gate=DenyAll())
    assert result.error.code == "BLOCKED_COMMAND"


def test_run_code_gives_streams_exit_code_and_milliseconds(bench: Bench) -> None:
    code = "import time, sys; time.sleep(0.2); print('out'); print('err', file=sys.stderr)"
    data = bench.call("run_code", {"language": "python", "code": code}).data
    assert (data["stdout"], data["stderr"], data["exitCode"]) == ("out\n", "err\n", 0)
    assert 200 <= data["duration"] < 60_000
