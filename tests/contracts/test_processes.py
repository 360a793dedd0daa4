"""Leases: which processes live, as far as they can be seen."""

import ast
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from msgspec.structs import astuple, replace

from loom_audit.disk.machine.processes import LinuxProcesses
from loom_audit.errors import NotFound
from loom_audit.model.events import Lease
from loom_audit.ports import Processes

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: /proc")


@pytest.fixture
def processes() -> Processes:
    return LinuxProcesses()


Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts processes that end with the test."""
    started: list[subprocess.Popen[bytes]] = []

    def run(*argv: str) -> "subprocess.Popen[bytes]":
        started.append(subprocess.Popen(argv or ("sleep", "1000"), stdout=subprocess.PIPE))
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()


def test_a_process_lives_until_it_is_killed(processes: Processes, start: Start) -> None:
    process = start()
    lease = processes.lease(process.pid, 60)
    assert lease.seconds == 60 and lease.started and lease.boot and lease.namespace
    assert processes.is_alive(lease) is True
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert processes.is_alive(lease) is False, "nobody has waited for it"
    process.wait()
    assert processes.is_alive(lease) is False


def test_a_stopped_process_lives(processes: Processes, start: Start) -> None:
    process = start()
    lease = processes.lease(process.pid, 60)
    process.send_signal(signal.SIGSTOP)
    os.waitpid(process.pid, os.WUNTRACED)
    assert processes.is_alive(lease) is True


def test_a_name_like_the_fields_behind_it_is_a_name(processes: Processes, start: Start) -> None:
    odd = "import ctypes,sys; ctypes.CDLL(None).prctl(15, b') Z 0 (', 0, 0, 0)"
    process = start(
        sys.executable, "-c", f"{odd}; print(flush=True); __import__('time').sleep(1000)"
    )
    plain = processes.lease(process.pid, 60)
    assert process.stdout is not None and process.stdout.readline()
    assert processes.lease(process.pid, 60) == plain
    assert processes.is_alive(plain) is True


def test_the_same_pid_of_another_start_is_another_process(
    processes: Processes, start: Start
) -> None:
    lease = processes.lease(start().pid, 60)
    assert lease.started is not None
    assert processes.is_alive(replace(lease, started=lease.started + 1)) is False


def test_a_process_that_does_not_run_gets_no_lease(processes: Processes, start: Start) -> None:
    process = start()
    process.kill()
    process.wait()
    with pytest.raises(NotFound):
        processes.lease(process.pid, 60)
    with pytest.raises(NotFound):
        processes.lease(2**70, 60)


def test_without_a_pid_nothing_is_seen(processes: Processes) -> None:
    lease = processes.lease(None, 60)
    assert (lease.pid, lease.started) == (None, None)
    assert processes.is_alive(lease) is None


def test_where_there_is_no_proc_nothing_is_seen(tmp_path: Path, start: Start) -> None:
    blind = LinuxProcesses(tmp_path)
    pid = start().pid
    lease = blind.lease(pid, 60)
    assert (lease.pid, lease.started, lease.boot) == (pid, None, "")
    assert blind.is_alive(lease) is None
    assert LinuxProcesses().is_alive(lease) is None
    assert blind.is_alive(LinuxProcesses().lease(pid, 60)) is None


def test_a_process_that_proc_hides_is_not_taken_for_one_that_ended(
    tmp_path: Path, start: Start
) -> None:
    """As where /proc is mounted with `hidepid`: it runs, and its folder is not there."""
    pid = start().pid
    (tmp_path / "sys/kernel/random").mkdir(parents=True)
    boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii")
    (tmp_path / "sys/kernel/random/boot_id").write_text(boot)
    (tmp_path / str(os.getpid()) / "ns").mkdir(parents=True)
    (tmp_path / "self").symlink_to(str(os.getpid()))
    (tmp_path / "self/ns/pid").symlink_to(os.readlink("/proc/self/ns/pid"))
    hiding = LinuxProcesses(tmp_path)
    assert hiding.lease(pid, 60).started is None
    assert hiding.is_alive(LinuxProcesses().lease(pid, 60)) is None


INSIDE = """
import ast, sys
from loom_audit.disk.machine.processes import LinuxProcesses
from loom_audit.model.events import Lease
processes = LinuxProcesses()
outer = Lease(*ast.literal_eval(sys.argv[1]))
inner = processes.lease(1, 60)
print([processes.is_alive(outer), processes.is_alive(inner), astuple(inner)])
""".replace("import ast", "from msgspec.structs import astuple\nimport ast")


@pytest.mark.parametrize("mounted", [True, False], ids=["own /proc", "the /proc of others"])
def test_processes_of_another_namespace_are_not_taken_for_ours(
    processes: Processes, mounted: bool
) -> None:
    """Inside, this very process is number 1; with the /proc of others that one is init."""
    unshare = ["unshare", "--pid", "--fork", *(["--mount-proc"] if mounted else [])]
    if os.geteuid() != 0:
        pytest.skip("only root can make a process namespace beside its own user's")
    if not shutil.which("unshare") or subprocess.run([*unshare, "true"]).returncode:
        pytest.skip("needs the right to make a process namespace")
    mine = processes.lease(os.getpid(), 60)
    program = [sys.executable, "-c", INSIDE, repr(astuple(mine))]
    said = subprocess.run([*unshare, *program], capture_output=True, text=True, check=True).stdout
    outer_alive, inner_alive, inner = ast.literal_eval(said)
    assert outer_alive is None
    assert inner_alive is (True if mounted else None)
    assert processes.is_alive(Lease(*inner)) is None


def test_what_a_task_did_is_the_same_as_long_as_it_sleeps(
    processes: Processes, start: Start
) -> None:
    process = start("sh", "-c", "trap 'echo x' USR1; echo x; while :; do sleep 1000; done")
    assert process.stdout and process.stdout.readline()
    child = str(process.pid)
    before = processes.activity([child])
    while len(before) < 2 or processes.activity([child]) != before:
        before = processes.activity([child])  # until `sleep` sleeps
    assert child in before and len(before) == 2
    process.send_signal(signal.SIGUSR1)
    sleeping = next(task for task in before if task != child)
    os.kill(int(sleeping), signal.SIGTERM)
    assert process.stdout.readline()
    after = processes.activity([*before])
    assert after.get(child) != before[child] and sleeping not in after


def test_a_task_that_has_ended_is_left_out_and_one_that_runs_says_so(
    processes: Processes, start: Start
) -> None:
    process = start(sys.executable, "-c", "while True: pass")
    task = str(process.pid)
    while not any(running for *_, running in processes.activity([task])[task].values()):
        pass
    process.kill()
    process.wait()
    assert processes.activity([task]) == {}


def test_one_thread_of_ours_is_a_task_of_its_own(processes: Processes) -> None:
    go_on, began = threading.Event(), threading.Event()
    numbers = []

    def waits() -> None:
        numbers.append(threading.get_native_id())
        began.set()
        go_on.wait(60)

    thread = threading.Thread(target=waits)
    thread.start()
    began.wait(60)
    task = processes.thread(numbers[0])
    [*threads] = processes.activity([task])[task]
    assert threads == [str(numbers[0])]
    go_on.set()
    thread.join()
    while processes.activity([task]):  # the kernel's task ends a little after Python's thread
        time.sleep(0.01)


def test_a_task_that_cannot_be_read_is_not_left_out(tmp_path: Path, start: Start) -> None:
    pid = start().pid
    assert LinuxProcesses(tmp_path).activity([str(pid)]) == {str(pid): None}
    folder = tmp_path / f"{pid}/task/{pid}"  # as of a kernel that does not count
    folder.mkdir(parents=True)
    (folder / "stat").write_bytes(Path(f"/proc/{pid}/stat").read_bytes())
    assert LinuxProcesses(tmp_path).activity([str(pid)]) == {str(pid): None}


def test_what_is_left_behind_was_started_since_and_is_of_the_program(
    processes: Processes, start: Start, tmp_path: Path
) -> None:
    before = {*processes.running()}
    mine = start()
    detached = subprocess.run(
        ["setsid", "sh", "-c", "sleep 1000 >&- 2>&- & echo $!"],
        cwd=tmp_path,
        capture_output=True,
        check=True,
    )
    daemon = int(detached.stdout)

    def found(since: Collection[int], folder: str, by: int | None = None) -> set[int]:
        """Those of the two: orphans of a test beside this one are of the same session."""
        left, _ = processes.left_running(since, folder, by=by)
        return {int(pid) for pid in left} & {mine.pid, daemon}

    try:
        assert found(before, str(tmp_path)) == {mine.pid, daemon}
        assert found(before, "/elsewhere") == {mine.pid}
        assert found(before, "/elsewhere", by=mine.pid) == set()
        assert found(processes.running(), str(tmp_path)) == set()
        processes = LinuxProcesses(supervised="sleep")
        assert found(before, "/elsewhere") == set()
    finally:
        os.kill(daemon, signal.SIGKILL)


def test_what_ended_while_it_was_read_is_told_and_what_is_hidden_is_not(tmp_path: Path) -> None:
    """A process is listed, and when it is looked at it is not there; or it is another user's."""
    (tmp_path / "1").mkdir()
    (tmp_path / str(2**30)).mkdir()
    assert LinuxProcesses(tmp_path).left_running((), "/") == ([], {2**30})


