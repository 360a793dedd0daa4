"""`undo` and `redo`: the newest call, whole or not at all."""

import os
import re
import signal
import subprocess
import sys
from datetime import timedelta

import pytest

from loom_audit.sql.ground.clock import SystemClock
from tests.cli.shells import Shell


def test_a_recorded_session_can_be_seen_compared_undone_and_redone(real: Shell) -> None:
    audited = real
    before = audited.tree()
    audited.call("write_file", path="b.txt", content="new\n")
    audited("run", "--", "sh", "-c", "echo more >> a.txt; chmod 600 src/app.py")
    after = audited.tree()
    log = audited.records("log")
    assert [record["tool"] for record in log] == ["run", "write_file"]
    assert sorted(log[0]["paths"]) == ["a.txt", "src/app.py"]
    assert all(record["status"] == "ok" for record in log)
    assert {record["coverage"] for record in log} == {"full"}

    shown = audited("show", str(log[0]["seq"])).text
    assert "+more" in shown
    assert "argv" in shown
    assert "echo more" in log[0]["summary"]
    assert "echo more" in shown

    patch = audited("diff", "--call", str(log[0]["seq"]), "a.txt").text
    assert "+more" in patch
    assert "app.py" not in patch

    audited("undo")
    audited("undo")
    assert audited.tree() == before
    audited("redo")
    audited("redo")
    assert audited.tree() == after


def test_a_dry_run_changes_neither_disk_nor_log(audited: Shell) -> None:
    audited.call("write_file", path="b.txt", content="new\n")
    (number,) = audited.numbers()
    disk, events = audited.tree(), audited("log", "--events", "--json", "-n", "0").text
    for arguments in (
        ("undo",),
        ("revert", str(number)),
        ("rollback", "head~1"),
        ("rollback", "head~1", "b.txt", "--outside"),
    ):
        assert "will change:" in audited(*arguments, "--dry-run").text
        (plan,) = audited.records(*arguments, "--dry-run")
        assert plan["carried_out"] is False
        assert [change["path"] for change in plan["changes"]] == ["b.txt"]
        assert audited.tree() == disk
        assert audited("log", "--events", "--json", "-n", "0").text == events


def test_what_a_choice_keeps_is_not_taken_back(audited: Shell) -> None:
    audited.call("edit_file", path="a.txt", old_str="two", new_str="2")
    audited.call("edit_file", path="a.txt", old_str="2", new_str="zwei")
    first, second = audited.numbers()
    for verb in (("revert", str(first)), ("revert", str(first), str(second)), ("rollback", "3")):
        (plan,) = audited.records(*verb, "--choose", "a.txt=current", "--yes")
        assert plan["changes"] == [] and plan["reverts"] == []
    calls = {call["seq"]: call for call in audited.records("log", "-n", "0")}
    assert calls[first]["undone_by"] is None and calls[second]["undone_by"] is None


def test_an_undo_that_keeps_everything_by_choice_goes_on_to_the_call_before(
    audited: Shell,
) -> None:
    audited.call("write_file", path="first.txt", content="1")
    audited.call("edit_file", path="a.txt", old_str="two", new_str="zwei")
    first, second = audited.numbers()
    (kept,) = audited.records("undo", "--choose", "a.txt=current", "--yes")
    assert kept["reverts"] == [second] and kept["changes"] == []
    (next_one,) = audited.records("undo", "--yes")
    assert next_one["reverts"] == [first]
    assert (audited.workspace / "a.txt").read_text() == "one\nzwei\nthree\n"
    audited("redo", "--yes")
    audited("redo", "--yes")
    (again,) = audited.records("undo", "--yes")
    assert again["reverts"] == [second]
    assert (audited.workspace / "a.txt").read_text() == "one\ntwo\nthree\n"


def test_an_undo_that_keeps_one_path_by_choice_goes_on_once_the_rest_is_there(
    audited: Shell,
) -> None:
    audited.sh("echo 1 > x.txt; echo 1 > y.txt")
    (call,) = audited.numbers()
    audited("undo", "--choose", "x.txt=current", "--yes")
    (rest,) = audited.records("undo", "--choose", "x.txt=current", "--yes")
    assert rest["reverts"] == [call] and rest["changes"] == []
    assert "nothing to undo" in audited("undo", code=4).errors
    assert (audited.workspace / "x.txt").exists()


def test_a_call_is_taken_back_only_with_all_its_paths(audited: Shell) -> None:
    audited.sh("echo 1 > x.txt; echo 1 > y.txt")
    (call,) = audited.numbers()
    (part,) = audited.records("undo", "--choose", "x.txt=current", "--yes")
    assert part["reverts"] == [] and [one["path"] for one in part["changes"]] == ["y.txt"]
    assert (audited.workspace / "x.txt").exists()
    sessions = {one["seq"]: one["session"] for one in audited.records("log")}
    assert sessions[part["call"]] == sessions[call]
    audited("redo", "--yes")
    assert (audited.workspace / "y.txt").exists()
    (whole,) = audited.records("undo", "--yes")
    assert whole["reverts"] == [call]
    assert not (audited.workspace / "x.txt").exists()


