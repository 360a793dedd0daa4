"""The warm process and its client, as an agent's hook runs them: real processes, a real socket."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from loom_audit import AuditStore, open_store
from loom_audit.api.agents.launcher import SOCKET
from loom_audit.api.control import holding
from loom_audit.daemon import HookServer, only_one, run_daemon
from loom_audit.disk.machine.shared_filesystems import SHARED, check_own_filesystem
from loom_audit.errors import Conflict, InvalidArguments
from loom_audit.model.conversation import PromptSubmitted
from loom_audit.model.records import Call
from tests.places.made_store import lay_store
from tests.processes.hooked import HookedClaude


@pytest.fixture
def home(data_folder: Path) -> Path:
    return data_folder


@pytest.fixture
def store(home: Path) -> Iterator[AuditStore]:
    with open_store() as store:
        yield store


@pytest.fixture
def root(store: AuditStore, repository: Path) -> Path:
    store.attach(repository)
    return repository


@pytest.fixture
def errors() -> list[str]:
    return []


@pytest.fixture
def server(store: AuditStore, home: Path, errors: list[str]) -> Iterator[HookServer]:
    with HookServer(store, home / "hooks", SOCKET, errors.append) as server:
        yield server


def run_hook(
    home: Path, data: bytes, *words: str, cwd: Path, fds: Sequence[int] = (), **variables: str
) -> subprocess.CompletedProcess[bytes]:
    """Run the hook client as a client's settings do."""
    argv = [sys.executable, "-I", "-S", str(home / "hooks" / "hook_client.py"), *words]
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), **variables}
    return subprocess.run(
        argv,
        input=data,
        cwd=cwd,
        env=environment,
        capture_output=True,
        timeout=60,
        check=False,
        pass_fds=fds,
    )


def client_of(home: Path, root: Path, folder: Path, session: str = "s1") -> HookedClaude:
    def answer(data: bytes) -> bytes:
        done = run_hook(home, data, "claude-code", cwd=root)
        assert (done.returncode, done.stderr) == (0, b"")
        return done.stdout

    return HookedClaude(answer, root, folder / f"{session}.jsonl", session)


def call_of(store: AuditStore, root: Path, call_id: str) -> Call:
    return store.workspace(root).timeline.projections.call("s1", call_id)


def pre_tool_use(root: Path, session: str = "s1", name: str = "PreToolUse") -> bytes:
    given: dict[str, Any] = {"session_id": session, "cwd": str(root), "hook_event_name": name}
    more = {"tool_name": "Bash", "tool_input": {"command": "true"}, "tool_use_id": "c1"}
    return json.dumps(given | more).encode()


def test_a_call_goes_on_record_through_hook_client_and_socket(
    server: HookServer, store: AuditStore, home: Path, root: Path, tmp_path: Path
) -> None:
    claude = client_of(home, root, tmp_path)
    claude.hook("SessionStart", source="startup")
    claude.bash("c1", "touch b", (root / "b").touch)
    call = call_of(store, root, "c1")
    assert (call.status, call.paths, call.coverage.level) == ("ok", ("b",), "full")
    lease = store.workspace(root).attachment.lease("s1")
    assert lease is not None and lease.pid == os.getpid()
    assert server.path.stat().st_mode & 0o777 == 0o600


def test_a_hook_that_an_earlier_release_put_there_goes_on_record_while_it_is_replaced(
    server: HookServer, store: AuditStore, home: Path, root: Path
) -> None:
    earlier = """import sys
sys.path.insert(0, __file__.rpartition("/")[0])
from hook import run
run(sys.argv[1:])
"""
    (home / "hooks" / "hook_client.py").write_text(earlier)
    done = run_hook(home, pre_tool_use(root), "claude-code", cwd=root)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert call_of(store, root, "c1").seq is None


