"""Commands without confinement: everything the user may do, the command may do.

What it does promise: bounded output, and that the whole process tree is dead on return, also
what called setsid or forked twice. A process started for the command by another service (a
systemd unit, a container, `at`) is not of this tree, nor is what the command may not be
signalled for (setuid programs: these are named as not killed). Where there is no subreaper
(anything but Linux) only the command's process group is killed and nothing is named.
"""

import contextlib
import errno
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from loom_audit.errors import ExecutionFailed, InvalidArguments
from loom_audit.ports import Command, Completed
from loom_audit.sandbox import terminal
from loom_audit.sandbox.limits import limit_steps
from loom_audit.sandbox.streams import HeadAndTail
from loom_audit.sandbox.within import OUTSIDE, Within

# imported, not run as a script, so that its compiled form is used: 3 ms of 14
SUPERVISOR = "import sys; sys.path.insert(0, sys.argv[3]); import supervisor; supervisor.main()"
FOLDER = str(Path(__file__).parent)
POLL_CANCELLED = 0.05
PATIENCE = 15.0
"""Seconds until a supervisor that was told to kill and does not answer is killed itself."""

KILL = b"\0"


def own_environment() -> dict[str, str]:
    """Our environment without LOOM_AUDIT_*: a command is told no path of the store."""
    return {k: v for k, v in os.environ.items() if not k.startswith("LOOM_AUDIT_")}


@dataclass(slots=True)
class _Run:
    """One command under way."""

    process: subprocess.Popen[bytes]
    control: int
    report: int
    started: float
    stdout: HeadAndTail
    stderr: HeadAndTail
    streams: dict[int, HeadAndTail] = field(default_factory=dict)
    stdin: int | None = None
    unsent: memoryview = field(default_factory=lambda: memoryview(b""))
    private: bool = False
    heard: bytes = b""
    child: int = 0
    status: int | None = None
    failure: tuple[str, int] | None = None
    survivors: list[str] = field(default_factory=list)
    over: bool = False
    killed_at: float | None = None
    timed_out: bool = False


class PlainRunner:
    """Runs commands as our own user, without confinement, each under a supervisor process.

    `whole_tree` False kills the process group only, which is all there is off Linux.
    """

    name = "plain"

    def __init__(self, *, whole_tree: bool = sys.platform == "linux") -> None:
        self._whole_tree = whole_tree

    def run(
        self, root: str, command: Command, *, cancelled: Callable[[], bool] | None = None
    ) -> Completed:
        """See `loom_audit.ports.Runner.run`.

        The details of ExecutionFailed hold `exit_code`: 127 or 126, as a shell would exit.
        """
        within = Within(steps="\n".join(limit_steps(command.limits)))
        return supervise(
            root, command, within=within, whole_tree=self._whole_tree, cancelled=cancelled
        )


def supervise(
    root: str,
    command: Command,
    *,
    within: Within = OUTSIDE,
    whole_tree: bool = True,
    cancelled: Callable[[], bool] | None = None,
) -> Completed:
    """Run a command under a supervisor that is started as `within` says."""
    inherit = command.stdio == "inherit"
    mode, owner, forwarded = terminal.seat() if inherit else ("g", 0, ())
    mode += "w" * whole_tree + "p" * within.private
    order = _order(root, command, mode, owner, within.steps)
    run = _launch(command, within)
    try:
        with terminal.forwarding(forwarded, lambda n: _send(run.control, bytes([n]))):
            _send(run.control, order)
            _attend(run, command.timeout, cancelled)
    finally:
        _close(run)
    if run.failure is not None:
        raise _not_started(root, command, *run.failure)
    if within.wrap and not run.child and not run.timed_out and run.killed_at is None:
        raise _not_wrapped(within.wrap[0], run)
    return Completed(
        exit_code=_exit_code(run.status),
        stdout=run.stdout.content(),
        stderr=run.stderr.content(),
        stdout_bytes=run.stdout.total,
        stderr_bytes=run.stderr.total,
        timed_out=run.timed_out,
        duration=int((time.monotonic() - run.started) * 1e6),
        survivors=tuple(run.survivors),
        truncated=run.stdout.truncated or run.stderr.truncated,
    )


# --- starting -----------------------------------------------------------------------------


