"""What other hooks of the client do beside ours after a call."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, builtin_registry, open_store
from loom_audit.api.agents.clients import Hooks
from loom_audit.history.look.survivors import LeftRunning, Running
from loom_audit.history.record.looks import NOT_SETTLED
from tests.api.clients.test_hooks import call_of, root, workspace
from tests.processes.hooked import HookedClaude
from tests.processes.ordinary_user import ordinary_user

__all__ = ["root", "workspace"]


class Formatter:
    """The person's own hook: it waits until it is let go, and writes into a file."""

    def __init__(self, file: Path) -> None:
        script = 'read go && echo formatted >> "$0" && echo done && read end'
        self._process = subprocess.Popen(
            ["sh", "-c", script, str(file)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )

    def write(self) -> None:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write("go\n")
        assert self._process.stdout.readline() == "done\n"

    def end(self) -> None:
        self._process.communicate()


@pytest.fixture
def claude(
    hooks: Hooks, workspace: AuditedWorkspace, root: Path, tmp_path: Path
) -> Iterator[HookedClaude]:
    """A client that is this process, with a process of its own for each hook."""

    def answer(data: bytes) -> bytes:
        with subprocess.Popen(["sleep", "1000"]) as hook:
            try:
                return hooks.answer("claude-code", data, hook=hook.pid)
            finally:
                hook.kill()

    yield HookedClaude(answer, root, tmp_path / "s1.jsonl")
    hooks.close()


@pytest.fixture
def edited(claude: HookedClaude, root: Path) -> Iterator[Formatter]:
    """A formatter that still runs when the call has ended after which it was started."""
    claude.hook("SessionStart", source="startup")
    arguments = {"file_path": str(root / "a.txt"), "content": "two\n"}
    claude.asks("c1", "Write", arguments)
    claude.before("c1", "Write", arguments)
    (root / "a.txt").write_text("two\n")
    formatter = Formatter(root / "a.txt")
    response = {"type": "update", "filePath": str(root / "a.txt"), "content": "two\n"}
    claude.after("c1", "Write", arguments, {**response, "originalFile": "one\n"})
    claude.told("c1", response)
    yield formatter
    formatter.end()


def rolled_back(workspace: AuditedWorkspace) -> None:
    plan = workspace.plan_rollback("session:s1")
    assert not plan.blocked and not plan.kept
    workspace.carry_out(plan)


def next_call(claude: HookedClaude, hooks: Hooks) -> None:
    claude.bash("c2", "true")


def later(claude: HookedClaude, hooks: Hooks) -> None:
    hooks.settle()


def session_end(claude: HookedClaude, hooks: Hooks) -> None:
    claude.hook("SessionEnd", reason="exit")


@pytest.mark.parametrize("found", [next_call, later, session_end])
def test_what_a_formatter_writes_after_our_look_is_shared_and_goes_with_its_call(
    edited: Formatter,
    claude: HookedClaude,
    hooks: Hooks,
    workspace: AuditedWorkspace,
    root: Path,
    found: Callable[[HookedClaude, Hooks], None],
) -> None:
    assert call_of(workspace, "c1").coverage.level == "full"
    edited.write()
    edited.end()
    found(claude, hooks)
    call = call_of(workspace, "c1")
    assert call.coverage.reasons == ("shared: client hooks",)
    last = [*workspace.timeline.projections.changes(paths=["a.txt"])][-1]
    assert last.causes == (call.requested,)
    rolled_back(workspace)
    assert (root / "a.txt").read_text() == "one\n"


def test_a_formatter_that_changes_nothing_lowers_no_coverage(
    edited: Formatter, claude: HookedClaude, hooks: Hooks, workspace: AuditedWorkspace
) -> None:
    edited.end()
    hooks.settle()
    claude.bash("c2", "true")
    assert [call_of(workspace, id).coverage.level for id in ("c1", "c2")] == ["full", "full"]


def test_what_a_person_writes_once_the_formatter_has_ended_is_kept(
    edited: Formatter, claude: HookedClaude, hooks: Hooks, workspace: AuditedWorkspace, root: Path
) -> None:
    edited.write()
    edited.end()
    hooks.settle()
    (root / "a.txt").write_text("a person's\n")
    claude.bash("c2", "true")
    plan = workspace.plan_rollback("session:s1")
    assert [note.path for note in plan.blocked] == ["a.txt"]


def test_a_formatter_that_is_at_work_is_waited_for(
    edited: Formatter, hooks: Hooks, workspace: AuditedWorkspace, root: Path
) -> None:
    hooks.settle()
    edited.write()
    hooks.settle()
    edited.end()
    hooks.settle()
    assert call_of(workspace, "c1").coverage.reasons == ("shared: client hooks",)
    rolled_back(workspace)
    assert (root / "a.txt").read_text() == "one\n"


def test_a_hook_beside_ours_is_not_what_a_command_left_running_and_a_server_is(
    claude: HookedClaude, workspace: AuditedWorkspace, root: Path
) -> None:
    claude.hook("SessionStart", source="startup")
    servers = list[Formatter]()
    arguments = {"command": "serve &"}
    claude.asks("c1", "Bash", arguments)
    claude.before("c1", "Bash", arguments)
    servers.append(Formatter(root / "served"))
    with subprocess.Popen(["sleep", "0.2"]) as work:  # the command goes on for longer than that
        work.wait()
    servers.append(Formatter(root / "log"))
    claude.after("c1", "Bash", arguments, {"stdout": "", "stderr": ""})
    claude.told("c1", {"stdout": "", "stderr": ""})
    [reason] = call_of(workspace, "c1").coverage.reasons
    for server in servers:
        server.end()
    assert reason.startswith("left running: ") and reason.count(",") == 0


def test_a_call_ends_though_the_file_that_it_told_may_not_be_looked_at_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    builtin_registry()  # its modules are imported while we may read them
    with ordinary_user() as folder:
        monkeypatch.setenv("LOOM_AUDIT_HOME", str(folder / "home"))
        file = folder / "w" / "closed" / "a.txt"
        file.parent.mkdir(parents=True)
        with open_store() as store:
            workspace, hooks = store.attach(folder / "w"), Hooks(store)
            claude = HookedClaude(
                lambda data: hooks.answer("claude-code", data), folder / "w", folder / "s1.jsonl"
            )
            claude.hook("SessionStart", source="startup")
            arguments = {"file_path": str(file), "content": "two\n"}
            claude.asks("c1", "Write", arguments)
            claude.before("c1", "Write", arguments)
            file.write_text("two\n")
            file.parent.chmod(0)
            response = {"type": "create", "filePath": str(file), "content": "two\n"}
            claude.after("c1", "Write", arguments, {**response, "originalFile": None})
            claude.told("c1", response)
            hooks.settle()
            call = call_of(workspace, "c1")
            assert (call.status, call.coverage.level) == ("ok", "partial")
            hooks.close()


def test_an_edit_is_covered_in_full_though_processes_come_and_go_meanwhile(
    claude: HookedClaude, workspace: AuditedWorkspace, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    never = LeftRunning().tasks, False
    monkeypatch.setattr(Running, "tasks_left_running", lambda *_, **__: never)
    claude.hook("SessionStart", source="startup")
    claude.writes("c1", root / "new.txt", "two\n")
    claude.bash("c2", "true")
    assert call_of(workspace, "c1").coverage.level == "full", "it runs nothing that may write"
    assert call_of(workspace, "c2").coverage.reasons == (NOT_SETTLED,)
