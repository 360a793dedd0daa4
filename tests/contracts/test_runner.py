"""What every Runner must do, over every backend this machine lets work."""

import fcntl
import os
import random
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from loom_audit.errors import ExecutionFailed, InvalidArguments
from loom_audit.ports import Command, Moments, Runner
from loom_audit.sandbox import BACKENDS
from tests.sandbox.backends import working


@pytest.fixture(params=sorted(BACKENDS))
def runner(request: pytest.FixtureRequest) -> Runner:
    return working(request.param)


def shell(text: str, **options: object) -> Command:
    return Command(("sh", "-c", text), **options)  # type: ignore[arg-type]


def alive(mark: Path) -> bool:
    """Whether the process that locked this file lives; its number may be of another namespace."""
    with mark.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def marks(folder: Path, count: int) -> list[Path]:
    """The files that `count` processes have locked and wrote their numbers to."""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        found = sorted(folder.glob("*.pid"))
        if len(found) == count and all(p.read_text().strip() for p in found):
            return found
        time.sleep(0.01)
    raise AssertionError(f"{count} processes were not started")


def wait_until_dead(found: list[Path]) -> list[Path]:
    end = time.monotonic() + 20
    while time.monotonic() < end and any(alive(mark) for mark in found):
        time.sleep(0.01)
    return [mark for mark in found if alive(mark)]


LEAVE = """
def leave(name):
    f = open(name + ".tmp", "w")
    fcntl.flock(f, fcntl.LOCK_EX)
    f.write(str(os.getpid()))
    f.flush()
    os.rename(name + ".tmp", name)
    time.sleep(600)
"""
FAMILY = f"""
import fcntl, os, sys, time
{LEAVE}
if os.fork() == 0:
    leave("child.pid")
if os.fork() == 0:
    os.setsid()
    leave("session.pid")
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.chdir("/") or os.chdir(sys.argv[1])
        leave("daemon.pid")
    os._exit(0)
"""


def family(folder: Path, end: str) -> Command:
    """A command that leaves a child, a setsid child and a double-forked daemon holding stdout."""
    (folder / "family.py").write_text(FAMILY + textwrap.dedent(end))
    return Command((sys.executable, "-IS", "family.py", str(folder)), timeout=120)


WAIT_FOR_ALL = """
while not all(os.path.exists(n + ".pid") for n in ("child", "session", "daemon")):
    time.sleep(0.01)
"""


def test_a_command_runs_in_the_directory_and_gives_its_streams(
    runner: Runner, tmp_path: Path
) -> None:
    (tmp_path / "inner").mkdir()
    done = runner.run(str(tmp_path), shell("pwd -P; echo err >&2", cwd="inner"))
    assert done.stdout.decode() == f"{(tmp_path / 'inner').resolve()}\n"
    assert (done.stderr, done.exit_code, done.timed_out) == (b"err\n", 0, False)
    assert (done.stdout_bytes, done.stderr_bytes) == (len(done.stdout), 4)
    assert done.survivors == () and not done.truncated and done.duration > 0


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("exit 7", 7),
        ("exit 255", 255),
        ("kill -TERM $$", 128 + signal.SIGTERM),
        ("kill -KILL $$", 128 + signal.SIGKILL),
        ("no-such-program-anywhere", 127),
        ("/dev/null", 126),
    ],
)
def test_the_exit_code_is_what_a_shell_says(
    runner: Runner, tmp_path: Path, text: str, code: int
) -> None:
    assert runner.run(str(tmp_path), shell(text)).exit_code == code


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (Command(("no-such-program-anywhere",)), 127),
        (Command(("./plain.txt",)), 126),
        (Command(("plain.txt/x",)), 127),
        (Command(("true",), cwd="missing"), 126),
        (Command(("true",), cwd="plain.txt"), 126),
    ],
)
def test_what_cannot_be_started_is_an_error_and_not_an_exit_code(
    runner: Runner, tmp_path: Path, command: Command, code: int
) -> None:
    (tmp_path / "plain.txt").write_text("x")
    with pytest.raises(ExecutionFailed) as caught:
        runner.run(str(tmp_path), command)
    assert caught.value.details["exit_code"] == code
    assert caught.value.hint


