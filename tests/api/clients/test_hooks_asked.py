"""What hooks answer where `approvals.toml` has rules, and where it has none."""

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loom_audit import AuditedWorkspace, AuditStore
from loom_audit.api.agents.clients import Hooks
from loom_audit.api.face import ApprovalRequest
from loom_audit.clients.known import CLIENTS
from loom_audit.errors import AuditUnavailable
from loom_audit.model.events import ApprovalRequested
from loom_audit.sql.store.event_log import SqlEventLog
from tests.api.clients.test_hooks import call_of
from tests.api.clients.test_hooks import root as root
from tests.api.clients.test_hooks import workspace as workspace

RULES = """
[[rule]]
action = "ask"
command = "git push *"
reason = "it leaves this machine"
[[rule]]
action = "deny"
path = "secrets/"
[[rule]]
action = "allow"
command = "make test"
"""


@pytest.fixture
def rules(store: AuditStore) -> None:
    folder = store.adapters.settings.configuration
    folder.mkdir(parents=True)
    (folder / "approvals.toml").write_text(RULES)


def before(root: Path, id: str, tool: str, arguments: Any) -> bytes:
    given = {"session_id": "s1", "cwd": str(root), "hook_event_name": "PreToolUse"}
    more = {"tool_name": tool, "tool_input": arguments, "tool_use_id": id}
    return json.dumps(given | more).encode()


def ask(
    hooks: Hooks,
    data: bytes,
    client: str = "claude-code",
    seconds: float = 60,
    is_there: Callable[[], bool] = lambda: True,
) -> tuple[threading.Thread, list[bytes]]:
    """Call a hook that waits, and what it will have printed."""
    said: list[bytes] = []

    def work() -> None:
        said.append(hooks.answer(client, data, seconds=seconds, is_there=is_there))

    thread = threading.Thread(target=work)
    thread.start()
    return thread, said


def pending(workspace: AuditedWorkspace) -> ApprovalRequest:
    until = time.monotonic() + 20
    while time.monotonic() < until:
        if found := workspace.questions.pending():
            return found[0]
        time.sleep(0.01)
    raise AssertionError("no question is on record")


def decision(answer: bytes) -> tuple[str, str]:
    said = json.loads(answer)["hookSpecificOutput"]
    return said["permissionDecision"], said.get("permissionDecisionReason", "")


@pytest.mark.parametrize("client", sorted({*CLIENTS} & {"claude-code", "codex"}))
def test_without_rules_nothing_is_decided(
    hooks: Hooks, workspace: AuditedWorkspace, root: Path, client: str
) -> None:
    for n, command in enumerate(("rm -rf x", "git push origin")):
        assert hooks.answer(client, before(root, f"c{n}", "Bash", {"command": command})) == b""


@pytest.mark.usefixtures("rules")
def test_a_call_that_no_rule_is_about_is_not_decided(
    hooks: Hooks, workspace: AuditedWorkspace, root: Path
) -> None:
    assert hooks.answer("claude-code", before(root, "c1", "Bash", {"command": "ls"})) == b""


@pytest.mark.usefixtures("rules")
def test_a_rule_allows_or_denies_exactly_its_call(
    hooks: Hooks, workspace: AuditedWorkspace, root: Path
) -> None:
    allowed = hooks.answer("claude-code", before(root, "c1", "Bash", {"command": "make test"}))
    assert decision(allowed)[0] == "allow"
    write = {"file_path": str(root / "secrets/key"), "content": "x"}
    denied = hooks.answer("claude-code", before(root, "c2", "Write", write))
    assert decision(denied)[0] == "deny" and "secrets" in decision(denied)[1]
    assert call_of(workspace, "c2").status == "denied"
    assert call_of(workspace, "c1").seq is None
    # an allowed call just runs in Codex, which cannot be told so
    codex = hooks.answer("codex", before(root, "c3", "Bash", {"command": "make test"}))
    assert codex == b""


@pytest.mark.usefixtures("rules")
@pytest.mark.parametrize("answered", ["allowed", "denied"])
@pytest.mark.parametrize("client", ["claude-code", "codex"])
def test_a_question_waits_for_its_answer_and_others_do_not(
    hooks: Hooks, workspace: AuditedWorkspace, root: Path, client: str, answered: Any
) -> None:
    thread, said = ask(hooks, before(root, "c1", "Bash", {"command": "git push origin"}), client)
    question = pending(workspace)
    assert "leaves this machine" in question.reason
    (root / "meanwhile").touch()
    assert hooks.answer(client, before(root, "c2", "Bash", {"command": "ls"})) == b""
    workspace.questions.answer(question, answered, actor="person:ana", reason="I looked")
    thread.join(20)
    if answered == "denied":
        assert decision(said[0]) == ("deny", "I looked")
        assert call_of(workspace, "c1").status == "denied"
    else:
        assert said == [b""] if client == "codex" else decision(said[0])[0] == "allow"
        assert call_of(workspace, "c1").seq is None
    [*_, change] = workspace.timeline.projections.changes(paths=["meanwhile"])
    assert (change.call_id, change.origin) in [("c2", "command"), (None, "outside")]
    assert call_of(workspace, "c1").requested not in change.causes


@pytest.mark.usefixtures("rules")
def test_a_question_that_nobody_answers_becomes_a_denial_in_time(
    hooks: Hooks, workspace: AuditedWorkspace, root: Path
) -> None:
    data = before(root, "c1", "Bash", {"command": "git push origin"})
    started = time.monotonic()
    thread, said = ask(hooks, data, seconds=2)
    thread.join(20)
    assert 1.4 < time.monotonic() - started < 10
    assert decision(said[0]) == ("deny", "nobody answered in time")
    assert call_of(workspace, "c1").status == "denied" and not workspace.questions.pending()


