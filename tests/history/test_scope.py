"""What is looked at: an index that is behind, and a scope that is accepted meanwhile."""

from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from loom_audit import AuditedWorkspace, AuditStore, Session, ToolResult, open_store
from loom_audit.model.events import FilesChanged, ScopeAccepted, WorkspaceAttached
from loom_audit.ports import EventFilter

Call = Callable[..., ToolResult]


@pytest.mark.parametrize("index", ["kept", "deleted"])
def test_a_file_gone_before_a_session_that_began_with_a_write_is_missed(
    store: AuditStore, root: Path, home: Path, index: str
) -> None:
    id = store.attach(root).id
    (root / "src" / "main.py").unlink()
    if index == "deleted":
        (home / "index" / f"{id}.db").unlink()
    with open_store() as again, again.workspace(root).session("tester") as session:
        for tool, arguments in (
            ("write_file", {"path": "a.txt", "content": "new"}),
            ("shell_execute", {"command": "true"}),
        ):
            assert anyio.run(session.call, tool, arguments).success
        assert sorted(session.workspace.timeline.tree()) == ["a.txt", "src"]


def test_an_open_session_follows_a_scope_accepted_meanwhile(
    root: Path, session: Session, call: Call
) -> None:
    (root / ".loomignore").write_text("*.log\n")
    call("shell_execute", command="echo 1 > before.log")
    with open_store() as other:
        other.workspace(root).accept_scope()
    done = call("shell_execute", command="echo 1 > after.log; echo 2 > before.log; echo 3 > kept")
    assert done.files_changed == ["kept"]
    call("write_file", path="direct.log", content="x")
    assert "direct.log" not in session.workspace.timeline.tree()


def test_what_an_accepted_scope_lets_in_is_nobodys_doing(
    root: Path, session: Session, call: Call
) -> None:
    (root / ".loomignore").write_text("*.log\n")
    session.workspace.accept_scope()
    (root / "old.log").write_text("mine\n")
    (root / "a.txt").write_text("changed outside\n")
    call("read_file", path="a.txt")
    opened = session.recorder.begin("sh", {}, "execute", call_id="c")
    with opened.capture(final=True):
        (root / ".loomignore").unlink()
        with open_store() as other:
            other.workspace(root).accept_scope()
        (root / "new").write_text("the command's\n")
    opened.finish("ok", {})
    assert "old.log" not in opened.files_changed and "new" in opened.files_changed
    assert "old.log" in session.workspace.timeline.tree()
    plan = session.workspace.plan_undo()
    session.workspace.carry_out(plan)
    assert (root / "old.log").read_text() == "mine\n"
    assert not (root / "new").exists()


def test_a_path_let_in_again_and_gone_meanwhile_is_deleted(root: Path, session: Session) -> None:
    workspace = session.workspace
    (root / ".loomignore").write_text("src/\n")
    workspace.accept_scope()
    (root / "src" / "main.py").unlink()
    (root / ".loomignore").write_text("\n")
    workspace.accept_scope()
    assert "src/main.py" not in workspace.timeline.tree()
    assert workspace.status().drift == ()


def test_the_log_says_which_scope_a_change_was_recorded_under(
    root: Path, session: Session, call: Call
) -> None:
    (root / ".loomignore").write_text("*.log\n")
    call("shell_execute", command="echo 1 > x.log")
    session.workspace.accept_scope()
    call("shell_execute", command="echo 2 > x.log; echo 2 > y.txt")
    kinds = (FilesChanged.kind, ScopeAccepted.kind)
    scope, seen = "", {}
    for event in session.workspace.log.read(EventFilter(kinds=kinds)):
        if isinstance(event.fact, ScopeAccepted):
            scope = event.fact.ignore
        elif isinstance(event.fact, FilesChanged):
            seen.update({change.path: scope for change in event.fact.changes})
    assert (seen["x.log"], seen["y.txt"]) == ("", "*.log\n")


def test_a_new_limit_is_on_record_and_content_once_over_it_is_kept(
    store: AuditStore, root: Path, session: Session, call: Call
) -> None:
    workspace = session.workspace
    store.attach(root, max_file_bytes=4)
    call("shell_execute", command="printf 123456 > large")
    state = workspace.timeline.tree()["large"]
    assert state.blob not in workspace.blobs
    events = workspace.log.head()
    store.attach(root, max_file_bytes=4)
    assert workspace.log.head() == events
    store.attach(root, max_file_bytes=100)
    assert workspace.timeline.content(state) == b"123456"
    facts = [event.fact for event in workspace.log.read(EventFilter(after=events))]
    (fact,) = [fact for fact in facts if isinstance(fact, WorkspaceAttached)]
    assert (fact.root, fact.ignore, fact.max_file_bytes) == (str(root), "", 100)
    assert workspace.verify().exit_code in (0, 3)
    call("shell_execute", command="rm large")
    workspace.carry_out(workspace.plan_undo())
    assert (root / "large").read_bytes() == b"123456"


def test_every_session_whose_process_is_gone_is_ended_however_many_came_since(
    workspace: AuditedWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    from loom_audit.history.recorder import Recorder
    from loom_audit.model.events import SessionEnded, SessionStarted

    gone = Recorder(workspace.attachment, session="f" * 32, actor="agent:x")
    gone.record(SessionStarted("x", ""))
    for n in range(1001):
        later = Recorder(workspace.attachment, session=f"{n:032x}", actor="agent:x")
        later.record(SessionStarted("x", ""), SessionEnded("completed"))
    with workspace.session("next"):
        assert workspace.timeline.session("f" * 32).status == "interrupted"
