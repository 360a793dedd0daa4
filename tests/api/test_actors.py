"""Who goes on record for what is done outside of sessions."""

from pathlib import Path

import anyio
import pytest

from loom_audit import AuditedWorkspace, AuditStore, open_store
from loom_audit.api.face import person
from loom_audit.model.events import CheckpointMarked, ScopeAccepted, WorkspaceAttached
from loom_audit.ports import EventFilter

NIGHTLY = "agent:nightly"
KINDS = (CheckpointMarked.kind, ScopeAccepted.kind, WorkspaceAttached.kind)


def actors(workspace: AuditedWorkspace) -> dict[str, str]:
    """The actor of the newest event of each kind that a person's command leaves."""
    return {e.kind: e.actor for e in workspace.timeline.events(EventFilter(kinds=KINDS))}


def changed_in_a_session(workspace: AuditedWorkspace) -> None:
    with workspace.session("tester") as session:
        arguments = {"path": "a.txt", "content": "two\n"}
        assert anyio.run(session.call, "write_file", arguments).success


def test_by_default_the_person_who_runs_the_process_is_on_record(
    workspace: AuditedWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGNAME", "somebody-else-later")
    workspace.checkpoint("here")
    assert actors(workspace)[CheckpointMarked.kind] != person() == "person:somebody-else-later"


def test_the_actor_a_store_is_opened_for_is_on_record(root: Path) -> None:
    with open_store(actor=NIGHTLY) as store:
        store.attach(root)
        workspace = store.attach(root, max_file_bytes=5000)
        workspace.checkpoint("here")
        workspace.accept_scope()
        assert actors(workspace) == dict.fromkeys(KINDS, NIGHTLY)
        changed_in_a_session(workspace)
        assert workspace.carry_out(workspace.plan_undo()).call.actor == NIGHTLY
        changed_in_a_session(workspace)
        rolled_back = workspace.carry_out(workspace.plan_rollback("@here")).call
        assert rolled_back.actor == NIGHTLY
        assert workspace.timeline.session(rolled_back.session).agent == NIGHTLY


def test_an_actor_named_in_a_call_wins(
    store: AuditStore, workspace: AuditedWorkspace, root: Path
) -> None:
    store.attach(root, max_file_bytes=5000, actor="person:a")
    workspace.checkpoint("here", actor="person:b")
    workspace.accept_scope(actor="person:c")
    assert actors(workspace) == {
        WorkspaceAttached.kind: "person:a",
        CheckpointMarked.kind: "person:b",
        ScopeAccepted.kind: "person:c",
    }
    changed_in_a_session(workspace)
    assert workspace.carry_out(workspace.plan_undo(), actor="person:d").call.actor == "person:d"
