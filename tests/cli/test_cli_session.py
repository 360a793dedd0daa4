"""`session`, and sessions named by the start of their ids."""

import os

import pytest

from loom_audit import open_store
from loom_audit.history.ground.writer import new_id
from tests.cli.shells import Shell

FIRST, SECOND = "aaaa1111" + 8 * "0", "aaaa2222" + 8 * "0"


@pytest.fixture
def two(audited: Shell, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """Two sessions with one call each, whose ids begin alike."""
    for name, path in ((FIRST, "first.txt"), (SECOND, "second.txt")):
        monkeypatch.setattr("loom_audit.api.ground.session_record.new_id", lambda name=name: name)
        audited.call("write_file", path=path, content="x\n")
    monkeypatch.setattr("loom_audit.api.ground.session_record.new_id", new_id)
    return audited


def test_a_session_is_named_by_the_start_of_its_id(two: Shell) -> None:
    assert two.records("session", "aaaa1")[0]["id"] == FIRST
    assert "first.txt" in two("session", "aaaa1").text
    assert [call["session"] for call in two.records("log", "--session", "aaaa2")] == [SECOND]
    assert all(
        event["session"] == SECOND for event in two.records("log", "--events", "--session", "aaaa2")
    )


def test_a_point_takes_the_start_of_an_id(two: Shell) -> None:
    assert "second.txt" not in two("ls", "--at", "session:aaaa2").text
    assert "first.txt" in two("ls", "--at", "session:aaaa2").text
    assert "A second.txt" in two("diff", "session:aaaa2", "head", "--name-only").text
    started = two.records("session", SECOND)[0]["started"]
    assert two.records("checkpoint", "before", "--at", "session:aaaa2")[0]["point"] == started


def test_taking_back_takes_the_start_of_an_id(two: Shell) -> None:
    plan = two.records("undo", "--session", "aaaa1", "--dry-run")[0]
    assert [change["path"] for change in plan["changes"]] == ["first.txt"]
    plan = two.records("revert", "session:aaaa1", "--dry-run")[0]
    assert [change["path"] for change in plan["changes"]] == ["first.txt"]
    plan = two.records("rollback", "session:aaaa2", "--dry-run")[0]
    assert [change["path"] for change in plan["changes"]] == ["second.txt"]
    two("undo", "--session", "aaaa1", "--yes")
    assert not (two.workspace / "first.txt").exists()
    two("redo", "--session", "aaaa1", "--yes")
    assert (two.workspace / "first.txt").exists()


@pytest.mark.parametrize(
    "words",
    [
        ("session", "aaaa"),
        ("log", "--session", "aaaa"),
        ("ls", "--at", "session:aaaa"),
        ("undo", "--session", "aaaa"),
        ("revert", "session:aaaa"),
        ("rollback", "session:aaaa"),
    ],
)
def test_a_start_that_two_sessions_share_names_both_and_does_nothing(
    two: Shell, words: tuple[str, ...]
) -> None:
    before = two.tree()
    refused = two(*words, code=2)
    assert FIRST in refused.errors and SECOND in refused.errors
    assert "2 sessions begin with aaaa" in refused.errors and "hint: " in refused.errors
    assert refused.text == "" and two.tree() == before


@pytest.mark.parametrize(
    "words",
    [
        ("session",),
        ("log", "--session"),
        ("undo", "--session"),
        ("redo", "--session"),
    ],
)
def test_a_session_that_is_not_there_is_said_to_be_missing(
    two: Shell, words: tuple[str, ...]
) -> None:
    assert "no session zzzz" in two(*words, "zzzz", code=4).errors
    assert "`loom-audit session` lists them" in two(*words, "", code=2).errors


def test_a_session_that_nobody_ends_is_ended_by_hand(audited: Shell) -> None:
    with open_store(f"sqlite:///{audited.home / 'audit.db'}") as store:
        workspace = store.workspace(audited.workspace)
        foreign = workspace.start_foreign_session("client", id="ffff1111", pid=os.getpid())
        foreign.begin_call("toolu_1", "Bash", {"command": "make"})
    (audited.workspace / "made").write_text("x\n")
    audited.call("write_file", path="mine.txt", content="x\n")
    refused = audited("undo", "--yes", code=5)
    assert "Bash of session ffff1111 is still open" in refused.errors
    assert "loom-audit session end ffff1111" in refused.errors
    ended = audited.records("session", "end", "ffff")[0]
    assert (ended["id"], ended["status"]) == ("ffff1111", "interrupted")
    call = next(call for call in audited.records("log") if call["tool"] == "Bash")
    assert (call["status"], call["paths"]) == ("unknown", ["made"])
    audited("undo", "--yes")


def test_two_sessions_are_not_shown_at_once(audited: Shell) -> None:
    assert "one session" in audited("session", "aaaa", "bbbb", code=2).errors


def test_what_was_reported_about_a_call_later_is_shown(audited: Shell) -> None:
    with open_store(str(audited.database)) as store:
        workspace = store.workspace(audited.workspace)
        foreign = workspace.start_foreign_session("client", pid=os.getpid())
        foreign.begin_call("c1", "Bash")
        ended = foreign.end_call("c1", "running", "begun")
        foreign.end_call("c1", "error", "it broke")
    shown = audited("show", str(ended.seq)).text
    assert f"call {ended.seq}  Bash  running" in shown
    assert "reported later: error" in shown and "it broke" in shown


def test_the_start_of_a_parents_id_is_the_parent(
    audited: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (FIRST, f"{FIRST}.one", f"{FIRST}.two"):
        monkeypatch.setattr("loom_audit.api.ground.session_record.new_id", lambda name=name: name)
        audited.call("write_file", path=f"{name}.txt", content="x\n")
    monkeypatch.setattr("loom_audit.api.ground.session_record.new_id", new_id)
    assert audited.records("session", "aaaa")[0]["id"] == FIRST
    assert audited.records("session", f"{FIRST}.o")[0]["id"] == f"{FIRST}.one"
    assert "2 sessions begin with" in audited("session", f"{FIRST}.", code=2).errors
