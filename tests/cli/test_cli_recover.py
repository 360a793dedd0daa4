"""`recover`: what killed processes left behind."""

import json
import os
import signal
import subprocess

import pytest

from loom_audit.api.face import open_store
from loom_audit.history.ground.writer import Writer
from loom_audit.history.record.call import OpenCall
from loom_audit.model.events import SessionStarted
from tests.cli.processes import SECONDS, started
from tests.cli.shells import Shell
from tests.processes.stopped import killed_after

Tree = dict[str, tuple[str, int, bytes]]


@pytest.fixture
def trees(audited: Shell, monkeypatch: pytest.MonkeyPatch) -> list[Tree]:
    """What there was before and after a last call, which made three files; undos find the store."""
    monkeypatch.setenv("LOOM_AUDIT_HOME", str(audited.home))
    trees = [audited.tree()]
    audited.sh("for n in 1 2 3; do echo $n > n$n; done")
    return [*trees, audited.tree()]


def undo_one_and_be_killed(shell: Shell) -> None:
    killed_after(1, shell.workspace, lambda one: one.carry_out(one.plan_undo()))


def kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate(timeout=SECONDS)


def run_and_be_killed(shell: Shell, command: str) -> None:
    """A command of which what it does is on disk when it is killed, with what ran it."""
    kill(started(shell, f"{command}; sleep 1000"))


def test_what_a_killed_run_left_behind_is_recovered_and_taken_back_where_it_is_chosen(
    audited: Shell,
) -> None:
    before = audited.tree()
    process = started(audited, "echo x > made; touch ready; sleep 1000")
    assert "open calls:" in audited("status").text
    refused = audited("rollback", "1", code=None)
    assert refused.code != 0
    kill(process)
    (found,) = audited.records("status")
    assert [call["tool"] for call in found["interrupted"]] == ["run"]
    told = audited("status").text
    assert "recover" in told and "open calls:" not in told and told.count("made") == 2
    assert "`loom-audit recover` closes it" in audited("show", str(found["head"])).text
    (recovered,) = audited.records("recover")
    assert recovered["call"]["status"] == "interrupted"
    (record,) = audited.records("log")
    assert record["paths"] == [], "a person may have made them since"
    assert record["coverage_reasons"] == ["interrupted", "looked at late"]
    number = str(record["seq"])
    assert json.loads(audited("status", "--json").text)["interrupted"] == []
    refused = audited("revert", number, code=5)
    assert refused.text.count("nobody saw who did it") == 2 and "=old" in refused.errors
    chosen = ("--choose", "made=old", "--choose", "ready=old")
    assert "not captured: interrupted" in audited("revert", number, *chosen, code=7).text
    assert audited.tree() == before


def test_an_interrupted_rollback_waits_for_a_decision(audited: Shell) -> None:
    url = f"sqlite:///{audited.home / 'audit.db'}"
    with open_store(url) as store:
        attachment = store.workspace(str(audited.workspace)).attachment
        writer = Writer(attachment, session="s1", actor="person:ada")
        writer.record(SessionStarted("ada"))
        OpenCall(writer, "rollback", {"target": "1"}, "write", call_id="c1").announce()
    refused = audited("recover", code=5)
    assert "--continue" in refused.errors
    assert "rollback" in refused.text
    assert "waits" in audited("call", "read_file", '{"path": "a.txt"}', code=5).errors
    (closed,) = audited.records("recover", "--abandon")
    assert (closed["waiting"], closed["call"]["status"]) == (False, "interrupted")
    assert audited("call", "read_file", '{"path": "a.txt"}').text.strip()


def test_an_undo_that_was_killed_before_it_replaced_anything_is_said_not_to_be_done(
    audited: Shell, trees: list[Tree], monkeypatch: pytest.MonkeyPatch
) -> None:
    before, changed = trees

    def killed(call: OpenCall, *_: object, **__: object) -> None:
        call.announce()
        os.kill(os.getpid(), signal.SIGKILL)

    with monkeypatch.context() as patched:
        patched.setattr(OpenCall, "apply", killed)
        undo_one_and_be_killed(audited)
    audited("recover", code=5)
    told = audited("recover", "--continue", code=7).errors
    assert "had replaced nothing" in told and "`loom-audit undo` does it" in told
    assert audited.tree() == changed
    audited("undo", "--yes")
    assert audited.tree() == before


