"""What an agent takes back of its own session by the tool `undo`, and what it may not."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import anyio
import pytest

from loom_audit import AuditedWorkspace, Session, ToolResult
from loom_audit.api.control.holding import hold, why_not_now
from loom_audit.api.ground.connections import Connections
from loom_audit.api.ground.timelines import undo_of
from loom_audit.api.registry import builtin_registry
from loom_audit.api.store import AuditStore
from loom_audit.errors import AuditError, Conflict
from loom_audit.history.ground.writer import Writer
from loom_audit.history.undo.own_calls import OwnCalls
from loom_audit.model.plans.planning import Plan
from loom_audit.model.plans.request import PlanRequest
from loom_audit.model.records import Call as Recorded
from loom_audit.ports import EventFilter
from loom_audit.tools.approvals.asking_gate import AskingGate
from loom_audit.tools.approvals.policy import Policy, Rule
from loom_audit.tools.calls.past import PlannedOnce

Call = Callable[..., ToolResult]


def newest(workspace: AuditedWorkspace) -> int:
    return workspace.timeline.calls()[0].seq or 0


def code(session: Session, **arguments: Any) -> str:
    """With which code `undo` fails, or "" where it does not; the text must name what to do."""
    result = anyio.run(lambda: session.call("undo", arguments))
    if result.error is None:
        return ""
    assert result.files_changed == []
    return result.error.code


def test_undo_goes_back_one_call_each_time_and_all_of_it_stays_on_record(
    workspace: AuditedWorkspace, session: Session, call: Call, root: Path
) -> None:
    call("write_file", path="a.txt", content="new\n")
    first = newest(workspace)
    call("bash", command="echo 1 > made; rm a.txt")
    second = newest(workspace)
    told = call("undo")
    assert told.data == {
        "call": second,
        "tool": "bash",
        "paths": ["a.txt", "made"],
        "not_taken_back": [],
    }
    assert (root / "a.txt").read_text() == "new\n" and not (root / "made").exists()
    assert call("undo").files_changed == ["a.txt"]
    assert (root / "a.txt").read_text() == "one\ntwo\nthree\n"
    assert code(session) == "NOT_FOUND"
    calls = {one.seq: one for one in workspace.timeline.calls()}
    for number in (first, second):
        by = calls[calls[number].undone_by]
        assert by.tool == "undo" and by.reverts == (number,)
        assert number in workspace.timeline.taken_back_by_agents([calls[number]])
    workspace.carry_out(workspace.plan_redo(), actor="person:ann")
    assert (root / "a.txt").read_text() == "new\n"
    assert workspace.verify().findings == ()


def test_a_call_of_another_session_is_none_of_this_one(
    workspace: AuditedWorkspace, session: Session, root: Path
) -> None:
    with workspace.session("other") as other:
        assert anyio.run(lambda: other.call("write_file", {"path": "b", "content": "b"})).success
    assert code(session, call=newest(workspace)) == "NOT_FOUND"
    assert code(session) == "NOT_FOUND"
    assert (root / "b").exists()


def test_what_a_person_allowed_is_not_an_agents_to_take_back(
    workspace: AuditedWorkspace, root: Path
) -> None:
    asks = Rule(1, "ask", path="a.txt")
    gate = AskingGate(Policy((asks, Rule(2, "allow", effect="write"))), ask=lambda _: True)
    with workspace.session("tester", gate=gate) as session:

        def write(path: str) -> int:
            made = anyio.run(lambda: session.call("write_file", {"path": path, "content": "x\n"}))
            assert made.success
            return newest(workspace)

        by_rule, by_person = write("b.txt"), write("a.txt")
        assert code(session) == code(session, call=by_person) == "PERMISSION_DENIED"
        assert code(session, call=by_rule) == ""
    assert (root / "a.txt").read_text() == "x\n" and not (root / "b.txt").exists()


def on_record(workspace: AuditedWorkspace, root: Path) -> None:
    (root / "a.txt").write_text("mine\n")
    with workspace.session("other") as other:
        other.run(["true"])


def put_back(workspace: AuditedWorkspace, root: Path) -> None:
    was = (root / "a.txt").read_bytes()
    on_record(workspace, root)
    (root / "a.txt").write_bytes(was)
    with workspace.session("other") as other:
        other.run(["true"])


def undone_and_redone(workspace: AuditedWorkspace, root: Path) -> None:
    workspace.carry_out(workspace.plan_undo(), actor="person:ann")
    workspace.carry_out(workspace.plan_redo(), actor="person:ann")


def elsewhere_in_the_file(workspace: AuditedWorkspace, root: Path) -> None:
    (root / "a.txt").write_bytes((root / "a.txt").read_bytes() + b"mine\n")


def gone(workspace: AuditedWorkspace, root: Path) -> None:
    (root / "a.txt").unlink()


def renamed(workspace: AuditedWorkspace, root: Path) -> None:
    (root / "a.txt").rename(root / "c.txt")


@pytest.mark.parametrize(
    "touch", [on_record, put_back, undone_and_redone, elsewhere_in_the_file, gone, renamed]
)
def test_what_somebody_touched_since_stays(
    workspace: AuditedWorkspace,
    session: Session,
    call: Call,
    root: Path,
    touch: Callable[[AuditedWorkspace, Path], None],
) -> None:
    call("edit_file", path="a.txt", old_str="one", new_str="ONE")
    touch(workspace, root)
    before = {path.name: path.read_bytes() for path in root.iterdir() if path.is_file()}
    assert code(session) == "CONFLICT"
    after = {path.name: path.read_bytes() for path in root.iterdir() if path.is_file()}
    assert after == before


def test_an_own_later_change_has_to_be_taken_back_first(
    workspace: AuditedWorkspace, session: Session, call: Call, root: Path
) -> None:
    call("edit_file", path="a.txt", old_str="one", new_str="ONE")
    first = newest(workspace)
    call("edit_file", path="a.txt", old_str="three", new_str="THREE")
    assert code(session, call=first) == "CONFLICT"
    assert code(session) == code(session, call=first) == ""
    assert (root / "a.txt").read_bytes() == b"one\ntwo\nthree\n"
    assert code(session, call=first) == "CONFLICT"  # it is taken back
    assert code(session, call=newest(workspace)) == "CONFLICT"  # which took back nothing
    undo = next(c.seq for c in workspace.timeline.calls() if c.tool == "undo" and c.changed)
    assert code(session, call=undo) == "CONFLICT"  # an undo is not taken back by an agent


def test_a_call_with_a_part_that_somebody_touched_is_left_whole(
    session: Session, call: Call, root: Path
) -> None:
    call("bash", command="echo 1 > x; echo 1 > y")
    (root / "y").write_text("mine")
    assert code(session) == "CONFLICT"
    assert (root / "x").read_text() == "1\n" and (root / "y").read_text() == "mine"


def test_a_rule_about_a_path_is_about_what_an_undo_would_write(
    workspace: AuditedWorkspace, root: Path
) -> None:
    with workspace.session("tester") as session:
        anyio.run(lambda: session.call("write_file", {"path": "secret/k", "content": "x"}))
        session.gate = AskingGate(Policy((Rule(1, "deny", path="secret/"),)))
        assert code(session) == "APPROVAL_DENIED"
        session.gate = AskingGate(Policy((Rule(1, "ask", path="secret/"),)), wait=False)
        assert code(session) == "APPROVAL_DENIED"
    assert (root / "secret/k").exists()


def test_a_person_who_is_asked_sees_what_would_be_done_and_nobody_takes_it_for_interrupted(
    store: AuditStore, workspace: AuditedWorkspace, root: Path
) -> None:
    seen: list[str] = []

    def answer(request: Any) -> bool:
        seen.append(request.preview)
        [waiting] = workspace.timeline.open_calls()
        assert workspace.is_alive(waiting) and not workspace.recover()
        with workspace.session("other") as other:  # nothing waits for a decision
            anyio.run(lambda: other.call("write_file", {"path": "n", "content": "n"}))
        refused = why_not_now(workspace)
        assert refused is not None and "waits for approval" in refused.message
        return True

    with workspace.session("tester") as session:
        anyio.run(lambda: session.call("write_file", {"path": "a.txt", "content": "x\n"}))
        session.gate = AskingGate(Policy((Rule(1, "ask", tool="undo"),)), ask=answer)
        assert code(session) == ""
    assert "-x\n+one\n" in seen[0]
    assert (root / "a.txt").read_bytes() == b"one\ntwo\nthree\n" and (root / "n").exists()


@pytest.mark.parametrize(
    ("written", "ends", "left"),
    [(("z\n", "x\n"), "", "one\ntwo\nthree\n"), (("z\n",), "CONFLICT", "z\n")],
)
def test_what_a_person_saw_is_done_or_nothing(
    workspace: AuditedWorkspace, root: Path, written: tuple[str, ...], ends: str, left: str
) -> None:
    """Though by then another call is the newest."""

    async def answer(_: Any) -> bool:
        gate, session.gate = session.gate, AskingGate()
        for text in written:
            done = await session.call("edit_file", {"path": "a.txt", **whole(root, text)})
            assert done.success
        session.gate = gate
        return True

    with workspace.session("tester") as session:
        anyio.run(lambda: session.call("edit_file", {"path": "a.txt", **whole(root, "x\n")}))
        session.gate = AskingGate(Policy((Rule(1, "ask", tool="undo"),)), ask=answer)
        assert code(session) == ends
    assert (root / "a.txt").read_text() == left


def whole(root: Path, text: str) -> dict[str, str]:
    return {"old_str": (root / "a.txt").read_text(), "new_str": text}


def test_what_could_not_be_planned_when_rules_looked_is_not_planned_afterwards() -> None:
    class Busy:
        def __init__(self) -> None:
            self.asked = 0

        def plan(self, number: int | None) -> Plan:
            self.asked += 1
            if self.asked == 1:
                raise Conflict("the workspace is locked")
            return Plan(PlanRequest("undo"), 1, "call 1 (bash)")

    busy = Busy()
    once = PlannedOnce(lambda: busy)  # type: ignore[arg-type,return-value]
    for _ in range(2):
        with pytest.raises(AuditError, match="locked"):
            once.plan(None)
    assert once.plan(7) is once.plan(7) and busy.asked == 2


def test_an_open_call_that_changes_files_is_in_the_way(
    workspace: AuditedWorkspace, session: Session, call: Call, root: Path
) -> None:
    call("write_file", path="b", content="b")
    with session.recording("work"):
        assert code(session) == "CONFLICT"
    with workspace.session("other") as other, other.recording("work"):
        assert code(session) == "CONFLICT"
    assert code(session) == "" and not (root / "b").exists()


def test_a_held_session_takes_nothing_back(
    workspace: AuditedWorkspace, session: Session, call: Call, root: Path
) -> None:
    call("write_file", path="b", content="b")
    hold(workspace, session.id)
    assert code(session) == "APPROVAL_DENIED" and (root / "b").exists()


def test_a_call_in_a_registrys_session_is_taken_back_there(
    workspace: AuditedWorkspace, root: Path
) -> None:
    connections = Connections()
    registry = builtin_registry(connections)

    def execute(tool: str, **arguments: Any) -> ToolResult:
        return anyio.run(lambda: registry.execute(tool, arguments, root))

    assert execute("write_file", path="b", content="b").success
    assert [one["tool"] for one in (execute("history").data or {})["entries"]] == ["write_file"]
    assert execute("undo").success and not (root / "b").exists()
    nowhere = anyio.run(lambda: registry.execute("undo", {}))
    assert nowhere.error is not None and nowhere.error.code == "NO_WORKSPACE"
    connections.close()


@pytest.mark.parametrize("where", ["apply", "finish"])
def test_an_undo_whose_process_is_killed_is_closed_as_any_call_and_blocks_nobody(
    workspace: AuditedWorkspace, root: Path, where: str
) -> None:
    script = dedent(
        f"""
        import os, sys, anyio
        from loom_audit import open_store
        from loom_audit.history.record import call
        with open_store() as store, store.attach({str(root)!r}).session("killed") as session:
            run = lambda *asked: anyio.run(lambda: session.call(*asked))
            assert run("write_file", {{"path": "a.txt", "content": "x"}}).success
            if {where!r} == "apply":
                call.make_changes = lambda record, *_, **__: (record.commit(), os._exit(9))
            else:
                call.OpenCall.finish = lambda *_, **__: os._exit(9)
            run("undo", {{}})
        """
    )
    done = subprocess.run([sys.executable, "-c", script], env={**os.environ}, capture_output=True)
    assert done.returncode == 9, done.stderr
    [recovered] = workspace.recover()
    assert not recovered.waiting and recovered.call.tool == "undo"
    written: Recorded = next(c for c in workspace.timeline.calls() if c.tool == "write_file")
    assert recovered.call.status != "ok" and written.undone_by is None
    was = b"x" if where == "apply" else b"one\ntwo\nthree\n"
    assert (root / "a.txt").read_bytes() == was
    with workspace.session("next"):
        pass
    events = workspace.timeline.events(EventFilter(kinds=("call.requested",)))
    assert [event.source for event in events] == ["", "tool"]
    assert workspace.verify().findings == () and not workspace.status().drift


def test_history_names_who_changed_a_path_and_goes_on_by_pages(
    workspace: AuditedWorkspace, call: Call, root: Path
) -> None:
    for text in "123":
        call("write_file", path="src/new.py", content=text)
    (root / "src/new.py").write_text("mine")
    workspace.session("other")
    call("bash", command="true")
    seen: list[str] = []
    before: int | None = None
    while True:
        page = call("history", path="src", limit=2, **({"before": before} if before else {}))
        assert page.data is not None
        seen += [f"{one['actor']} {one['tool']}" for one in page.data["entries"]]
        before = page.data["next_before"]
        if before is None:
            break
    by_hand, *rest = seen
    assert by_hand == "outside outside" and rest[:3] == ["agent:tester write_file"] * 3
    assert len(seen) > 4  # and the baseline's
    call("history", path="../x", fails="INVALID_PATH")
    (root / "src" / "never.txt").write_text("not looked at yet")
    assert "never changed" in call("history", path="src/never.txt").output
    missed = call("history", path="never.txt", fails="FILE_NOT_FOUND")
    assert "Did you mean src/never.txt?" in missed.output


def test_an_undo_of_the_newest_call_does_not_pass_over_one_that_was_interrupted(
    workspace: AuditedWorkspace, root: Path
) -> None:
    script = dedent(
        f"""
        import os, sys, anyio
        from loom_audit import open_store
        from loom_audit.history.record import call
        with open_store() as store, store.attach({str(root)!r}).session("killed") as session:
            run = lambda *asked: anyio.run(lambda: session.call(*asked))
            assert run("write_file", {{"path": "older", "content": "x"}}).success
            call.look_after_block = lambda *_, **__: os._exit(9)
            run("bash", {{"command": "echo half > a.txt"}})
        """
    )
    done = subprocess.run([sys.executable, "-c", script], env={**os.environ}, capture_output=True)
    assert done.returncode == 9, done.stderr
    workspace.recover()
    killed, older = workspace.timeline.calls()
    assert (killed.tool, killed.status, older.tool) == ("bash", "interrupted", "write_file")
    writer = Writer(workspace.attachment, killed.session, killed.actor)
    own = OwnCalls(undo_of(workspace.attachment, workspace.timeline), writer)
    with pytest.raises(Conflict, match="was interrupted") as refused:
        own.plan(None)
    assert f"`undo` with call {older.seq} " in refused.value.hint
    assert own.plan(older.seq).calls == (older.seq,)
    (root / "a.txt").write_bytes(b"one\ntwo\nthree\n")  # a person put it back, unrecorded yet
    assert own.plan(None).calls == (older.seq,) == workspace.plan_undo().calls
