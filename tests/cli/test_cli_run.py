"""`run`: the command's own streams, signals and exit code; what it changed is on record."""

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from tests.cli.processes import SECONDS, scratches, started
from tests.cli.shells import Shell


def test_run_gives_the_commands_own_exit_code_and_streams(audited: Shell) -> None:
    ran = audited("run", "--", "sh", "-c", "cat; echo err >&2; exit 7", code=7, stdin=b"in\n")
    assert ran.text == "in\n"
    assert "err\n" in ran.errors
    assert audited("run", "--", "sh", "-c", "kill -TERM $$", code=143)
    assert audited("run", "--", "no-such-command-xyz", code=127)
    assert [r["status"] for r in audited.records("log")] == ["error"] * 3


def test_run_says_what_was_looked_at_when_it_is_asked(audited: Shell) -> None:
    assert "looked at everything" in audited("run", "--verbose", "--", "true").errors
    assert "looked at" not in audited("run", "--", "true").errors


def test_run_passes_the_commands_own_options_on(audited: Shell) -> None:
    assert audited("run", "echo", "--json", "--store", "x", "-n").text == "--json --store x -n\n"


def test_run_fails_with_125_outside_a_workspace(shell: Shell) -> None:
    refused = shell("run", "--", "touch", "made", code=125)
    assert "hint: " in refused.errors
    assert not (shell.workspace / "made").exists()


def test_a_run_is_not_confined_unless_asked(audited: Shell, tmp_path: Path) -> None:
    beside = tmp_path / "beside.txt"
    audited("run", "--", "sh", "-c", f"echo x > {beside}")
    assert beside.read_text() == "x\n"
    assert audited.records("log")[0]["sandbox"] == "plain"


def test_a_confined_run_cannot_write_outside_and_is_recorded(
    audited: Shell, tmp_path: Path
) -> None:
    beside = tmp_path / "beside.txt"
    script = f"echo in > inside.txt; echo out > {beside}"
    audited("run", "--sandbox", "required", "--", "sh", "-c", script, code=None)
    assert not beside.exists()
    newest = audited.records("log")[0]
    assert newest["sandbox"] in ("bubblewrap", "landlock") and "inside.txt" in newest["paths"]


def test_another_word_for_the_sandbox_is_refused(audited: Shell) -> None:
    before = audited.records("log")
    told = audited("run", "--sandbox", "maybe", "--", "touch", "made", code=125)
    assert "required, preferred or off" in told.errors
    assert not (audited.workspace / "made").exists() and audited.records("log") == before


def test_a_signal_is_forwarded_and_the_commands_answer_is_the_exit_code(audited: Shell) -> None:
    script = "trap 'echo bye > last; exit 9' TERM; touch ready; while :; do sleep 0.05; done"
    process = started(audited, script)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == 9, output
    (record,) = audited.records("log")
    assert (record["status"], record["coverage"]) == ("error", "full")
    assert sorted(record["paths"]) == ["last", "ready"]


def test_a_run_whose_command_dies_of_the_forwarded_signal_leaves_nothing(audited: Shell) -> None:
    audited.extra["TMPDIR"] = str(audited.home)
    process = started(audited, "touch ready; exec sleep 1000")
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == 128 + signal.SIGTERM, output
    (record,) = audited.records("log")
    assert record["status"] == "error"
    assert scratches(audited) == []


@pytest.mark.few(1)
@pytest.mark.parametrize("pause", [0.0005, 0.1, 0.3])
def test_ctrl_c_again_and_again_waits_for_the_record_once_the_command_has_ended(
    audited: Shell, pause: float
) -> None:
    for n in range(300):  # so that looking takes a while
        (audited.workspace / f"file {n}").write_text("x")
    process = started(audited, "echo made > made; touch ready; exec sleep 1000")
    process.send_signal(signal.SIGINT)
    output = None
    while output is None:
        with suppress(subprocess.TimeoutExpired):
            output, _ = process.communicate(timeout=pause)
        process.send_signal(signal.SIGINT)
    assert process.returncode == 130, output
    assert b"interrupted" not in output and b"2 paths changed" in output
    (record,) = audited.records("log")
    assert (record["status"], record["coverage"]) == ("error", "full")
    assert sorted(record["paths"]) == ["made", "ready"]
    (ended,) = audited.records("session")
    assert ended["status"] == "completed"


def test_what_a_run_leaves_running_is_killed_and_named_unless_it_is_kept(audited: Shell) -> None:
    script = "sleep 1000 >/dev/null 2>&1 & echo $!"
    ran = audited("run", "--", "sh", "-c", script)
    assert f"killed at the end: {ran.text.strip()} sleep" in ran.errors
    assert not Path(f"/proc/{ran.text.strip()}").exists()
    ran = audited("run", "--keep", "--", "sh", "-c", script)
    pid = int(ran.text)
    try:
        assert f"left running: {pid} sleep" in ran.errors
        assert Path(f"/proc/{pid}/comm").read_text() == "sleep\n"
        newest = audited.records("log")[0]
        assert newest["coverage"] == "partial"
    finally:
        os.kill(pid, signal.SIGKILL)


def test_what_is_confined_cannot_be_kept(audited: Shell) -> None:
    before = audited.records("log")
    told = audited("run", "--keep", "--sandbox", "preferred", "--", "touch", "made", code=125)
    assert "cannot be kept" in told.errors
    assert not (audited.workspace / "made").exists() and audited.records("log") == before


def test_a_command_in_a_workspace_that_vanished_is_refused_on_record(audited: Shell) -> None:
    audited.workspace.rename(audited.workspace.with_name("moved"))
    place = ("--workspace", str(audited.workspace))
    refused = audited("run", *place, "--", "touch", "x", code=125, cwd=audited.home)
    assert "hint: " in refused.errors
    (call,) = audited.records("log", *place, cwd=audited.home)
    assert (call["tool"], call["status"]) == ("run", "error")
    assert not audited.workspace.exists()


def test_wrong_usage_of_run_exits_as_its_help_says(shell: Shell, tmp_path: Path) -> None:
    shell("run", "--no-such-option", code=125, cwd=tmp_path)
    shell("run", "--", "true", code=125, cwd=tmp_path)
    shell("run", code=125, cwd=tmp_path)
    assert "\n    2  " not in shell("run", "--help").text
    assert "also for wrong usage" in " ".join(shell("run", "--help").text.split())
