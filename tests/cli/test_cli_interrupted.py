"""Processes that are told to stop, and processes that are killed, while something runs."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

from loom_audit.history.recorder import Recorder
from loom_audit.model.events import SessionStarted
from loom_audit.session import open_store
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
    assert "recover" in audited("status").text
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
        at = store.workspace(str(audited.workspace)).at
        recorder = Recorder(at, session="s1", actor="person:ada")
        recorder.note(SessionStarted("ada"))
        recorder.begin("rollback", {"target": "1"}, "write", call_id="c1").announce()
    refused = audited("recover", code=5)
    assert "--continue" in refused.errors
    assert "rollback" in refused.text
    assert "waits" in audited("call", "read_file", '{"path": "a.txt"}', code=5).errors
    (closed,) = audited.records("recover", "--abandon")
    assert (closed["waiting"], closed["call"]["status"]) == (False, "interrupted")
    assert audited("call", "read_file", '{"path": "a.txt"}').text.strip()
