"""Calls of a client whose hooks do not name them: its session file does, once they have ended."""

from pathlib import Path
from time import monotonic

import pytest

from loom_audit import AuditedWorkspace
from loom_audit.api.agents.clients import Hooks
from loom_audit.api.agents.conversations import OUTCOME_WAIT
from loom_audit.model.records import Call
from tests.api.clients.test_hooks import root, workspace
from tests.processes.hooked import HookedGemini

__all__ = ["root", "workspace"]


@pytest.fixture
def gemini(hooks: Hooks, workspace: AuditedWorkspace, root: Path, tmp_path: Path) -> HookedGemini:
    client = HookedGemini(
        lambda data: hooks.answer("gemini", data), root, tmp_path / "session.jsonl"
    )
    client.hook("SessionStart", source="startup")
    return client


def listed(workspace: AuditedWorkspace) -> list[Call]:
    return [*reversed(workspace.timeline.calls())]


def ids(workspace: AuditedWorkspace) -> list[str]:
    """As the lists show them."""
    return [workspace.timeline.client_id(call) for call in listed(workspace)]


def test_a_call_is_listed_with_the_clients_own_id_and_how_it_says_that_it_ended(
    gemini: HookedGemini, hooks: Hooks, workspace: AuditedWorkspace
) -> None:
    gemini.before("one")
    gemini.after("one", "half")
    gemini.writes(("shell__1", "one", "cancelled"))  # a person pressed Esc
    hooks.settle()
    [call] = listed(workspace)
    assert (call.status, ids(workspace)) == ("cancelled", ["shell__1"])


def test_how_it_ended_is_what_the_hook_said_where_the_file_says_nothing_in_time(
    gemini: HookedGemini, hooks: Hooks, workspace: AuditedWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    gemini.before("one")
    gemini.after("one")
    hooks.settle()
    [call] = listed(workspace)
    assert call.status == "open"
    now = monotonic() + OUTCOME_WAIT
    monkeypatch.setattr("loom_audit.api.agents.conversations.monotonic", lambda: now)
    hooks.settle()
    [call] = listed(workspace)
    assert call.status == "ok" and ids(workspace) == [call.call_id]
    gemini.writes(("shell__1", "one", "success"))
    gemini.hook("AfterAgent", prompt="", prompt_response="")
    assert ids(workspace) == ["shell__1"]


def test_a_call_ends_before_the_next_one_of_its_answer_begins(
    gemini: HookedGemini, hooks: Hooks, workspace: AuditedWorkspace, root: Path
) -> None:
    gemini.before("same")
    (root / "one").touch()
    gemini.after("same")
    gemini.before("same")
    (root / "two").touch()
    gemini.after("same")
    gemini.writes(("shell__1", "same", "success"), ("shell__2", "same", "error"))
    hooks.settle()
    assert [(call.paths, call.coverage.level) for call in listed(workspace)] == [
        (("one",), "full"),
        (("two",), "full"),
    ]
    assert ids(workspace) == ["shell__1", "shell__2"]


def test_two_calls_at_once_of_the_same_words_end_each_once(
    gemini: HookedGemini, hooks: Hooks, workspace: AuditedWorkspace
) -> None:
    gemini.before("same")
    gemini.before("same")
    gemini.after("same")
    gemini.after("same")
    gemini.writes(("shell__1", "same", "success"), ("shell__2", "same", "success"))
    hooks.settle()
    assert [call.status for call in listed(workspace)] == ["ok", "ok"]
    assert ids(workspace) == ["shell__1", "shell__2"]


def test_a_session_that_ends_tells_the_last_call(
    gemini: HookedGemini, workspace: AuditedWorkspace
) -> None:
    gemini.before("one")
    gemini.after("one")
    gemini.writes(("shell__1", "one", "success"))
    gemini.hook("SessionEnd", reason="exit")
    assert ids(workspace) == ["shell__1"] and listed(workspace)[0].status == "ok"


def test_a_call_that_no_hook_told_is_on_record_when_the_agent_ends(
    gemini: HookedGemini, workspace: AuditedWorkspace
) -> None:
    gemini.before("one")
    gemini.after("one")
    gemini.writes(("shell__1", "one", "success"), ("shell__2", "two", "success"))
    gemini.hook("AfterAgent", prompt="", prompt_response="")
    assert ids(workspace) == ["shell__1", "shell__2"]
    assert [call.coverage.reasons for call in listed(workspace)] == [(), ("no hook",)]
