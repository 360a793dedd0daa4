"""`hold`, `release` and `rollback --hold`, and where it is seen that a session is held."""

import subprocess
from collections.abc import Iterator
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import pytest

from loom_audit import ApprovalDenied, AuditedWorkspace, ForeignSession, open_store
from loom_audit.api.agents.clients import Hooks
from tests.cli.shells import Shell
from tests.processes.clients import client as client
from tests.processes.hooked import HookedClaude


@pytest.fixture
def workspace(audited: Shell) -> Iterator[AuditedWorkspace]:
    with open_store(f"sqlite:///{audited.database}") as store:
        yield store.workspace(audited.workspace)


@pytest.fixture
def foreign(workspace: AuditedWorkspace, client: subprocess.Popen[bytes]) -> ForeignSession:
    """An agent of another program, in session `agent-1`, with a call that is open."""
    session = workspace.start_foreign_session("codex", id="agent-1", pid=client.pid)
    session.begin_call("c1", "Bash", {"command": "make"})
    return session


def test_a_session_is_held_until_it_is_released(audited: Shell, foreign: ForeignSession) -> None:
    said = audited("hold", "agent", "--reason", "tests first")
    assert "session agent-1 is held by person:" in said.text and ": tests first" in said.text
    assert "still open: 1 call" in said.text and "Bash" in said.text
    assert "loom-audit release agent-1" in said.errors
    with pytest.raises(ApprovalDenied, match="tests first"):
        foreign.begin_call("c2", "Bash", {})
    again = audited.records("hold", "agent-1", "--reason", "another")[0]
    assert (again["session"], again["reason"], len(again["open"])) == ("agent-1", "tests first", 1)
    assert "agent-1 is released" in audited("release", "agent-1").text
    assert "was not held" in audited("release", "agent-1").errors
    assert audited.records("release", "agent-1") == [{"session": "agent-1", "released": False}]
    foreign.begin_call("c3", "Bash", {})


def test_it_is_seen_everywhere_that_a_session_is_held(
    audited: Shell, foreign: ForeignSession
) -> None:
    assert audited.records("status")[0]["held"] == []
    audited("hold", "agent-1", "--reason", "look at this")
    held = audited.records("status")[0]["held"]
    assert [one["reason"] for one in held] == ["look at this"]
    for words in (("status",), ("log",), ("session",), ("session", "agent-1"), ("show", "5")):
        ran = audited(*words)
        assert "agent-1 is held by person:" in ran.text + ran.errors, words
        assert "look at this" in ran.text + ran.errors, words
    [listed] = [one for one in audited.records("session") if one["id"] == "agent-1"]
    assert listed["held"] == held[0] == audited.records("session", "agent-1")[0]["held"]
    assert "look at this" in audited("log", "--events", "--kind", "session.held").text
    audited("release", "agent-1")
    for words in (("status",), ("log",), ("session",), ("session", "agent-1"), ("show", "5")):
        ran = audited(*words)
        assert " is held by " not in ran.text + ran.errors, words


def test_an_open_call_of_another_program_says_when_it_was_last_heard(
    audited: Shell, foreign: ForeignSession
) -> None:
    head = foreign.attachment.stored.log.head()
    for words in (("log",), ("status",), ("session", "agent-1"), ("show", "5")):
        assert "open" in audited(*words).text and "last heard 20" in audited(*words).text, words
    assert audited.records("log")[0]["last_heard"] == audited.records("log")[0]["at"]
    assert foreign.attachment.stored.log.head() == head, "looking writes nothing"
    foreign.end_call("c1")
    assert "last heard" not in audited("log").text


@pytest.mark.parametrize("command", ["hold", "release"])
def test_a_session_that_is_not_there_is_not_found(audited: Shell, command: str) -> None:
    assert "there is no session nobody" in audited(command, "nobody", code=4).errors


def test_a_session_that_has_ended_is_not_held(audited: Shell, foreign: ForeignSession) -> None:
    foreign.end()
    refused = audited("hold", "agent-1", code=5)
    assert "has ended" in refused.errors and "hint: " in refused.errors


def test_a_rollback_with_hold_goes_back_while_an_agent_runs(
    audited: Shell, foreign: ForeignSession, client: subprocess.Popen[bytes]
) -> None:
    before = audited.tree()
    (audited.workspace / "made").write_text("by the agent\n")
    refused = audited("rollback", "session:agent", "--yes", code=5)
    assert "still open" in refused.errors and "--hold" in refused.errors
    shown = audited("rollback", "session:agent", "--hold", "--dry-run")
    assert "D made" in shown.text and "is held" not in shown.text
    done = audited("rollback", "session:agent", "--hold", "--yes")
    assert audited.tree() == before
    assert "session agent-1 is held by person:" in done.text
    assert "still open: 1 call" in done.text and "call" in done.text
    assert f"the agent of session agent-1 still runs (process {client.pid})" in done.text
    assert "loom-audit release agent-1" in done.errors
    with pytest.raises(ApprovalDenied, match="rolled back to session:agent"):
        foreign.begin_call("c2", "Bash", {})


def test_a_rollback_with_hold_that_changes_nothing_or_is_blocked_still_holds(
    audited: Shell, foreign: ForeignSession
) -> None:
    [record] = audited.records("rollback", "head", "--hold", "--yes")
    assert not record["carried_out"] and [one["session"] for one in record["held"]] == ["agent-1"]
    assert len(record["left_open"]) == 1
    assert audited.records("status")[0]["held"] != []


def test_after_esc_in_the_agent_undo_in_a_terminal_takes_back_what_it_had_done(
    audited: Shell, workspace: AuditedWorkspace, client: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    before = audited.tree()
    with open_store(f"sqlite:///{audited.database}") as store, closing(Hooks(store)) as hooks:
        claude = HookedClaude(
            lambda data: hooks.answer("claude-code", data, hook=client.pid),
            audited.workspace,
            tmp_path / "s1.jsonl",
        )
        claude.hook("SessionStart", source="startup")
        claude.asks("c1", "Bash", {"command": "touch made; sleep 9"})
        claude.before("c1", "Bash", {"command": "touch made; sleep 9"})
        (audited.workspace / "made").touch()
        claude.write("user", {"type": "text", "text": "[Request interrupted by user]"})
        head = workspace.log.head()
        assert "open" in audited("log").text and "last heard" in audited("status").text
        audited("undo", "--dry-run", code=None)
        assert workspace.log.head() == head, "looking writes nothing"
        assert "undo is call" in audited("undo", "--yes", code=7).text, (
            "what else it did is not known"
        )
        assert audited.tree() == before and "cancelled" in audited("log").text


def test_doctor_and_recover_put_right_what_hooks_read(
    audited: Shell, foreign: ForeignSession
) -> None:
    file = audited.home / "held" / sha256(b"agent-1").hexdigest()
    audited("hold", "agent-1", "--reason", "why")
    for command in ("doctor", "recover"):
        for spoiled in (None, "something else"):
            file.unlink() if spoiled is None else file.write_text(spoiled)
            audited(command, code=None)
            assert "why" in file.read_text()
    file.unlink()
    said = {one["name"]: one["verdict"] for one in audited.records("doctor", code=None)}
    assert said["held sessions"] == "warning"
    said = {one["name"]: one["verdict"] for one in audited.records("doctor", code=None)}
    assert said["held sessions"] == "ok"