def test_an_undo_does_not_pass_over_an_interrupted_run_to_take_back_an_older_call(
    audited: Shell,
) -> None:
    audited.sh("echo older > old.txt")
    [older] = audited.numbers()
    run_and_be_killed(audited, "rm -r src; echo half > a.txt; touch ready")
    found = audited.tree()
    refused = audited("undo", "--dry-run", code=5)
    assert "interrupted" in refused.errors and "`loom-audit recover`" in refused.errors
    for arguments in (("undo",), ("undo", "--yes"), ("undo", "--dry-run")):
        refused = audited(*arguments, code=5)
        number = max(audited.numbers())
        assert f"call {number} (run) was interrupted" in refused.errors
        assert f"`loom-audit revert {number} --choose PATH=old`" in refused.errors
        assert f"`loom-audit revert {older}`" in refused.errors
        assert audited.tree() == found
    chosen = [f"--choose={path}=old" for path in ("a.txt", "ready", "src", "src/app.py")]
    audited("revert", str(number), "--yes", *chosen, code=7)
    audited("undo", "--yes")  # of the revert
    audited("revert", str(older), "--yes")
    assert audited.tree() == {path: was for path, was in found.items() if path != "old.txt"}


def test_an_undo_goes_on_to_an_older_call_once_what_an_interrupted_run_did_is_put_right(
    audited: Shell,
) -> None:
    before = audited.tree()
    audited.sh("echo older > old.txt")
    run_and_be_killed(audited, "touch ready")
    audited("recover")
    audited("undo", code=5)
    audited.sh("rm ready")
    audited("undo", "--yes")  # of the removal, so that the file stands again
    audited("undo", code=0)
    (audited.workspace / "ready").unlink(missing_ok=True)
    assert audited.tree() == before


@pytest.mark.usefixtures("trees")
@pytest.mark.parametrize("all_of_it", [False, True], ids=["one path", "all paths"])
def test_an_undo_is_finished_in_part_where_a_person_wrote_meanwhile(
    audited: Shell, all_of_it: bool
) -> None:
    undo_one_and_be_killed(audited)
    theirs = ["n1", "n2", "n3"] if all_of_it else ["n2"]
    for path in theirs:
        (audited.workspace / path).write_text("mine\n")
    why = "it was changed since the undo stopped"
    (found,) = audited.records("status")
    assert [(one["path"], one["reason"]) for one in found["kept"]] == [(p, why) for p in theirs]
    assert f"n2: {why}" in audited("status").text
    waiting = audited("recover", code=5)
    assert f"kept as it is:\n  n2: {why}" in waiting.text or all_of_it
    done = audited("recover", "--continue", code=5 if all_of_it else 7)
    assert f"n2: {why}" in done.text
    assert [(audited.workspace / path).read_text() for path in theirs] == ["mine\n"] * len(theirs)
    assert all_of_it or not (audited.workspace / "n1").exists()
    assert f"n2: {why}" in audited("show", str(audited.numbers()[-1])).text or all_of_it
    assert audited("verify", code=0) and audited("status", "--exit-code", code=0)


def test_one_that_is_left_is_named_with_what_takes_it_back(
    audited: Shell, trees: list[Tree]
) -> None:
    before, changed = trees
    undo_one_and_be_killed(audited)
    told = audited("recover", "--abandon")
    number = audited.numbers()[-1]
    assert f"`loom-audit revert {number}` takes back what it had done" in told.errors
    audited("undo", "--yes")
    assert audited.tree() == changed
    audited("undo", "--yes")
    assert audited.tree() == before


def test_what_a_crash_left_waits_until_the_workspace_is_back(audited: Shell) -> None:
    with open_store(f"sqlite:///{audited.home / 'audit.db'}") as store:
        attachment = store.workspace(audited.workspace).attachment
        crashed = Writer(attachment, session="gone", actor="agent:x")  # holds no session's lock
        crashed.record(SessionStarted("x"))
        OpenCall(crashed, "sh", {}, "execute", call_id="c").announce()
    moved = audited.workspace.rename(audited.workspace.with_name("moved"))
    place = ("--workspace", str(audited.workspace))
    arguments = json.dumps({"path": "a.txt"})
    audited("call", "read_file", arguments, *place, code=4, cwd=audited.home)
    calls = audited.records("log", *place, cwd=audited.home)
    assert {call["tool"]: call["status"] for call in calls} == {"sh": "open", "read_file": "error"}
    moved.rename(audited.workspace)
    audited("call", "read_file", arguments)
    assert [c["status"] for c in audited.records("log") if c["tool"] == "sh"] == ["interrupted"]


def test_recover_has_nothing_to_do_after_a_clean_end(busy: Shell) -> None:
    assert "nothing to recover" in busy("recover").errors
    assert busy("recover", "--continue", "--abandon", code=2)


def test_an_undo_goes_on_to_an_older_call_where_a_person_put_back_what_an_interrupted_run_did(
    audited: Shell,
) -> None:
    before = audited.tree()
    audited.sh("echo older > old.txt")
    run_and_be_killed(audited, "touch ready")
    audited("recover")
    audited("undo", code=5)
    (audited.workspace / "ready").unlink()  # by hand, and not on record yet
    audited("undo", "--yes")
    assert audited.tree() == before