def _order(root: str, command: Command, mode: str, owner: int, steps: str) -> bytes:
    given = own_environment() if command.environment is None else command.environment
    environment = {**given, **command.variables}
    if not command.argv or not command.argv[0]:
        raise InvalidArguments("The command is empty", hint="Name a program to run.")
    values = (*command.argv, command.cwd, *environment, *environment.values())
    if any("\0" in value for value in values) or any("=" in k or not k for k in environment):
        raise InvalidArguments("A command, a path or a variable of its environment is malformed")
    fields = [
        mode.encode(),
        str(owner).encode(),
        os.fsencode(os.path.join(root, command.cwd)),
        steps.encode(),
        str(len(command.argv)).encode(),
        *(os.fsencode(word) for word in command.argv),
        *(os.fsencode(f"{key}={value}") for key, value in environment.items()),
    ]
    body = b"\0".join(fields)
    return b"%08d" % len(body) + body


def _launch(command: Command, within: Within) -> _Run:
    inherit = command.stdio == "inherit"
    feed = subprocess.DEVNULL if command.stdin is None else subprocess.PIPE
    keep = None if inherit else subprocess.PIPE
    their_control, control = os.pipe()
    report, their_report = os.pipe()
    pipes = (str(their_control), str(their_report))
    try:
        process = subprocess.Popen(
            [*within.wrap, sys.executable, "-ISc", SUPERVISOR, *pipes, FOLDER],
            stdin=None if inherit and command.stdin is None else feed,
            stdout=keep,
            stderr=keep,
            bufsize=0,
            pass_fds=(their_control, their_report, *within.descriptors),
            start_new_session=not inherit,
            env=own_environment() if within.environment is None else within.environment,
            cwd="/",
        )
    except OSError as error:
        os.close(control)
        os.close(report)
        raise ExecutionFailed(f"No process could be started: {error.strerror}") from error
    finally:
        os.close(their_control)
        os.close(their_report)
    run = _Run(
        process,
        control,
        report,
        time.monotonic(),
        HeadAndTail(command.limit),
        HeadAndTail(command.limit),
        private=within.private,
    )
    for pipe, stream in ((process.stdout, run.stdout), (process.stderr, run.stderr)):
        if pipe is not None:
            os.set_blocking(pipe.fileno(), False)
            run.streams[pipe.fileno()] = stream
    if process.stdin is not None:
        run.stdin = process.stdin.fileno()
        os.set_blocking(run.stdin, False)
        run.unsent = memoryview(command.stdin or b"")
    return run


def _not_started(root: str, command: Command, stage: str, code: int) -> ExecutionFailed:
    reason = os.strerror(code)
    if stage == "cwd":
        return ExecutionFailed(
            f"The working directory cannot be entered: {command.cwd or root}: {reason}",
            hint="Name a directory inside the workspace.",
            details={"cwd": command.cwd, "errno": code, "exit_code": 126},
        )
    if stage == "confine":
        return ExecutionFailed(
            f"The command could not be confined: {reason}",
            hint="Run `loom-audit doctor`.",
            details={"errno": code, "exit_code": 126},
        )
    missing = code in (errno.ENOENT, errno.ENOTDIR)
    return ExecutionFailed(
        f"Command not found: {command.argv[0]}"
        if missing
        else f"Command cannot be run: {command.argv[0]}: {reason}",
        hint="Check the name and PATH." if missing else "Check its permissions and its format.",
        details={"program": command.argv[0], "errno": code, "exit_code": 127 if missing else 126},
    )


def _not_wrapped(program: str, run: _Run) -> ExecutionFailed:
    said = run.stderr.content().decode(errors="replace").strip()[-500:]
    return ExecutionFailed(
        f"{os.path.basename(program)} did not start the command: {said or 'it gave no reason'}",
        hint="Run `loom-audit doctor`.",
        details={"exit_code": 126},
    )


# --- while it runs ------------------------------------------------------------------------


