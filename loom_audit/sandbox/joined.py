"""A sandbox that stays: commands join it one beside the other, until it is killed."""

import contextlib
import os
import socket
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Sequence
from io import FileIO
from typing import IO

from loom_audit.errors import ExecutionFailed
from loom_audit.ports import Command
from loom_audit.sandbox.plain import LaunchOptions, wrapper_error
from loom_audit.sandbox.run import (
    KILL_SECONDS,
    HeadAndTail,
    Run,
    Stream,
    follow_streams,
    wait_readable,
)
from loom_audit.sandbox.supervised import FOLDER, SUPERVISOR

READY_SECONDS = 30.0
MOST_SAID = 4096
"""Bytes of what bubblewrap says when it does not start."""


class Sandbox:
    """What `inside` runs in, and our end of its socket. It ends with the thread that opened it.

    The kernel tells bubblewrap of the death of the thread that started it, not of the process
    (PR_SET_PDEATHSIG of prctl(2)): that thread must live as long as the sandbox.
    """

    def __init__(self, process: "subprocess.Popen[bytes]", orders: socket.socket) -> None:
        self._process = process
        self._orders = orders
        self._first: int | None = None
        # not by whoever kills it: another thread may be about to use them
        weakref.finalize(self, orders.close)

    @classmethod
    def open(cls, launch: LaunchOptions, order: bytes) -> "Sandbox":
        """A sandbox that is started as `launch` says, and is as the first `order` wants it.

        ExecutionFailed where it is not to be had.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        inside = [FOLDER, "inside", str(theirs.fileno())]
        try:
            process = subprocess.Popen(
                [*launch.wrap, sys.executable, "-ISc", SUPERVISOR, *inside],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=(theirs.fileno(), *launch.descriptors),
                start_new_session=True,
                env=launch.environment,
                cwd="/",
            )
        except OSError as error:
            ours.close()
            raise ExecutionFailed(
                f"No process could be started: {error.strerror}", hint="Run `loom-audit doctor`."
            ) from error
        finally:
            theirs.close()
        sandbox = cls(process, ours)
        assert process.stderr is not None
        with process.stderr as said:
            if sandbox._begin(order):
                return sandbox
            sandbox.kill()
            raise wrapper_error(launch.wrap[0], said.read(MOST_SAID))

    def _begin(self, order: bytes) -> bool:
        """Whether it is ready; False when it did not even start."""
        answer = b""
        with contextlib.suppress(OSError):  # it has ended, or takes too long
            self._orders.settimeout(READY_SECONDS)
            self._orders.send(order)
            answer = self._orders.recv(65536)
            self._orders.settimeout(None)
        if answer == b"ready":
            self._first = self._open_first()
        elif answer:
            self.kill()
            raise ExecutionFailed(
                f"The sandbox is not as it must be: {os.fsdecode(answer)}",
                hint="Somebody changed these folders just now; call again when they rest.",
            )
        return bool(answer)

    def _open_first(self) -> int | None:
        """The first process of the sandbox, with which all others die."""
        folder = f"/proc/{self.pid}/task/{self.pid}/children"
        with contextlib.suppress(OSError, ValueError), open(folder, "rb") as children:
            first = os.pidfd_open(int(children.read().split()[0]))
            weakref.finalize(self, os.close, first)
            return first
        return None

    @property
    def pid(self) -> int:
        """The process that all processes of the sandbox descend from."""
        return self._process.pid

    def join(
        self,
        command: Command,
        *,
        output: Stream | None = None,
        on_start: Callable[[], object] = lambda: None,
    ) -> Run:
        """A supervisor in the sandbox that waits for its order.

        With an `output` both of the command's streams go there, in the order of their bytes.
        ExecutionFailed when the sandbox has ended.
        """
        pipes = _Pipes(self, command, apart=output is None)
        try:
            socket.send_fds(self._orders, [b"\0"], pipes.theirs)
        except OSError as error:
            pipes.close_ours()
            raise ended_error() from error
        finally:
            for descriptor in pipes.theirs_open:
                os.close(descriptor)
        run = Run(
            pipes,
            pipes.control,
            pipes.messages,
            time.monotonic(),
            HeadAndTail(command.limit),
            HeadAndTail(command.limit),
            private=True,
            on_start=on_start,
        )
        follow_streams(run, command.stdin, output)
        return run

    def kill(self) -> None:
        """Kill all that runs in it, and wait until it is dead."""
        self._process.kill()
        self._process.wait()
        if self._first is not None:
            wait_readable(self._first, KILL_SECONDS)


class _Pipes:
    """The ends of the pipes to one supervisor; the process itself is not a child of ours.

    `theirs` are the descriptors in the order in which `inside` takes them.
    """

    def __init__(self, sandbox: Sandbox, command: Command, *, apart: bool) -> None:
        self._sandbox = sandbox
        self.stdin: IO[bytes] | None = None
        if command.stdin is None:
            feed = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        else:
            feed, ours = os.pipe()
            self.stdin = FileIO(ours, "wb")
        stdout, their_stdout = os.pipe()
        self.stdout: IO[bytes] | None = FileIO(stdout, "rb")
        self.stderr: IO[bytes] | None = None
        their_stderr = their_stdout
        if apart:
            stderr, their_stderr = os.pipe()
            self.stderr = FileIO(stderr, "rb")
        their_control, self.control = os.pipe()
        self.messages, their_messages = os.pipe()
        self.theirs: Sequence[int] = (
            feed,
            their_stdout,
            their_stderr,
            their_control,
            their_messages,
        )
        self.theirs_open = {*self.theirs}

    def close_ours(self) -> None:
        """Close our ends, where no supervisor has the others."""
        os.close(self.control)
        os.close(self.messages)
        for pipe in (self.stdin, self.stdout, self.stderr):
            if pipe is not None:
                pipe.close()

    def kill_session(self) -> str:
        """Kill the whole sandbox: what a supervisor leaves when it dies cannot be told apart."""
        self._sandbox.kill()
        return "the sandbox's"

    def wait_for_end(self) -> None:
        """Nothing: it ends with its last message, and `inside` waits for it."""


def ended_error() -> ExecutionFailed:
    """The error when a command was to run, or ran, in a sandbox that has ended."""
    return ExecutionFailed(
        "The background command has ended, and its sandbox with it",
        hint="Start it again; bash_output shows what it printed last.",
    )
