"""Hooks that end before they are answered: what the client then does, it has to tell."""

from pathlib import Path
from typing import Any

import pytest

from loom_audit import AuditedWorkspace, AuditStore
from loom_audit.api.agents.clients import Hooks
from loom_audit.api.control.holding import hold
from loom_audit.model.events import CallFinished, CallReported
from loom_audit.model.records import Call
from tests.processes.hooked import HookedClaude


def deny(store: AuditStore, workspace: AuditedWorkspace, by: str) -> None:
    """Let a rule deny `make`, or everything be denied because the session is held."""
    if by == "hold":
        hold(workspace, "s1", "wait")
        return
    folder = store.adapters.settings.configuration
    folder.mkdir(parents=True)
    (folder / "approvals.toml").write_text('[[rule]]\naction = "deny"\ncommand = "make"\n')


class Killed:
    """Answers hooks of which those named are killed a moment after they began."""

    def __init__(self, hooks: Hooks, *names: bytes) -> None:
        self.hooks = hooks
        self.names = names

    def __call__(self, data: bytes) -> bytes:
        killed = any(b'"' + name + b'"' in data for name in self.names)
        return self.hooks.answer("claude-code", data, is_there=lambda: not killed)


@pytest.fixture
def claude(hooks: Hooks, workspace: AuditedWorkspace, root: Path, tmp_path: Path) -> HookedClaude:
    assert workspace.root == str(root)
    return HookedClaude(Killed(hooks, b"PreToolUse"), root, tmp_path / "s1.jsonl")


def call_of(workspace: AuditedWorkspace, id: str) -> Call:
    return workspace.timeline.projections.call("s1", id)