@pytest.mark.usefixtures("rules")
def test_the_end_of_a_hook_withdraws_its_question_and_leaves_the_call_open(
    hooks: Hooks, workspace: AuditedWorkspace, root: Path
) -> None:
    gone = threading.Event()
    data = before(root, "c1", "Bash", {"command": "git push origin"})
    thread, _ = ask(hooks, data, is_there=lambda: not gone.is_set())
    pending(workspace)
    gone.set()
    thread.join(20)
    assert call_of(workspace, "c1").seq is None and not workspace.questions.pending()


def test_rules_that_cannot_be_read_let_nothing_run(
    hooks: Hooks, workspace: AuditedWorkspace, root: Path, store: AuditStore
) -> None:
    folder = store.adapters.settings.configuration
    folder.mkdir(parents=True)
    (folder / "approvals.toml").write_text("[[rule]]\naction = 'maybe'\n")
    answer = hooks.answer("claude-code", before(root, "c1", "Bash", {"command": "ls"}))
    assert decision(answer)[0] == "deny" and "approvals.toml" in decision(answer)[1]


def test_an_answer_may_change_the_arguments(
    hooks: Hooks, workspace: AuditedWorkspace, root: Path, rules: None
) -> None:
    thread, said = ask(hooks, before(root, "c1", "Bash", {"command": "git push origin"}))
    other = {"command": "git push --dry-run"}
    workspace.questions.answer(pending(workspace), "allowed", actor="person:a", arguments=other)
    thread.join(20)
    assert json.loads(said[0])["hookSpecificOutput"]["updatedInput"] == other


@pytest.mark.usefixtures("rules")
def test_what_a_rule_denies_or_asks_does_not_run_where_nothing_can_be_recorded(
    hooks: Hooks, workspace: AuditedWorkspace, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What no rule is about runs on, since nobody decided anything about it."""
    hooks.answer("claude-code", before(root, "c0", "Bash", {"command": "ls"}))

    def fail(*_: object) -> None:
        raise AuditUnavailable("the disk is full")

    monkeypatch.setattr(SqlEventLog, "append", fail)
    write = {"file_path": str(root / "secrets/key"), "content": "x"}
    for client, id, tool, arguments in (
        ("claude-code", "c1", "Write", write),
        ("codex", "c2", "Bash", {"command": "git push origin"}),
    ):
        said, why = decision(hooks.answer(client, before(root, id, tool, arguments)))
        assert said == "deny" and "the disk is full" in why
    for command in ("ls", "make test"):
        with pytest.raises(AuditUnavailable):  # the hook then prints nothing
            hooks.answer("claude-code", before(root, "c3", "Bash", {"command": command}))
    monkeypatch.undo()


@pytest.mark.usefixtures("rules")
def test_a_call_of_which_two_hooks_tell_is_asked_about_once(
    hooks: Hooks, workspace: AuditedWorkspace, root: Path
) -> None:
    """As when ours is in the settings of the folder and of the user."""
    data = before(root, "c1", "Bash", {"command": "git push origin"})
    first, said = ask(hooks, data)
    question = pending(workspace)
    second, said_too = ask(hooks, data)
    time.sleep(0.3)
    assert [one.seq for one in workspace.questions.pending()] == [question.seq]
    workspace.questions.answer(question, "allowed", actor="person:ana")
    for thread in (first, second):
        thread.join(20)
    answers = [*said, *said_too, hooks.answer("claude-code", data)]  # one comes afterwards
    assert [decision(answer)[0] for answer in answers] == ["allow"] * 3
    events = [event.fact for event in workspace.log.read()]
    assert len([fact for fact in events if isinstance(fact, ApprovalRequested)]) == 1


@pytest.mark.usefixtures("rules")
@pytest.mark.parametrize(
    ("tool", "arguments", "restricted"),
    [
        ("Bash", {"command": "ls"}, False),
        ("Bash", {"command": "make test"}, False),
        ("Write", {"file_path": "secrets/key", "content": "x"}, True),
    ],
)
def test_that_a_call_may_not_run_without_an_answer_is_said_before_anything_is_recorded(
    hooks: Hooks,
    workspace: AuditedWorkspace,
    root: Path,
    tool: str,
    arguments: Any,
    restricted: bool,
) -> None:
    """Where the warm process is killed from then on, the hook denies the call."""
    head = workspace.log.head()
    heads: list[int] = []
    data = before(root, "c1", tool, arguments)
    hooks.answer("claude-code", data, asked=lambda: heads.append(workspace.log.head()))
    assert heads == [head] * restricted


def test_that_is_said_too_of_a_call_whose_path_another_workspace_asks_about(
    hooks: Hooks, workspace: AuditedWorkspace, root: Path, store: AuditStore, tmp_path: Path
) -> None:
    folder = store.adapters.settings.configuration
    folder.mkdir(parents=True)
    rule = '[[rule]]\naction = "ask"\npath = "secrets/"\n'
    (folder / "approvals.toml").write_text(f"timeout = 0.2\n{rule}")
    (tmp_path / "other").mkdir()
    store.attach(tmp_path / "other")
    times: list[float] = []
    write = {"file_path": str(tmp_path / "other" / "secrets" / "key"), "content": "x"}
    data = before(root, "c1", "Write", write)
    said = hooks.answer("claude-code", data, asked=lambda: times.append(time.monotonic()))
    assert decision(said) == ("deny", "nobody answered in time")
    assert len(times) == 1 and time.monotonic() - times[0] > 0.15