def test_an_undo_says_why_its_coverage_is_not_full(audited: Shell) -> None:
    audited.call("edit_file", path="a.txt", old_str="two", new_str="2")
    os.link(audited.workspace / "a.txt", audited.workspace.parent / "another-name")
    done = audited("undo", "--yes").text
    assert re.search("coverage partial: .*a.txt", done)
    (again,) = audited.records("redo", "--yes", code=7)  # what the undo did to the other name
    assert again["coverage"] == "full" and again["coverage_reasons"] == []


TOLD_TO_END = """
import os, signal, sys
from loom_audit.cli import main
from loom_audit.history.record.call import OpenCall

apply = OpenCall.apply

def told(*arguments, **more):
    done = apply(*arguments, **more)
    os.kill(os.getpid(), int(sys.argv[1]))
    return done

OpenCall.apply = told
main(sys.argv[2:])
"""
"""A program that is told to end by a signal right after the last step of an undo."""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_undo_that_is_complete_when_a_signal_ends_it_says_so(
    audited: Shell, number: signal.Signals
) -> None:
    before = audited.tree()
    audited.call("write_file", path="b.txt", content="new\n")
    done = subprocess.run(
        [sys.executable, "-c", TOLD_TO_END, str(int(number)), "undo", "--yes"],
        cwd=audited.workspace,
        env=audited.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 128 + number
    assert f"undo {audited.numbers()[-1]} is complete: 1 path changed" in done.stderr
    assert "interrupted" in done.stderr and audited.tree() == before


def test_nothing_to_take_back_points_to_the_log(audited: Shell) -> None:
    for verb in ("undo", "redo"):
        refused = audited(verb, code=4)
        assert f"nothing to {verb}" in refused.errors and "`loom-audit log`" in refused.errors


def test_a_moved_repository_is_renamed_back_or_it_is_said_why_not(audited: Shell) -> None:
    (audited.workspace / ".git").mkdir()
    (audited.workspace / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    before = audited.tree()
    audited("run", "--", "sh", "-c", "mv .git git-backup; echo more >> a.txt")
    number = audited.numbers()[-1]
    (record,) = audited.records("show", str(number))
    assert record["coverage"] == "full"
    assert {"source": ".git", "target": "git-backup"} in record["moves"]
    after = audited.tree()
    (audited.workspace / "git-backup" / "HEAD").write_text("changed\n")
    for words in (("undo",), ("revert", str(number)), ("rollback", "head~1")):
        refused = audited(*words, code=5)
        assert ".git became git-backup, and git-backup/HEAD changed since" in refused.text
        assert "--choose" in refused.errors and audited.tree() != before
    (audited.workspace / "git-backup" / "HEAD").write_text("ref: refs/heads/main\n")
    audited("undo", "--yes")
    assert audited.tree() == before
    audited("redo", "--yes")
    assert audited.tree() == after


def test_a_choice_about_a_path_that_is_not_in_the_plan_is_refused(audited: Shell) -> None:
    audited.call("write_file", path="a.txt", content="2")
    assert "nosuch" in audited("undo", "--choose", "nosuch=old", "--yes", code=4).errors
    assert (audited.workspace / "a.txt").read_bytes() == b"2"


def test_a_choice_for_nothing_is_refused_also_where_the_plan_has_a_note_without_a_path(
    audited: Shell,
) -> None:
    """What was not captured whole is such a note: it let `--choose =old` pass for a choice."""
    audited("run", "--", "sh", "-c", "echo x > made; setsid sleep 1000 & exit 0")
    assert audited.records("undo", "--dry-run", code=7)[0]["irreversible"]
    audited("undo", "--choose", "=old", code=2)
    assert (audited.workspace / "made").exists()


def test_a_time_around_which_clocks_went_back_names_both_points_and_changes_nothing(
    audited: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    audited.call("write_file", path="n", content="1")
    now = SystemClock().now
    with monkeypatch.context() as ahead:
        ahead.setattr(SystemClock, "now", lambda _: now() + timedelta(days=365))
        audited.call("write_file", path="n", content="2")
    audited.call("write_file", path="n", content="3")
    first, _, last = (number + 1 for number in audited.numbers())  # with the end of the session
    at = now().isoformat()
    refused = audited("rollback", at, "--yes", code=5)
    assert f"point {first}" in refused.errors and f"{first} or {last}" in refused.errors
    assert (audited.workspace / "n").read_text() == "3"
    read = audited("cat", "n", "--at", at)
    assert read.text == "1" and f"point {first}" in read.errors and f"is {last}" in read.errors
