"""Hooks of a client whose session is held: what they answer, and what is on record."""

import json
import subprocess
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, AuditStore
from loom_audit.api.agents.clients import Hooks
from loom_audit.api.control import holding
from tests.api.clients.test_hooks import call_of, client_of
from tests.api.clients.test_hooks import root as root
from tests.api.clients.test_hooks import workspace as workspace
from tests.api.clients.test_hooks_asked import ask, before, pending
from tests.processes.clients import client as client
from tests.processes.hooked import HookedClaude


@pytest.fixture
def claude(
    hooks: Hooks,
    workspace: AuditedWorkspace,
    root: Path,
    tmp_path: Path,
    client: subprocess.Popen[bytes],
) -> HookedClaude:
    claude = client_of(hooks, root, tmp_path, client)
    claude.hook("SessionStart", source="startup")
    return claude


def why_denied(answer: bytes) -> str:
    """The reason that a hook of Claude Code gives for not running a call."""
    said = json.loads(answer)["hookSpecificOutput"]
    assert said["permissionDecision"] == "deny"
    reason: str = said["permissionDecisionReason"]
    return reason


def test_each_call_of_a_held_session_is_denied_with_the_reason_until_it_is_released(
    claude: HookedClaude, workspace: AuditedWorkspace, store: AuditStore, root: Path
) -> None:
    claude.bash("c1", "true")
    elsewhere = store.workspace(root)
    holding.hold(elsewhere, "s1", "tests first", actor="person:ana")
    for id in ("c2", "c3"):
        claude.asks(id, "Bash", {"command": "make"})
        reason = why_denied(claude.before(id, "Bash", {"command": "make"}))
        assert "held by person:ana" in reason and "tests first" in reason
        claude.told(id, None, reason, error=True)
        claude.hook("Stop", stop_hook_active=False)
        call = call_of(workspace, id)
        assert (call.status, call.coverage.level, call.paths) == ("denied", "full", ())
    holding.release(elsewhere, "s1")
    claude.bash("c4", "touch b", (root / "b").touch)
    assert call_of(workspace, "c4").paths == ("b",)
    calls = workspace.timeline.calls()
    assert [call.call_id for call in calls] == ["c4", "c3", "c2", "c1"]


def test_the_calls_of_a_subagent_are_denied_with_those_of_its_session(
    claude: HookedClaude, workspace: AuditedWorkspace
) -> None:
    holding.hold(workspace, "s1", "all of it")
    answer = claude.hook(
        "PreToolUse",
        tool_name="Bash",
        tool_input={"command": "make"},
        tool_use_id="c1",
        agent_id="a1",
        agent_type="helper",
    )
    assert "session s1 is held" in why_denied(answer) and "all of it" in why_denied(answer)


def test_a_hold_settles_what_esc_interrupted(
    claude: HookedClaude, workspace: AuditedWorkspace, root: Path
) -> None:
    claude.asks("c1", "Bash", {"command": "sleep 9"})
    claude.before("c1", "Bash", {"command": "sleep 9"})
    (root / "b").touch()
    claude.write("user", {"type": "text", "text": "[Request interrupted by user for tool use]"})
    holding.hold(workspace, "s1")
    call = call_of(workspace, "c1")
    assert (call.status, call.paths) == ("cancelled", ("b",))
    assert holding.calls_left_open(workspace) == []


def test_a_rollback_that_holds_leaves_a_call_of_a_client_open_and_its_end_is_told_later(
    claude: HookedClaude, workspace: AuditedWorkspace, root: Path
) -> None:
    claude.asks("c1", "Bash", {"command": "work"})
    claude.before("c1", "Bash", {"command": "work"})
    (root / "b").write_text("one\n")
    holding.hold_all(workspace, "back")
    done = holding.carry_out(workspace, workspace.plan_rollback("session:s1", running=True))
    assert [call.call_id for call in done.left_open] == ["c1"] and not (root / "b").exists()
    (root / "b").write_text("two\n")
    claude.after("c1", "Bash", {"command": "work"}, {"stdout": "", "stderr": ""})
    call = call_of(workspace, "c1")
    assert (call.status, call.paths) == ("ok", ("b",))
    *_, before, undo, after = workspace.timeline.projections.changes(paths=["b"])
    assert (before.requested, after.requested) == (call.requested, call.requested)
    assert undo.origin == "undo" and after.change.before is None


def test_a_call_that_is_allowed_after_its_session_was_held_does_not_run(
    hooks: Hooks, claude: HookedClaude, workspace: AuditedWorkspace, store: AuditStore, root: Path
) -> None:
    folder = store.adapters.settings.configuration
    folder.mkdir(parents=True)
    (folder / "approvals.toml").write_text('[[rule]]\naction = "ask"\ntool = "Bash"\n')
    thread, said = ask(hooks, before(root, "c1", "Bash", {"command": "make"}))
    question = pending(workspace)
    holding.hold(workspace, "s1", "while it waited")
    workspace.questions.answer(question, "allowed")
    thread.join()
    assert "while it waited" in why_denied(said[0])
    call = call_of(workspace, "c1")
    assert (call.status, call.paths) == ("denied", ())
