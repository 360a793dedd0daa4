"""What a transcript tells that no hook told: from when the client was connected, and once."""

import json
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from loom_audit import AuditedWorkspace, AuditStore
from loom_audit.api.agents.clients import Hooks
from loom_audit.api.agents.connect import carry_out, connecting, disconnecting, settings_file
from loom_audit.api.agents.reading import read_transcripts
from loom_audit.errors import AuditUnavailable
from loom_audit.history.told.calls_without_hook import announce_unseen
from loom_audit.model.conversation import PromptSubmitted
from loom_audit.model.events import CallRequested
from loom_audit.sql.store.event_log import SqlEventLog
from tests.processes.hooked import HookedClaude, HookedCodex

WORDS = ("/usr/bin/python3", "-I", "-S", "/somewhere/hooks/hook_client.py", "claude-code")


@pytest.fixture
def claude(hooks: Hooks, workspace: AuditedWorkspace, root: Path, tmp_path: Path) -> HookedClaude:
    assert workspace.root == str(root)
    return client_of(hooks, root, tmp_path)


def client_of(hooks: Hooks, root: Path, folder: Path, session: str = "s1") -> HookedClaude:
    def answer(data: bytes) -> bytes:
        return hooks.answer("claude-code", data)

    return HookedClaude(answer, root, folder / f"{session}.jsonl", session)


def unhooked(claude: HookedClaude) -> HookedClaude:
    """The same client where its hooks do not come through."""
    return HookedClaude(lambda _: b"", claude.root, claude.transcript, claude.session)


def connect(store: AuditStore, root: Path) -> Callable[[], None]:
    """Connect Claude Code to a folder; what takes it out again."""
    hooks, file = store.adapters.settings.hooks, settings_file("claude-code", str(root))
    carry_out(connecting("claude-code", file, WORDS), hooks, connect=True)
    return lambda: carry_out(disconnecting("claude-code", file, hooks), hooks, connect=False)


def at(claude: HookedClaude, moment: datetime, *ids: str) -> None:
    """Calls that the transcript tells of a moment."""
    stamp = moment.isoformat().replace("+00:00", "Z")
    for id in ids:
        block = {"type": "tool_use", "id": id, "name": "Bash", "input": {"command": id}}
        claude.write("assistant", block, timestamp=stamp)
        result = {"type": "tool_result", "tool_use_id": id, "content": "", "is_error": False}
        more = {"timestamp": stamp, "toolUseResult": {"stdout": "", "stderr": ""}}
        claude.write("user", result, **more)


def ids(workspace: AuditedWorkspace, session: str | None = None) -> list[str]:
    calls = reversed([*workspace.timeline.calls()])
    return [call.call_id for call in calls if session in (None, call.session)]


def test_what_was_done_while_connected_is_on_record_though_no_hook_came_for_long(
    claude: HookedClaude, workspace: AuditedWorkspace, store: AuditStore, root: Path
) -> None:
    connect(store, root)
    kept = next((store.adapters.settings.hooks / "connected").iterdir())
    known = json.loads(kept.read_bytes())
    hour = timedelta(hours=1)
    known["since"] = (datetime.now(UTC) - hour).timestamp()
    kept.write_text(json.dumps(known))
    at(claude, datetime.now(UTC) - 2 * hour, "before")
    at(claude, datetime.now(UTC) - hour / 2, "missed")
    prompt = {"type": "text", "text": "do it"}
    stamp = (datetime.now(UTC) - hour / 2).isoformat().replace("+00:00", "Z")
    claude.write("user", prompt, promptId="p1", timestamp=stamp)
    claude.bash("c1", "true")
    claude.hook("Stop", stop_hook_active=False)
    assert sorted(ids(workspace)) == ["c1", "missed"]
    missed = workspace.timeline.projections.call("s1", "missed")
    assert (missed.status, missed.coverage.reasons) == ("ok", ("no hook",))
    facts = [event.fact for event in workspace.log.read()]
    assert [fact.text for fact in facts if isinstance(fact, PromptSubmitted)] == ["do it"]


