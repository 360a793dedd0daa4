"""Commands, locks, other programs' processes, and the progress of long work."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import FrameType
from typing import Any, Literal, Protocol, runtime_checkable

from msgspec import Struct, field

from loom_audit.model.events import Lease

Confinement = Literal["required", "preferred", "off"]
"""Whether a command runs confined or not at all; confined if this machine can; unconfined."""


class Limits(Struct, frozen=True):
    """What each process of a command may use; None is unlimited.

    Seconds of CPU time, bytes of private memory, processes and threads alive at once (only
    where the backend can count the command's own), bytes of a file written.
    """

    cpu: int | None = None
    memory: int | None = None
    processes: int | None = None
    file: int | None = None


class Command(Struct, frozen=True):
    """What to run: an argument vector; a shell's text is `("sh", "-c", text)`.

    `cwd` is a workspace path. `environment` replaces ours when given; by default it is ours
    without LOOM_AUDIT_*, and confined only what programs need to run. `variables` are added to
    either. `stdio` "capture" keeps up to `limit` bytes of each stream (half head, half tail);
    "inherit" passes the terminal through. `timeout` in seconds, None for none.

    With `keep` the processes that it leaves running are not killed at its end; a confined one
    cannot be kept.

    `confinement` says whether it must be confined. A confined command reads the workspace and
    a minimal system, and writes the workspace and a temporary folder of its own; `readable`
    and `writable` are further absolute paths, and `network` lets it reach others. One that is
    `read_only` does not write the workspace. `home` are files by name that lie in its home
    directory when it starts; a command that is not confined has its user's own.
    """

    argv: tuple[str, ...]
    cwd: str = ""
    environment: Mapping[str, str] | None = None
    stdin: bytes | None = None
    timeout: float | None = 60.0
    limit: int = 256 * 1024
    stdio: Literal["capture", "inherit"] = "capture"
    variables: Mapping[str, str] = field(default_factory=dict)
    confinement: Confinement = "off"
    network: bool = False
    readable: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    read_only: bool = False
    home: Mapping[str, bytes] = field(default_factory=dict)
    limits: Limits = Limits()
    keep: bool = False


class CommandResult(Struct, frozen=True):
    """How a command ended: exit code (128+n by signal n), streams, surviving processes.

    `duration` is in microseconds. `stdout_bytes` and `stderr_bytes` count what was written, kept or
    not. `survivors` are processes that were still alive at its end and were killed, as `pid name`,
    and `kept` the pids of those that were left alive. `sandbox` is the backend that ran it;
    `unconfined` is why it was not confined though that was preferred.
    """

    exit_code: int
    stdout: bytes
    stderr: bytes
    stdout_bytes: int
    stderr_bytes: int
    timed_out: bool
    duration: int
    survivors: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    truncated: bool = False
    sandbox: str = "plain"
    unconfined: str = ""


class Moments(Struct, frozen=True):
    """The two moments of a command at which a runner asks whoever waits for the command.

    `start` is called once, while the helper processes are starting; the command starts after it,
    and its time counts from then. When it raises, the command does not run. `cancelled` is polled;
    when it says so the tree is killed, as at timeout.
    """

    start: Callable[[], object] = lambda: None
    cancelled: Callable[[], bool] | None = None


class Runner(Protocol):
    """Runs a command confined as asked. Blocks until the whole process tree is dead."""

    @property
    def name(self) -> str:
        """The backend of a command that may be confined, as recorded in events: `plain`,
        `bubblewrap`, `landlock`."""
        ...

    def run(self, root: str, command: Command, moments: Moments = Moments()) -> CommandResult:
        """Run a command with the directory `root` as its workspace.

        ExecutionFailed when it cannot be started. When our own process dies the tree dies.
        """
        ...


class Background(Protocol):
    """A command that goes on in a sandbox of its own, in which others run until it ends."""

    @property
    def name(self) -> str:
        """The backend of its sandbox, as recorded in events."""
        ...

    @property
    def task(self) -> str:
        """The process that all of the sandbox descend from, as `Processes.activity` takes it."""
        ...

    @property
    def is_over(self) -> bool:
        """Whether the command has ended, and all else in its sandbox."""
        ...

    @property
    def exit_code(self) -> int | None:
        """The exit code of the command (128+n by signal n), None before its end."""
        ...

    def run(self, root: str, command: Command, moments: Moments = Moments()) -> CommandResult:
        """Run another command in the sandbox, as `Runner.run` says; only its limits are asked for.

        ExecutionFailed also when the sandbox has ended, or ends meanwhile.
        """
        ...

    def output(self, after: int) -> tuple[bytes, int]:
        """What both streams gave behind so many bytes, as far as it is kept; how many in all."""
        ...

    def wait(self, after: int, seconds: float) -> None:
        """Wait until more than so many bytes were printed, or it has ended; at most so long."""
        ...

    def tell_end(self, tell: Callable[[], object]) -> None:
        """Call that once when it has ended, on any thread; immediately where it has."""
        ...

    def stop(self) -> None:
        """Ask the command to end, kill all of the sandbox after a moment, and wait for that.

        What `tell_end` was given has been called when this returns.
        """
        ...


@runtime_checkable
class BackgroundRunner(Protocol):
    """A `Runner` that can also start commands that go on."""

    def start(self, root: str, command: Command, inodes: Mapping[str, int]) -> Background:
        """Start a command that goes on when this returns, until it ends or is stopped.

        It dies with our process, whatever ends that, and so does all that it starts. `inodes` are
        those of folders among `command.writable`, which must be the ones that it can write.
        ExecutionFailed when it cannot be started, or not be confined so.
        """
        ...


def take_no_notice(_number: int, _frame: FrameType | None) -> None:
    """Answer a signal that is to end nothing, however often the signal comes.

    The signal is not ignored, since each command that is started would ignore it too. A `Lock`
    leaves this answer in its place.
    """


class Lock(Protocol):
    """OS locks by name: across processes and threads, released when the holder's process dies.

    Locks `among_threads` have no name, and are of this process alone.
    """

    def hold(self, name: str, *, timeout: float = 30.0) -> AbstractContextManager[None]:
        """Wait for a lock, then hold it to the end of the block. Conflict when the time is up.

        Not re-entrant; `timeout` in seconds. AuditUnavailable where locks cannot be made, so
        nothing can be recorded. Within the block, as in one that is `uninterrupted`, no signal
        interrupts; a signal that comes while the lock is waited for ends the wait with Conflict.
        """
        ...

    def among_threads(self) -> AbstractContextManager[object]:
        """A new lock without a name, for the threads that share it; each may take it again."""
        ...

    def uninterrupted(self) -> AbstractContextManager[object]:
        """Keep back a signal that asks for an end (INT, TERM, HUP) until the block has ended.

        What lies between two durable records is such a block, or the second record could be made
        twice. A second signal ends the process at once, unless it is one to `take_no_notice` of.
        """
        ...

    def answer_signals(self, *, whole: bool = False) -> None:
        """Answer a signal that was kept back, unless the block holds an `uninterrupted` step.

        What was done may be said to be `whole`: nothing is lost when the block ends here.
        """
        ...

    def acquire(self, name: str) -> Callable[[], None]:
        """Take a lock at once and keep it until the returned function is called.

        Conflict when it is held, AuditUnavailable as in `hold`.
        """
        ...

    def is_held(self, name: str) -> bool:
        """Whether a running process or thread holds the lock."""
        ...


class Processes(Protocol):
    """Processes of other programs, as far as they can be seen from here."""

    def lease(self, pid: int | None, seconds: int) -> Lease:
        """A lease for a process that runs now, or for one that is not known (None).

        What cannot be found out of it is left empty; `seconds` is for how long the lease holds
        where the process cannot be seen. NotFound when it does not run.
        """
        ...

    def is_alive(self, lease: Lease) -> bool | None:
        """Whether the process still runs; None when it cannot be seen from here.

        It is the same process when pid and start are the same under the same boot of the
        machine and in the same process namespace. One in another boot or namespace, or whose
        pid or start is not known, cannot be seen.
        """
        ...

    def asker(self, pid: int) -> tuple[int | None, Sequence[int]]:
        """The program that started a process, None when it is not known.

        The second value is that process, with the shells between the two.
        """
        ...

    @property
    def place(self) -> str:
        """The boot and the namespace within which a pid names one process; "" where unknown."""
        ...

    def running(self) -> Collection[int]:
        """The pids of all processes that can be seen."""
        ...

    def left_running(
        self, before: Collection[int], folder: str, *, by: int | None = None
    ) -> tuple[Sequence[str], Collection[int]]:
        """The processes that a program, by default ours, started since and that still run.

        The second value are the pids of those that ended meanwhile, and are of the program or
        ended before it was seen whose they are: they may have started others.

        `before` were running then. They are its descendants, and of what lost its parent
        what is of the program's process group or session, or works in the folder, with its own
        descendants. Not those that a `Runner` ends by itself.
        """
        ...

    def beside(self, tasks: Iterable[str], asking: Collection[int]) -> Collection[str]:
        """The tasks that are hooks of a program beside the hook that asks.

        `asking` is the hook that asks with its shells. The others are the program's, too, and began
        when it did or later; so did what they started.
        """
        ...

    def thread(self, number: int) -> str:
        """The task `PID/TID` of a thread of our own process, by the number of the system."""
        ...

    def activity(self, tasks: Iterable[str]) -> Mapping[str, Any]:
        """The activity until now of processes and threads, and of what they started, as JSON.

        A task is a process `PID` or a thread `PID/TID`. Where it is the same later, the task did
        not run. The value is None for a task that cannot be seen; one that has ended is left out.
        """
        ...

    def title(self, task: str) -> str:
        """The pid and name of a task, for people."""
        ...


class Progress(Struct, frozen=True):
    """The progress of long work; `total` is None while it is not known."""

    stage: str
    done: int
    total: int | None = None
    unit: str = "files"


OnProgress = Callable[[Progress], None]
"""A function that long work calls now and then with how far it is."""