def test_a_path_of_a_socket_may_be_longer_than_one_can_be(
    store: AuditStore, home: Path, root: Path, tmp_path: Path, errors: list[str]
) -> None:
    long = tmp_path / ("d" * 100)
    lay_store(long)
    (long / "hooks").mkdir()
    for name in ("hook.py", "hook_client.py"):
        (long / "hooks" / name).write_bytes((home / "hooks" / name).read_bytes())
    with HookServer(store, long / "hooks", SOCKET, errors.append):
        done = run_hook(long, pre_tool_use(root), "claude-code", cwd=root)
    assert done.stdout == b"" and call_of(store, root, "c1").seq is None


def test_without_a_warm_process_the_agent_goes_on_and_strict_denies(
    home: Path, root: Path, tmp_path: Path
) -> None:
    (home / "hooks" / "daemon").write_bytes(b"/bin/false\0")
    data = pre_tool_use(root)
    plain = run_hook(home, data, "claude-code", cwd=root)
    assert (plain.returncode, plain.stdout, plain.stderr) == (0, b"", b"")
    for client in ("claude-code", "codex"):
        strict = run_hook(home, data, client, "--strict", cwd=root)
        said = json.loads(strict.stdout)["hookSpecificOutput"]
        assert (
            said["permissionDecision"] == "deny"
            and "loom-audit" in said["permissionDecisionReason"]
        )
    before = pre_tool_use(root, name="BeforeTool")
    assert (
        json.loads(run_hook(home, before, "gemini", "--strict", cwd=root).stdout)["decision"]
        == "deny"
    )
    after = pre_tool_use(root, name="PostToolUse")
    assert run_hook(home, after, "claude-code", "--strict", cwd=root).stdout == b""


def test_a_warm_process_that_cannot_start_is_tried_again_after_half_a_second_then_one_then_two(
    home: Path, root: Path
) -> None:
    marker, failed = home / "tries", home / "hooks" / "failed"
    script = home / "start.sh"
    script.write_text(f"#!/bin/sh\necho >>{marker}\nexit 3\n")
    script.chmod(0o700)
    (home / "hooks" / "daemon").write_bytes(f"{script}\0".encode())

    def tries(ago: float) -> int:
        """How often it was tried by now, with a hook so long after the last start that failed."""
        if failed.exists():
            os.utime(failed, (time.time() - ago,) * 2)
        assert run_hook(home, pre_tool_use(root), "claude-code", cwd=root).stdout == b""
        return marker.read_text().count("\n")

    # a time that lies ahead leaves the hook time to begin
    found = [tries(0), tries(-0.3), tries(0.6), tries(0.6 - 1), tries(1.1), tries(0), tries(2.1)]
    assert found == [1, 1, 2, 2, 3, 3, 4]
    os.utime(failed, (0, 0))
    assert tries(1e9) == 5


def test_a_held_session_is_denied_its_calls_where_no_warm_process_is(
    store: AuditStore, home: Path, root: Path
) -> None:
    (home / "hooks" / "daemon").write_bytes(b"/bin/false\0")
    store.adapters.held.keep("s1", 'held by "ada": wait\n')
    done = run_hook(home, pre_tool_use(root), "claude-code", cwd=root)
    said = json.loads(done.stdout)["hookSpecificOutput"]
    assert said["permissionDecision"] == "deny"
    assert said["permissionDecisionReason"] == 'held by "ada": wait\n'
    assert run_hook(home, pre_tool_use(root, "s2"), "claude-code", cwd=root).stdout == b""
    stop = pre_tool_use(root, name="Stop")
    assert run_hook(home, stop, "claude-code", cwd=root).stdout == b""


def test_where_a_kill_left_what_is_said_of_a_session_the_log_decides(
    server: HookServer, home: Path, root: Path, store: AuditStore, tmp_path: Path
) -> None:
    claude = client_of(home, root, tmp_path)
    claude.hook("SessionStart", source="startup")
    workspace, held = store.workspace(root), store.adapters.held
    holding.hold(workspace, "s1", "wait")
    said = held.get("s1") or ""
    held.discard("s1")
    denied = json.loads(claude.before("c1", "Bash", {"command": "true"}))
    assert denied["hookSpecificOutput"]["permissionDecisionReason"] == said != ""
    assert held.get("s1") == said, "it is written again"
    holding.release(workspace, "s1")
    held.keep("s1", said)
    claude.bash("c2", "true")
    assert held.get("s1") is None and call_of(store, root, "c2").status == "ok"


