"""A command that goes on while its owner does other things, in a sandbox of its own."""

import signal
import threading
import time
from collections.abc import Callable

from msgspec.structs import replace

from loom_audit.errors import ExecutionFailed
from loom_audit.ports import Command, CommandResult, Moments
from loom_audit.sandbox.joined import READY_SECONDS, Sandbox, ended_error
from loom_audit.sandbox.plain import carry_out, command_result, encode_order, start_error
from loom_audit.sandbox.run import Run, close, exit_code, run_to_end, send

OUTPUT_BYTES = 1 << 20
"""How much of what a command prints is kept: the last 1 MiB."""

STOP_SECONDS = 2.0
"""Seconds for a command to end by itself when it was asked to."""

FULL_READ = 65536
PACE = 0.005
"""Seconds between two full reads: what a command prints without end must not cost a core."""

MODE = "gwp"
"""Of `supervisor.Order`: a group of its own, the whole tree, nothing of us is shown."""


class LastBytes:
    """The last `limit` bytes of a stream, with how many there were; used under its owner's lock."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept = bytearray()
        self.total = 0

    def add(self, chunk: bytes) -> None:
        """Take the next bytes."""
        self.total += len(chunk)
        self._kept += chunk
        if len(self._kept) > 2 * self._limit:
            del self._kept[: -self._limit]

    def behind(self, after: int) -> bytes:
        """What is kept of the bytes behind the first `after`."""
        wanted = min(max(self.total - after, 0), self._limit, len(self._kept))
        return bytes(self._kept[len(self._kept) - wanted :])


class BubblewrapBackground:
    """A `ports.Background` in a sandbox of bubblewrap; `confined` makes a command one of there.

    A thread of its own starts the sandbox, reads what the command prints, and kills the sandbox
    when the command has ended: see `Sandbox` for why one thread does it all.
    """

    name = "bubblewrap"

    def __init__(
        self, root: str, command: Command, steps: str, confined: Callable[[Command], Command]
    ) -> None:
        self._root = root
        self._confined = confined
        self._command = confined(command)
        self._steps = steps
        self._changed = threading.Condition()
        self._printed = LastBytes(OUTPUT_BYTES)
        self._sandbox: Sandbox | None = None
        self._run: Run | None = None
        self._started = False
        self._over = False
        self._given_up = False
        self._failure: BaseException | None = None
        self._told: list[Callable[[], object]] = []
        self._thread: threading.Thread | None = None
        self.task = ""
        self.exit_code: int | None = None

    def begin(self, open_sandbox: Callable[[], Sandbox]) -> None:
        """Start the command in the sandbox; it runs when this returns. ExecutionFailed."""
        self._thread = threading.Thread(
            target=self._live, args=(open_sandbox,), name="loom-audit background", daemon=True
        )
        self._thread.start()
        with self._changed:
            known = self._changed.wait_for(lambda: self._started or self._over, 2 * READY_SECONDS)
        if self._failure is not None:
            raise self._failure
        if not known:
            self.stop()
            raise ExecutionFailed("The background command could not be started in time")

    # --- in its thread --------------------------------------------------------------------

    def _live(self, open_sandbox: Callable[[], Sandbox]) -> None:
        try:
            self._sandbox = open_sandbox()
            self.task = str(self._sandbox.pid)
            with self._changed:
                given_up = self._given_up
            if not given_up:
                self._run_command(self._sandbox)
        except BaseException as error:  # noqa: BLE001 - raised where the start is waited for
            self._failure = error
        finally:
            if self._sandbox is not None:
                self._sandbox.kill()
            with self._changed:
                self._over, self._sandbox = True, None
                told, self._told = self._told, []
                self._changed.notify_all()
            for tell in told:
                tell()

    def _run_command(self, sandbox: Sandbox) -> None:
        order = encode_order(self._root, self._command, MODE, 0, self._steps)
        run = sandbox.join(self._command, output=self, on_start=self._note_start)
        try:
            send(run.control, order)
            with self._changed:
                self._run = run
            run_to_end(run, None, None)
        finally:
            with self._changed:  # no signal goes to another descriptor of this number
                self._run = None
            close(run)
        if run.failure is not None:
            raise start_error(self._root, self._command, *run.failure)
        self.exit_code = exit_code(run.status)

    def _note_start(self) -> None:
        with self._changed:
            self._started = True
            self._changed.notify_all()

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes that the command printed."""
        with self._changed:
            self._printed.add(chunk)
            self._changed.notify_all()
        if len(chunk) >= FULL_READ:
            time.sleep(PACE)

    # --- on any thread --------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        """Whether the command has ended, and all else in its sandbox."""
        return self._over

    def run(self, root: str, command: Command, moments: Moments = Moments()) -> CommandResult:
        """Run another command in the sandbox, as `loom_audit.ports.Runner.run` says.

        ExecutionFailed also when the sandbox has ended, or ends meanwhile.
        """
        sandbox = self._sandbox
        if sandbox is None:
            raise ended_error()
        ordered = self._confined(command)
        order = encode_order(root, ordered, MODE, 0, self._steps)
        run = sandbox.join(ordered)
        carry_out(run, order, ordered, moments)
        if run.failure is not None:
            raise start_error(root, ordered, *run.failure)
        if run.status is None and run.killed_at is None:
            raise ended_error()
        return replace(command_result(run), sandbox=self.name)

    def output(self, after: int) -> tuple[bytes, int]:
        """What was printed behind so many bytes, as far as it is kept; how many there were."""
        with self._changed:
            return self._printed.behind(after), self._printed.total

    def wait(self, after: int, seconds: float) -> None:
        """Wait until more than so many bytes were printed, or the command has ended."""
        with self._changed:
            self._changed.wait_for(lambda: self._over or self._printed.total > after, seconds)

    def tell_end(self, tell: Callable[[], object]) -> None:
        """Call that once when it has ended, in its thread; here where it has ended already."""
        with self._changed:
            if not self._over:
                self._told.append(tell)
                return
        tell()

    def stop(self) -> None:
        """Ask the command to end, kill what is left of the sandbox then, and wait for that."""
        with self._changed:
            self._given_up = True
            if self._run is not None and not self._over:
                send(self._run.control, bytes([signal.SIGTERM]))
                self._changed.wait_for(lambda: self._over, STOP_SECONDS)
        if (sandbox := self._sandbox) is not None:
            sandbox.kill()
        if self._thread is not None:
            self._thread.join()