def test_what_was_done_in_a_gap_of_the_connection_is_not_on_record(
    claude: HookedClaude, workspace: AuditedWorkspace, store: AuditStore, root: Path
) -> None:
    disconnect = connect(store, root)
    claude.bash("c1", "true")
    disconnect()
    at(claude, datetime.now(UTC), "gap")
    connect(store, root)
    claude.bash("c2", "true")
    claude.hook("Stop", stop_hook_active=False)
    assert ids(workspace) == ["c1", "c2"]


def test_what_was_missed_before_a_gap_is_on_record_and_what_was_done_in_it_is_not(
    claude: HookedClaude, workspace: AuditedWorkspace, store: AuditStore, root: Path
) -> None:
    """Nobody read the transcript before the client was disconnected."""
    disconnect = connect(store, root)
    claude.bash("c1", "true")
    at(claude, datetime.now(UTC), "missed")
    disconnect()
    at(claude, datetime.now(UTC), "gap")
    disconnect = connect(store, root)
    at(claude, datetime.now(UTC), "missed again")
    disconnect()
    at(claude, datetime.now(UTC), "second gap")
    connect(store, root)
    claude.bash("c2", "true")
    claude.hook("Stop", stop_hook_active=False)
    assert sorted(ids(workspace)) == ["c1", "c2", "missed", "missed again"]


@pytest.mark.parametrize("by", ["warm process", "settling"])
def test_what_was_done_once_the_client_was_disconnected_is_not_on_record(
    store: AuditStore,
    workspace: AuditedWorkspace,
    hooks: Hooks,
    root: Path,
    tmp_path: Path,
    by: str,
) -> None:
    disconnect = connect(store, root)
    runs = [sys.executable, "-c", CLIENT]
    with subprocess.Popen(runs, stdout=subprocess.PIPE, stdin=subprocess.PIPE) as client:
        assert client.stdout is not None
        claude = hooked_by(int(client.stdout.readline()), hooks, root, tmp_path)
        claude.hook("SessionStart", source="startup")
        claude.bash("c1", "true")
        at(claude, datetime.now(UTC), "missed")
        disconnect()
        at(claude, datetime.now(UTC), "gap")
        claude.write("user", {"type": "text", "text": "off the record"}, promptId="p1")
        if by == "warm process":
            assert hooks.settle() == []
        client.kill()
    read_transcripts(workspace)
    workspace.recover()
    assert ids(workspace) == ["c1", "missed"]
    assert not [e for e in workspace.log.read() if isinstance(e.fact, PromptSubmitted)]


def test_a_session_that_goes_on_tells_at_its_start_what_was_missed(
    claude: HookedClaude, workspace: AuditedWorkspace, store: AuditStore, root: Path
) -> None:
    connect(store, root)
    claude.bash("c1", "true")
    unhooked(claude).bash("c2", "true")
    another = Hooks(store)
    claude.answer = partial(another.answer, "claude-code")
    claude.hook("SessionStart", source="resume")
    assert another.settle() == []
    another.close()
    assert ids(workspace) == ["c1", "c2"]


def test_a_session_that_took_our_hooks_in_another_way_is_not_in_a_gap(
    claude: HookedClaude, workspace: AuditedWorkspace, store: AuditStore, root: Path
) -> None:
    """As of `loom-audit run -- claude`, in a folder for which it was connected once."""
    connect(store, root)()
    claude.bash("c1", "true")
    at(claude, datetime.now(UTC), "missed")
    claude.hook("Stop", stop_hook_active=False)
    assert sorted(ids(workspace)) == ["c1", "missed"]


def test_where_it_is_not_known_since_when_the_start_of_the_session_counts(
    claude: HookedClaude, workspace: AuditedWorkspace
) -> None:
    at(claude, datetime.now(UTC) - timedelta(minutes=5), "long ago")
    at(claude, datetime.now(UTC), "just now")
    claude.bash("c1", "true")
    claude.hook("Stop", stop_hook_active=False)
    assert sorted(ids(workspace)) == ["c1", "just now"]


