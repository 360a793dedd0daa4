"""Commands: what they print, what they change, and how they end."""

import os
import subprocess

import pytest

from loom_audit.ports.processes import Command, CommandResult, Moments
from loom_audit.tools.calls.settings import ToolSettings
from tests.tools.conftest import Bench


def test_both_streams_and_the_changed_files_are_given(bench: Bench) -> None:
    result = bench.call(
        "shell_execute", {"command": "echo out; echo err >&2; echo 1 > new; rm notes.txt"}
    )
    assert result.success
    assert result.output == "out\n[stderr]\nerr\n[changed: new, notes.txt]"
    assert result.data == {
        "exit_code": 0,
        "stdout": "out\n",
        "stderr": "err\n",
        "timed_out": False,
        "truncated": False,
        "survivors": [],
        "sandbox": bench.last().sandbox,
    }
    assert result.files_changed == ["new", "notes.txt"]
    bench.assert_log_agrees_with_disk()


def test_a_failing_command_is_not_a_success_and_keeps_its_output(bench: Bench) -> None:
    result = bench.call("shell_execute", {"command": "echo partly; exit 3"})
    assert not result.success and result.error.code == "EXECUTION_ERROR"
    assert result.data["exit_code"] == 3 and result.data["stdout"] == "partly\n"
    assert result.output == "Error: The command failed with exit code 3\npartly"
    assert bench.last().status == "error"


def test_a_model_is_told_the_first_of_many_changed_files_also_by_a_command_that_failed(
    bench: Bench,
) -> None:
    result = bench.call("bash", {"command": "for n in $(seq 100 199); do : > $n; done; exit 3"})
    named = ", ".join(map(str, range(100, 120)))
    assert result.output.splitlines()[1:] == ["[no output]", f"[changed: {named} and 80 more]"]


def test_a_command_that_says_nothing(bench: Bench) -> None:
    assert bench.call("shell_execute", {"command": "true"}).output == "[no output]"


def test_it_runs_in_the_named_directory(bench: Bench) -> None:
    result = bench.call("shell_execute", {"command": "pwd; ls", "cwd": "src"})
    assert result.output == f"{bench.root}/src\nmain.py"


def test_a_command_is_stopped_at_its_timeout_and_what_it_did_is_on_record(bench: Bench) -> None:
    command = "echo begun; echo x > made; sleep 600"
    result = bench.call("shell_execute", {"command": command, "timeout": 1})
    assert result.error.code == "TIMEOUT" and result.data["timed_out"] is True
    assert "up to 300 seconds. What takes longer is started with background=true." in result.output
    assert result.data["stdout"] == "begun\n" and result.data["exit_code"] is None
    assert result.files_changed == ["made"]
    assert bench.last().status == "timeout"
    bench.assert_log_agrees_with_disk()


def test_nothing_it_started_outlives_it(bench: Bench) -> None:
    mark = f"3{os.getpid()}"
    command = f"setsid sleep {mark} & (sleep {mark} &) ; sleep {mark}"
    bench.call("shell_execute", {"command": command, "timeout": 1})
    listing = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    assert f"sleep {mark}" not in listing.stdout.replace(command, "")


def test_what_would_go_on_is_killed_and_the_way_to_let_it_is_named(bench: Bench) -> None:
    result = bench.call("shell_execute", {"command": "sleep 600 & echo begun"})
    assert result.success and result.data["survivors"]
    assert result.output.endswith("; bash with background=true starts what goes on]")


def test_a_command_that_looks_for_the_network_in_vain_is_told_which_tools_have_it(
    bench: Bench,
) -> None:
    said = "[the command had no network: install_package fetches packages, web_fetch pages]"
    failed = {"command": "echo 'curl: (6) Could not resolve host: x' >&2; exit 6"}
    confined = bench.session.writer.attachment.on_disk.runner.name != "plain"
    assert (said in bench.call("shell_execute", failed).output) is confined
    for command, settings in (
        (failed, ToolSettings(network=True)),
        (failed, ToolSettings(confinement="off")),
        ({"command": "echo could not resolve; exit 0"}, ToolSettings()),
        ({"command": "echo no such file; exit 1"}, ToolSettings()),
    ):
        assert said not in bench.call("shell_execute", command, settings=settings).output


def test_output_without_end_is_bounded_and_says_so(bench: Bench) -> None:
    result = bench.call("shell_execute", {"command": "yes | head -c 3000000; echo end"})
    assert result.success and result.data["truncated"] is True
    assert len(result.data["stdout"]) < 300_000 and result.data["stdout"].endswith("end\n")
    assert len(result.output.encode()) <= 10 * 1024
    assert len(bench.last().result["output"]) > 200_000


def test_bytes_that_are_not_text_are_shown_lossy(bench: Bench) -> None:
    result = bench.call("shell_execute", {"command": r"printf 'a\377b'"})
    assert result.data["stdout"] == "a\ufffdb"


def test_the_environment_of_the_call_is_added_and_the_store_is_not_told(bench: Bench) -> None:
    result = bench.call(
        "shell_execute",
        {"command": 'echo "$MINE $LOOM_AUDIT_HOME"; command -v ls'},
        environment={"MINE": "yes"},
    )
    assert result.output.startswith("yes \n/")


def test_a_command_runs_in_the_workspace_by_sh_and_gives_both_streams(bench: Bench) -> None:
    result = bench.call("bash", {"command": "pwd; ps -o args= -p $$; echo oops >&2"})
    where, shell = result.data["stdout"].splitlines()
    assert where == str(bench.root) and shell.partition(" ")[0].endswith("/sh")
    assert result.data["stderr"] == "oops\n" and result.data["exit_code"] == 0
    assert {"exit_code", "stdout", "stderr", "timed_out", "truncated"} <= {*(result.data or ())}


def test_the_model_sees_ten_kilobytes_of_what_a_command_prints(bench: Bench) -> None:
    result = bench.call("shell_execute", {"command": "seq 1 20000"})
    assert len(result.output.encode()) <= 10 * 1024
    assert "bytes left out" in result.output and len(result.data["stdout"]) > 100_000


@pytest.mark.parametrize("tool", ["shell_execute", "bash"])
def test_a_command_may_take_300_seconds_and_no_more(bench: Bench, tool: str) -> None:
    assert bench.call(tool, {"command": "true", "timeout": 300}).success
    refused = bench.call(tool, {"command": "touch made", "timeout": 301})
    assert refused.error.code == "INVALID_ARGUMENTS" and not (bench.root / "made").exists()
    assert (
        "60 by default"
        in bench.registry.get(tool).parameters["properties"]["timeout"]["description"]
    )


def test_a_command_takes_sixty_seconds_unless_told_otherwise(bench: Bench) -> None:
    asked = []

    class Runner:
        name = "plain"

        def run(self, root: str, command: Command, moments: Moments) -> CommandResult:
            asked.append(command.timeout)
            return bench.workspace.attachment.on_disk.runner.run(root, command, moments)

    for tool, more in (
        ("shell_execute", {"command": "true"}),
        ("bash", {"command": "true"}),
        ("run_code", {"language": "bash", "code": "true"}),
        ("bash", {"command": "true", "timeout": 7}),
    ):
        assert bench.call(tool, more, runner=Runner()).success
    assert asked == [60, 60, 60, 7]
