"""What Python does not offer of the system: some calls, mount points, files mapped into memory.

Each call is probed first. Sources: openat2(2), renameat2(2), syncfs(2), proc_pid_mountinfo(5),
proc_pid_maps(5). Nothing here knows of workspaces.
"""

import ctypes
import errno
import functools
import os
import platform
import re
import struct
import sys
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from loom_audit.errors import StorageFailed

RESOLVE_NO_XDEV = 0x01
RESOLVE_NO_MAGICLINKS = 0x02
RESOLVE_NO_SYMLINKS = 0x04
RESOLVE_BENEATH = 0x08

RENAME_NOREPLACE = 1
RENAME_EXCHANGE = 2

O_PATH: int = getattr(os, "O_PATH", os.O_RDONLY)
"""Where there is no O_PATH a folder must be readable to be walked through."""

_OPENAT2 = 437
_RENAMEAT2 = {"x86_64": 316, "aarch64": 276, "riscv64": 276, "armv7l": 382, "ppc64le": 357}
_LINUX = sys.platform.startswith("linux")

MOUNTS = Path("/proc/self/mountinfo")
_ESCAPED = re.compile(rb"\\([0-7]{3})")
_POINT = 4
"""Which field of a line is the mount point (proc_pid_mountinfo(5))."""

_MAPS = Path("/proc/self/maps")
_SHARED = re.compile(rb" .w.s \S+ \S+ \d+ +(/.*)")
"""In a line of a mapping that is writable and shared: its path (proc_pid_maps(5))."""

LIBC = ctypes.CDLL(None, use_errno=True)
"""The C library of this process."""

if _LINUX:
    LIBC.syscall.restype = ctypes.c_long
    # A function object of its own: with its types declared a call takes half the time.
    _openat2 = LIBC["syscall"]
    _openat2.restype = ctypes.c_long
    _openat2.argtypes = (
        ctypes.c_long,
        ctypes.c_int,
        ctypes.c_char_p,
        ctypes.c_char_p,
        ctypes.c_size_t,
    )


class closing_fd:
    """A block at whose end a descriptor is closed, as `with closing_fd(os.open(…)) as descriptor`.

    A write enters several, so that this is not a generator.
    """

    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __enter__(self) -> int:
        return self._descriptor

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)


class System(Struct, frozen=True):
    """Which calls may be used; all False is the portable way that works everywhere."""

    openat2: bool = False
    renameat2: bool = False
    syncfs: bool = False


@functools.cache
def probe() -> System:
    """Which calls this kernel lets us make, asked through the process's seccomp filter, once."""
    if not _LINUX:
        return System()
    return System(_has_openat2(), _has_renameat2(), hasattr(LIBC, "syncfs"))


