"""What clients' hooks and transcripts tell, and what is then on record."""

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from loom_audit import AuditedWorkspace, AuditStore
from loom_audit.api.agents.clients import Hooks
from loom_audit.api.agents.conversations import Conversation
from loom_audit.api.agents.reading import read_transcripts
from loom_audit.api.review.conversation import conversation_of
from loom_audit.errors import StorageFailed
from loom_audit.history.record.call_record import CallRecord
from loom_audit.history.record.looks import look_after
from loom_audit.model.conversation import MessageReceived, PromptSubmitted
from loom_audit.model.events import CallFinished, CallRequested, ContentFound
from loom_audit.model.records import Call
from loom_audit.ports import EventFilter
from tests.processes.clients import client as client
from tests.processes.hooked import HookedClaude, HookedCodex


@pytest.fixture
def root(repository: Path) -> Path:
    return repository


@pytest.fixture
def workspace(store: AuditStore, root: Path) -> Iterator[AuditedWorkspace]:
    workspace = store.attach(root)
    yield workspace
    events = [*workspace.log.read()]
    finished = Counter(
        (event.session, event.fact.call_id)
        for event in events
        if isinstance(event.fact, CallFinished)
    )
    assert set(finished.values()) <= {1}
    assert workspace.verify().findings == ()


@pytest.fixture
def claude(
    hooks: Hooks,
    workspace: AuditedWorkspace,
    root: Path,
    tmp_path: Path,
    client: subprocess.Popen[bytes],
) -> HookedClaude:
    return client_of(hooks, root, tmp_path, client)


def test_what_a_client_overwrites_out_of_scope_is_kept_when_its_hook_names_the_path(
    claude: HookedClaude, workspace: AuditedWorkspace, root: Path
) -> None:
    (root / "node_modules").mkdir()
    (root / "node_modules/index.js").write_text("old\n")
    claude.hook("SessionStart", source="startup")
    claude.writes("c1", root / "node_modules/index.js", "new\n")
    claude.hook("SessionEnd", reason="exit")
    [call] = workspace.timeline.calls()
    [event] = [one for one in workspace.log.read() if isinstance(one.fact, ContentFound)]
    way = f"(`loom-audit cat PATH --at {event.seq}` prints what it held)"
    assert call.coverage.reasons == (f"outside the scope: node_modules/index.js {way}",)
    state = workspace.timeline.found("node_modules/index.js", event.seq)
    assert state is not None and workspace.timeline.content(state) == b"old\n"


def client_of(
    hooks: Hooks,
    root: Path,
    folder: Path,
    hook: subprocess.Popen[bytes] | None = None,
    session: str = "s1",
) -> HookedClaude:
    """A client that is this process, where it started the process of the hook."""

    def answer(data: bytes) -> bytes:
        return hooks.answer("claude-code", data, hook=hook.pid if hook else None)

    return HookedClaude(answer, root, folder / f"{session}.jsonl", session)


def call_of(workspace: AuditedWorkspace, call_id: str, session: str = "s1") -> Call:
    return workspace.timeline.projections.call(session, call_id)


def result_of(workspace: AuditedWorkspace, call_id: str, session: str = "s1") -> Any:
    return workspace.timeline.call(call_of(workspace, call_id, session).requested).result


def texts(workspace: AuditedWorkspace) -> list[str]:
    facts = (event.fact for event in workspace.log.read())
    return [fact.text for fact in facts if isinstance(fact, PromptSubmitted | MessageReceived)]


def test_a_whole_session_is_on_record_call_by_call(
    claude: HookedClaude, workspace: AuditedWorkspace, root: Path
) -> None:
    claude.hook("SessionStart", source="startup")
    claude.hook("UserPromptSubmit", prompt="do it", prompt_id="p1")
    claude.write("user", {"type": "text", "text": "do it"}, promptId="p1")
    claude.write("assistant", {"type": "text", "text": "I write first"})
    claude.writes("c1", root / "b.txt", "new\n")
    claude.bash("c2", "rm a.txt", (root / "a.txt").unlink)
    claude.write("assistant", {"type": "text", "text": "done"})
    claude.hook("Stop", stop_hook_active=False, last_assistant_message="done")
    claude.hook("SessionEnd", reason="exit")
    first, second = call_of(workspace, "c1"), call_of(workspace, "c2")
    assert (first.status, first.paths, first.coverage.level) == ("ok", ("b.txt",), "full")
    assert (second.status, second.paths, second.coverage.level) == ("ok", ("a.txt",), "full")
    assert first.duration == 7000
    assert texts(workspace) == ["do it", "I write first", "done"]
    session = workspace.timeline.session("s1")
    assert (session.status, session.calls) == ("completed", 2)
    workspace.carry_out(workspace.plan_revert([second.seq or 0]))
    assert (root / "a.txt").read_text() == "one\n"