def _attend(run: _Run, timeout: float | None, cancelled: Callable[[], bool] | None) -> None:
    """Move bytes and listen to the supervisor until everything of the command is dead."""
    deadline = None if timeout is None else run.started + timeout
    poll = select.poll()
    poll.register(run.report, select.POLLIN)
    for fd in run.streams:
        poll.register(fd, select.POLLIN)
    if run.stdin is not None:
        poll.register(run.stdin, select.POLLOUT)
    while not run.over:
        for fd, _ in poll.poll(_patience(run, deadline, cancelled is not None)):
            if fd == run.report:
                _hear(run)
            elif fd == run.stdin:
                if not _feed(run):
                    poll.unregister(fd)
                    _close_stdin(run)
            elif not _drain(fd, run.streams[fd], 1):
                poll.unregister(fd)
        now = time.monotonic()
        if run.killed_at is not None:
            if now > run.killed_at + PATIENCE:
                _lose(run)
        elif (expired := deadline is not None and now >= deadline) or (cancelled and cancelled()):
            run.timed_out = expired
            run.killed_at = now
            _send(run.control, KILL)
    for fd, stream in run.streams.items():
        _drain(fd, stream, 64)


def _patience(run: _Run, deadline: float | None, polling: bool) -> float | None:
    """Milliseconds to sleep at most."""
    waits = [] if not polling else [POLL_CANCELLED]
    if run.killed_at is not None:
        waits.append(PATIENCE / 10)
    elif deadline is not None:
        waits.append(max(0.0, deadline - time.monotonic()) + 0.0005)
    return min(waits) * 1000 if waits else None


def _drain(fd: int, stream: HeadAndTail, chunks: int) -> bool:
    """Read what is there, boundedly; False at the end of the stream."""
    for _ in range(chunks):
        try:
            chunk = os.read(fd, 65536)
        except BlockingIOError:
            return True
        if not chunk:
            return False
        stream.feed(chunk)
    return True


def _feed(run: _Run) -> bool:
    """Write what the pipe takes; False when there is no more to write, or no reader."""
    try:
        sent = os.write(run.stdin, run.unsent[:65536]) if run.stdin is not None else 0
    except BlockingIOError:
        return True
    except BrokenPipeError:
        return False
    run.unsent = run.unsent[sent:]
    return bool(run.unsent)


def _send(control: int, message: bytes) -> None:
    """To the supervisor; one that is gone is noticed at the report pipe."""
    while message:
        try:
            message = message[os.write(control, message) :]
        except BrokenPipeError:
            return


def _hear(run: _Run) -> None:
    data = os.read(run.report, 65536)
    if not data:
        _lose(run)
        return
    *lines, run.heard = (run.heard + data).split(b"\n")
    for line in lines:
        word, _, rest = line.partition(b" ")
        match word:
            case b"started":
                run.child = int(rest)
            case b"failed":
                stage, _, code = rest.decode().partition(" ")
                run.failure, run.over = (stage, int(code)), True
            case b"stopped":
                terminal.stop_ourselves(int(rest))
                _send(run.control, bytes([signal.SIGCONT]))
            case b"outlived":
                run.survivors.append(os.fsdecode(rest))
            case b"unkillable":
                name = os.fsdecode(rest)
                run.survivors = [s for s in run.survivors if s != name]
                run.survivors.append(f"{name} (not killed)")
            case b"ended":
                run.status, run.over = int(rest), True


def _lose(run: _Run) -> None:
    """The supervisor was killed: kill its session, and say that more may be alive."""
    run.over = True
    run.process.kill()
    run.process.wait()
    run.survivors.append(f"{run.process.pid} supervisor (killed from outside: more may be alive)")
    if run.child and not run.private:  # else it is a number of another namespace
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(run.child, signal.SIGKILL)
    for pid in _session(run.process.pid):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _session(leader: int) -> Iterator[int]:
    """The processes of a session, by /proc."""
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir("/proc"):
            with contextlib.suppress(OSError, ValueError):
                if name.isdigit() and os.getsid(int(name)) == leader:
                    yield int(name)


def _close(run: _Run) -> None:
    """Close our ends, by which the supervisor kills all that is left, and wait for it."""
    _close_stdin(run)
    os.close(run.control)
    try:
        run.process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        _lose(run)
    os.close(run.report)
    for pipe in (run.process.stdout, run.process.stderr):
        if pipe is not None:
            pipe.close()


def _close_stdin(run: _Run) -> None:
    if run.stdin is not None and run.process.stdin is not None:
        run.stdin = None
        run.process.stdin.close()


def _exit_code(status: int | None) -> int:
    """As a shell says it; a command whose supervisor was killed was killed with it."""
    if status is None:
        return 128 + signal.SIGKILL
    if os.WIFSIGNALED(status):
        return 128 + os.WTERMSIG(status)
    return os.WEXITSTATUS(status)
