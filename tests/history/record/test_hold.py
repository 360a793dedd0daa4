"""A held session: none of its calls runs, its own or those within it, until it is released."""

import subprocess
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import anyio
import pytest

from loom_audit import (
    ApprovalDenied,
    AuditedWorkspace,
    AuditStore,
    Conflict,
    ForeignSession,
    InvalidArguments,
    NotFound,
    Session,
)
from loom_audit.api.control import holding
from loom_audit.api.ground.held import agree
from loom_audit.history.ground.questions import ApprovalRequest
from loom_audit.history.ground.writer import Writer
from loom_audit.history.record import hold
from loom_audit.model.events import CallDecided, SessionHeld, SessionReleased
from loom_audit.tools.approvals.asking_gate import AskingGate
from loom_audit.tools.approvals.policy import Policy
from tests.oracles.trees import tree_of


@pytest.fixture(autouse=True)
def whole(workspace: AuditedWorkspace) -> Iterator[None]:
    """After each test: the log is whole."""
    yield
    assert workspace.verify().findings == ()


@pytest.fixture
def foreign(workspace: AuditedWorkspace, client: subprocess.Popen[bytes]) -> ForeignSession:
    return workspace.start_foreign_session("client", id="s", pid=client.pid)


def by(workspace: AuditedWorkspace, session: str = "s", actor: str = "person:ana") -> Writer:
    return Writer(workspace.attachment, session, actor)


def told(home: Path, session: str = "s") -> str | None:
    """What a hook reads that no process of ours answers."""
    file = home / "held" / sha256(session.encode()).hexdigest()
    return file.read_text() if file.exists() else None


def test_a_call_of_a_held_session_is_refused_with_the_reason_and_on_record_as_denied(
    workspace: AuditedWorkspace, foreign: ForeignSession, home: Path, root: Path
) -> None:
    before = tree_of(root)
    held = hold.hold(by(workspace), "look at this first")
    with pytest.raises(ApprovalDenied, match=r"person:ana .*: look at this first") as refused:
        foreign.begin_call("c1", "Bash", {"command": "make"}, cwd="/x", paths=["a.txt"])
    call = workspace.attachment.stored.tables.call("s", "c1")
    assert (call.status, call.coverage.level) == ("denied", "full") and call.seq
    detail = workspace.timeline.call(call.seq)
    assert detail.arguments == {"command": "make"}
    assert isinstance(detail.decision, CallDecided) and detail.decision.by == "person:ana"
    assert refused.value.details["held"] == held.seq
    assert told(home) == refused.value.message and tree_of(root) == before


def test_a_refused_call_that_is_told_again_is_refused_again_and_recorded_once(
    workspace: AuditedWorkspace, foreign: ForeignSession
) -> None:
    hold.hold(by(workspace), "no")
    for _ in range(2):
        with pytest.raises(ApprovalDenied, match="no"):
            foreign.begin_call("c1", "Bash", {})
    head = workspace.log.head()
    hold.release(by(workspace))
    with pytest.raises(ApprovalDenied, match="no"):
        foreign.begin_call("c1", "Bash", {})
    assert workspace.log.head() == head + 1
    foreign.begin_call("c2", "Bash", {})


def test_a_call_that_the_client_said_was_denied_is_as_it_was(
    workspace: AuditedWorkspace, foreign: ForeignSession
) -> None:
    began = foreign.begin_call("c1", "Bash", {})
    foreign.end_call("c1", "denied")
    assert foreign.begin_call("c1", "Bash", {}) == began


def test_a_call_that_is_open_when_its_session_is_held_ends_as_any(
    workspace: AuditedWorkspace, foreign: ForeignSession, root: Path
) -> None:
    began = foreign.begin_call("c1", "Bash", {})
    hold.hold(by(workspace))
    assert foreign.begin_call("c1", "Bash", {}) == began
    (root / "made").touch()
    foreign.end_call("c1", "ok")
    assert workspace.attachment.stored.tables.call("s", "c1").paths == ("made",)


def test_holding_twice_and_releasing_twice_is_once(
    workspace: AuditedWorkspace, foreign: ForeignSession, home: Path
) -> None:
    first = hold.hold(by(workspace), "one")
    assert hold.hold(by(workspace, actor="person:bo"), "two") == first
    assert told(home) is not None
    assert hold.release(by(workspace)) and told(home) is None
    assert not hold.release(by(workspace))
    kinds = [event.kind for event in workspace.log.read() if "session." in event.kind]
    assert kinds == ["session.started", "session.held", "session.released"]


