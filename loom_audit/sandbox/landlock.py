"""Commands that the kernel lets touch only some files: Landlock, with a filter of system calls.

For machines whose users may not make namespaces. Landlock closes less than bubblewrap: a command
sees the machine's processes, and of a file whose path it knows that it is there, its size and
times; it can change modes, owners, times and attributes of its user's files anywhere. Contents
and names are closed; without network no socket can be made, and with it none of a local service.
"""

import ctypes
import os
import platform
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec.structs import replace

from loom_audit.errors import ExecutionFailed
from loom_audit.ports import Command, CommandResult, Moments
from loom_audit.sandbox import system_paths
from loom_audit.sandbox.plain import LaunchOptions, limit_steps, supervise
from loom_audit.sandbox.scratch import remove_tree
from loom_audit.sandbox.seccomp import INTERNET, filter_program

# linux/landlock.h
CREATE_RULESET, VERSION = 444, 1
EXECUTE, READ_FILE, READ_DIR, MAKE_CHAR, MAKE_BLOCK = 1 << 0, 1 << 2, 1 << 3, 1 << 6, 1 << 11
REFER, TRUNCATE, IOCTL_DEVICE = 1 << 13, 1 << 14, 1 << 15
WRITE_FILE, BASIC = 1 << 1, (1 << 13) - 1
TCP = 0b11
SCOPES = 0b11
"""Abstract sockets and signals."""

OLDEST, NEWEST = 3, 6
"""The version that stops truncating, of Linux 6.2, and the last whose rights are known here."""

READ = EXECUTE | READ_FILE | READ_DIR
ALL = BASIC | REFER | TRUNCATE | IOCTL_DEVICE
WRITE = ALL & ~(MAKE_CHAR | MAKE_BLOCK)
DEVICE = READ_FILE | WRITE_FILE | TRUNCATE | IOCTL_DEVICE


class LandlockRunner:
    """Runs every command confined. `hidden` folders are not shown, also not within others.

    The kernel is asked for what Landlock's version `newest` has, or less where it is older.
    """

    name = "landlock"

    def __init__(self, hidden: Sequence[str] = (), *, newest: int = NEWEST) -> None:
        self._hidden = [os.path.realpath(path) for path in hidden]
        self._newest = newest

    def run(self, root: str, command: Command, moments: Moments = Moments()) -> CommandResult:
        """Run a command as `loom_audit.ports.Runner.run` says.

        ExecutionFailed where the kernel has no Landlock, or one that is too old.
        """
        version = min(_kernel_version(), self._newest)
        root = os.path.realpath(root)
        with _home(command.home) as home:
            steps = [
                *limit_steps(command.limits, core=False),
                *(["drop-capabilities"] if os.geteuid() == 0 else []),
                *self._rules(root, command, home),
                ruleset(version, network=command.network),
                f"seccomp {filter_program(INTERNET if command.network else ()).hex()}",
            ]
            ordered = replace(
                command, environment=system_paths.environment(command, home), variables={}
            )
            launch = LaunchOptions(
                steps="\n".join(steps), environment=system_paths.bare_environment()
            )
            done = supervise(root, ordered, launch=launch, moments=moments)
        return replace(done, sandbox=self.name)

    def _rules(self, root: str, command: Command, home: str) -> Iterator[str]:
        for name in system_paths.DEVICES:
            yield _allow(DEVICE, f"/dev/{name}")
        yield _allow(READ, "/proc")
        for path in system_paths.readable(command, root, self._hidden):
            if not any(system_paths.is_within(hidden, [path]) for hidden in self._hidden):
                yield _allow(READ, path)
        yield _allow(READ if command.read_only else WRITE, root)
        for path in (home, *command.writable):
            yield _allow(WRITE, path)


def _allow(access: int, path: str) -> str:
    return f"allow {access} {os.fsencode(os.path.realpath(path)).hex()}"


def ruleset(version: int, *, network: bool) -> str:
    """The step of `restrict` that refuses what no rule allows, as far as a version knows it.

    Versions and the sizes of struct landlock_ruleset_attr are of linux/landlock.h: devices' ioctl
    came with version 5, TCP ports with 4, scopes with 6.
    """
    files = ALL if version >= 5 else ALL & ~IOCTL_DEVICE
    ports = 0 if network or version < 4 else TCP
    scopes = SCOPES if version >= 6 else 0
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    return f"landlock {files} {ports} {scopes} {size}"


def _kernel_version() -> int:
    """The version of the kernel's Landlock; the list of security modules may not be mounted."""
    if sys.platform != "linux":
        raise ExecutionFailed(f"Landlock is not there on {platform.system()}")
    libc = ctypes.CDLL(None, use_errno=True)
    version = int(libc.syscall(CREATE_RULESET, None, ctypes.c_size_t(0), VERSION))
    if version < OLDEST:
        reason = f"it has version {version}" if version > 0 else os.strerror(ctypes.get_errno())
        raise ExecutionFailed(
            f"Landlock is too old or switched off in this kernel: {reason}",
            hint="Use Linux 6.2 or newer, with `landlock` among its `lsm=`.",
        )
    return version


@contextmanager
def _home(files: Mapping[str, bytes]) -> Iterator[str]:
    """A folder with these files and for temporary ones, deleted whatever the command did to it."""
    folder = tempfile.mkdtemp(prefix="loom-audit-")
    try:
        for name, content in files.items():
            Path(folder, name).write_bytes(content)
        yield os.path.realpath(folder)
    finally:
        remove_tree(folder)
