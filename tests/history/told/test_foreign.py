"""Calls that another program reports: begun by one report, ended by another."""

import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import force_setattr, replace

from loom_audit import (
    AuditedWorkspace,
    AuditStore,
    Conflict,
    ForeignSession,
    InvalidArguments,
    InvalidPath,
    NotFound,
)
from loom_audit.model.events import (
    CallFinished,
    CallReported,
    CallRequested,
    SessionStarted,
)
from loom_audit.model.records import Call
from loom_audit.ports import CallFilter, EventFilter
from tests.oracles.changes import check_each_change_once
from tests.oracles.trees import tree_of

SHARED = "shared with other commands"


@pytest.fixture(autouse=True)
def whole(workspace: AuditedWorkspace) -> Iterator[None]:
    """After each test: at most one finish per request, each change once, all of it true."""
    yield
    events = [*workspace.log.read()]
    facts = [event.fact for event in events]
    requested = Counter(fact.call_id for fact in facts if isinstance(fact, CallRequested))
    finished = Counter(fact.call_id for fact in facts if isinstance(fact, CallFinished))
    assert set(requested.values()) <= {1} and finished <= requested
    check_each_change_once(events)
    assert workspace.verify().findings == ()


@pytest.fixture
def foreign(workspace: AuditedWorkspace, client: subprocess.Popen[bytes]) -> ForeignSession:
    return workspace.start_foreign_session("client", id="s", pid=client.pid)