@pytest.mark.parametrize("end", ["Stop", "SessionEnd"])
def test_a_head_is_kept_when_the_agent_stops_and_when_its_session_ends(
    claude: HookedClaude, workspace: AuditedWorkspace, end: str
) -> None:
    claude.hook("SessionStart", source="startup")
    claude.bash("c1", "true")
    claude.hook(end)  # some clients never tell the end of a session
    assert workspace.verify().unanchored == 0


@pytest.mark.parametrize("open_call", [False, True], ids=["between calls", "in a call"])
def test_a_session_whose_client_has_ended_without_a_word_ends(
    hooks: Hooks,
    workspace: AuditedWorkspace,
    root: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    open_call: bool,
) -> None:
    code = "import subprocess; h = subprocess.Popen(['sleep', '1000']); print(h.pid); h.wait()"
    command = [sys.executable, "-uc", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        hook = int(client.stdout.readline())
        claude = HookedClaude(
            lambda data: hooks.answer("claude-code", data, hook=hook), root, tmp_path / "s1.jsonl"
        )
        claude.hook("SessionStart", source="startup")
        claude.bash("c1", "true")
        hooks.settle()
        assert workspace.timeline.session("s1").ended is None
        if open_call:
            claude.before("c2", "Bash", {"command": "sleep 1000"})
        client.kill()
        os.kill(hook, signal.SIGKILL)
    monkeypatch.setattr("loom_audit.api.agents.clients.QUIET", 0.0)
    hooks.settle()
    session = workspace.timeline.session("s1")
    assert (session.status, workspace.verify().unanchored) == ("completed", 0)
    assert hooks.is_idle
    if open_call:
        assert call_of(workspace, "c2").status == "unknown"


def test_a_session_that_cannot_be_settled_keeps_no_other_from_it(
    hooks: Hooks,
    claude: HookedClaude,
    workspace: AuditedWorkspace,
    root: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = client_of(hooks, root, tmp_path, session="s2")
    for one in (claude, other):
        one.hook("SessionStart", source="startup")
        one.asks("c1", "Bash", {"command": "false"})
        one.before("c1", "Bash", {"command": "false"})
        one.told("c1", None, "it failed", error=True)
    settle_well = Conversation.record_known

    def settle_or_fail(self: Conversation) -> None:
        if self.session == "s1":
            raise StorageFailed("its transcript cannot be read")
        settle_well(self)

    # neither of the two hooks comes
    monkeypatch.setattr("loom_audit.history.told.pending_calls._HOOK_SECONDS", 0.0)
    with monkeypatch.context() as failing:
        failing.setattr(Conversation, "record_known", settle_or_fail)
        (failed,) = hooks.settle()
    assert isinstance(failed, StorageFailed)
    assert call_of(workspace, "c1", "s2").status == "error"
    assert hooks.settle() == []


def test_a_failed_edit_that_no_hook_tells_is_settled_before_the_next_call(
    claude: HookedClaude, workspace: AuditedWorkspace, root: Path
) -> None:
    claude.hook("SessionStart", source="startup")
    edit = {"file_path": str(root / "a.txt"), "old_string": "x", "new_string": "y"}
    claude.asks("c1", "Edit", edit)
    claude.told("c1", None, "String to replace not found", error=True)
    claude.bash("c2", "true")
    call = call_of(workspace, "c1")
    assert (call.status, call.coverage.level, call.coverage.reasons) == (
        "error",
        "none",
        ("no hook",),
    )
    assert (call.seq or 0) < call_of(workspace, "c2").requested


def test_an_edit_that_the_client_refused_before_it_ran_did_nothing_that_is_not_captured(
    claude: HookedClaude, workspace: AuditedWorkspace, root: Path
) -> None:
    claude.hook("SessionStart", source="startup")
    edit = {"file_path": str(root / "a.txt"), "old_string": "x", "new_string": "y"}
    claude.asks("c1", "Edit", edit)
    said = "<tool_use_error>String to replace not found in file.</tool_use_error>"
    claude.told("c1", None, said, error=True)
    claude.bash("c2", "touch b", (root / "b").touch)
    call = call_of(workspace, "c1")
    assert (call.status, call.coverage.level, call.coverage.reasons) == ("error", "full", ())
    plan = workspace.plan_rollback("session:s1")
    assert plan.irreversible == () and [change.path for change in plan.changes] == ["b"]


def test_a_call_whose_end_only_the_transcript_tells_ends_before_the_next_one(
    claude: HookedClaude, workspace: AuditedWorkspace, root: Path
) -> None:
    claude.hook("SessionStart", source="startup")
    claude.asks("c1", "Bash", {"command": "touch b"})
    claude.before("c1", "Bash", {"command": "touch b"})
    (root / "b").touch()
    claude.told("c1", {"stdout": "", "stderr": ""})
    claude.bash("c2", "touch c", (root / "c").touch)
    assert (call_of(workspace, "c1").status, call_of(workspace, "c1").paths) == ("ok", ("b",))
    assert call_of(workspace, "c2").paths == ("c",)


def test_without_its_hooks_a_call_is_named_with_that_at_the_stop(
    claude: HookedClaude, workspace: AuditedWorkspace, root: Path
) -> None:
    claude.hook("SessionStart", source="startup")
    claude.bash("c1", "true")
    claude.asks("c2", "Bash", {"command": "make d"})
    (root / "d").touch()
    claude.told("c2", {"stdout": "", "stderr": ""})
    claude.hook("Stop", stop_hook_active=False)
    call = call_of(workspace, "c2")
    assert (call.status, call.coverage.reasons, call.paths) == ("ok", ("no hook",), ("d",))
    change = [*workspace.timeline.projections.changes(paths=["d"])][-1]
    assert change.causes == (call.requested, 0), "its name is not evidence of who made it"


def test_what_esc_interrupted_is_cancelled(
    claude: HookedClaude, workspace: AuditedWorkspace, root: Path, hooks: Hooks
) -> None:
    claude.hook("SessionStart", source="startup")
    claude.asks("c1", "Bash", {"command": "sleep 9"})
    claude.before("c1", "Bash", {"command": "sleep 9"})
    (root / "b").touch()
    claude.write("user", {"type": "text", "text": "[Request interrupted by user for tool use]"})
    hooks.settle()
    call = call_of(workspace, "c1")
    assert (call.status, call.paths) == ("cancelled", ("b",))


def test_undo_in_a_terminal_settles_what_esc_interrupted(
    claude: HookedClaude, workspace: AuditedWorkspace, root: Path, store: AuditStore
) -> None:
    claude.hook("SessionStart", source="startup")
    claude.asks("c1", "Bash", {"command": "sleep 9"})
    claude.before("c1", "Bash", {"command": "sleep 9"})
    (root / "b").touch()
    mine = store.workspace(root)
    assert read_transcripts(mine) == ["s1"]
    claude.write("user", {"type": "text", "text": "[Request interrupted by user]"})
    assert read_transcripts(mine) == []
    plan = mine.plan_undo()
    assert plan.changes == () and [note.path for note in plan.kept] == ["b"]
    mine.carry_out(mine.plan_undo(choices={"b": "old"}))
    assert not (root / "b").exists()


def test_a_call_begun_while_nobody_answered_is_seen_in_part(
    claude: HookedClaude, workspace: AuditedWorkspace, root: Path
) -> None:
    claude.hook("SessionStart", source="startup")
    (root / "b").touch()
    claude.after("c1", "Bash", {"command": "touch b"}, {"stdout": "", "stderr": ""})
    call = call_of(workspace, "c1")
    assert (call.status, call.paths) == ("ok", ("b",))
    assert call.coverage.reasons == ("not looked at before it", "looked at late")


def test_another_warm_process_goes_on_where_the_last_one_was_killed(
    claude: HookedClaude,
    workspace: AuditedWorkspace,
    root: Path,
    store: AuditStore,
    tmp_path: Path,
    client: subprocess.Popen[bytes],
) -> None:
    claude.hook("SessionStart", source="startup")
    claude.hook("UserPromptSubmit", prompt="do it", prompt_id="p1")
    claude.write("user", {"type": "text", "text": "do it"}, promptId="p1")
    claude.write("assistant", {"type": "text", "text": "so"})
    claude.bash("c1", "true")
    claude.asks("c2", "Bash", {"command": "touch b"})
    claude.before("c2", "Bash", {"command": "touch b"})
    (root / "b").touch()
    other = Hooks(store)
    again = client_of(other, root, tmp_path, client)
    again.after("c2", "Bash", {"command": "touch b"}, {"stdout": "", "stderr": ""})
    again.told("c2", {"stdout": "", "stderr": ""})
    again.bash("c3", "touch c", (root / "c").touch)
    again.hook("SessionEnd", reason="exit")
    other.close()
    assert [call_of(workspace, id).status for id in ("c1", "c2", "c3")] == ["ok"] * 3
    assert call_of(workspace, "c2").paths == ("b",)
    assert texts(workspace) == ["do it", "so"]


def test_arguments_are_kept_as_they_ran(
    claude: HookedClaude, workspace: AuditedWorkspace, root: Path
) -> None:
    claude.hook("SessionStart", source="startup")
    claude.asks("c1", "Bash", {"command": "npm i"})
    claude.before("c1", "Bash", {"command": "npm i"})
    claude.after("c1", "Bash", {"command": "pnpm i"}, {"stdout": "x", "stderr": ""})
    assert result_of(workspace, "c1")["data"]["arguments"] == {"command": "pnpm i"}


def test_what_is_not_as_the_client_left_it_is_shared_with_its_hooks(
    claude: HookedClaude, workspace: AuditedWorkspace, root: Path
) -> None:
    arguments = {"file_path": str(root / "f.py"), "content": "x=1\n"}
    claude.asks("c1", "Write", arguments)
    claude.before("c1", "Write", arguments)
    (root / "f.py").write_text("x = 1\n")  # a formatter beside ours
    response = {"type": "create", "filePath": arguments["file_path"], "content": "x=1\n"}
    claude.after("c1", "Write", arguments, response)
    call = call_of(workspace, "c1")
    assert (call.coverage.level, call.coverage.reasons) == ("partial", ("shared: client hooks",))
    assert call.paths == ("f.py",)


def test_what_a_formatter_writes_as_we_begin_to_look_is_shared_with_it(
    claude: HookedClaude, workspace: AuditedWorkspace, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def formatted(record: CallRecord, **how: Any) -> None:
        (root / "f.py").write_text("x = 1\n")
        look_after(record, **how)

    monkeypatch.setattr("loom_audit.history.told.foreign.look_after", formatted)
    arguments = {"file_path": str(root / "f.py"), "content": "x=1\n"}
    claude.asks("c1", "Write", arguments)
    claude.before("c1", "Write", arguments)
    (root / "f.py").write_text("x=1\n")
    response = {"type": "create", "filePath": arguments["file_path"], "content": "x=1\n"}
    claude.after("c1", "Write", arguments, response)
    call = call_of(workspace, "c1")
    assert (call.coverage.reasons, call.paths) == (("shared: client hooks",), ("f.py",))


def test_a_path_of_no_workspace_and_one_of_another(
    claude: HookedClaude,
    workspace: AuditedWorkspace,
    store: AuditStore,
    tmp_path: Path,
) -> None:
    (tmp_path / "other").mkdir()
    other = store.attach(tmp_path / "other")
    claude.writes("c1", tmp_path / "nowhere.txt", "x")
    claude.writes("c2", tmp_path / "other/there.txt", "x")
    call = call_of(workspace, "c1")
    assert (call.coverage.level, call.coverage.reasons, call.paths) == (
        "none",
        ("no workspace",),
        (),
    )
    assert call_of(other, "c2").paths == ("there.txt",)
    known = workspace.log.read(EventFilter(call_id="c2"))
    assert not any(isinstance(event.fact, CallRequested) for event in known)


def test_a_hook_outside_of_all_workspaces_makes_none(
    hooks: Hooks, store: AuditStore, tmp_path: Path, client: subprocess.Popen[bytes]
) -> None:
    claude = client_of(hooks, tmp_path, tmp_path, client)
    claude.hook("SessionStart", source="startup")
    claude.bash("c1", "true")
    assert store.workspaces() == [] and hooks.outside == {str(tmp_path)}


def test_what_a_background_call_writes_later_may_be_its_own(
    claude: HookedClaude, workspace: AuditedWorkspace, root: Path
) -> None:
    arguments = {"command": "work", "run_in_background": True}
    claude.asks("c1", "Bash", arguments)
    claude.before("c1", "Bash", arguments)
    claude.after("c1", "Bash", arguments, {"stdout": "", "stderr": "", "backgroundTaskId": "b1"})
    claude.told("c1", {"stdout": "", "stderr": "", "backgroundTaskId": "b1"})
    claude.bash("c2", "other", (root / "late").touch)
    change = [*workspace.timeline.projections.changes(paths=["late"])][-1]
    requested = [call_of(workspace, id).requested for id in ("c1", "c2")]
    assert sorted(change.causes) == requested
    note = "<task-notification>\n<task-id>b1</task-id>\n<status>completed</status>\n"
    claude.write("user", {"type": "text", "text": note + "</task-notification>"})
    claude.bash("c3", "more")
    claude.bash("c4", "more", (root / "own").touch)
    assert call_of(workspace, "c4").coverage.level == "full"


def test_a_notice_of_the_client_is_on_record_once_and_asks_nothing(
    claude: HookedClaude, workspace: AuditedWorkspace
) -> None:
    note = "<task-notification>\n<task-id>b1</task-id>\n<status>completed</status>\n"
    note += "</task-notification>"
    claude.hook("UserPromptSubmit", prompt="work", prompt_id="p1")
    claude.bash("c1", "work")
    claude.hook("UserPromptSubmit", prompt=note, prompt_id="p2")
    claude.write("user", {"type": "text", "text": note})
    claude.bash("c2", "more")
    talk = conversation_of(workspace)
    said = talk.some("s1", after=0, before=None, newest_first=False, limit=10)
    assert [(one.role, one.text) for one in said] == [("prompt", "work"), ("system", note)]
    asked = talk.why(call_of(workspace, "c2")).prompt
    assert asked is not None and asked.text == "work"


def test_a_subagent_is_a_session_within_its_own(
    claude: HookedClaude, workspace: AuditedWorkspace, root: Path
) -> None:
    claude.hook("SessionStart", source="startup")
    more = {"agent_id": "a1", "agent_type": "helper"}
    arguments = {"command": "touch b"}
    claude.hook("PreToolUse", tool_name="Bash", tool_input=arguments, tool_use_id="c1", **more)
    (root / "b").touch()
    claude.hook(
        "PostToolUse",
        tool_name="Bash",
        tool_input=arguments,
        tool_use_id="c1",
        tool_response={"stdout": "", "stderr": ""},
        **more,
    )
    claude.hook("SubagentStop", stop_hook_active=False, **more)
    assert call_of(workspace, "c1", "s1.a1").paths == ("b",)
    assert workspace.timeline.session("s1.a1").status == "completed"
    assert workspace.attachment.session_state("s1.a1").parent == "s1"
    assert workspace.timeline.session("s1").ended is None


@pytest.fixture
def codex(
    hooks: Hooks,
    workspace: AuditedWorkspace,
    root: Path,
    tmp_path: Path,
    client: subprocess.Popen[bytes],
) -> HookedCodex:
    def answer(data: bytes) -> bytes:
        return hooks.answer("codex", data, hook=client.pid)

    return HookedCodex(answer, root, tmp_path / "rollout.jsonl")


def test_how_a_command_of_codex_ended_is_what_its_rollout_tells_before_the_next(
    codex: HookedCodex, workspace: AuditedWorkspace, root: Path
) -> None:
    codex.hook("SessionStart", source="startup")
    codex.asks("c1", "touch b; exit 3")
    codex.before("c1", "touch b; exit 3")
    (root / "b").touch()
    codex.after("c1", "touch b; exit 3")
    assert call_of(workspace, "c1", "x1").seq is None
    codex.ended("c1", 3)
    codex.asks("c2", "touch c")
    codex.before("c2", "touch c")
    call = call_of(workspace, "c1", "x1")
    assert (call.status, call.paths, call.coverage.level) == ("error", ("b",), "full")
    assert workspace.timeline.call(call.requested).result["data"]["exit_code"] == 3
    codex.after("c2", "touch c")
    codex.ended("c2", 0)
    codex.hook("Stop")
    assert call_of(workspace, "c2", "x1").status == "ok"


def test_how_a_command_ended_that_nobody_tells_in_time_is_unknown_and_never_ok(
    codex: HookedCodex,
    workspace: AuditedWorkspace,
    root: Path,
    hooks: Hooks,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    codex.asks("c1", "touch b")
    codex.before("c1", "touch b")
    (root / "b").touch()
    codex.asks("c2", "sleep 9")
    codex.before("c2", "sleep 9")
    codex.after("c1", "touch b", "output")
    hooks.settle()
    assert call_of(workspace, "c1", "x1").seq is None
    monkeypatch.setattr("loom_audit.api.agents.conversations.monotonic", lambda: float("inf"))
    hooks.settle()
    call = call_of(workspace, "c1", "x1")
    assert call.status == "unknown" and "b" in call.paths
    assert result_of(workspace, "c1", "x1")["output"] == "output"
    assert call_of(workspace, "c2", "x1").seq is None


def test_a_call_that_codex_interrupts_is_cancelled(
    codex: HookedCodex, workspace: AuditedWorkspace
) -> None:
    codex.asks("c1", "sleep 9")
    codex.before("c1", "sleep 9")
    codex.hook("Interrupt")
    assert call_of(workspace, "c1", "x1").status == "cancelled"


def test_who_looks_in_another_terminal_closes_nothing_of_a_living_client(
    claude: HookedClaude, workspace: AuditedWorkspace, root: Path, store: AuditStore
) -> None:
    claude.asks("c1", "Bash", {"command": "sleep 9"})
    claude.before("c1", "Bash", {"command": "sleep 9"})
    head = workspace.log.head()
    other = store.workspace(root)
    assert other.recover() == [] and other.status().interrupted == ()
    assert [call.call_id for call in other.timeline.open_calls()] == ["c1"]
    with other.session("somebody else"):
        pass
    assert call_of(workspace, "c1").seq is None and workspace.log.head() > head


def test_two_clients_two_sessions_and_two_workspaces_at_once(
    hooks: Hooks, store: AuditStore, tmp_path: Path
) -> None:
    clients = []
    for n in range(4):
        folder = tmp_path / f"w{n % 2}"
        folder.mkdir(exist_ok=True)
        workspace = store.attach(folder)
        clients.append((workspace, client_of(hooks, folder, tmp_path, session=f"s{n}")))

    def work(client: HookedClaude) -> None:
        client.hook("SessionStart", source="startup")
        for n in range(3):
            path = client.root / f"{client.session}-{n}.txt"
            client.writes(f"c{n}", path, "x\n")
        client.hook("SessionEnd", reason="exit")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, [client for _, client in clients]))
    for workspace, one in clients:
        for n in range(3):
            call = call_of(workspace, f"c{n}", one.session)
            assert (call.status, call.paths) == ("ok", (f"{one.session}-{n}.txt",))
        assert workspace.status().drift == () and workspace.verify().findings == ()


def test_the_last_call_is_on_record_though_it_is_told_while_the_session_ends(
    claude: HookedClaude, workspace: AuditedWorkspace, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a machine that has much to do may let the thread below wait for longer than a hook does
    monkeypatch.setattr("loom_audit.api.agents.conversations.TRANSCRIPT_WAIT", 30.0)
    claude.hook("SessionStart", source="startup")
    edit = {"file_path": str(root / "a.txt"), "old_string": "x", "new_string": "y"}
    claude.asks("c1", "Edit", edit)
    late = threading.Timer(0.1, claude.told, ("c1", None, "not found"), {"error": True})
    late.start()
    claude.hook("SessionEnd", reason="exit")
    late.join()
    assert call_of(workspace, "c1").status == "error"
