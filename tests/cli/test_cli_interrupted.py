"""Processes that are told to stop, and processes that are killed, while something runs."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from loom_audit.api import open_store
from loom_audit.history.recorder import Recorder
from loom_audit.model.events import SessionStarted
from loom_audit.sandbox.scratch import scratch_folder
from tests.cli.shells import Shell

SECONDS = 60.0


def started(shell: Shell, script: str) -> "subprocess.Popen[bytes]":
    """`loom-audit run` of a script, once the script has made the file `ready`."""
    process = subprocess.Popen(
        [sys.executable, "-m", "loom_audit", "run", "--", "sh", "-c", script],
        cwd=shell.workspace,
        env=shell.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    wait_for(shell.workspace / "ready")
    return process


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + SECONDS
    while not path.exists():
        assert time.monotonic() < deadline, f"{path.name} never came"
        time.sleep(0.05)


def test_a_signal_is_forwarded_and_the_commands_answer_is_the_exit_code(audited: Shell) -> None:
    script = "trap 'echo bye > last; exit 9' TERM; touch ready; while :; do sleep 0.05; done"
    process = started(audited, script)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == 9, output
    (record,) = audited.records("log")
    assert (record["status"], record["coverage"]) == ("error", "full")
    assert sorted(record["paths"]) == ["last", "ready"]


def test_what_a_killed_run_left_behind_is_recovered_and_can_be_undone(audited: Shell) -> None:
    before = audited.tree()
    process = started(audited, "echo x > made; touch ready; sleep 1000")
    assert "open calls:" in audited("status").text
    refused = audited("rollback", "1", code=None)
    assert refused.code != 0
    process.kill()
    process.communicate(timeout=SECONDS)
    (found,) = audited.records("status")
    assert [call["tool"] for call in found["interrupted"]] == ["run"]
    told = audited("status").text
    assert "recover" in told and "open calls:" not in told and told.count("made") == 2
    assert "`loom-audit recover` closes it" in audited("show", str(found["head"])).text
    (recovered,) = audited.records("recover")
    assert recovered["call"]["status"] == "interrupted"
    (record,) = audited.records("log")
    assert sorted(record["paths"]) == ["made", "ready"]
    assert record["coverage"] == "partial"
    assert json.loads(audited("status", "--json").text)["interrupted"] == []
    audited("undo")
    assert audited.tree() == before


def test_an_interrupted_rollback_waits_for_a_decision(audited: Shell) -> None:
    url = f"sqlite:///{audited.home / 'audit.db'}"
    with open_store(url) as store:
        attachment = store.workspace(str(audited.workspace)).attachment
        recorder = Recorder(attachment, session="s1", actor="person:ada")
        recorder.record(SessionStarted("ada"))
        recorder.begin("rollback", {"target": "1"}, "write", call_id="c1").announce()
    refused = audited("recover", code=5)
    assert "--continue" in refused.errors
    assert "rollback" in refused.text
    assert "waits" in audited("call", "read_file", '{"path": "a.txt"}', code=5).errors
    (closed,) = audited.records("recover", "--abandon")
    assert (closed["waiting"], closed["call"]["status"]) == (False, "interrupted")
    assert audited("call", "read_file", '{"path": "a.txt"}').text.strip()


def scratches(shell: Shell) -> list[str]:
    return [name for name in os.listdir(shell.home) if name.startswith("loom-audit-scratch-")]


def calling(shell: Shell, **more: Any) -> "subprocess.Popen[bytes]":
    """`loom-audit call` of a command that has made the file `ready`, scratch in the home."""
    shell.extra["TMPDIR"] = str(shell.home)
    arguments = json.dumps({"command": "touch ready; exec sleep 1000"})
    process = subprocess.Popen(
        [sys.executable, "-m", "loom_audit", "call", "shell_execute", arguments],
        cwd=shell.workspace,
        env=shell.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        **more,
    )
    wait_for(shell.workspace / "ready")
    assert len(scratches(shell)) == 1
    return process


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


def test_where_a_hangup_is_ignored_it_stays_ignored(audited: Shell) -> None:
    process = calling(audited, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=SECONDS)
    assert process.returncode == 128 + signal.SIGTERM


def test_a_run_whose_command_dies_of_the_forwarded_signal_leaves_nothing(audited: Shell) -> None:
    audited.extra["TMPDIR"] = str(audited.home)
    process = started(audited, "touch ready; exec sleep 1000")
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == 128 + signal.SIGTERM, output
    (record,) = audited.records("log")
    assert record["status"] == "error"
    assert scratches(audited) == []


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
