"""`kill -9` of a real process right before and after each commit, by each way in."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from loom_audit import ApprovalDenied, AuditedWorkspace, open_store
from loom_audit.model.events import CallFinished, CallReported
from tests.crash.programs.faults import Stem
from tests.crash.programs.places import NATIVE, Place, check_whole
from tests.given.cases import some
from tests.oracles.trees import tree_of

STEPS = ("start", "begin c1", "make made", "begin c2", "make other", "end c2", "end c1", "close")
When = Literal["before", "after"]


@pytest.fixture
def place(tmp_path: Path, stem: Stem, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setenv("LOOM_AUDIT_HOME", str(tmp_path / "home"))
    return Place(tmp_path, stem)


def kills(place: Place, way: str, **order: Any) -> Iterator[str]:
    """After each kill, before and after each commit there is: which one it was."""
    for nth in range(1, 30):
        whens: tuple[When, ...] = ("before", "after")
        for when in whens:
            place.bring_back()
            if not place.run(way, commit=nth, when=when, **order):
                assert when == "before" and nth > 2
                return
            yield f"{when} commit {nth} of {way}"
    raise AssertionError("it does not end")


@pytest.mark.few(1)
@pytest.mark.parametrize("way", some(NATIVE, 2))
def test_a_kill_at_a_commit_leaves_one_finish_and_no_change_of_nobody(
    place: Place, way: str
) -> None:
    for n, where in enumerate(kills(place, way)):
        try:
            with open_store() as store:
                workspace = store.workspace(place.root)
                start = workspace.timeline.calls()[-1].seq or 0
                if any(one.waiting for one in workspace.recover()):
                    workspace.recover("continue" if n % 2 else "abandon")
                check_whole(workspace, since=start)
                assert workspace.recover() == []
                assert workspace.leftovers() == []
                with workspace.session("next") as session:
                    assert session.run(["sh", "-c", "echo z > z"]).files_changed == ("z",)
        except BaseException as error:
            error.add_note(where)
            raise


@pytest.mark.few(0)
def test_a_reporter_killed_at_a_commit_reports_again_and_nothing_is_twice(
    place: Place, client: subprocess.Popen[bytes]
) -> None:
    seen = 0
    for where in kills(place, "reports", steps=STEPS, pid=client.pid):
        seen += 1
        try:
            with open_store() as store:
                workspace = store.workspace(place.root)
                start = workspace.timeline.calls()[-1].seq or 0
                assert workspace.recover() == [], "the client lives"
                assert not place.run("reports", steps=STEPS, pid=client.pid)
                check_whole(workspace, since=start)
                check_reported(workspace)
        except BaseException as error:
            error.add_note(where)
            raise
    assert seen == 12, "six commits: a start, two begins, two ends, an end of the session"


@pytest.mark.few(0)
def test_a_kill_while_going_back_leaves_the_agent_held_and_one_of_two_states(
    place: Place, client: subprocess.Popen[bytes]
) -> None:
    """Nothing of the agent's is closed, and what it changes later is a later change of its own."""
    with open_store() as store:
        workspace = store.workspace(place.root)
        foreign = workspace.start_foreign_session("client", id="s", pid=client.pid)
        foreign.begin_call("c1", "Bash", {})
        (place.root / "old.txt").write_text("by the agent\n")
        (place.root / "made").write_text("by the agent\n")
        workspace.checkpoint("agent")
    place.keep()
    agents = tree_of(place.root)
    states = set[str]()
    for n, where in enumerate(kills(place, "rollback held")):
        try:
            with open_store() as store:
                workspace = store.workspace(place.root)
                held = workspace.timeline.hold("s") is not None
                assert held or (where == "before commit 1 of rollback held"), "commit 1 holds"
                if any(one.waiting for one in workspace.recover()):
                    [call] = [one for one in workspace.timeline.open_calls() if one.tool != "Bash"]
                    assert call.tool == "rollback"
                    workspace.recover("continue" if n % 2 else "abandon")
                after = workspace.timeline.tree(workspace.timeline.point("@start"))
                gone_back = workspace.timeline.tree() == after
                assert tree_of(place.root) == agents or gone_back
                states.add("gone back" if gone_back else "as the agent left it")
                assert [one.call_id for one in workspace.timeline.open_calls()] == ["c1"]
                if held:
                    with pytest.raises(ApprovalDenied, match="going back"):
                        workspace.foreign_session("s").begin_call("c2", "Bash", {})
                (place.root / "later").write_text("by the agent\n")
                workspace.foreign_session("s").end_call("c1")
                [*_, last] = workspace.attachment.stored.tables.changes(paths=["later"])
                assert last.call_id == "c1"
                check_whole(workspace, since=workspace.timeline.point("@agent"))
        except BaseException as error:
            error.add_note(where)
            raise
    assert len(states) == 2


