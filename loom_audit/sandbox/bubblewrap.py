"""Commands in namespaces of their own, made by bubblewrap.

A new file tree holds the workspace and what `system_paths` names, read-only; processes, network,
IPC and host name are the command's own. No capability, no new privileges, a filter of system calls.
The supervisor runs inside, so that what outlives the command is named there as elsewhere; when
bubblewrap dies, everything in its process namespace dies with it.
"""

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from msgspec.structs import replace

from loom_audit.errors import ExecutionFailed, InvalidArguments
from loom_audit.ports import Background, Command, CommandResult, Moments
from loom_audit.sandbox import system_paths
from loom_audit.sandbox.plain import LaunchOptions, limit_steps, supervise
from loom_audit.sandbox.seccomp import filter_program

PROGRAMS = "/usr/bin:/bin:/usr/local/bin:/run/wrappers/bin:/run/current-system/sw/bin"
"""Where bwrap is looked for. PATH may lead into a workspace, where an agent could put its own."""

HOME = "/tmp/home"
TMPFS_BYTES = 1 << 30
"""Bytes of each temporary file system a command gets; they are in memory."""

KERNEL_FOLDERS = ("acpi", "bus", "fs", "irq", "mtrr", "pressure", "scsi", "sys", "sysrq-trigger")
"""What user 0 could write in /proc also without capabilities; bubblewrap covers less."""


Mount = tuple[str, list[str]]
"""A mount point, with the options of bwrap(1) that mount it."""


class BubblewrapRunner:
    """Runs every command confined. `hidden` folders are not shown, also not within others."""

    name = "bubblewrap"

    def __init__(self, hidden: Sequence[str] = ()) -> None:
        self._hidden = [os.path.realpath(path) for path in hidden]

    def run(self, root: str, command: Command, moments: Moments = Moments()) -> CommandResult:
        """Run a command as `loom_audit.ports.Runner.run` says.

        ExecutionFailed when bubblewrap is not installed, or does not start the command.
        """
        root = os.path.realpath(root)
        with self._launch_options(
            _ordered_mounts(root, command, self._hidden), root, command
        ) as launch:
            done = supervise(root, _confined(command), launch=launch, moments=moments)
        return replace(done, sandbox=self.name)

    def start(self, root: str, command: Command, inodes: Mapping[str, int]) -> Background:
        """Start a command as `loom_audit.ports.BackgroundRunner.start` says.

        ExecutionFailed as `run`, and when something else was mounted than the folders of `inodes`.
        """
        from loom_audit.sandbox.background import BubblewrapBackground
        from loom_audit.sandbox.joined import Sandbox

        root = os.path.realpath(root)
        mounts = _ordered_mounts(root, command, self._hidden)
        order = _order_to_check(root, mounts, inodes)

        def open_sandbox() -> Sandbox:
            with self._launch_options(mounts, root, command) as launch:
                return Sandbox.open(launch, order)

        background = BubblewrapBackground(root, command, _steps(command), _confined)
        background.begin(open_sandbox)
        return background

    @contextmanager
    def _launch_options(
        self, mounts: Sequence[Mount], root: str, command: Command
    ) -> Iterator[LaunchOptions]:
        program = shutil.which("bwrap", path=PROGRAMS)
        if program is None:
            raise ExecutionFailed(
                "bubblewrap is not installed", hint="Install it: `apt-get install bubblewrap`."
            )
        with _memory_file(filter_program()) as filter, ExitStack() as later:
            files = {
                later.enter_context(_memory_file(content)): name
                for name, content in command.home.items()
            }
            # by a descriptor, because the command can read the arguments of what runs it
            text = "\0".join(_options(mounts, root, command, filter, files))
            options = later.enter_context(_memory_file(os.fsencode(text) + b"\0"))
            yield LaunchOptions(
                wrap=(program, "--args", str(options), "--"),
                descriptors=(filter, options, *files),
                environment=system_paths.bare_environment(),
                steps=_steps(command),
                private=True,
            )


def _confined(command: Command) -> Command:
    """The command with the whole environment that it gets in a sandbox."""
    return replace(command, environment=system_paths.environment(command, HOME), variables={})


def _steps(command: Command) -> str:
    return "\n".join(limit_steps(command.limits, processes=os.geteuid() != 0, core=False))


def _options(
    mounts: Sequence[Mount], root: str, command: Command, filter: int, files: Mapping[int, str]
) -> list[str]:
    options = ["--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    options += ["--share-net"] * command.network
    options += ["--hostname", "confined", "--seccomp", str(filter)]
    options += ["--size", str(TMPFS_BYTES), "--tmpfs", "/"]
    options += [word for _, words in mounts for word in words]
    for descriptor, name in files.items():
        options += ["--file", str(descriptor), f"{HOME}/{name}"]
    options += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", root]
    return options


def _order_to_check(root: str, mounts: Sequence[Mount], inodes: Mapping[str, int]) -> bytes:
    """The first order for `inside`: what may be written, and which folders that must be.

    InvalidArguments for a folder without an inode, which would not be compared.
    """
    if not all(inodes.values()):
        raise InvalidArguments("A folder to be written has no inode")
    writable = [path for path, words in mounts if "--bind" in words or "--tmpfs" in words]
    listed = [f"{inodes.get(path, 0)} {path}" for path in writable]
    return os.fsencode("\0".join((root, *listed)))


def _mounts(root: str, command: Command, hidden: Sequence[str]) -> Iterator[Mount]:
    """Each mount point of the new file tree, with the options of bwrap(1) that mount it."""
    yield "/dev", ["--dev", "/dev"]
    yield "/dev/shm", ["--size", str(TMPFS_BYTES), "--tmpfs", "/dev/shm"]
    yield "/proc", ["--proc", "/proc"]
    for name in KERNEL_FOLDERS:
        if os.path.exists(f"/proc/{name}"):
            yield f"/proc/{name}", ["--ro-bind", f"/proc/{name}", f"/proc/{name}"]
    yield "/tmp", ["--size", str(TMPFS_BYTES), "--tmpfs", "/tmp", "--dir", HOME]
    shown = system_paths.readable(command, root, hidden)
    for path in shown:
        if path in system_paths.SYSTEM and os.path.islink(path):
            yield path, ["--symlink", os.readlink(path), path]
        else:
            yield path, ["--ro-bind", os.path.realpath(path), path]
    for path in hidden:
        if os.path.isdir(path) and system_paths.is_within(path, (*shown, root)):
            yield path, ["--size", str(TMPFS_BYTES), "--tmpfs", path]
    yield root, ["--ro-bind" if command.read_only else "--bind", root, root]
    for path in command.writable:
        yield path, ["--bind", os.path.realpath(path), path]


def _ordered_mounts(root: str, command: Command, hidden: Sequence[str]) -> list[Mount]:
    """Outer mount points first, so that inner ones lie on top; of two mounts the later."""
    mounts = dict(_mounts(root, command, hidden))
    return sorted(mounts.items(), key=lambda mount: mount[0].rstrip("/").count("/"))


@contextmanager
def _memory_file(content: bytes) -> Iterator[int]:
    """A descriptor that the bytes can be read from, however many: a pipe would hold 64 KiB."""
    file = os.memfd_create("loom-audit", os.MFD_CLOEXEC)
    try:
        with open(file, "wb", closefd=False) as stream:
            stream.write(content)
        os.lseek(file, 0, os.SEEK_SET)
        yield file
    finally:
        os.close(file)