def test_what_a_forked_session_copied_is_not_told_twice(
    claude: HookedClaude, workspace: AuditedWorkspace, hooks: Hooks, root: Path, tmp_path: Path
) -> None:
    claude.hook("SessionStart", source="startup")
    claude.hook("UserPromptSubmit", prompt="do it", prompt_id="p1")
    claude.write("user", {"type": "text", "text": "do it"}, promptId="p1")
    claude.bash("c1", "true")
    claude.hook("SessionEnd", reason="exit")
    fork = client_of(hooks, root, tmp_path, "s2")
    copied = claude.transcript.read_text().replace('"s1"', '"s2"')
    fork.transcript.write_text(copied)
    fork.hook("SessionStart", source="resume")
    fork.bash("c2", "true")
    unhooked(fork).bash("c3", "true")
    fork.hook("Stop", stop_hook_active=False)
    assert (ids(workspace, "s1"), ids(workspace, "s2")) == (["c1"], ["c2", "c3"])


def test_the_same_id_of_another_client_is_a_call_of_its_own(
    claude: HookedClaude, workspace: AuditedWorkspace, hooks: Hooks, root: Path, tmp_path: Path
) -> None:
    claude.bash("c1", "true")
    codex = HookedCodex(lambda data: hooks.answer("codex", data), root, tmp_path / "x1.jsonl")
    codex.hook("SessionStart", source="startup")
    codex.asks("c1", "true")
    codex.ended("c1", 0)
    codex.hook("Stop", stop_hook_active=False)
    assert ids(workspace, "x1") == ["c1"]


def test_settling_adds_what_no_hook_told_of_a_client_that_is_gone(
    store: AuditStore, workspace: AuditedWorkspace, root: Path, tmp_path: Path, hooks: Hooks
) -> None:
    """The warm process was killed in the second call and could not start again."""
    with subprocess.Popen(["sleep", "1000"]) as client:
        claude = hooked_by(client.pid, hooks, root, tmp_path)
        claude.hook("SessionStart", source="startup")
        claude.bash("c1", "true")
        claude.asks("c2", "Bash", {"command": "touch b"})
        claude.before("c2", "Bash", {"command": "touch b"})
        (root / "b").touch()
        lost = unhooked(claude)
        lost.told("c2", {"stdout": "", "stderr": ""})
        lost.bash("c3", "touch c", (root / "c").touch)
        lost.bash("c4", "touch d", (root / "d").touch)
        client.kill()
    (root / "mine.txt").write_text("a person's\n")
    mine = store.workspace(root)
    read_transcripts(mine)
    mine.recover()
    calls = {call.call_id: call for call in mine.timeline.calls()}
    assert sorted(calls) == ["c1", "c2", "c3", "c4"]
    assert calls["c2"].status == "ok"
    assert all(calls[id].coverage.reasons == ("no hook",) for id in ("c3", "c4"))