def check_reported(workspace: AuditedWorkspace) -> None:
    """Both calls ended well, each with what changed while it was open, shared while both were."""
    calls = {call.call_id: call for call in workspace.timeline.calls() if call.session == "s"}
    assert {id: call.status for id, call in calls.items()} == {"c1": "ok", "c2": "ok"}
    owners = {
        change.change.path: {
            call.call_id
            for call in calls.values()
            if call.requested in (change.causes or [change.requested])
        }
        for change in workspace.attachment.stored.tables.changes()
        if change.session == "s"
    }
    assert owners["made"] <= {"c1", "c2"} and "c1" in owners["made"]
    assert owners["other"] == {"c1", "c2"}
    assert not any(isinstance(event.fact, CallReported) for event in workspace.log.read())
    assert workspace.timeline.session("s").status == "completed"


@pytest.mark.few(2)
@pytest.mark.parametrize("last", range(1, len(STEPS) + 1))
def test_a_client_killed_after_any_step_leaves_one_finish_whatever_comes_later(
    place: Place, client: subprocess.Popen[bytes], last: int
) -> None:
    """Each step is reported by a process of its own."""
    for step in STEPS[:last]:
        assert not place.run("reports", steps=[step], pid=client.pid)
    client.kill()
    client.wait()
    with open_store() as store:
        workspace = store.workspace(place.root)
        start = workspace.timeline.calls()[-1].seq or 0
        open_before = workspace.timeline.open_calls()
        closed = workspace.recover()
        assert [one.call.call_id for one in closed] == [call.call_id for call in open_before]
        assert {one.call.status for one in closed} <= {"interrupted"}
        assert workspace.timeline.open_calls() == []
        for step in STEPS[last:]:
            if not step.startswith("make"):
                assert not place.run("reports", steps=[step], pid=client.pid, late=True)
        late = [event.fact for event in workspace.log.read() if event.kind == CallReported.kind]
        ends = {step.partition(" ")[2] for step in STEPS[last:] if step.startswith("end")}
        assert {fact.call_id for fact in late if isinstance(fact, CallReported)} == {
            one.call.call_id for one in closed
        } & ends
        check_whole(workspace, since=start)


def test_a_reporter_and_its_client_killed_at_once_are_closed_by_the_next(place: Place) -> None:
    for nth in range(1, 7):
        place.bring_back()
        with subprocess.Popen(["sleep", "1000"]) as client:
            assert place.run("reports", steps=STEPS, pid=client.pid, commit=nth, when="after")
            client.kill()
        with open_store() as store:
            workspace = store.workspace(place.root)
            start = workspace.timeline.calls()[-1].seq or 0
            with workspace.session("next"):
                assert workspace.timeline.open_calls() == []
            check_whole(workspace, since=start)
            finishes = [
                event.fact for event in workspace.log.read() if isinstance(event.fact, CallFinished)
            ]
            assert {fact.status for fact in finishes} <= {"ok", "interrupted"}
