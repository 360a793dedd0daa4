"""Processes of `loom-audit`, forked from one that has loaded everything already.

Each is a process of its own, with its own standard streams, environment, directory and exit
code; only that Python starts and loads is left out, which takes ten times as long as most
commands. What must begin with an executable (signals that are ignored, a locale, what a shell
starts) runs `python -m loom_audit` instead.

Run as a module this is the one they are forked from; it takes orders on the socket whose
descriptor it is given, and from whoever connects to the other one.
"""

import atexit
import functools
import gc
import importlib
import io
import json
import os
import pkgutil
import runpy
import secrets
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).parents[2]
NUMBER = struct.Struct("=i")
"""A pid, then an exit code."""


class Forked:
    """A process of `loom-audit`; what it prints goes to files unless descriptors are given."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        cwd: str | Path,
        env: Mapping[str, str],
        stdin: bytes = b"",
        terminal: int | None = None,
    ) -> None:
        self._streams: list[IO[bytes]] = []
        descriptors = [terminal] * 3 if terminal is not None else self._files(stdin)
        self._told, told = socket.socketpair()
        order = {
            "arguments": list(arguments),
            "cwd": str(cwd),
            "env": dict(env),
            "terminal": terminal is not None,
        }
        with told, tempfile.TemporaryFile() as written:
            written.write(json.dumps(order).encode())
            written.seek(0)
            _stem().give([written.fileno(), told.fileno(), *descriptors])
        self.pid = self._answer()
        self.returncode: int | None = None

    def _files(self, stdin: bytes) -> list[int]:
        self._streams = [tempfile.TemporaryFile() for _ in range(3)]  # noqa: SIM115
        self._streams[0].write(stdin)
        self._streams[0].seek(0)
        return [stream.fileno() for stream in self._streams]

    def _answer(self) -> int:
        said = self._told.recv(NUMBER.size, socket.MSG_WAITALL)
        assert said, "what processes are forked from has ended"
        return int(NUMBER.unpack(said)[0])

    def wait(self, seconds: float = 120) -> int:
        """Its exit code, or minus the signal that ended it. TimeoutError."""
        if self.returncode is None:
            self._told.settimeout(seconds)
            self.returncode = self._answer()
            self._told.close()
        return self.returncode

    def ended(self) -> bool:
        return self.returncode is not None or bool(select.select([self._told], [], [], 0)[0])

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        if not self.ended():
            os.kill(self.pid, number)

    def printed(self) -> tuple[bytes, bytes]:
        """All it wrote to both streams; waits for its end."""
        self.wait()
        for stream in self._streams:
            stream.seek(0)
        _, out, errors = [stream.read() for stream in self._streams]
        for stream in self._streams:
            stream.close()
        return out, errors


class _Stem:
    """The other process, on this side."""

    def __init__(self) -> None:
        self._orders, theirs = socket.socketpair()
        self.door = f"loom-audit-tests-{os.getpid()}-{secrets.token_hex(8)}"
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("LOOM_AUDIT_", "COV_"))}
        with theirs, socket.socket(socket.AF_UNIX) as door:
            door.bind("\0" + self.door)
            door.listen(64)
            given = [theirs.fileno(), door.fileno()]
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.processes.forked", *map(str, given)],
                cwd=ROOT,
                env=kept | {"LC_ALL": "C.UTF-8"},
                pass_fds=given,
                stdin=subprocess.DEVNULL,
            )

    def give(self, descriptors: Sequence[int]) -> None:
        """A file with the order, where its pid and its end are told, and its three streams."""
        socket.send_fds(self._orders, [b"o"], descriptors)

    def end(self) -> None:
        self._orders.close()
        self._process.wait()


@functools.cache
def _stem() -> _Stem:
    stem = _Stem()
    atexit.register(stem.end)
    return stem


def begun_by() -> list[str]:
    """The words of a command that begins such a process, for what starts programs itself.

    What it starts is a small program, of which the process is not a child: `relay`.
    """
    program = Path(__file__).with_name("relay.py")
    return [sys.executable, "-I", "-S", str(program), _stem().door]


def _load() -> None:
    import loom_audit

    for module in pkgutil.walk_packages(loom_audit.__path__, "loom_audit."):
        # frameworks are slow to import, and only there for tests
        left_out = (".migrations", ".api.frameworks.")
        if not module.name.endswith("__main__") and not any(n in module.name for n in left_out):
            importlib.import_module(module.name)


def _obey(orders: socket.socket, door: socket.socket) -> dict[str, Any]:
    """Fork for every order. Returns in the forked ones only."""
    told: dict[int, int] = {}
    ends, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while True:
        readable, _, _ = select.select([orders.fileno(), door.fileno(), ends], [], [])
        if ends in readable:
            os.read(ends, 4096)
            while told and (found := os.waitpid(-1, os.WNOHANG))[0]:
                with socket.socket(fileno=told.pop(found[0])) as to, suppress(BrokenPipeError):
                    to.send(NUMBER.pack(os.waitstatus_to_exitcode(found[1])))
        if orders.fileno() in readable:
            asked, descriptors, _, _ = socket.recv_fds(orders, 1, 5)
        elif door.fileno() in readable:
            with door.accept()[0] as caller:
                asked, descriptors, _, _ = socket.recv_fds(caller, 1, 5)
            if len(descriptors) < 5:
                continue
        else:
            continue
        if not asked:
            for pid in told:
                os.kill(pid, signal.SIGKILL)
            sys.exit()
        order = os.pread(descriptors[0], os.fstat(descriptors[0]).st_size, 0)
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for n, stream in enumerate(descriptors[2:]):
                os.dup2(stream, n)
            orders.detach()
            door.detach()
            os.closerange(3, os.sysconf("SC_OPEN_MAX"))
            return dict(json.loads(order))
        told[pid] = descriptors[1]
        os.write(told[pid], NUMBER.pack(pid))
        for descriptor in (descriptors[0], *descriptors[2:]):
            os.close(descriptor)


def _become(order: dict[str, Any]) -> None:
    """What `python -m loom_audit` is when it begins."""
    if order["terminal"]:
        os.setsid()
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["env"])
    if hasattr(time, "tzset"):
        time.tzset()
    for n, (name, mode) in enumerate((("stdin", "rb"), ("stdout", "wb"), ("stderr", "wb"))):
        raw = open(n, mode, closefd=False)  # noqa: SIM115 - as long as the process
        errors = "backslashreplace" if name == "stderr" else "surrogateescape"
        stream = io.TextIOWrapper(
            raw, encoding="utf-8", errors=errors, line_buffering=n == 2 or raw.isatty()
        )
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    sys.argv[1:] = order["arguments"]


def main() -> None:
    _load()
    gc.freeze()
    orders, door = (socket.socket(fileno=int(number)) for number in sys.argv[1:3])
    _become(_obey(orders, door))
    runpy.run_module("loom_audit", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
