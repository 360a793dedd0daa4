"""`watch` in a process of its own: what it prints, who else may, and how it ends."""

import json
import signal
import time

import pytest

from tests.cli.shells import Shell
from tests.processes.watching import line, watching

SECONDS = 60.0


def wait_until_recorded(shell: Shell) -> None:
    """Until what is on disk is on record."""
    deadline = time.monotonic() + SECONDS
    while drift := shell.records("status")[0]["drift"]:
        assert time.monotonic() < deadline, drift
        time.sleep(0.05)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_prints_what_it_records_until_it_is_told_to_end(
    audited: Shell, number: signal.Signals
) -> None:
    with watching(audited.workspace, audited.environment) as process:
        (audited.workspace / "a.txt").write_text("one\n2\nthree\n")
        assert "  M a.txt" in line(process)
        process.send_signal(number)
        printed, errors = process.communicate(timeout=SECONDS)
    assert (process.returncode, printed) == (0, "")
    assert errors == "no longer watching\n"


def test_quiet_it_prints_nothing_of_what_it_records(audited: Shell) -> None:
    with watching(audited.workspace, audited.environment, "--quiet") as process:
        (audited.workspace / "a.txt").write_text("quietly\n")
        wait_until_recorded(audited)
        process.terminate()
        assert process.communicate(timeout=SECONDS)[0] == ""
    [newest, _] = audited.records("history", "a.txt")
    assert newest["origin"] == "outside" and newest["occurred_at"] < newest["at"]


def test_each_event_is_a_line_of_json(audited: Shell) -> None:
    with watching(audited.workspace, audited.environment, "--json") as process:
        (audited.workspace / "new.txt").write_text("new\n")
        said = json.loads(line(process))
    assert (said["kind"], said["origin"], said["source"]) == ("files.changed", "outside", "watch")
    assert said["paths"] == ["new.txt"] and said["occurred_at"] <= said["at"]


def test_a_second_one_is_refused_with_the_process_of_the_first(audited: Shell) -> None:
    with watching(audited.workspace, audited.environment) as process:
        refused = audited("watch", code=5)
        assert f"process {process.pid} watches {audited.workspace} already" in refused.errors
        assert audited.records("status")[0]["drift"] == []


def test_status_and_doctor_say_whether_somebody_watches_and_how_to(audited: Shell) -> None:
    def said() -> tuple[bool, str, str]:
        lines = audited("status").text.splitlines()
        [one] = [line for line in audited("doctor").text.splitlines() if "from outside" in line]
        return audited.records("status")[0]["watched"], lines[1], one.partition(": ")[2]

    nobody = (
        "nobody watches: what changes from outside is found before the next call; "
        "`loom-audit watch` records it as it happens"
    )
    assert said() == (False, nobody, nobody)
    with watching(audited.workspace, audited.environment):
        somebody = "watched: what changes from outside is recorded as it happens"
        assert said() == (True, somebody, somebody)
    assert said()[0] is False


def test_a_workspace_that_is_not_under_audit_is_not_watched(shell: Shell) -> None:
    assert "loom-audit init" in shell("watch", str(shell.workspace), code=4).errors


def test_one_that_is_killed_loses_nothing_and_the_next_one_goes_on(audited: Shell) -> None:
    with watching(audited.workspace, audited.environment, str(audited.workspace)) as process:
        (audited.workspace / "a.txt").write_text("seen\n")
        line(process)
        (audited.workspace / "src" / "app.py").write_text("not looked at yet\n")
        process.kill()
        process.wait()
    with watching(audited.workspace, audited.environment, "-q"):
        wait_until_recorded(audited)
        (audited.workspace / "a.txt").write_text("again\n")
        wait_until_recorded(audited)
    history = audited.records("history", "a.txt")
    assert [one["origin"] for one in history] == ["outside", "outside", "baseline"]
