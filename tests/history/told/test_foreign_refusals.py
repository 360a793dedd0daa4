"""What another program may not report: then nothing is put on record."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loom_audit import AuditedWorkspace, Conflict, ForeignSession, InvalidArguments, Session
from loom_audit.history.ground.writer import Writer
from loom_audit.history.record.call import OpenCall
from loom_audit.model.records import Call


@pytest.fixture
def foreign(workspace: AuditedWorkspace) -> ForeignSession:
    return workspace.start_foreign_session("client", id="s", pid=os.getpid())


@pytest.fixture
def second() -> Iterator[subprocess.Popen[bytes]]:
    """A process that does nothing until it is killed."""
    with subprocess.Popen(["sleep", "1000"]) as process:
        yield process
        process.kill()


def call_of(workspace: AuditedWorkspace, call_id: str, session: str = "s") -> Call:
    return workspace.attachment.stored.tables.call(session, call_id)


@pytest.mark.parametrize("status", ["open", "bogus", "interrupted", "", None])
def test_a_status_that_is_not_reported_ends_no_call(
    workspace: AuditedWorkspace, foreign: ForeignSession, status: Any
) -> None:
    foreign.begin_call("c1", "Bash")
    head = workspace.log.head()
    with pytest.raises(InvalidArguments, match="not a status") as refused:
        foreign.end_call("c1", status)
    assert "ok, error, denied, timeout, cancelled, unknown, running" in refused.value.hint
    assert workspace.log.head() == head
    assert call_of(workspace, "c1").seq is None


@pytest.mark.parametrize("effect", ["bogus", "", None])
def test_an_unknown_effect_begins_no_call(
    workspace: AuditedWorkspace, foreign: ForeignSession, session: Session, effect: Any
) -> None:
    head = workspace.log.head()
    with pytest.raises(InvalidArguments, match="not an effect") as refused:
        foreign.begin_call("c1", "Bash", effect=effect)
    assert "read, write, execute, network" in refused.value.hint
    with (
        pytest.raises(InvalidArguments, match="not an effect"),
        session.recording("block", effect=effect),
    ):
        raise AssertionError("the block was entered")
    with pytest.raises(InvalidArguments, match="not an effect"):
        session.tool(len, effect=effect)
    assert workspace.log.head() == head


@pytest.mark.parametrize("seconds", [10**12, 2**63, 31 * 24 * 3600 + 1, 0, -1, 0.5, "60", None])
def test_a_client_may_be_silent_for_a_second_to_a_month(
    workspace: AuditedWorkspace, seconds: Any
) -> None:
    head = workspace.log.head()
    with pytest.raises(InvalidArguments, match="silent") as refused:
        workspace.start_foreign_session("client", id="s", seconds=seconds)
    assert "31 days" in refused.value.hint
    assert workspace.log.head() == head


@pytest.mark.parametrize("seconds", [1, 31 * 24 * 3600])
def test_the_shortest_and_the_longest_silence(workspace: AuditedWorkspace, seconds: int) -> None:
    foreign = workspace.start_foreign_session("client", id="s", seconds=seconds)
    foreign.begin_call("c1", "Bash")
    assert workspace.status().interrupted == ()
    foreign.end_call("c1")
    assert call_of(workspace, "c1").status == "ok"


def test_a_call_of_ours_is_neither_begun_nor_ended_from_outside(
    workspace: AuditedWorkspace, session: Session, root: Path
) -> None:
    foreign = workspace.foreign_session(session.id)
    with session.recording("block", call_id="c1") as call:
        (root / "made").touch()
        with pytest.raises(Conflict, match="not one that another program reports"):
            foreign.end_call("c1", look=False)
        with pytest.raises(Conflict, match="not one that another program reports"):
            foreign.begin_call("c1", "block")
        (root / "more").touch()
    assert [*call.files_changed] == ["made", "more"]
    head = workspace.log.head()
    with pytest.raises(Conflict, match="not one that another program reports"):
        foreign.end_call("c1", "error")
    assert workspace.log.head() == head
    assert call_of(workspace, "c1", session.id).status == "ok"


def test_an_undo_in_a_client_s_session_is_not_ended_by_it(
    workspace: AuditedWorkspace, foreign: ForeignSession
) -> None:
    ours = Writer(workspace.attachment, "s", "me")
    with OpenCall(ours, "undo", {}, "write", call_id="u") as undo:
        undo.announce()
        with (
            workspace.attachment.stored.lock.hold(workspace.attachment.undo_lock),
            pytest.raises(Conflict, match="not one that another program reports"),
        ):
            foreign.end_call("u")
    assert call_of(workspace, "u").status == "ok"


def test_a_session_is_not_taken_from_a_client_that_runs(
    workspace: AuditedWorkspace,
    foreign: ForeignSession,
    root: Path,
    second: subprocess.Popen[bytes],
) -> None:
    foreign.begin_call("c1", "Bash")
    head = workspace.log.head()
    for pid in (second.pid, None):
        with pytest.raises(Conflict, match=f"process {os.getpid()} that reports it") as refused:
            workspace.start_foreign_session("client", id="s", pid=pid)
        assert "`loom-audit session end s`" in refused.value.hint
    assert workspace.log.head() == head
    assert workspace.recover() == []
    (root / "made").touch()
    foreign.end_call("c1")
    call = call_of(workspace, "c1")
    assert (call.status, call.paths, call.coverage.level) == ("ok", ("made",), "full")


def test_a_client_may_start_its_session_again_with_another_silence(
    workspace: AuditedWorkspace, foreign: ForeignSession
) -> None:
    foreign.begin_call("c1", "Bash")
    again = workspace.start_foreign_session("client", id="s", pid=os.getpid(), seconds=60)
    again.end_call("c1")
    assert call_of(workspace, "c1").status == "ok"
    lease = workspace.attachment.lease("s")
    assert lease is not None and lease.seconds == 60


def test_a_session_that_was_ended_may_be_another_client_s(
    workspace: AuditedWorkspace, foreign: ForeignSession, second: subprocess.Popen[bytes]
) -> None:
    foreign.begin_call("c1", "Bash")
    workspace.end_session("s")
    again = workspace.start_foreign_session("client", id="s", pid=second.pid)
    again.begin_call("c2", "Bash")
    again.end_call("c2")
    assert call_of(workspace, "c1").status == "unknown"
    assert call_of(workspace, "c2").status == "ok"
