"""Sessions and stores that are not open, and sessions whose process is gone."""

from pathlib import Path

import anyio
import pytest

from loom_audit import AuditedWorkspace, AuditStore, Session
from loom_audit.errors import AuditUnavailable, Conflict

WRITE = {"path": "late.txt", "content": "x"}
ANSWER = {"tool_calls": [{"id": "c1", "function": {"name": "write_file", "arguments": "{}"}}]}


def refuses(session: Session, root: Path) -> None:
    head = session.workspace.log.head()
    result = anyio.run(session.call, "write_file", WRITE)
    assert result.error.code == "CONFLICT" and "workspace.session(" in result.error.hint
    with pytest.raises(Conflict):
        session.batch(ANSWER)
    with pytest.raises(Conflict), session.recording("late"):
        raise AssertionError("the block was entered")
    with pytest.raises(Conflict):
        session.tool(lambda: (root / "late.txt").write_text("x"))()
    assert not (root / "late.txt").exists()
    assert session.workspace.log.head() == head


def test_a_session_that_has_ended_takes_no_calls(workspace: AuditedWorkspace, root: Path) -> None:
    with workspace.session("agent") as session:
        assert anyio.run(session.call, "write_file", {"path": "a.txt", "content": "x"}).success
    refuses(session, root)
    with pytest.raises(Conflict):
        session.__enter__()
    assert workspace.timeline.session(session.id).status == "completed"


def test_a_session_that_was_never_entered_takes_no_calls(
    workspace: AuditedWorkspace, root: Path
) -> None:
    refuses(workspace.session("agent"), root)


def test_a_batch_of_a_session_that_has_ended_runs_nothing(
    workspace: AuditedWorkspace, root: Path
) -> None:
    answer = [
        {"id": "c1", "type": "function", "function": {"name": "write_file", "arguments": WRITE}}
    ]
    with workspace.session("agent") as session:
        batch = session.batch({"tool_calls": answer})
    head = workspace.log.head()
    ran = anyio.run(batch.run)
    assert "CONFLICT" in str(ran) or "session" in str(ran)
    assert workspace.log.head() == head and not (root / "late.txt").exists()


def test_a_closed_store_takes_nothing_and_says_so(
    workspace: AuditedWorkspace, store: AuditStore, root: Path
) -> None:
    session = workspace.session("agent")
    with pytest.raises(AuditUnavailable, match="closed"), session:
        store.close()
        result = anyio.run(session.call, "write_file", WRITE)
        assert result.error.code == "AUDIT_UNAVAILABLE" and "open_store" in result.error.hint
        with pytest.raises(AuditUnavailable, match="closed"):
            workspace.log.head()
    assert not (root / "late.txt").exists()
    store.close()


@pytest.mark.few(0)
def test_every_session_whose_process_is_gone_is_ended_however_many_came_since(
    workspace: AuditedWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    from loom_audit.history.ground.writer import Writer
    from loom_audit.model.events import SessionEnded, SessionStarted

    gone = Writer(workspace.attachment, session="f" * 32, actor="agent:x")
    gone.record(SessionStarted("x", ""))
    for n in range(1001):
        later = Writer(workspace.attachment, session=f"{n:032x}", actor="agent:x")
        later.record(SessionStarted("x", ""), SessionEnded("completed"))
    with workspace.session("next"):
        assert workspace.timeline.session("f" * 32).status == "interrupted"