def test_what_another_program_started_and_what_has_ended_is_not_asked_about(
    processes: Processes, start: Start, tmp_path: Path
) -> None:
    other = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import os, sys; sys.stdin.read(1); os.posix_spawnp('true', ['true'],"
            " os.environ); print('.', flush=True); sys.stdin.read()",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with other:
        assert other.stdin and other.stdout
        mine = start()
        before = {*processes.running()}
        other.stdin.write(b".")
        other.stdin.flush()
        other.stdout.read(1)
        ended = wait_for_zombie_of(other.pid)
        assert ended not in processes.left_running(before, str(tmp_path), by=mine.pid)[1]
        assert ended in processes.left_running(before, str(tmp_path), by=other.pid)[1]
        other.stdin.close()


def wait_for_zombie_of(parent: int) -> int:
    """The child of a process that has ended and for which the process does not wait."""
    while True:
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                state, above = stat.read_text().rpartition(")")[2].split()[:2]
                if state == "Z" and int(above) == parent:
                    return int(stat.parent.name)


def test_what_ended_below_a_runner_is_not_asked_about(
    processes: Processes, start: Start, tmp_path: Path
) -> None:
    """A command beside the call may start and end a hundred processes at every moment."""
    before = {*processes.running()}
    code = "import os, sys; os.posix_spawnp('true', ['true'], os.environ); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as runner:
        ended = wait_for_zombie_of(runner.pid)
        assert ended in processes.left_running(before, str(tmp_path))[1]
        supervised = LinuxProcesses(supervised="posix_spawnp")
        found, gone = supervised.left_running(before, str(tmp_path))
        assert str(runner.pid) not in found and ended not in gone
        assert runner.stdin
        runner.stdin.close()