def test_a_call_whose_hook_was_killed_and_of_which_nobody_tells_more_is_unknown(
    claude: HookedClaude,
    workspace: AuditedWorkspace,
    root: Path,
    hooks: Hooks,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    claude.hook("SessionStart", source="startup")
    claude.asks("c1", "Bash", {"command": "rm a.txt"})
    claude.before("c1", "Bash", {"command": "rm a.txt"})
    (root / "a.txt").unlink()
    assert call_of(workspace, "c1").seq is None, "nobody has told how it ended"
    claude.hook("Stop", stop_hook_active=False)
    monkeypatch.setattr("loom_audit.api.agents.conversations.monotonic", lambda: float("inf"))
    hooks.settle()
    call = call_of(workspace, "c1")
    assert call.status == "unknown" and call.coverage.level == "partial"
    assert "not looked at after" in call.coverage.reasons


def test_a_call_whose_first_hook_was_killed_ends_as_its_second_one_tells(
    claude: HookedClaude, workspace: AuditedWorkspace, root: Path
) -> None:
    claude.hook("SessionStart", source="startup")
    claude.bash("c1", "rm a.txt", (root / "a.txt").unlink)
    call = call_of(workspace, "c1")
    assert (call.status, call.paths, call.coverage.level) == ("ok", ("a.txt",), "partial")


@pytest.mark.parametrize("told", ["ok", "error"])
def test_an_inferred_status_is_replaced_by_what_is_told_once(
    claude: HookedClaude,
    workspace: AuditedWorkspace,
    root: Path,
    hooks: Hooks,
    told: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    claude.hook("SessionStart", source="startup")
    claude.asks("c1", "Bash", {"command": "make"})
    claude.before("c1", "Bash", {"command": "make"})
    claude.hook("Stop", stop_hook_active=False)
    with monkeypatch.context() as late:
        late.setattr("loom_audit.api.agents.conversations.monotonic", lambda: float("inf"))
        hooks.settle()
    assert call_of(workspace, "c1").status == "unknown"
    failed = told == "error"
    claude.told("c1", {"stdout": "", "stderr": ""}, "Exit code 2" if failed else "", error=failed)
    hooks.settle()
    assert call_of(workspace, "c1").status == told
    claude.told("c1", None, "Exit code 9", error=True)
    hooks.settle()
    call = call_of(workspace, "c1")
    assert call.status == told and call.coverage.level == "partial"
    shown = workspace.timeline.call(call.seq or 0)
    assert shown.call.status == told
    [finish] = [e.fact for e in shown.events if isinstance(e.fact, CallFinished)]
    reports = [e.fact for e in shown.events if isinstance(e.fact, CallReported)]
    assert finish.status == "unknown" and finish.inferred
    assert [one.replaces for one in reports] == [call.seq, None][: len(reports)]
    assert workspace.verify().findings == ()
    workspace.rebuild()
    assert call_of(workspace, "c1").status == told
    assert workspace.timeline.session("s1").errors == (1 if failed else 0)


def test_a_status_that_was_told_is_never_replaced(
    claude: HookedClaude, workspace: AuditedWorkspace, hooks: Hooks
) -> None:
    claude.hook("SessionStart", source="startup")
    claude.bash("c1", "true")
    hooks.settle()
    claude.told("c1", None, "Exit code 9", error=True)
    hooks.settle()
    call = call_of(workspace, "c1")
    assert call.status == "ok"
    events = workspace.timeline.call(call.seq or 0).events
    assert all(e.fact.replaces is None for e in events if isinstance(e.fact, CallReported))


def test_the_hook_of_a_question_that_was_killed_leaves_the_call_to_what_is_told(
    claude: HookedClaude, workspace: AuditedWorkspace, root: Path, store: AuditStore, hooks: Hooks
) -> None:
    folder = store.adapters.settings.configuration
    folder.mkdir(parents=True)
    (folder / "approvals.toml").write_text('[[rule]]\naction = "ask"\ncommand = "make"\n')
    claude.hook("SessionStart", source="startup")
    claude.asks("c1", "Bash", {"command": "make"})
    claude.before("c1", "Bash", {"command": "make"})
    assert call_of(workspace, "c1").seq is None
    # Claude Code runs a call whose hook did not end well
    (root / "made").touch()
    claude.after("c1", "Bash", {"command": "make"}, {"stdout": "", "stderr": ""})
    call = call_of(workspace, "c1")
    assert (call.status, call.paths) == ("ok", ("made",))


def test_what_the_clients_own_permissions_refused_is_denied(
    claude: HookedClaude, workspace: AuditedWorkspace, hooks: Hooks
) -> None:
    claude.hook("SessionStart", source="startup")
    claude.asks("c1", "Bash", {"command": "rm -rf /"})
    claude.before("c1", "Bash", {"command": "rm -rf /"})
    block = {"type": "tool_result", "tool_use_id": "c1", "content": "no", "is_error": True}
    claude.write("user", block, toolUseResult="Error: no", toolDenialKind="rule")
    hooks.settle()
    assert call_of(workspace, "c1").status == "denied"


@pytest.mark.parametrize("by", ["rule", "hold"])
def test_a_call_whose_hook_was_killed_before_it_was_denied_is_what_is_told(
    claude: HookedClaude, workspace: AuditedWorkspace, root: Path, store: AuditStore, by: str
) -> None:
    claude.hook("SessionStart", source="startup")
    deny(store, workspace, by)
    claude.asks("c1", "Bash", {"command": "make"})
    claude.before("c1", "Bash", {"command": "make"})
    assert call_of(workspace, "c1").seq is None
    (root / "made").touch()
    claude.after("c1", "Bash", {"command": "make"}, {"stdout": "", "stderr": ""})
    call = call_of(workspace, "c1")
    assert (call.status, call.coverage.level) == ("ok", "partial")


@pytest.mark.parametrize("by", ["rule", "hold"])
@pytest.mark.parametrize("told", ["hook", "transcript", "failed"])
def test_a_denied_call_that_its_client_ran_all_the_same_is_what_is_told_and_was_not_seen(
    hooks: Hooks,
    workspace: AuditedWorkspace,
    root: Path,
    tmp_path: Path,
    store: AuditStore,
    by: str,
    told: str,
) -> None:
    """Its hook was killed when it had been answered, and before it printed that."""
    claude = HookedClaude(Killed(hooks), root, tmp_path / "s1.jsonl")
    claude.hook("SessionStart", source="startup")
    deny(store, workspace, by)
    claude.asks("c1", "Bash", {"command": "make"})
    assert b"deny" in claude.before("c1", "Bash", {"command": "make"})
    call = call_of(workspace, "c1")
    assert (call.status, call.coverage.level) == ("denied", "full")
    (root / "a.txt").unlink()
    (root / "mine.txt").write_text("a person's")
    response = {"stdout": "", "stderr": ""}
    if told == "hook":
        claude.after("c1", "Bash", {"command": "make"}, response)
    failed = told == "failed"
    claude.told("c1", response, "Exit code 2" if failed else "", error=failed)
    for _ in range(2):
        hooks.settle()
        call = call_of(workspace, "c1")
        assert call.status == ("error" if failed else "ok")
        assert call.coverage.level == "none" and call.paths == ()
        assert "ran though it was denied" in call.coverage.reasons
    assert workspace.plan_rollback("session:s1").changes == ()
    reports = [e.fact for e in workspace.log.read() if isinstance(e.fact, CallReported)]
    assert [one.replaces for one in reports] == [call.seq]
    assert workspace.verify().findings == ()
    workspace.rebuild()
    assert call_of(workspace, "c1") == call
    assert workspace.verify().findings == ()


def test_a_denied_call_of_which_its_client_tells_that_it_was_denied_stays_so(
    hooks: Hooks, workspace: AuditedWorkspace, root: Path, tmp_path: Path, store: AuditStore
) -> None:
    claude = HookedClaude(Killed(hooks), root, tmp_path / "s1.jsonl")
    claude.hook("SessionStart", source="startup")
    deny(store, workspace, "rule")
    claude.asks("c1", "Bash", {"command": "make"})
    claude.before("c1", "Bash", {"command": "make"})
    head = workspace.log.head()
    claude.told("c1", None, "PreToolUse:Bash hook error: it is denied", error=True)
    hooks.settle()
    claude.told("c1", None, "something else is told", error=True)
    hooks.settle()
    call = call_of(workspace, "c1")
    assert (call.status, call.coverage.level) == ("denied", "full")
    assert not [e for e in workspace.log.read() if e.seq > head and e.kind == "coverage.lowered"]
