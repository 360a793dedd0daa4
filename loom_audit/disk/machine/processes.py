"""Which processes run, as Linux's /proc shows it; on other systems none can be seen."""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from loom_audit.errors import NotFound
from loom_audit.model.events import Lease

_PROC = Path("/proc")
_BOOT_ID = "sys/kernel/random/boot_id"
_USER_MANAGER = b"systemd\n"
_SHELLS = frozenset(
    ("sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "fish", "busybox", "env", "nice", "timeout")
)
"""What stands between a program and the hooks that it starts."""
_HOOK_SECONDS = 2.0
"""In which a hook has told who it is; one that waits longer is known by then."""
_AT_ONCE = 3
"""Clock ticks in which a program starts all hooks of one event."""
_TICKS: int = os.sysconf("SC_CLK_TCK")
_ENDED = ("Z", "X")
"""States of a process that has ended and was not waited for."""


class _Seen(Struct, frozen=True):
    """A process or thread as /proc/PID/stat shows it; `started` in clock ticks since boot."""

    state: str
    parent: int
    group: int
    session: int
    started: int


_NOTHING: Mapping[int, _Seen | None] = MappingProxyType({})


class LinuxProcesses:
    """A `ports.Processes` by /proc (proc(5)); elsewhere nothing can be seen.

    `supervised` is what stands in the arguments of a runner's helper, `reporting` in those of a
    hook that reports a client's calls.
    """

    def __init__(self, proc: Path = _PROC, *, supervised: str = "", reporting: str = "") -> None:
        self._proc = proc
        self._supervised = os.fsencode(supervised)
        self._reporting = os.fsencode(reporting)

    def lease(self, pid: int | None, seconds: int) -> Lease:
        """A lease with boot, namespace and start of a process; NotFound when it does not run.

        `started` is field 22 of /proc/PID/stat, in clock ticks since boot: pids are used again.
        """
        boot, namespace = self._boot, self._namespace
        if pid is None or not boot or not namespace:
            return Lease(pid, None, boot, namespace, seconds)
        started = self._started(pid)
        if started is None and not self._exists(pid):
            raise NotFound(f"process {pid} does not run", hint="Give the pid of a running client.")
        return Lease(pid, started, boot, namespace, seconds)

    def is_alive(self, lease: Lease) -> bool | None:
        """Whether the process of a lease runs: one of this boot, namespace, pid and start."""
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
        """The pid namespace of this process, when /proc shows the same one; else empty."""
        with suppress(OSError):
            if os.readlink(self._proc / "self") == str(os.getpid()):
                return os.readlink(self._proc / "self/ns/pid")
        return ""

    @property
    def place(self) -> str:
        """The boot and the pid namespace of this process; "" where /proc does not show both."""
        return f"{self._boot} {self._namespace}" if self._boot and self._namespace else ""

    def running(self) -> Collection[int]:
        """The pids that /proc lists; none where there is no /proc."""
        with suppress(OSError):
            return {int(name) for name in os.listdir(self._proc) if name.isdigit()}
        return ()

    def left_running(
        self, before: Collection[int], folder: str, *, by: int | None = None
    ) -> tuple[Sequence[str], Collection[int]]:
        """The descendants and orphans of a program that began since and run, as their pids."""
        listed = {*self.running()}.difference(before)
        # all are read before one is judged, the newest first: what is short-lived ends meanwhile
        seen = {pid: self._read(pid) for pid in sorted(listed, reverse=True)}
        program = os.getpid() if by is None else by
        above = [program, *self._parents(program)]
        asking = {os.getpid(), *self._parents(os.getpid()), program}
        found, ended = list[str](), set[int]()
        for pid, one in sorted(seen.items()):
            if pid in asking:
                continue
            line = [pid, *self._parents(pid, seen)]
            top = line[-1]
            if (seen[top] if top in seen else self._read(top)) is None and not self._exists(top):
                ended.add(top)  # the process or one above it: whose it is cannot be said
            elif one is not None and (mine := self._is_of(line, above, folder, seen)) is not False:
                if mine is None or one.state in _ENDED:
                    ended.add(pid)
                elif not self._reports(pid):
                    found.append(str(pid))
        return found, ended

    def _reports(self, pid: int) -> bool:
        """Whether a process is a hook of ours that began just now, or the shell around one."""
        seen = self._process(pid)
        with suppress(OSError, ValueError, IndexError):
            line = (self._proc / str(pid) / "cmdline").read_bytes()
            if seen is None or not self._reporting or self._reporting not in line:
                return False
            up = float((self._proc / "uptime").read_bytes().split()[0])
            return up - seen.started / _TICKS < _HOOK_SECONDS
        return False

    def _is_of(
        self, line: Sequence[int], above: Sequence[int], folder: str, new: Collection[int]
    ) -> bool | None:
        """Whether a process, with those above it, is of a program; None where it ended too soon.

        It is of the program below it, unless a runner runs it, or below a `new` orphan of it.
        """
        if above[0] in line:
            return not any(map(self._is_supervised, line[: line.index(above[0])]))
        for one, parent in pairwise(line):
            if parent in (1, *above[1:]):
                return one in new and self._is_orphan_of(one, parent, above[0], folder)
        return False

    def _is_orphan_of(self, pid: int, parent: int, program: int, folder: str) -> bool | None:
        """Whether what lost its parent to another may be of a program; None where it has ended."""
        if not self._adopts(parent):
            return False
        one, by = self._read(pid), self._process(program)
        if one is None or by is None:
            return None if by else False
        if one.group == by.group or one.session == by.session:
            return True
        try:
            where = os.readlink(self._proc / str(pid) / "cwd")
        except (FileNotFoundError, ProcessLookupError):
            return None
        except OSError:
            return False
        return where == folder or where.startswith(folder.rstrip("/") + "/")

    def asker(self, pid: int) -> tuple[int | None, Sequence[int]]:
        """The first process above a hook that is not a shell; the hook with the shells between."""
        line = [pid]
        for above in self._parents(pid):
            if above == 1:
                break
            with suppress(OSError):
                name = (self._proc / str(above) / "comm").read_text("utf-8", "replace").strip()
                if name not in _SHELLS:
                    return above, line
            line.append(above)
        return None, line

    def beside(self, tasks: Iterable[str], asking: Collection[int]) -> Collection[str]:
        """The processes that the program of the asking hook started at the same event, or later."""
        lines = [[pid, *self._parents(pid)] for pid in asking]
        tops = {line[0]: line[1] for line in lines if line[1:] and line[1] not in asking}
        began = [started for top in tops if (started := self._started(top)) is not None]
        found = []
        for task in tasks if began else ():
            line = [int(task), *self._parents(int(task))]
            for one, parent in pairwise(line):
                started = self._started(one)
                if parent in tops.values() and started is not None:
                    if started >= max(began) - _AT_ONCE:
                        found.append(task)
                    break
        return found

    def _parents(self, pid: int, seen: Mapping[int, _Seen | None] = _NOTHING) -> Iterator[int]:
        """The processes above one, its parent first, also of one that has ended unwaited for.

        What was `seen` is not read again.
        """
        while (one := seen[pid] if pid in seen else self._read(pid)) and one.parent > 0:
            pid = one.parent
            yield pid

    def _is_supervised(self, pid: int) -> bool:
        with suppress(OSError):
            line = (self._proc / str(pid) / "cmdline").read_bytes()
            return bool(self._supervised) and self._supervised in line
        return False

    def _adopts(self, pid: int) -> bool:
        """Whether what loses its parent may become a child of this one, as far as can be told."""
        if pid == 1 or self._is_supervised(pid):
            return True
        with suppress(OSError):
            return (self._proc / str(pid) / "comm").read_bytes() == _USER_MANAGER
        return False

    def thread(self, number: int) -> str:
        """The task of a thread of our own process, as `PID/TID`."""
        return f"{os.getpid()}/{number}"

    def activity(self, tasks: Iterable[str]) -> Mapping[str, Any]:
        """For each task and its descendants when its threads started and how long they ran.

        The times are those of /proc/PID/task/TID/schedstat; None for a task that cannot be seen.
        """
        found: dict[str, Any] = {}
        waiting = [*tasks]
        while waiting:
            task = waiting.pop()
            if task in found:
                continue
            pid, _, thread = task.partition("/")
            try:
                done = self._threads_activity(self._proc / pid / "task", thread)
            except OSError:
                done = None
            if done == {}:
                continue
            if done is None and not self._exists(int(pid)) and self._process(int(pid)) is None:
                continue
            found[task] = done
            waiting += map(str, self._children(self._proc / pid / "task", thread))
        return found

    def _threads_activity(self, folder: Path, thread: str) -> dict[str, Any]:
        """By thread when it started and how long it ran; whether it runs this very moment.

        OSError where that cannot be read.
        """
        done: dict[str, Any] = {}
        for name in [thread] if thread else os.listdir(folder):
            try:
                seen = _parsed((folder / name / "stat").read_bytes())
                if seen.state not in _ENDED:
                    ran = (folder / name / "schedstat").read_text("ascii").strip()
                    done[name] = [seen.started, ran, seen.state == "R"]
            except (FileNotFoundError, ProcessLookupError):
                if (folder / name / "stat").exists():  # the kernel does not count
                    raise
        return done

    def _children(self, folder: Path, thread: str) -> Iterator[int]:
        with suppress(OSError):
            for name in [thread] if thread else os.listdir(folder):
                with suppress(OSError):
                    yield from map(int, (folder / name / "children").read_bytes().split())

    def title(self, task: str) -> str:
        """The pid and the `comm` of a task, the pid alone where that cannot be read."""
        pid, _, thread = task.partition("/")
        folder = self._proc / pid / "task" / (thread or pid)
        with suppress(OSError):
            return f"{pid} {(folder / 'comm').read_text('utf-8', 'replace').strip()}"
        return pid

    def _started(self, pid: int) -> int | None:
        """When a process started; None when it has ended or is hidden from us."""
        seen = self._process(pid)
        return seen.started if seen is not None else None

    def _process(self, pid: int) -> _Seen | None:
        seen = self._read(pid)
        return None if seen is None or seen.state in _ENDED else seen

    def _read(self, pid: int) -> _Seen | None:
        with suppress(OSError, ValueError, IndexError):
            return _parsed((self._proc / str(pid) / "stat").read_bytes())
        return None

    def _exists(self, pid: int) -> bool:
        """Whether a process runs that /proc does not show: it may hide what other users run."""
        try:
            os.kill(pid, 0)
        except (ProcessLookupError, OverflowError):
            return False
        except PermissionError:
            return True
        return not (self._proc / str(pid) / "stat").exists()


def _parsed(line: bytes) -> _Seen:
    """A line of `stat`. ValueError, IndexError."""
    # the name, in parentheses, may hold anything; the state follows it as field 3
    fields = line[line.rindex(b")") + 1 :].split()
    parent, group, session = map(int, fields[1:4])
    return _Seen(fields[0].decode("ascii"), parent, group, session, int(fields[19]))
