"""Calls of one id in several sessions: each has what it may have changed, and nothing else's."""

import os
from pathlib import Path

from loom_audit import AuditedWorkspace, ForeignSession
from loom_audit.model.events import CallFinished
from loom_audit.model.records import Call
from loom_audit.ports import CallFilter


def client(workspace: AuditedWorkspace, id: str) -> ForeignSession:
    return workspace.start_foreign_session("client", id=id, pid=os.getpid())


def call_of(workspace: AuditedWorkspace, session: str, call_id: str) -> Call:
    return workspace.attachment.stored.tables.call(session, call_id)


def changed(workspace: AuditedWorkspace, call: Call) -> set[str]:
    return {change.path for change in workspace.timeline.changes_of(call)}


def test_a_change_shared_by_two_calls_of_one_id_is_listed_with_both(
    workspace: AuditedWorkspace, root: Path
) -> None:
    a, b = client(workspace, "A"), client(workspace, "B")
    a.begin_call("1", "Bash")
    b.begin_call("1", "Bash")
    (root / "x").touch()
    a.end_call("1")
    b.end_call("1")
    calls = [call_of(workspace, session, "1") for session in ("A", "B")]
    assert [changed(workspace, call) for call in calls] == [{"x"}, {"x"}]
    assert {call.coverage.reasons for call in calls} == {("shared with other commands",)}
    [last] = workspace.attachment.stored.tables.history("x")
    assert set(last.causes) == {call.requested for call in calls}
    named = workspace.attachment.stored.tables.changes(calls=[calls[1].requested])
    assert [one.change.path for one in named] == ["x"]
    plan = workspace.plan_revert(["session:A"])
    assert not plan.changes and [note.path for note in plan.kept] == ["x"]
    both = workspace.plan_revert([call.seq for call in calls if call.seq])
    assert [change.path for change in both.changes] == ["x"]


def test_a_cause_is_the_call_that_was_open_and_not_a_finished_one_of_its_id(
    workspace: AuditedWorkspace, root: Path
) -> None:
    a, b = client(workspace, "A"), client(workspace, "B")
    a.begin_call("2", "Bash")
    a.end_call("2")
    a.begin_call("1", "Bash")
    b.begin_call("2", "Bash")
    (root / "x").touch()
    a.end_call("1")
    b.end_call("2")
    assert changed(workspace, call_of(workspace, "B", "2")) == {"x"}
    assert changed(workspace, call_of(workspace, "A", "2")) == set()
    assert workspace.verify().findings == ()


def test_an_old_shared_change_is_not_counted_for_a_new_call_of_that_id(
    workspace: AuditedWorkspace, root: Path
) -> None:
    a = client(workspace, "A")
    a.begin_call("1", "Bash")
    a.begin_call("2", "Bash")
    (root / "x").touch()
    a.end_call("1")
    a.end_call("2")
    b = client(workspace, "B")
    b.begin_call("1", "Bash")
    (root / "y").touch()
    ended = b.end_call("1")
    assert isinstance(ended.fact, CallFinished)
    assert ended.fact.result["files_changed"] == ["y"]
    call = call_of(workspace, "B", "1")
    assert (changed(workspace, call), call.coverage.level) == ({"y"}, "full")
    with workspace.session("agent") as session:
        with session.recording("block", call_id="1") as block:
            (root / "z").touch()
        assert list(block.files_changed) == ["z"] and block.coverage.level == "full"


def test_a_revert_of_a_session_spares_what_calls_of_the_same_ids_shared_in_another(
    workspace: AuditedWorkspace, root: Path
) -> None:
    b, a = client(workspace, "B"), client(workspace, "A")
    for id in ("1", "2"):
        b.begin_call(id, "Edit", effect="write", paths=[f"b{id}"])
    for id in ("1", "2"):
        a.begin_call(id, "Bash")
    for name in ("x", "b1", "b2"):
        (root / name).touch()
    for session in (a, b):
        for id in ("1", "2"):
            session.end_call(id)
    workspace.carry_out(workspace.plan_revert(["session:B"]))
    assert (root / "x").exists() and not (root / "b1").exists() and not (root / "b2").exists()
    a_calls = workspace.timeline.calls(CallFilter(session="A"))
    assert {*map(frozenset, (changed(workspace, call) for call in a_calls))} == {frozenset({"x"})}