def _has_openat2() -> bool:
    here = os.open("/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.close(openat2(here, b".", os.O_RDONLY | os.O_DIRECTORY, RESOLVE_BENEATH))
    except OSError:
        return False
    finally:
        os.close(here)
    return True


def _has_renameat2() -> bool:
    """Whether a call with descriptors that are none says EBADF, as one that is there does."""
    if not hasattr(LIBC, "renameat2") and platform.machine() not in _RENAMEAT2:
        return False
    try:
        renameat2(-1, b"a", -1, b"b", RENAME_NOREPLACE)
    except OSError as error:
        return error.errno == errno.EBADF
    return True


def _raise_errno(path: bytes) -> None:
    number = ctypes.get_errno()
    raise OSError(number, os.strerror(number), os.fsdecode(path))


def openat2(directory: int, path: bytes, flags: int, resolve: int) -> int:
    """Open a path so that resolving it keeps the `resolve` promise (openat2(2)); OSError.

    EAGAIN means that a rename somewhere made the kernel doubt: try again.
    """
    how = struct.pack("=QQQ", flags | os.O_CLOEXEC, 0, resolve)
    descriptor: int = _openat2(_OPENAT2, directory, path, how, len(how))
    if descriptor < 0:
        _raise_errno(path)
    return descriptor


def renameat2(source_in: int, source: bytes, target_in: int, target: bytes, flags: int) -> None:
    """Rename by directory descriptors with RENAME_NOREPLACE or RENAME_EXCHANGE; OSError."""
    ends = (
        ctypes.c_int(source_in),
        ctypes.c_char_p(source),
        ctypes.c_int(target_in),
        ctypes.c_char_p(target),
        ctypes.c_uint(flags),
    )
    if hasattr(LIBC, "renameat2"):
        done = LIBC.renameat2(*ends)
    else:
        done = LIBC.syscall(ctypes.c_long(_RENAMEAT2[platform.machine()]), *ends)
    if done < 0:
        _raise_errno(source)


def syncfs(descriptor: int) -> None:
    """Flush the filesystem that holds the descriptor; OSError."""
    if LIBC.syncfs(ctypes.c_int(descriptor)) < 0:
        _raise_errno(b"")


def fsync(descriptor: int) -> None:
    """Make a file or a folder durable, through the drive's cache where the system can."""
    if sys.platform == "darwin":  # where fsync(2) leaves the content in the cache of the drive
        import fcntl

        with suppress(OSError):
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
            return
    os.fsync(descriptor)


def write_all(descriptor: int, content: bytes) -> None:
    """Write all of a content at the place of the descriptor; OSError."""
    written = os.write(descriptor, content)
    while written < len(content):
        written += os.write(descriptor, memoryview(content)[written:])


def put_file(file: Path, content: bytes, *, mode: int = 0o600, durable: bool = False) -> None:
    """Put a small file in place whole; a private folder is made where there is none. OSError.

    The content is written beside the place, under a name that ends in this process's number, and
    renamed: a reader sees the old file or the new one (rename(2)).
    """
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    written = file.with_suffix(f".{os.getpid()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    with closing_fd(os.open(written, flags, mode)) as descriptor:
        write_all(descriptor, content)
        if durable:
            fsync(descriptor)
    written.replace(file)
    if durable:
        sync_folder(file.parent)
        sync_folder(file.parent.parent)  # in which the folder may be new


def sync_folder(folder: str | Path) -> None:
    """Make the names in a folder durable; OSError."""
    with closing_fd(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as descriptor:
        fsync(descriptor)


# --- tables of this process ---------------------------------------------------------------


def mounts_below(root: str) -> frozenset[str]:
    """The mount points below an absolute path, relative to it; none where none are listed.

    StorageFailed when the list cannot be read.
    """
    return mounts_in_table(_listed(MOUNTS), root)


def _listed(table: Path) -> bytes:
    """The content of a table of /proc; empty where the kernel does not have this table."""
    try:
        return table.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise StorageFailed(
            f"{table} cannot be read: {error.strerror}",
            hint="Try again when the system has memory and file descriptors to spare.",
        ) from error


def mounts_in_table(table: bytes, root: str) -> frozenset[str]:
    """The mount points below a root, as a table of this content lists them."""
    prefix = os.fsencode(root).rstrip(b"/") + b"/"
    points = (
        _ESCAPED.sub(lambda found: bytes([int(found[1], 8)]), line.split(b" ", _POINT + 1)[_POINT])
        for line in table.splitlines()
    )
    return frozenset(os.fsdecode(p[len(prefix) :]) for p in points if p.startswith(prefix))


def mapped_below(root: str) -> dict[int, str]:
    """The files below an absolute path that we may write as memory; none off Linux.

    A path of each, relative to the root, by its inode. StorageFailed when they cannot be listed.
    """
    table = _listed(_MAPS)
    prefix = os.fsencode(root).rstrip(b"/") + b"/"
    files = {}
    for found in _SHARED.finditer(table):
        path = found[1].replace(rb"\012", b"\n")
        if path.startswith(prefix):
            with suppress(OSError):  # deleted: there is no stamp of it
                files[os.lstat(path).st_ino] = os.fsdecode(path[len(prefix) :])
    return files
