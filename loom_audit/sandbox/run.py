"""One running command: its streams and the messages of its supervisor, to the last process."""

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import IO, Protocol

from msgspec import Struct, field

from loom_audit.sandbox import terminal


class HeadAndTail:
    """Keeps the first half and the last half of `limit` bytes of a stream.

    `total` counts all bytes. When some were left out they are missing between
    `content()[: limit // 2]` and the rest.
    """

    __slots__ = ("_half", "_head", "_tail", "_tail_limit", "total")

    def __init__(self, limit: int) -> None:
        self._half = limit // 2
        self._tail_limit = limit - self._half
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes of the stream, in memory of at most about two limits."""
        self.total += len(chunk)
        room = self._half - len(self._head)
        if room > 0:
            self._head += chunk[:room]
            chunk = chunk[room:]
        self._tail += chunk
        if len(self._tail) > 2 * self._tail_limit + 65536:
            self._trim()

    def _trim(self) -> None:
        if len(self._tail) > self._tail_limit:
            del self._tail[: len(self._tail) - self._tail_limit]

    def content(self) -> bytes:
        """The bytes that were kept, head and tail one behind the other."""
        self._trim()
        return bytes(self._head + self._tail)

    @property
    def truncated(self) -> bool:
        """Whether bytes between the head and the tail were left out."""
        return self.total > self._half + self._tail_limit


class Stream(Protocol):
    """What takes the bytes of a stream."""

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes."""


class SupervisorProcess(Protocol):
    """The process of a supervisor, with our ends of its streams."""

    stdin: IO[bytes] | None
    stdout: IO[bytes] | None
    stderr: IO[bytes] | None

    def kill_session(self) -> str:
        """Kill it with all that is of its session; how people know it."""

    def wait_for_end(self) -> None:
        """Wait until it has ended. subprocess.TimeoutExpired after KILL_SECONDS."""


class ChildProcess(subprocess.Popen[bytes]):
    """A supervisor that is a child of ours."""

    def kill_session(self) -> str:
        """Kill it with all that is of its session, by /proc; its pid."""
        self.kill()
        self.wait()
        for pid in _session(self.pid):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        return str(self.pid)

    def wait_for_end(self) -> None:
        """Wait until it has ended. subprocess.TimeoutExpired after KILL_SECONDS.

        A descriptor of the process (pidfd_open(2)) tells the end at once, where there is one:
        Popen.wait asks again and again, and sleeps a millisecond and more in between.
        """
        seconds = KILL_SECONDS
        with contextlib.suppress(AttributeError, OSError):
            descriptor = os.pidfd_open(self.pid)
            try:
                wait_readable(descriptor, KILL_SECONDS)
                seconds = 0.0
            finally:
                os.close(descriptor)
        self.wait(seconds)