def end_of(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def call_of(workspace: AuditedWorkspace, call_id: str, session: str = "s") -> Call:
    return workspace.attachment.stored.tables.call(session, call_id)


def owners(workspace: AuditedWorkspace, path: str) -> tuple[str | None, tuple[str, ...]]:
    """Whose the last change of a path is, and who else's it may be."""
    [*_, last] = workspace.attachment.stored.tables.changes(paths=[path])
    calls = workspace.attachment.stored.tables
    return last.call_id, tuple(calls.call_at(seq).call_id for seq in last.causes if seq)


# --- from begin to end --------------------------------------------------------------------


@pytest.mark.parametrize(
    "status", ["ok", "error", "denied", "timeout", "cancelled", "unknown", "running"]
)
def test_a_call_has_the_changes_and_the_status_that_its_end_reports(
    workspace: AuditedWorkspace, foreign: ForeignSession, root: Path, status: Any
) -> None:
    (root / "before").touch()
    began = foreign.begin_call("c1", "Bash", {"command": "make"}, cwd="/somewhere")
    assert isinstance(began.fact, CallRequested) and began.fact.cwd == "/somewhere"
    (root / "made").touch()
    (root / "a.txt").unlink()
    ended = foreign.end_call("c1", status, "what it printed")
    call = call_of(workspace, "c1")
    assert (call.seq, call.requested, call.status) == (ended.seq, began.seq, status)
    assert set(call.paths) == {"made", "a.txt"} and call.coverage.level == "full"
    assert owners(workspace, "before") == (None, ())
    result = workspace.timeline.call(ended.seq).result
    assert result["output"] == "what it printed"
    assert result["files_changed"] == ["a.txt", "made"]
    assert workspace.status().drift == ()


def test_a_call_can_be_taken_back_and_brought_again(
    workspace: AuditedWorkspace, foreign: ForeignSession, root: Path
) -> None:
    before = tree_of(root)
    foreign.begin_call("c1", "Write", {}, "write", paths=[str(root / "a.txt")])
    (root / "a.txt").write_text("new")
    foreign.end_call("c1")
    after = tree_of(root)
    workspace.carry_out(workspace.plan_undo())
    assert tree_of(root) == before
    workspace.carry_out(workspace.plan_redo())
    assert tree_of(root) == after


@pytest.mark.parametrize(
    ("first", "last", "level", "reason"),
    [
        (False, True, "partial", "not looked at before it"),
        (True, False, "none", "not looked at after it"),
        (False, False, "none", "not looked at after it"),
    ],
)
def test_coverage_says_which_look_was_left_out(
    workspace: AuditedWorkspace,
    foreign: ForeignSession,
    root: Path,
    first: bool,
    last: bool,
    level: str,
    reason: str,
) -> None:
    foreign.begin_call("c1", "Bash", {}, look=first)
    (root / "made").touch()
    foreign.end_call("c1", look=last)
    call = call_of(workspace, "c1")
    assert call.coverage.level == level and reason in call.coverage.reasons
    assert call.paths == (("made",) if last else ())


def test_a_read_is_not_looked_at_and_wholly_covered(
    workspace: AuditedWorkspace, foreign: ForeignSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.delattr(type(workspace.attachment.on_disk.workspace), "differences")
        foreign.begin_call("c1", "Read", {"path": "a.txt"}, "read")
        foreign.end_call("c1", "ok", {"lines": 3})
    call = call_of(workspace, "c1")
    assert (call.coverage.level, call.status) == ("full", "ok")
    assert workspace.timeline.call(call.requested).result["data"] == {"lines": 3}


def test_times_that_are_reported_are_kept_and_are_how_long_it_took(
    workspace: AuditedWorkspace, foreign: ForeignSession
) -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    began = foreign.begin_call("c1", "Read", {}, "read", at=at)
    ended = foreign.end_call("c1", at=at + timedelta(seconds=2.5))
    assert (began.occurred_at, ended.occurred_at) == (at, at + timedelta(seconds=2.5))
    assert call_of(workspace, "c1").duration == 2_500_000
    with pytest.raises(InvalidArguments, match="zone"):
        foreign.begin_call("c2", "Read", {}, "read", at=at.replace(tzinfo=None))


def test_no_lock_is_held_between_begin_and_end(
    workspace: AuditedWorkspace, foreign: ForeignSession, root: Path
) -> None:
    foreign.begin_call("c1", "Bash", {})
    with workspace.attachment.exclusive():
        pass
    with workspace.session("ours") as ours:
        assert ours.run(["touch", "made"]).coverage.reasons == (SHARED,)
    foreign.end_call("c1")


def test_a_left_out_folder_that_goes_lowers_coverage_also_in_another_process(
    workspace: AuditedWorkspace, store: AuditStore, foreign: ForeignSession, root: Path
) -> None:
    (root / "node_modules").mkdir()
    foreign.begin_call("c1", "Bash", {})
    (root / "node_modules").rmdir()
    again = store.workspace(root)
    again.foreign_session("s").end_call("c1")
    assert call_of(workspace, "c1").coverage.reasons == ("not on record: node_modules",)


# --- what is reported again, late, or wrongly ---------------------------------------------


def test_what_is_told_twice_is_once(workspace: AuditedWorkspace, foreign: ForeignSession) -> None:
    told = [foreign.begin_call("c1", "Bash", {"n": 1}, paths=["b", "a"]) for _ in range(2)]
    assert told[0] == told[1]
    ended = [foreign.end_call("c1", "ok", {"n": 1}) for _ in range(3)]
    assert ended[0] == ended[1] == ended[2]
    assert foreign.begin_call("c1", "Bash", {"n": 1}, paths=["a", "b"]) == told[0]
    late = [foreign.end_call("c1", "error", "it failed after all") for _ in range(2)]
    assert late[0] == late[1] and isinstance(late[0].fact, CallReported)
    assert call_of(workspace, "c1").status == "ok"
    assert workspace.log.head() == late[0].seq


@pytest.mark.parametrize(
    "other",
    [{"tool": "Read"}, {"arguments": {"n": 2}}, {"effect": "read"}, {"paths": ["a"]}],
    ids=lambda other: next(iter(other)),
)
def test_an_id_is_not_used_for_something_else(
    workspace: AuditedWorkspace, foreign: ForeignSession, other: dict[str, Any]
) -> None:
    first: dict[str, Any] = {"tool": "Bash", "arguments": {"n": 1}, "effect": "execute"}
    foreign.begin_call("c1", **first)
    head = workspace.log.head()
    with pytest.raises(Conflict, match="c1"):
        foreign.begin_call("c1", **first | other)
    assert workspace.log.head() == head


def test_an_end_without_a_begin_is_refused(foreign: ForeignSession) -> None:
    with pytest.raises(NotFound, match="no call c9") as refused:
        foreign.end_call("c9")
    assert "Begin it" in refused.value.hint


@pytest.mark.parametrize("id", ["", "x" * 201, "a\nb", "a\u202e"])
def test_an_id_is_visible_text(
    workspace: AuditedWorkspace, foreign: ForeignSession, id: str
) -> None:
    with pytest.raises(InvalidArguments, match="not an id"):
        foreign.begin_call(id, "Bash")
    with pytest.raises(InvalidArguments, match="not an id"):
        workspace.start_foreign_session("client", id=id or "\x00")


def test_a_path_outside_and_a_call_within_nothing_are_refused(foreign: ForeignSession) -> None:
    with pytest.raises(InvalidPath):
        foreign.begin_call("c1", "Write", {}, "write", paths=["../x"])
    for seq in (1, 10**6):
        with pytest.raises(InvalidArguments, match="not the request of a call"):
            foreign.begin_call("c1", "Bash", within=seq)


def test_a_client_s_tool_named_undo_is_not_ours(
    workspace: AuditedWorkspace, foreign: ForeignSession, client: subprocess.Popen[bytes]
) -> None:
    foreign.begin_call("c1", "undo", {}, "write")
    assert call_of(workspace, "c1").effect == "execute"
    end_of(client)
    assert [one.waiting for one in workspace.recover()] == [False]


def test_ends_may_come_out_of_order(
    workspace: AuditedWorkspace, foreign: ForeignSession, root: Path
) -> None:
    foreign.begin_call("c1", "Bash", {})
    foreign.begin_call("c2", "Bash", {})
    (root / "x").touch()
    foreign.end_call("c1")
    (root / "y").touch()
    foreign.end_call("c2")
    assert owners(workspace, "x") == ("c1", ("c1", "c2"))
    assert owners(workspace, "y") == ("c2", ())
    for id in ("c1", "c2"):
        assert SHARED in call_of(workspace, id).coverage.reasons
    assert set(call_of(workspace, "c2").coverage.reasons) == {SHARED}


def test_declared_paths_are_owned_by_their_call_alone(
    workspace: AuditedWorkspace, foreign: ForeignSession, root: Path
) -> None:
    foreign.begin_call("bash", "Bash", {})
    foreign.begin_call("edit", "Edit", {}, "write", paths=["new/deep/file", "a.txt"])
    (root / "new" / "deep").mkdir(parents=True)
    (root / "new" / "deep" / "file").touch()
    (root / "new" / "other").touch()
    foreign.end_call("bash")
    (root / "a.txt").unlink()
    (root / "stranger").touch()
    foreign.end_call("edit")
    for path in ("new", "new/deep", "new/deep/file", "a.txt"):
        assert owners(workspace, path) == ("edit", ())
    assert owners(workspace, "new/other") == ("bash", ())
    assert owners(workspace, "stranger") == (None, ())
    assert call_of(workspace, "edit").coverage.level == "full"
    assert set(call_of(workspace, "edit").paths) >= {"new/deep/file", "a.txt"}


# --- calls that contain others ------------------------------------------------------------


def test_what_changes_between_the_calls_that_one_contains_is_its_own(
    workspace: AuditedWorkspace, foreign: ForeignSession, root: Path
) -> None:
    task = foreign.begin_call("task", "Task", {})
    (root / "first").touch()
    foreign.begin_call("in1", "Bash", {}, within=task.seq)
    (root / "one").touch()
    foreign.end_call("in1")
    (root / "between").touch()
    foreign.begin_call("in2", "Bash", {}, within=task.seq)
    (root / "two").touch()
    foreign.end_call("in2")
    (root / "last").touch()
    foreign.end_call("task")
    assert owners(workspace, "one") == ("in1", ())
    assert owners(workspace, "two") == ("in2", ())
    for path in ("first", "between", "last"):
        assert owners(workspace, path) == ("task", ())
    for id in ("task", "in1", "in2"):
        assert call_of(workspace, id).coverage.level == "full"


def test_a_container_that_ends_first_leaves_the_changes_to_what_it_contains(
    workspace: AuditedWorkspace, foreign: ForeignSession, root: Path
) -> None:
    task = foreign.begin_call("task", "Task", {})
    foreign.begin_call("in1", "Bash", {}, within=task.seq)
    (root / "one").touch()
    foreign.end_call("task")
    foreign.end_call("in1")
    assert owners(workspace, "one") == ("in1", ())


def test_a_client_under_our_run_neither_shares_nor_blocks(
    workspace: AuditedWorkspace, foreign: ForeignSession, root: Path
) -> None:
    with workspace.session("ours") as ours, ours.recording("run"):
        [run] = workspace.timeline.open_calls()
        foreign.begin_call("c1", "Bash", {}, within=run.requested)
        (root / "made").touch()
        foreign.end_call("c1")
        done = workspace.carry_out(workspace.plan_undo(session="s"))
        assert done.changed == ("made",) and not (root / "made").exists()
    assert [call.status for call in workspace.timeline.calls()].count("ok") == 3
    [run] = workspace.timeline.calls(CallFilter(session=ours.id))
    assert (run.paths, run.coverage.level) == ((), "full")


# --- how long a call is open --------------------------------------------------------------


def test_a_call_is_open_while_its_client_lives_and_interrupted_when_it_died(
    workspace: AuditedWorkspace,
    foreign: ForeignSession,
    root: Path,
    client: subprocess.Popen[bytes],
) -> None:
    foreign.begin_call("c1", "Bash", {})
    (root / "made").touch()
    assert workspace.recover() == []
    end_of(client)
    [closed] = workspace.recover()
    assert (closed.call.status, closed.call.paths) == ("interrupted", ())
    assert closed.call.coverage.reasons == ("interrupted", "looked at late")
    assert owners(workspace, "made") == (None, ("c1",))
    assert workspace.timeline.session("s").status == "interrupted"
    late = foreign.end_call("c1", "ok", "it had ended well")
    assert isinstance(late.fact, CallReported)
    assert call_of(workspace, "c1").status == "ok", "that it was interrupted was inferred"


def test_a_call_that_had_not_been_closed_is_ended_by_its_end_though_the_client_is_gone(
    workspace: AuditedWorkspace, foreign: ForeignSession, client: subprocess.Popen[bytes]
) -> None:
    foreign.begin_call("c1", "Bash", {})
    end_of(client)
    foreign.end_call("c1")
    assert call_of(workspace, "c1").status == "ok"


def test_a_client_that_was_not_waited_for_has_ended(
    workspace: AuditedWorkspace, foreign: ForeignSession, client: subprocess.Popen[bytes]
) -> None:
    foreign.begin_call("c1", "Bash", {})
    client.kill()
    os.waitid(os.P_PID, client.pid, os.WEXITED | os.WNOWAIT)
    assert len(workspace.recover()) == 1


class AnotherMachine:
    """Sees no process; its time passes as it is told."""

    def __init__(self, workspace: AuditedWorkspace) -> None:
        self.later = timedelta()
        self.real = workspace.attachment.stored.clock

    def lease(self, pid: int | None, seconds: int) -> Any:
        raise AssertionError("not asked for here")

    def is_alive(self, _: object) -> None:
        return None

    def now(self) -> datetime:
        return self.real.now() + self.later


@pytest.fixture
def machine(workspace: AuditedWorkspace) -> AnotherMachine:
    machine = AnotherMachine(workspace)
    force_setattr(workspace.attachment.stored, "clock", machine)
    return machine


def test_where_the_client_cannot_be_seen_the_deadline_counts_from_its_latest_report(
    workspace: AuditedWorkspace, root: Path, machine: AnotherMachine
) -> None:
    foreign = workspace.start_foreign_session("client", id="s", seconds=60)
    foreign.begin_call("c1", "Bash", {})
    machine.later = timedelta(seconds=59)
    assert workspace.recover() == []
    machine.later = timedelta(seconds=61)
    (root / "made").touch()
    [closed] = workspace.recover()
    assert (closed.call.status, closed.call.paths) == ("unknown", ())
    assert owners(workspace, "made") == (None, ("c1",))
    assert "in time" in closed.call.error


def test_a_late_report_comes_before_the_deadline_is_enforced(
    workspace: AuditedWorkspace, machine: AnotherMachine
) -> None:
    foreign = workspace.start_foreign_session("client", id="s", seconds=60)
    foreign.begin_call("c1", "Bash", {})
    machine.later = timedelta(days=1)
    foreign.end_call("c1")
    assert call_of(workspace, "c1").status == "ok"


def test_the_deadline_of_a_client_that_can_be_seen_does_not_count(
    workspace: AuditedWorkspace, client: subprocess.Popen[bytes], machine: AnotherMachine
) -> None:
    foreign = workspace.start_foreign_session("client", id="s", pid=client.pid, seconds=60)
    foreign.begin_call("c1", "Bash", {})
    machine.later = timedelta(days=365)
    assert workspace.recover() == []
    assert workspace.is_alive(call_of(workspace, "c1"))


@pytest.mark.parametrize(
    "other",
    [{"boot": "other"}, {"namespace": "other"}, {"boot": ""}, {"started": None}, {"pid": None}],
    ids=str,
)
def test_a_process_of_another_boot_or_namespace_is_not_taken_for_one_that_is_seen(
    workspace: AuditedWorkspace, client: subprocess.Popen[bytes], other: dict[str, Any]
) -> None:
    processes = workspace.attachment.on_disk.processes
    lease = processes.lease(client.pid, 60)
    assert processes.is_alive(lease) is True
    assert processes.is_alive(replace(lease, **other)) is None


def test_another_process_with_the_same_pid_is_not_the_client(
    workspace: AuditedWorkspace, client: subprocess.Popen[bytes]
) -> None:
    processes = workspace.attachment.on_disk.processes
    lease = processes.lease(client.pid, 60)
    assert lease.started is not None
    assert processes.is_alive(replace(lease, started=lease.started - 1)) is False
    end_of(client)
    assert processes.is_alive(lease) is False
    with pytest.raises(NotFound, match="does not run"):
        workspace.start_foreign_session("client", pid=client.pid)


# --- sessions -----------------------------------------------------------------------------


def test_a_session_goes_on_in_another_process(
    workspace: AuditedWorkspace, foreign: ForeignSession, client: subprocess.Popen[bytes]
) -> None:
    foreign.begin_call("c1", "Bash", {})
    end_of(client)
    with subprocess.Popen(["sleep", "1000"]) as second:
        again = workspace.start_foreign_session("client", id="s", pid=second.pid)
        assert call_of(workspace, "c1").status == "interrupted"
        assert workspace.timeline.session("s").status == "open"
        again.begin_call("c2", "Bash", {})
        assert workspace.recover() == []
        started = workspace.log.head()
        workspace.start_foreign_session("client", id="s", pid=second.pid)
        assert workspace.log.head() == started, "the same again is not news"
        second.kill()
    assert len(workspace.recover()) == 1
    kinds = EventFilter(kinds=(SessionStarted.kind,), session="s")
    assert len([*workspace.log.read(kinds)]) == 2


def test_a_session_that_has_ended_takes_no_call_until_it_starts_again(
    workspace: AuditedWorkspace, foreign: ForeignSession, client: subprocess.Popen[bytes]
) -> None:
    first = foreign.end()
    assert foreign.end() == first
    with pytest.raises(Conflict, match="has ended"):
        foreign.begin_call("c1", "Bash", {})
    workspace.start_foreign_session("client", id="s", pid=client.pid)
    foreign.begin_call("c1", "Bash", {})
    foreign.end_call("c1")


def test_a_session_of_ours_is_not_reported_from_outside(workspace: AuditedWorkspace) -> None:
    with workspace.session("ours") as ours:
        with pytest.raises(Conflict, match="not one that another program reports"):
            workspace.start_foreign_session("client", id=ours.id)
        with pytest.raises(Conflict, match="not one that another program reports"):
            workspace.foreign_session(ours.id).begin_call("c1", "Bash", {})
        with pytest.raises(Conflict, match="is running"):
            workspace.end_session(ours.id)
    with pytest.raises(NotFound):
        workspace.foreign_session("none")


def test_an_undo_names_the_call_in_its_way_and_how_to_end_it(
    workspace: AuditedWorkspace, foreign: ForeignSession, root: Path
) -> None:
    foreign.begin_call("c1", "Write", {}, "write")
    (root / "made").touch()
    foreign.end_call("c1")
    begun = foreign.begin_call("c2", "Bash", {})
    with pytest.raises(Conflict, match=rf"Bash of session s .*\(call {begun.seq},") as refused:
        workspace.carry_out(workspace.plan_undo())
    assert "`loom-audit session end s`" in refused.value.hint
    (root / "more").touch()
    workspace.end_session("s", actor="person:ann")
    closed = call_of(workspace, "c2")
    assert (closed.status, closed.paths) == ("unknown", ("more",))
    assert "before the end of this call was reported" in closed.error
    assert workspace.timeline.session("s").status == "interrupted"
    workspace.carry_out(workspace.plan_undo(choices={"more": "old"}))
    workspace.carry_out(workspace.plan_undo())
    assert not (root / "more").exists() and not (root / "made").exists()


def test_an_open_read_does_not_block_an_undo(
    workspace: AuditedWorkspace, foreign: ForeignSession, root: Path
) -> None:
    foreign.begin_call("c1", "Write", {}, "write")
    (root / "made").touch()
    foreign.end_call("c1")
    foreign.begin_call("c2", "Read", {}, "read")
    workspace.carry_out(workspace.plan_undo())
    assert not (root / "made").exists()
    foreign.end_call("c2")
    assert call_of(workspace, "c2").status == "ok"