def test_what_is_not_there_or_has_ended_is_not_held(
    workspace: AuditedWorkspace, foreign: ForeignSession, home: Path
) -> None:
    with pytest.raises(NotFound):
        hold.hold(by(workspace, "other"))
    with pytest.raises(NotFound):
        hold.release(by(workspace, "other"))
    foreign.end()
    with pytest.raises(Conflict, match="has ended") as refused:
        hold.hold(by(workspace))
    assert refused.value.hint and told(home) is None


def test_a_session_that_ended_while_it_was_held_and_goes_on_is_held_still(
    workspace: AuditedWorkspace, foreign: ForeignSession, client: subprocess.Popen[bytes]
) -> None:
    hold.hold(by(workspace), "wait")
    foreign.end()
    again = workspace.start_foreign_session("client", id="s", pid=client.pid)
    with pytest.raises(ApprovalDenied):
        again.begin_call("c1", "Bash", {})
    hold.release(by(workspace))
    again.begin_call("c2", "Bash", {})


def test_sessions_within_a_held_one_are_held_with_it_those_that_begin_later_too(
    workspace: AuditedWorkspace,
    foreign: ForeignSession,
    client: subprocess.Popen[bytes],
    home: Path,
) -> None:
    def start(id: str, parent: str) -> ForeignSession:
        return workspace.start_foreign_session("client", id=id, parent=parent, pid=client.pid)

    child, other = start("child", "s"), start("other", "")
    held = hold.hold(by(workspace), "all of it")
    later = start("later", "child")
    for one in (child, later):
        with pytest.raises(ApprovalDenied, match="session s is held"):
            one.begin_call("c1", "Bash", {})
        assert workspace.attachment.hold(one.id) == held and told(home, one.id) == told(home)
    other.begin_call("c1", "Bash", {})
    assert told(home, "other") is None
    with pytest.raises(Conflict, match="child is within it") as refused:
        hold.release(by(workspace, "child"))
    assert "release s" in refused.value.hint and told(home, "child") is not None
    hold.release(by(workspace))
    assert [*(home / "held").iterdir()] == []
    for one in (child, later):
        one.begin_call("c2", "Bash", {})


def test_sessions_that_contain_each_other_can_be_held_and_released(
    workspace: AuditedWorkspace, client: subprocess.Popen[bytes]
) -> None:
    for id, parent in (("a", "b"), ("b", "a")):
        workspace.start_foreign_session("client", id=id, parent=parent, pid=client.pid)
    assert workspace.attachment.hold("a") is None
    hold.hold(by(workspace, "a"))
    assert workspace.attachment.hold("b") is not None


def test_another_process_sees_at_once_that_a_session_is_held_or_not(
    workspace: AuditedWorkspace, store: AuditStore, foreign: ForeignSession, root: Path
) -> None:
    elsewhere = store.workspace(root)
    assert elsewhere.attachment.hold("s") is None
    hold.hold(by(workspace))
    assert elsewhere.attachment.hold("s") is not None
    hold.release(by(workspace))
    assert elsewhere.attachment.hold("s") is None
    assert elsewhere.foreign_session("s").begin_call("c1", "Bash", {})


def test_a_file_that_was_lost_is_written_again_with_the_next_refusal(
    workspace: AuditedWorkspace, foreign: ForeignSession, home: Path
) -> None:
    """As after a kill between the event and the file: the log decides."""
    by(workspace).record(SessionHeld("person:ana", "killed"))
    assert told(home) is None
    with pytest.raises(ApprovalDenied, match="killed"):
        foreign.begin_call("c1", "Bash", {})
    assert told(home) is not None


# --- sessions of ours ---------------------------------------------------------------------