def test_the_first_hook_starts_it_with_nothing_of_the_client_and_it_can_be_killed(
    store: AuditStore, home: Path, root: Path, tmp_path: Path
) -> None:
    claude = client_of(home, root, tmp_path)
    with (tmp_path / "of the client").open("w") as file:
        start = pre_tool_use(root, name="SessionStart")
        run_hook(home, start, "claude-code", cwd=root, fds=[file.fileno()])
    claude.bash("c1", "touch b", (root / "b").touch)
    first = daemon_of(home)
    try:
        opened = [os.readlink(one) for one in Path(f"/proc/{first}/fd").iterdir()]
        assert str(tmp_path / "of the client") not in opened
        assert os.getsid(first) == first
        assert os.readlink(f"/proc/{first}/cwd") == "/"
        assert {os.readlink(f"/proc/{first}/fd/{n}") for n in (0, 1, 2)} == {"/dev/null"}
        os.kill(first, signal.SIGKILL)
        claude.bash("c2", "touch c", (root / "c").touch)
        second = daemon_of(home)
        assert second != first
        os.kill(second, signal.SIGKILL)
    finally:
        assert call_of(store, root, "c1").status == "ok"
    assert call_of(store, root, "c2").paths == ("c",)


def connect(asking: socket.socket, path: Path) -> None:
    """Connect to a socket whose path may be longer than one can be."""
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        asking.connect(f"/proc/self/fd/{folder}/{path.name}")
    finally:
        os.close(folder)


def daemon_of(home: Path, name: str = SOCKET) -> int:
    """The process that answers on the socket."""
    with socket.socket(socket.AF_UNIX) as asking:
        connect(asking, home / "hooks" / name)
        seen = asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        return int.from_bytes(seen[:4], sys.byteorder)


