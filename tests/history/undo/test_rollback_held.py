"""Going back while an agent still writes: its session is held, its open calls stay open."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loom_audit import ApprovalDenied, AuditedWorkspace, Conflict, ForeignSession
from loom_audit.api.control import holding
from loom_audit.disk.workspace import DiskWorkspace
from loom_audit.history.undo.undo import UndoResult
from loom_audit.model.events import CallRequested
from tests.oracles.changes import check_each_change_once
from tests.oracles.trees import tree_of


@pytest.fixture(autouse=True)
def whole(workspace: AuditedWorkspace) -> Iterator[None]:
    """After each test: each change once, and the log is whole."""
    yield
    check_each_change_once(workspace.log.read())
    assert workspace.verify().findings == ()


@pytest.fixture
def foreign(workspace: AuditedWorkspace, client: subprocess.Popen[bytes]) -> ForeignSession:
    return workspace.start_foreign_session("client", id="s", pid=client.pid)


def roll_back(workspace: AuditedWorkspace, point: str) -> UndoResult:
    holding.hold_all(workspace, "going back")
    return holding.carry_out(workspace, workspace.plan_rollback(point, running=True))


def owners(workspace: AuditedWorkspace, path: str) -> list[tuple[str | None, set[str]]]:
    """Whose each change of a path is: of an undo, or of the calls that may have made it."""
    calls = workspace.attachment.stored.tables
    return [
        (
            one.origin,
            {calls.call_at(seq).call_id for seq in one.causes or (one.requested or 0,) if seq},
        )
        for one in calls.changes(paths=[path])
        if one.origin != "baseline"
    ]


def test_what_an_open_call_wrote_is_taken_back_and_what_it_writes_later_is_its_own(
    workspace: AuditedWorkspace, foreign: ForeignSession, root: Path
) -> None:
    before = tree_of(root)
    began = foreign.begin_call("c1", "Bash", {})
    (root / "a.txt").write_text("by the agent\n")
    (root / "made").write_text("one\n")
    with pytest.raises(Conflict, match="still open") as refused:
        workspace.carry_out(workspace.plan_rollback("session:s", running=True))
    assert "--hold" in refused.value.hint
    done = roll_back(workspace, "session:s")
    assert tree_of(root) == before
    assert [call.requested for call in done.left_open] == [began.seq]
    asked = workspace.timeline.call(done.call.requested)
    assert asked.arguments["left_open"] == [began.seq] and str(began.seq) in asked.result["output"]
    assert [call.call_id for call in workspace.timeline.open_calls()] == ["c1"]
    (root / "made").write_text("two\n")
    with pytest.raises(ApprovalDenied, match="going back"):
        foreign.begin_call("c2", "Bash", {})
    ended = foreign.end_call("c1")
    assert [who for who, _ in owners(workspace, "made")] == ["command", "undo", "command"]
    assert owners(workspace, "made")[-1] == ("command", {"c1"})
    workspace.carry_out(workspace.plan_revert([ended.seq]))
    assert tree_of(root) == before
    assert workspace.attachment.hold("s") is not None


def test_a_rollback_with_a_held_agent_can_be_taken_back(
    workspace: AuditedWorkspace, foreign: ForeignSession, root: Path
) -> None:
    foreign.begin_call("c1", "Bash", {})
    (root / "made").write_text("one\n")
    after = tree_of(root)
    done = roll_back(workspace, "session:s")
    foreign.end_call("c1")
    assert done.call.seq is not None
    workspace.carry_out(workspace.plan_revert([done.call.seq]))
    assert tree_of(root) == after


def test_calls_of_all_sessions_are_named_ours_too_and_a_read_is_none(
    workspace: AuditedWorkspace, foreign: ForeignSession, root: Path
) -> None:
    before = tree_of(root)
    foreign.begin_call("c0", "Read", {}, "read")
    with workspace.session("ours") as ours, ours.recording("block"):
        foreign.begin_call("c1", "Bash", {})
        (root / "made").touch()
        done = roll_back(workspace, "session:s")
        assert {call.tool for call in done.left_open} == {"block", "Bash"}
        assert {held.session for held in workspace.timeline.holds()} == {"s", ours.id}
        assert tree_of(root) == before
        (root / "later").touch()
    assert owners(workspace, "later")[0][1] == {
        fact.call_id
        for event in workspace.log.read()
        if isinstance(fact := event.fact, CallRequested) and fact.tool in ("block", "Bash")
    }


def test_a_call_of_a_session_that_is_not_held_is_still_in_the_way(
    workspace: AuditedWorkspace,
    foreign: ForeignSession,
    client: subprocess.Popen[bytes],
    root: Path,
) -> None:
    holding.hold_all(workspace)
    late = workspace.start_foreign_session("client", id="late", pid=client.pid)
    late.begin_call("c1", "Bash", {})
    (root / "made").touch()
    before = tree_of(root)
    with pytest.raises(Conflict, match="of session late is still open"):
        holding.carry_out(workspace, workspace.plan_rollback("session:s", running=True))
    assert tree_of(root) == before


def test_what_came_from_a_person_is_kept_and_listed(
    workspace: AuditedWorkspace, foreign: ForeignSession, root: Path
) -> None:
    (root / "mine").write_text("a person's\n")
    foreign.begin_call("c1", "Bash", {})
    (root / "made").touch()
    done = roll_back(workspace, "session:s")
    assert (root / "mine").read_text() == "a person's\n" and not (root / "made").exists()
    assert "mine" in {note.path for note in done.plan.kept}


def test_what_the_agent_wrote_since_the_plan_was_made_is_taken_back_too(
    workspace: AuditedWorkspace, foreign: ForeignSession, root: Path
) -> None:
    before = tree_of(root)
    foreign.begin_call("c1", "Bash", {})
    (root / "made").write_text("one\n")
    holding.hold_all(workspace)
    plan = workspace.plan_rollback("session:s", running=True)
    (root / "more").write_text("two\n")
    done = holding.carry_out(workspace, plan)
    assert set(done.changed) == {"made", "more"} and tree_of(root) == before


def test_what_the_agent_deletes_just_before_we_do_is_its_deletion_and_on_record_once(
    workspace: AuditedWorkspace,
    foreign: ForeignSession,
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    foreign.begin_call("c1", "Bash", {})
    (root / "d").mkdir()
    (root / "d" / "x").write_text("one\n")
    (root / "a.txt").write_text("by the agent\n")  # what is written and deleted goes together
    replace_all = DiskWorkspace.replace_all

    def after_the_agent(*given: Any) -> None:
        (root / "d" / "x").unlink(missing_ok=True)
        replace_all(*given)

    monkeypatch.setattr(DiskWorkspace, "replace_all", after_the_agent)
    roll_back(workspace, "session:s")
    assert not (root / "d").exists() and "by the agent" not in (root / "a.txt").read_text()
    assert owners(workspace, "d/x")[-1] == ("command", {"c1"})


def test_what_is_being_written_all_the_while_is_left_and_named_and_the_rest_goes_back(
    workspace: AuditedWorkspace,
    foreign: ForeignSession,
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    foreign.begin_call("c1", "Bash", {})
    (root / "hot").write_text("0")
    (root / "made").write_text("by the agent\n")
    reserve = DiskWorkspace.reserve

    def written(*given: Any) -> Any:
        with (root / "hot").open("a") as file:
            file.write("more")
        return reserve(*given)

    monkeypatch.setattr(DiskWorkspace, "reserve", written)
    done = roll_back(workspace, "session:s")
    assert done.in_use == ("hot",) and (root / "hot").read_text().endswith("more")
    assert not (root / "made").exists() and done.call.status == "ok"
    assert workspace.timeline.call(done.call.requested).arguments["choices"] == {"hot": "current"}
    foreign.end_call("c1")
    assert owners(workspace, "hot")[-1] == ("command", {"c1"})