def test_a_call_of_a_held_session_of_ours_is_denied_by_every_way_in(
    workspace: AuditedWorkspace, session: Session, root: Path
) -> None:
    before = tree_of(root)
    hold.hold(by(workspace, session.id), "stop")
    result = anyio.run(session.call, "write_file", {"path": "made", "content": "x"})
    assert result.error is not None and result.error.code == "APPROVAL_DENIED"
    assert "held by person:ana" in result.error.message and "stop" in result.error.message
    with pytest.raises(ApprovalDenied, match="stop"):
        session.run(["touch", "made"])
    entered = False
    with pytest.raises(ApprovalDenied, match="stop"), session.recording("block"):
        entered = True
    with pytest.raises(ApprovalDenied, match="stop"):
        session.tool(lambda: (root / "made").touch())()
    assert not entered and tree_of(root) == before
    calls = workspace.timeline.calls()
    assert [call.status for call in calls] == ["denied"] * 4
    for call in calls:
        decision = workspace.timeline.call(call.requested).decision
        assert decision is not None and decision.by == "person:ana"
    hold.release(by(workspace, session.id))
    assert anyio.run(session.call, "write_file", {"path": "made", "content": "x"}).success
    assert session.run(["touch", "other"]).files_changed == ("other",)


def test_a_call_that_is_allowed_after_its_session_was_held_does_not_run(
    workspace: AuditedWorkspace, store: AuditStore, root: Path
) -> None:
    def ask(question: ApprovalRequest) -> bool:
        hold.hold(by(store.workspace(root), question.session), "while it waited")
        return True

    gate = AskingGate(Policy(default="ask"), ask=ask)
    with workspace.session("tester", gate=gate) as session:
        result = anyio.run(session.call, "write_file", {"path": "made", "content": "x"})
    assert result.error is not None and "while it waited" in result.error.message
    assert not (root / "made").exists()


# --- several workspaces -------------------------------------------------------------------


def test_a_session_that_works_in_two_workspaces_is_held_in_both(
    workspace: AuditedWorkspace,
    store: AuditStore,
    foreign: ForeignSession,
    client: subprocess.Popen[bytes],
    tmp_path: Path,
    home: Path,
) -> None:
    def at(name: str) -> AuditedWorkspace:
        (tmp_path / name).mkdir()
        return store.attach(tmp_path / name)

    second, third = at("second"), at("third")
    other = second.start_foreign_session("client", id="s", pid=client.pid)
    holding.hold(workspace, "s", "everywhere", actor="person:ana")
    later = third.start_foreign_session("client", id="s", pid=client.pid)
    for one in (foreign, other, later):
        with pytest.raises(ApprovalDenied, match="everywhere"):
            one.begin_call("c1", "Bash", {})
    assert holding.release(second, "s") and told(home) is None
    for one in (foreign, other, later):
        one.begin_call("c2", "Bash", {})
    assert not holding.release(workspace, "s")


def test_what_differs_from_the_log_is_repaired_by_the_log(
    workspace: AuditedWorkspace,
    store: AuditStore,
    foreign: ForeignSession,
    client: subprocess.Popen[bytes],
    home: Path,
) -> None:
    """As after a kill between an event and its file."""
    workspace.start_foreign_session("client", id="child", parent="s", pid=client.pid)
    assert agree(store) == []
    by(workspace).record(SessionHeld("person:ana", "killed"))
    assert agree(store) == ["child", "s"]
    assert told(home) == told(home, "child") and "killed" in (told(home) or "")
    assert [held.reason for held in workspace.timeline.holds()] == ["killed"]
    by(workspace).record(SessionReleased("person:ana"))
    assert agree(store) == ["child", "s"]
    assert told(home) is None and told(home, "child") is None
    assert agree(store) == [] == [*workspace.timeline.holds()]


@pytest.mark.parametrize("reason", ["two\nlines", "x" * 1001, "hidden \u202e"])
def test_a_reason_is_one_line_that_a_model_can_read(
    workspace: AuditedWorkspace, foreign: ForeignSession, reason: str
) -> None:
    with pytest.raises(InvalidArguments):
        holding.hold(workspace, "s", reason)
    assert workspace.timeline.hold("s") is None


def test_the_last_word_of_a_client_is_not_that_of_a_person_who_holds_it(
    workspace: AuditedWorkspace, foreign: ForeignSession, session: Session
) -> None:
    began = foreign.begin_call("c1", "Bash", {})
    hold.hold(by(workspace))
    call = workspace.attachment.stored.tables.call("s", "c1")
    assert workspace.timeline.last_heard(call) == began.at
    with pytest.raises(ApprovalDenied):
        foreign.begin_call("c2", "Read", {}, "read")
    assert (workspace.timeline.last_heard(call) or began.at) > began.at