def test_what_two_processes_read_at_the_same_time_is_on_record_once(
    store: AuditStore,
    workspace: AuditedWorkspace,
    root: Path,
    tmp_path: Path,
    hooks: Hooks,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gone(hooks, root, tmp_path)
    mine = store.workspace(root)
    name = "loom_audit.history.told.ingest.announce_unseen"

    def late(*given: Any) -> None:
        monkeypatch.setattr(name, announce_unseen)
        read_transcripts(workspace)
        announce_unseen(*given)

    monkeypatch.setattr(name, late)
    read_transcripts(mine)
    mine.recover()
    check_gone(mine)


def test_of_a_call_that_names_another_folder_nothing_here_is_told(
    store: AuditStore, workspace: AuditedWorkspace, root: Path, tmp_path: Path, hooks: Hooks
) -> None:
    assert workspace.root == str(root)
    gone(hooks, root, tmp_path)
    lost = unhooked(HookedClaude(lambda _: b"", root, tmp_path / "s1.jsonl"))
    lost.writes("c4", tmp_path / "elsewhere", "not in it")
    mine = store.workspace(root)
    read_transcripts(mine)
    mine.recover()
    call = mine.timeline.projections.call("s1", "c4")
    assert call.coverage.reasons == ("no hook",)
    [request] = [
        event.fact
        for event in mine.log.read()
        if isinstance(event.fact, CallRequested) and event.fact.call_id == "c4"
    ]
    assert request.paths == ()


CLIENT = """
import subprocess, sys
with subprocess.Popen(["cat"], stdin=sys.stdin) as hook:
    print(hook.pid, flush=True)
"""
"""A client with a hook that runs as long as it does."""


def gone(hooks: Hooks, root: Path, folder: Path) -> None:
    """A client that is killed; of its last two calls no hook came, and the second did not end."""
    runs = [sys.executable, "-c", CLIENT]
    with subprocess.Popen(runs, stdout=subprocess.PIPE, stdin=subprocess.PIPE) as client:
        assert client.stdout is not None
        claude = hooked_by(int(client.stdout.readline()), hooks, root, folder)
        claude.hook("SessionStart", source="startup")
        claude.bash("c1", "true")
        lost = unhooked(claude)
        lost.bash("c2", "touch b", (root / "b").touch)
        lost.asks("c3", "Bash", {"command": "touch c"})
        (root / "c").touch()
        client.kill()
    (root / "mine.txt").write_text("a person's\n")


def check_gone(workspace: AuditedWorkspace) -> None:
    """All its calls are on record, once, and the session has ended."""
    assert ids(workspace, "s1") == ["c1", "c2", "c3"]
    calls = {call.call_id: call for call in workspace.timeline.calls()}
    assert [calls[id].status for id in ("c1", "c2")] == ["ok", "ok"]
    assert calls["c3"].seq is not None and calls["c3"].status not in ("ok", "denied")
    assert [calls[id].coverage.level for id in ("c1", "c2", "c3")] == ["full", "none", "none"]
    assert all(not calls[id].paths for id in ("c1", "c2", "c3"))
    assert workspace.timeline.session("s1").ended is not None
    head = workspace.log.head()
    read_transcripts(workspace)
    assert not workspace.recover() and workspace.log.head() == head
    assert workspace.verify().findings == ()


@pytest.mark.parametrize("recovered", [False, True])
def test_settling_reads_what_a_client_that_is_gone_told_though_no_call_of_it_is_open(
    store: AuditStore,
    workspace: AuditedWorkspace,
    root: Path,
    tmp_path: Path,
    hooks: Hooks,
    recovered: bool,
) -> None:
    assert workspace.root == str(root)
    gone(hooks, root, tmp_path)
    mine = store.workspace(root)
    if recovered:  # by who knows of no transcripts, such as a command of ours
        mine.recover()
    read_transcripts(mine)
    mine.recover()
    check_gone(mine)


@pytest.mark.parametrize("same", [True, False])
def test_a_warm_process_reads_what_a_client_that_is_gone_told_though_another_ended_its_session(
    store: AuditStore,
    workspace: AuditedWorkspace,
    root: Path,
    tmp_path: Path,
    hooks: Hooks,
    same: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gone(hooks, root, tmp_path)
    answering = hooks if same else Hooks(store)
    other = client_of(answering, root, tmp_path, "s2")
    other.hook("SessionStart", source="startup")
    other.bash("o1", "true")
    monkeypatch.setattr("loom_audit.api.agents.clients.QUIET", 0.0)
    assert answering.settle() == []
    mine = store.workspace(root)
    mine.recover()
    check_gone(mine)
    assert ids(mine, "s2") == ["o1"]
    answering.close()


def hooked_by(pid: int, hooks: Hooks, root: Path, folder: Path) -> HookedClaude:
    return HookedClaude(
        lambda data: hooks.answer("claude-code", data, hook=pid), root, folder / "s1.jsonl"
    )


def test_what_a_transcript_told_while_nothing_could_be_recorded_is_not_lost(
    claude: HookedClaude, workspace: AuditedWorkspace, hooks: Hooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    claude.hook("SessionStart", source="startup")
    claude.bash("c1", "true")
    lost = unhooked(claude)
    lost.bash("c2", "true")
    lost.write("user", {"type": "text", "text": "and then"}, promptId="p2")
    lost.bash("c3", "true")

    def fail(*_: object) -> None:
        raise AuditUnavailable("the disk is full")

    with monkeypatch.context() as full:
        full.setattr(SqlEventLog, "append", fail)
        assert [type(error) for error in hooks.settle()] == [AuditUnavailable]
    assert ids(workspace) == ["c1"]
    assert hooks.settle() == []
    assert sorted(ids(workspace)) == ["c1", "c2", "c3"]
    facts = [event.fact for event in workspace.log.read()]
    assert [fact.text for fact in facts if isinstance(fact, PromptSubmitted)] == ["and then"]
    claude.hook("Stop", stop_hook_active=False)
    assert len(ids(workspace)) == 3