def wait_readable(descriptor: int, seconds: float) -> bool:
    """Whether a descriptor can be read within so many seconds, as one of an ended process can."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


POLL_CANCELLED = 0.05
KILL_SECONDS = 15.0
"""Seconds until a supervisor that was told to kill and does not answer is killed itself."""

KILL = b"\0"


class Run(Struct):
    """A command that runs under its supervisor, and what was read of it until now.

    `control` and `messages` are our ends of the pipes to the supervisor, `started` and `killed_at`
    are of time.monotonic(). `child` is the pid of the command, `private` whether it is a number of
    another namespace; `status` is as waitpid(2) gives it, `failure` a stage with its errno.
    `on_start` is called when the command was executed.
    """

    process: SupervisorProcess
    control: int
    messages: int
    started: float
    stdout: HeadAndTail
    stderr: HeadAndTail
    streams: dict[int, Stream] = field(default_factory=dict)
    stdin: int | None = None
    unsent: memoryview = field(default_factory=lambda: memoryview(b""))
    private: bool = False
    unparsed: bytes = b""
    child: int = 0
    status: int | None = None
    failure: tuple[str, int] | None = None
    survivors: list[str] = field(default_factory=list)
    ended: bool = False
    killed_at: float | None = None
    timed_out: bool = False
    on_start: Callable[[], object] = lambda: None


def follow_streams(run: Run, content: bytes | None, output: Stream | None = None) -> None:
    """Read and write the process's streams without blocking; `content` is for its standard input.

    What it prints goes to `output` where there is one, else is kept as the run's.
    """
    process = run.process
    for pipe, stream in ((process.stdout, output or run.stdout), (process.stderr, run.stderr)):
        if pipe is not None:
            os.set_blocking(pipe.fileno(), False)
            run.streams[pipe.fileno()] = stream
    if process.stdin is not None:
        run.stdin = process.stdin.fileno()
        os.set_blocking(run.stdin, False)
        run.unsent = memoryview(content or b"")


def run_to_end(run: Run, timeout: float | None, cancelled: Callable[[], bool] | None) -> None:
    """Copy the streams and read the messages until every process of the command has ended."""
    deadline = None if timeout is None else run.started + timeout
    poll = select.poll()
    poll.register(run.messages, select.POLLIN)
    for fd in run.streams:
        poll.register(fd, select.POLLIN)
    if run.stdin is not None:
        poll.register(run.stdin, select.POLLOUT)
    while not run.ended:
        for fd, _ in poll.poll(_poll_timeout(run, deadline, cancelled is not None)):
            if fd == run.messages:
                _read_messages(run)
            elif fd == run.stdin:
                if not _write_stdin(run):
                    poll.unregister(fd)
                    _close_stdin(run)
            elif not _read_stream(fd, run.streams[fd], 1):
                poll.unregister(fd)
        now = time.monotonic()
        if run.killed_at is not None:
            if now > run.killed_at + KILL_SECONDS:
                _kill_session(run)
        elif (expired := deadline is not None and now >= deadline) or (cancelled and cancelled()):
            run.timed_out = expired
            run.killed_at = now
            send(run.control, KILL)
    for fd, stream in run.streams.items():
        _read_stream(fd, stream, 64)


def _poll_timeout(run: Run, deadline: float | None, polling: bool) -> float | None:
    """Milliseconds to sleep at most; None to sleep until something is to be read."""
    waits = [] if not polling else [POLL_CANCELLED]
    if run.killed_at is not None:
        waits.append(KILL_SECONDS / 10)
    elif deadline is not None:
        waits.append(max(0.0, deadline - time.monotonic()) + 0.0005)
    return min(waits) * 1000 if waits else None


def _read_stream(fd: int, stream: Stream, chunks: int) -> bool:
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


def _write_stdin(run: Run) -> bool:
    """Write what the pipe takes; False when there is no more to write, or no reader."""
    try:
        sent = os.write(run.stdin, run.unsent[:65536]) if run.stdin is not None else 0
    except BlockingIOError:
        return True
    except BrokenPipeError:
        return False
    run.unsent = run.unsent[sent:]
    return bool(run.unsent)


def send(control: int, message: bytes) -> None:
    """Write to the supervisor; the end of one that is gone is noticed at the pipe of messages."""
    while message:
        try:
            message = message[os.write(control, message) :]
        except BrokenPipeError:
            return


def _read_messages(run: Run) -> None:
    data = os.read(run.messages, 65536)
    if not data:
        _kill_session(run)
        return
    *lines, run.unparsed = (run.unparsed + data).split(b"\n")
    for line in lines:
        word, _, rest = line.partition(b" ")
        match word:
            case b"started":
                run.child = int(rest)
                run.on_start()
            case b"failed":
                stage, _, code = rest.decode().partition(" ")
                run.failure, run.ended = (stage, int(code)), True
            case b"stopped":
                terminal.stop_ourselves(int(rest))
                send(run.control, bytes([signal.SIGCONT]))
            case b"outlived":
                run.survivors.append(os.fsdecode(rest))
            case b"unkillable":
                name = os.fsdecode(rest)
                run.survivors = [s for s in run.survivors if s != name]
                run.survivors.append(f"{name} (not killed)")
            case b"ended":
                run.status, run.ended = int(rest), True


def _kill_session(run: Run) -> None:
    """The supervisor was killed: kill its session, and say that more may be alive."""
    run.ended = True
    named = run.process.kill_session()
    run.survivors.append(f"{named} supervisor (killed from outside: more may be alive)")
    if run.child and not run.private:  # else it is a number of another namespace
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(run.child, signal.SIGKILL)


def _session(leader: int) -> Iterator[int]:
    """The processes of a session, by /proc."""
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir("/proc"):
            with contextlib.suppress(OSError, ValueError):
                if name.isdigit() and os.getsid(int(name)) == leader:
                    yield int(name)


def close(run: Run) -> None:
    """Close our ends, by which the supervisor kills all that is left, and wait for it."""
    _close_stdin(run)
    os.close(run.control)
    try:
        run.process.wait_for_end()
    except subprocess.TimeoutExpired:
        _kill_session(run)
    os.close(run.messages)
    for pipe in (run.process.stdout, run.process.stderr):
        if pipe is not None:
            pipe.close()


def _close_stdin(run: Run) -> None:
    if run.stdin is not None and run.process.stdin is not None:
        run.stdin = None
        run.process.stdin.close()


def exit_code(status: int | None) -> int:
    """The exit code as a shell says it: 128 + the signal for a command that a signal ended."""
    if status is None:  # the supervisor was killed, and its command with it
        return 128 + signal.SIGKILL
    if os.WIFSIGNALED(status):
        return 128 + os.WTERMSIG(status)
    return os.WEXITSTATUS(status)