@pytest.mark.parametrize(
    "command",
    [
        Command(()),
        Command(("",)),
        Command(("echo", "a\0b")),
        Command(("true",), cwd="a\0b"),
        Command(("true",), environment={"A=B": "c"}),
        Command(("true",), environment={"A": "\0"}),
    ],
)
def test_a_malformed_command_is_refused(runner: Runner, tmp_path: Path, command: Command) -> None:
    with pytest.raises(InvalidArguments):
        runner.run(str(tmp_path), command)


def test_a_script_without_a_first_line_runs_as_in_a_shell(runner: Runner, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text('echo "got $1"\n')
    script.chmod(0o755)
    assert runner.run(str(tmp_path), Command(("./script", "it"))).stdout == b"got it\n"


def test_arguments_and_output_are_bytes(runner: Runner, tmp_path: Path) -> None:
    odd = os.fsdecode(b"\xff a\nb 'c'")
    done = runner.run(str(tmp_path), Command(("printf", "%s", odd)))
    assert done.stdout == b"\xff a\nb 'c'"


def test_stdin_is_empty_by_default_and_fed_when_given(runner: Runner, tmp_path: Path) -> None:
    assert runner.run(str(tmp_path), Command(("cat",))).stdout == b""
    content = random.Random(1).randbytes(700_000)
    done = runner.run(str(tmp_path), Command(("cat",), stdin=content, limit=1_000_000))
    assert done.stdout == content


def test_a_command_that_does_not_read_its_input_ends_well(runner: Runner, tmp_path: Path) -> None:
    done = runner.run(str(tmp_path), Command(("true",), stdin=bytes(5_000_000)))
    assert done.exit_code == 0


def test_the_environment_is_ours_without_the_paths_of_the_store(
    runner: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOOM_AUDIT_STORE", "sqlite:///secret")
    monkeypatch.setenv("PASSED_ON", "yes")
    text = "env; tr '\\0' '\\n' < /proc/$PPID/environ || true"
    output = runner.run(str(tmp_path), shell(text)).stdout
    assert b"LOOM_AUDIT" not in output
    # who confines a command keeps our keys and tokens from it too
    assert (b"PASSED_ON=yes" in output) == (runner.name == "plain")


def test_a_given_environment_replaces_ours(
    runner: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOT_PASSED_ON", "1")
    environment = {"PATH": os.defpath, "A": "b=c\nd"}
    done = runner.run(str(tmp_path), Command(("env", "-0"), environment=environment))
    assert sorted(filter(None, done.stdout.split(b"\0"))) == [
        b"A=b=c\nd",
        b"PATH=" + os.fsencode(os.defpath),
    ]


def test_the_command_inherits_no_descriptor_of_ours(runner: Runner, tmp_path: Path) -> None:
    leak = os.open(tmp_path, os.O_RDONLY)
    os.set_inheritable(leak, True)
    try:
        done = runner.run(str(tmp_path), shell("ls /proc/self/fd | wc -l"))
    finally:
        os.close(leak)
    assert int(done.stdout) == 4  # 0, 1, 2 and the listing's own


def test_ignored_signals_are_as_we_got_them(runner: Runner, tmp_path: Path) -> None:
    """Python ignores SIGPIPE and the supervisor SIGINT; a command must not inherit that."""
    done = runner.run(str(tmp_path), shell("grep SigIgn /proc/self/status"))
    ignored = int(done.stdout.split()[1], 16)
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM):
        assert not ignored & (1 << (number - 1)), number
    # Whoever started this process may have had others ignored, and so has the command.
    ours = re.search(r"SigIgn:\s*(\w+)", Path("/proc/self/status").read_text())
    assert ours
    assert ignored & ~int(ours[1], 16) == 0


def test_output_over_the_limit_keeps_head_and_tail(runner: Runner, tmp_path: Path) -> None:
    done = runner.run(str(tmp_path), shell("seq 1 200000", limit=1000))
    whole = b"".join(b"%d\n" % n for n in range(1, 200001))
    assert done.stdout == whole[:500] + whole[-500:]
    assert done.stdout_bytes == len(whole)
    assert done.truncated


def test_output_of_exactly_the_limit_is_whole(runner: Runner, tmp_path: Path) -> None:
    done = runner.run(str(tmp_path), shell("printf 0123456789", limit=10))
    assert (done.stdout, done.truncated) == (b"0123456789", False)


def test_memory_does_not_grow_with_the_output(tmp_path: Path) -> None:
    """In a process of its own: the peak of this one says nothing."""
    script = """
        import resource
        from loom_audit.ports import Command, Moments
        from loom_audit.sandbox import open_runner
        def peak():
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        runner = open_runner()
        runner.run("/", Command(("sh", "-c", "yes | head -c 1000000"), limit=65536))
        before = peak()
        done = runner.run("/", Command(("sh", "-c", "yes | head -c 400000000"), limit=65536))
        assert done.stdout_bytes == 400000000, done.stdout_bytes
        print(peak() - before)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 4096  # KiB


@pytest.mark.few(1)
def test_what_is_to_be_done_before_is_done_before_and_takes_nothing_of_the_time(
    runner: Runner, tmp_path: Path
) -> None:
    done = []

    def before() -> None:
        time.sleep(2.1)
        done.append((tmp_path / "made").exists())

    command = shell("touch made; sleep 0.2", timeout=2.0)
    completed = runner.run(str(tmp_path), command, Moments(before))
    assert (completed.exit_code, completed.timed_out) == (0, False)
    assert done == [False] and (tmp_path / "made").exists()
    assert completed.duration < 2_000_000


def test_a_command_never_runs_when_what_comes_before_it_fails(
    runner: Runner, tmp_path: Path
) -> None:
    started: list[int] = []
    others = {*children()}

    def before() -> None:
        started.extend({*children()} - others)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        runner.run(str(tmp_path), shell("touch made"), Moments(before))
    assert started and not set(started) & set(children())
    assert not (tmp_path / "made").exists()


def children() -> list[int]:
    """The processes this thread has started and not yet reaped."""
    tid = threading.get_native_id()
    return [int(pid) for pid in Path(f"/proc/self/task/{tid}/children").read_text().split()]


WAITING = """
import os, signal, sys, threading, time
from pathlib import Path
from loom_audit.ports import Command, Moments
from loom_audit.sandbox.plain import PlainRunner
def supervisor():
    [pid] = Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split()
    while not int(Path(f"/proc/{pid}/status").read_text().split("SigIgn:")[1].split()[0], 16) & 2:
        time.sleep(0.01)
    return int(pid)
"""


def test_a_supervisor_that_waits_dies_with_us_though_a_fork_of_us_holds_the_pipe(
    tmp_path: Path,
) -> None:
    code = WAITING + textwrap.dedent("""
        def before():
            print(supervisor(), flush=True)
            if os.fork():
                os.kill(os.getpid(), 9)
            print(os.getpid(), flush=True)
            time.sleep(600)
        PlainRunner().run(sys.argv[1], Command(("touch", "made")), Moments(before))
    """)
    ours = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE)
    assert ours.stdout is not None
    waiting, fork = int(ours.stdout.readline()), int(ours.stdout.readline())
    try:
        end = time.monotonic() + 20
        while Path(f"/proc/{waiting}").exists() and time.monotonic() < end:
            time.sleep(0.01)
        assert not Path(f"/proc/{waiting}").exists()
    finally:
        os.kill(fork, signal.SIGKILL)
        ours.communicate()
    assert not (tmp_path / "made").exists()


def test_the_keyboard_does_not_end_a_supervisor_that_waits(tmp_path: Path) -> None:
    code = WAITING + textwrap.dedent("""
        def before():
            os.kill(supervisor(), signal.SIGINT)
        command = Command(("sh", "-c", "exit 7"))
        sys.exit(PlainRunner().run(sys.argv[1], command, Moments(before)).exit_code)
    """)
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)]).returncode == 7


def test_a_timeout_kills_and_keeps_what_was_written(runner: Runner, tmp_path: Path) -> None:
    done = runner.run(str(tmp_path), shell("echo before; sleep 600", timeout=2.0))
    assert done.timed_out
    assert done.stdout == b"before\n"
    assert done.exit_code == 128 + signal.SIGKILL


def test_a_command_that_ignores_every_signal_dies_at_its_timeout(
    runner: Runner, tmp_path: Path
) -> None:
    text = "trap '' INT TERM HUP QUIT; while :; do sleep 600; done"
    assert runner.run(str(tmp_path), shell(text, timeout=0.3)).timed_out


def test_cancelling_kills_the_tree(runner: Runner, tmp_path: Path) -> None:
    told = threading.Event()

    def cancel() -> None:
        marks(tmp_path, 3)
        told.set()

    watcher = threading.Thread(target=cancel)
    watcher.start()
    done = runner.run(
        str(tmp_path), family(tmp_path, "time.sleep(600)"), Moments(cancelled=told.is_set)
    )
    watcher.join()
    assert not done.timed_out
    assert done.exit_code == 128 + signal.SIGKILL
    assert [mark for mark in marks(tmp_path, 3) if alive(mark)] == []


def test_whatever_outlives_the_command_is_killed_and_named(runner: Runner, tmp_path: Path) -> None:
    done = runner.run(str(tmp_path), family(tmp_path, WAIT_FOR_ALL + "os._exit(5)"))
    found = marks(tmp_path, 3)
    assert done.exit_code == 5
    assert [mark for mark in found if alive(mark)] == []
    named = sorted(int(entry.split()[0]) for entry in done.survivors)
    assert named == sorted(int(mark.read_text()) for mark in found)


@pytest.mark.few(1)
def test_a_timeout_kills_setsid_children_and_daemons(runner: Runner, tmp_path: Path) -> None:
    command = family(tmp_path, "time.sleep(600)")
    done = runner.run(str(tmp_path), Command(command.argv, timeout=5.0))
    assert done.timed_out
    assert [mark for mark in marks(tmp_path, 3) if alive(mark)] == []


def test_a_background_child_holding_stdout_does_not_delay_the_return(
    runner: Runner, tmp_path: Path
) -> None:
    done = runner.run(str(tmp_path), shell("sleep 600 & echo out", timeout=120))
    assert (done.stdout, done.timed_out) == (b"out\n", False)
    [left] = done.survivors
    assert left.endswith((" sleep", " sh"))  # the child is a shell until it runs the program


def test_what_ends_by_itself_at_once_is_left_to_end(runner: Runner, tmp_path: Path) -> None:
    """A shell does not wait for `>(…)`; killing it at once would lose what it writes."""
    for _ in range(5):  # how long it is waited for is little on a busy machine
        done = runner.run(str(tmp_path), shell("(sleep 0.02; echo late > late.txt) &"))
        if not done.survivors:
            break
    assert done.survivors == ()
    assert (tmp_path / "late.txt").read_text() == "late\n"


def test_a_process_that_forks_without_end_is_killed(runner: Runner, tmp_path: Path) -> None:
    text = (
        "import os,time\nwhile True:\n  if os.fork(): time.sleep(0.01); os._exit(0)\n  os.setsid()"
    )
    argv = (sys.executable, "-ISc", text + f"\n  open('{tmp_path}/last','w').write('x')")
    runner.run(str(tmp_path), Command(argv, timeout=1.0))
    (tmp_path / "last").unlink(missing_ok=True)
    time.sleep(0.2)
    assert not (tmp_path / "last").exists()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_tree_dies_with_our_process(
    runner: Runner, tmp_path: Path, number: signal.Signals
) -> None:
    family(tmp_path, "time.sleep(600)")
    script = f"""
        from loom_audit.ports import Command, Moments
        from loom_audit.sandbox import open_runner
        open_runner({runner.name!r}).run(
            {str(tmp_path)!r},
            Command(({sys.executable!r}, "-IS", "family.py", {str(tmp_path)!r}), timeout=None))
    """
    ours = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)])
    found = marks(tmp_path, 3)
    ours.send_signal(number)
    ours.wait()
    assert wait_until_dead(found) == []


def test_the_tree_dies_with_our_process_though_a_fork_of_it_holds_the_pipe(
    runner: Runner, tmp_path: Path
) -> None:
    """multiprocessing forks keep every descriptor; then the pipe's end comes too late."""
    family(tmp_path, "time.sleep(600)")
    script = f"""
        import fcntl, os, threading, time
        from loom_audit.ports import Command, Moments
        from loom_audit.sandbox import open_runner
        command = Command(({sys.executable!r}, "-IS", "family.py", {str(tmp_path)!r}), timeout=None)
        run = lambda: open_runner({runner.name!r}).run({str(tmp_path)!r}, command)
        threading.Thread(target=run, daemon=True).start()
        while not os.path.exists({str(tmp_path / "daemon.pid")!r}):
            time.sleep(0.01)
        if os.fork() == 0:
            f = open({str(tmp_path / "fork.pid")!r}, "w")
            fcntl.flock(f, fcntl.LOCK_EX)
            f.write(str(os.getpid()))
            f.flush()
            time.sleep(600)
            os._exit(0)
        time.sleep(600)
    """
    ours = subprocess.Popen([sys.executable, "-W", "ignore", "-c", textwrap.dedent(script)])
    fork = tmp_path / "fork.pid"
    found = [mark for mark in marks(tmp_path, 4) if mark != fork]
    ours.kill()
    ours.wait()
    try:
        assert wait_until_dead(found) == []
        assert alive(fork)
    finally:
        os.kill(int(fork.read_text()), signal.SIGKILL)


def test_many_commands_run_at_once(runner: Runner, tmp_path: Path) -> None:
    codes: dict[int, int] = {}

    def one(number: int) -> None:
        text = f"sleep 600 & cat; exit {number}"
        done = runner.run(str(tmp_path), shell(text, stdin=b"%d" % number))
        assert done.stdout == b"%d" % number
        codes[number] = done.exit_code

    threads = [threading.Thread(target=one, args=(n,)) for n in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert codes == {n: n for n in range(12)}


def test_no_descriptor_is_left_open(runner: Runner, tmp_path: Path) -> None:
    before = sorted(os.listdir("/proc/self/fd"))
    runner.run(str(tmp_path), shell("echo x"))
    runner.run(str(tmp_path), shell("cat", stdin=b"x"))
    with pytest.raises(ExecutionFailed):
        runner.run(str(tmp_path), Command(("no-such-program-anywhere",)))
    assert sorted(os.listdir("/proc/self/fd")) == before


def test_a_supervisor_killed_by_the_command_is_said_and_its_session_dies(
    runner: Runner, tmp_path: Path
) -> None:
    text = f"""
import fcntl, os, signal, time
{LEAVE}
if os.fork() == 0:
    leave("left.pid")
while not os.path.exists("left.pid"):
    time.sleep(0.01)
try:
    os.kill(os.getppid(), signal.SIGKILL)
except PermissionError:
    os._exit(99)
time.sleep(600)
"""
    done = runner.run(str(tmp_path), Command((sys.executable, "-IS", "-c", text), timeout=120))
    if done.exit_code == 99:
        assert runner.name == "landlock"  # it keeps signals in
        return
    assert done.exit_code == 128 + signal.SIGKILL and not done.timed_out
    assert any("supervisor" in entry for entry in done.survivors)
    assert wait_until_dead(marks(tmp_path, 1)) == []
