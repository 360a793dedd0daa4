"""Which processes run, as Linux's /proc shows it; on other systems none can be seen."""

import os
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from loom_audit.errors import NotFound
from loom_audit.model.events import Lease

_PROC = Path("/proc")
_BOOT_ID = "sys/kernel/random/boot_id"
_ENDED = ("Z", "X")
"""States of a process that has ended and was not waited for."""


class LinuxProcesses:
    """A `ports.Processes`."""

    def __init__(self, proc: Path = _PROC) -> None:
        self._proc = proc

    def lease(self, pid: int | None, seconds: int) -> Lease:
        boot, namespace = self._boot, self._namespace
        if pid is None or not boot or not namespace:
            return Lease(pid, None, boot, namespace, seconds)
        started = self._started(pid)
        if started is None and not self._exists(pid):
            raise NotFound(f"process {pid} does not run", hint="Give the pid of a running client.")
        return Lease(pid, started, boot, namespace, seconds)

    def is_alive(self, lease: Lease) -> bool | None:
        here = (self._boot, self._namespace)
        if lease.pid is None or "" in here or (lease.boot, lease.namespace) != here:
            return None
        started = self._started(lease.pid)
        if started is None:
            return None if self._exists(lease.pid) else False
        return None if lease.started is None else started == lease.started

    @cached_property
    def _boot(self) -> str:
        with suppress(OSError):
            return (self._proc / _BOOT_ID).read_text("ascii").strip()
        return ""

    @cached_property
    def _namespace(self) -> str:
        """The one whose pids are ours, when it is also the one that /proc shows; else empty."""
        with suppress(OSError):
            if os.readlink(self._proc / "self") == str(os.getpid()):
                return os.readlink(self._proc / "self/ns/pid")
        return ""

    def _started(self, pid: int) -> int | None:
        """When a process started; None when it has ended or is hidden from us."""
        with suppress(OSError, ValueError, IndexError):
            line = (self._proc / str(pid) / "stat").read_bytes()
            # the name, in parentheses, may hold anything; the state follows it as field 3
            fields = line[line.rindex(b")") + 1 :].split()
            if fields[0].decode("ascii") not in _ENDED:
                return int(fields[19])
        return None

    def _exists(self, pid: int) -> bool:
        """Whether it runs though /proc does not show it: it may hide what others' users run."""
        try:
            os.kill(pid, 0)
        except (ProcessLookupError, OverflowError):
            return False
        except PermissionError:
            return True
        return not (self._proc / str(pid) / "stat").exists()