def test_an_older_build_answers_what_it_has_and_makes_way(
    server: HookServer, home: Path, root: Path, store: AuditStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = store.adapters.settings.configuration
    folder.mkdir(parents=True)
    (folder / "approvals.toml").write_text('[[rule]]\naction = "ask"\ncommand = "make"\n')
    workspace = store.workspace(root)
    waiting = pre_tool_use(root).replace(b'"true"', b'"make"').replace(b"c1", b"c0")
    said: list[bytes] = []
    asking = threading.Thread(
        target=lambda: said.append(run_hook(home, waiting, "claude-code", cwd=root).stdout)
    )
    asking.start()
    until = time.monotonic() + 20
    while not workspace.questions.pending():
        assert time.monotonic() < until
        time.sleep(0.01)
    monkeypatch.setattr("loom_audit.daemon.build_id", lambda: "newer")
    monkeypatch.setattr("loom_audit.daemon.CHECK_SECONDS", 0.0)
    try:
        assert run_hook(home, pre_tool_use(root), "claude-code", cwd=root).stdout == b""
        assert daemon_of(home) != os.getpid()
        assert call_of(store, root, "c1").seq is None and server.ended.is_set()
    finally:
        os.kill(daemon_of(home), signal.SIGKILL)
        workspace.questions.answer(workspace.questions.pending()[0], "denied", reason="no")
        asking.join(20)
    assert b'"deny"' in said[0]


def test_another_view_of_the_files_is_another_container(
    server: HookServer, root: Path, tmp_path: Path
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    here = os.open(gone, os.O_RDONLY)
    gone.rmdir()
    gone.mkdir()  # the same name is another directory to the server
    with socket.socket(socket.AF_UNIX) as asking:
        connect(asking, server.path)
        socket.send_fds(asking, [b"loom-hook 1 claude-code 5\n" + pre_tool_use(root)], [here])
        asking.shutdown(socket.SHUT_WR)
        assert asking.recv(10) == b"?"
    os.close(here)


def test_what_is_not_a_hook_is_answered_with_nothing_and_reported(
    server: HookServer, errors: list[str]
) -> None:
    for said in (b"GET / HTTP/1.1\r\n\r\n", b"loom-hook 1 nobody 5\n{}", b""):
        with socket.socket(socket.AF_UNIX) as asking:
            connect(asking, server.path)
            asking.sendall(said)
            asking.shutdown(socket.SHUT_WR)
            assert asking.recv(10) == b""
    until = time.monotonic() + 60  # only so that a hang ends
    while len(errors) < 3 and time.monotonic() < until:
        time.sleep(0.01)
    assert len(errors) == 3


@pytest.mark.parametrize("kind", sorted(SHARED))
def test_a_store_that_other_machines_may_write_is_refused(tmp_path: Path, kind: str) -> None:
    device = tmp_path.stat().st_dev
    line = f"36 35 {os.major(device)}:{os.minor(device)} / /mnt rw,noatime shared:1 - {kind} s rw\n"
    mounts = tmp_path / "mounts"
    mounts.write_text(line)
    with pytest.raises(InvalidArguments, match=kind):
        check_own_filesystem(tmp_path, mounts)
    mounts.write_text(line.replace(kind, "ext4"))
    check_own_filesystem(tmp_path, mounts)


def test_only_the_same_user_is_answered(
    server: HookServer, root: Path, errors: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loom_audit.daemon.os.geteuid", lambda: 4_000_000)
    with socket.socket(socket.AF_UNIX) as asking:
        connect(asking, server.path)
        with suppress(ConnectionError):  # it does not even read what is said
            asking.sendall(b"loom-hook 1 claude-code 5\n" + pre_tool_use(root))
            asking.shutdown(socket.SHUT_WR)
            assert asking.recv(10) == b""
    server.drain()
    assert any("user" in text for text in errors)


def test_in_another_container_another_warm_process_answers(
    store: AuditStore, home: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stood in for by one at the usual name that says that it sees other files."""
    with socket.socket(socket.AF_UNIX) as listening:
        monkeypatch.chdir(home / "hooks")  # the path of a socket is short
        listening.bind(SOCKET)
        listening.listen()

        def say() -> None:
            connection, _ = listening.accept()
            with connection:
                while connection.recv(1 << 16):
                    pass
                connection.sendall(b"?")

        thread = threading.Thread(target=say)
        thread.start()
        done = run_hook(home, pre_tool_use(root), "claude-code", cwd=root)
        thread.join(20)
    assert done.stdout == b"" and call_of(store, root, "c1").seq is None
    [own] = (home / "hooks").glob("daemon-*.sock")
    os.kill(daemon_of(home, own.name), signal.SIGKILL)


def test_there_is_one_at_a_time_and_what_a_killed_one_left_is_replaced(
    store: AuditStore, home: Path, errors: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = home / "hooks"
    monkeypatch.chdir(folder)
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(SOCKET)
    assert (folder / SOCKET).exists()
    with only_one(folder, SOCKET), HookServer(store, folder, SOCKET, errors.append):
        with pytest.raises(Conflict, match="another process"), only_one(folder, SOCKET):
            pass
        assert daemon_of(home) == os.getpid()
    with only_one(folder, SOCKET):
        assert not (folder / SOCKET).exists()


def test_a_hook_that_came_as_it_ended_is_answered(
    store: AuditStore, home: Path, root: Path, errors: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, accepted = threading.Thread.start, threading.Event()

    def late(thread: threading.Thread) -> None:
        if threading.current_thread().name.endswith("(_accept)"):
            accepted.set()
            time.sleep(0.2)
        begin(thread)

    monkeypatch.setattr(threading.Thread, "start", late)
    argv = [sys.executable, "-I", "-S", str(home / "hooks" / "hook_client.py"), "claude-code"]
    with HookServer(store, home / "hooks", SOCKET, errors.append) as server:
        hook = subprocess.Popen(argv, stdin=subprocess.PIPE, cwd=root)
        assert hook.stdin is not None
        hook.stdin.write(pre_tool_use(root))
        hook.stdin.close()
        assert accepted.wait(20)
        server.drain()
    assert hook.wait(20) == 0 and errors == []
    assert call_of(store, root, "c1").seq is None


def test_it_ends_when_nobody_asks(
    store: AuditStore, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loom_audit.daemon.IDLE_SECONDS", 0.0)
    run_daemon(store, home / "hooks")
    assert not (home / "hooks" / SOCKET).exists()


@pytest.mark.parametrize("gone", ["program", "socket"])
def test_it_ends_when_its_program_or_its_socket_is_gone(
    store: AuditStore, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: str
) -> None:
    program, socket_file = tmp_path / "program", home / "hooks" / SOCKET
    program.touch()
    monkeypatch.setattr("loom_audit.daemon._PROGRAM", (program, Path(sys.executable)))
    running = threading.Thread(target=run_daemon, args=(store, home / "hooks"))
    running.start()
    while not socket_file.exists():
        assert running.is_alive()
    {"program": program, "socket": socket_file}[gone].unlink()
    running.join(60)
    assert not running.is_alive() and not socket_file.exists()


def test_a_question_whose_hook_is_killed_is_withdrawn_and_its_call_stays_open(
    server: HookServer, store: AuditStore, home: Path, root: Path
) -> None:
    folder = store.adapters.settings.configuration
    folder.mkdir(parents=True)
    (folder / "approvals.toml").write_text('[[rule]]\naction = "ask"\ncommand = "true"\n')
    argv = [sys.executable, "-I", "-S", str(home / "hooks" / "hook_client.py"), "claude-code"]
    workspace = store.workspace(root)
    with subprocess.Popen(argv, stdin=subprocess.PIPE, cwd=root) as hook:
        assert hook.stdin is not None
        hook.stdin.write(pre_tool_use(root))
        hook.stdin.close()
        until = time.monotonic() + 20
        while not workspace.questions.pending():
            assert time.monotonic() < until
            time.sleep(0.01)
        hook.kill()
    server.drain()
    assert call_of(store, root, "c1").seq is None, "the client may run it all the same"
    assert not workspace.questions.pending()


@pytest.mark.parametrize(("words", "kept"), [((), ["my secret plan"]), (("--no-prompts",), [])])
def test_what_people_and_the_model_say_is_recorded_unless_that_is_switched_off(
    server: HookServer,
    store: AuditStore,
    home: Path,
    root: Path,
    tmp_path: Path,
    words: tuple[str, ...],
    kept: list[str],
) -> None:
    def answer(data: bytes) -> bytes:
        return run_hook(home, data, "claude-code", *words, cwd=root).stdout

    claude = HookedClaude(answer, root, tmp_path / "s1.jsonl")
    claude.hook("UserPromptSubmit", prompt="my secret plan", prompt_id="p1")
    claude.write("user", {"type": "text", "text": "my secret plan"}, promptId="p1")
    claude.bash("c1", "true")
    facts = [event.fact for event in store.workspace(root).log.read()]
    assert [fact.text for fact in facts if isinstance(fact, PromptSubmitted)] == kept
    assert call_of(store, root, "c1").status == "ok"


def test_a_call_that_somebody_is_asked_about_does_not_run_when_the_warm_process_is_killed(
    store: AuditStore, home: Path, root: Path
) -> None:
    folder = store.adapters.settings.configuration
    folder.mkdir(parents=True)
    (folder / "approvals.toml").write_text('[[rule]]\naction = "ask"\ncommand = "true"\n')
    said: list[bytes] = []
    asking = threading.Thread(
        target=lambda: said.append(run_hook(home, pre_tool_use(root), "codex", cwd=root).stdout)
    )
    asking.start()
    workspace = store.workspace(root)
    until = time.monotonic() + 20
    while not workspace.questions.pending():
        assert time.monotonic() < until
        time.sleep(0.01)
    time.sleep(0.2)  # the question is on record a moment before the hook is told of it
    os.kill(daemon_of(home), signal.SIGKILL)
    asking.join(20)
    decided = json.loads(said[0])["hookSpecificOutput"]
    assert decided["permissionDecision"] == "deny" and "went away" in str(decided)
