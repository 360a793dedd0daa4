"""Which file a path is: an identity that a rename keeps and that no later file is given.

An inode's number alone is none: the next file is given it at once. The kernel's file handle counts
its generations (name_to_handle_at(2)); where a filesystem has no handles, the time of the inode's
birth tells them apart (statx(2)). An identity is 32 lower-case hex digits: 12 for the boot and the
mount in which it holds, 20 for the file. It is "" where neither can be had, which proves nothing.
"""

import ctypes
import functools
import stat
import struct
import sys
import time
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from loom_audit.disk.access.system import LIBC

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_EPOCH_DIGITS, _FILE_DIGITS = 12, 20

_AT_SYMLINK_NOFOLLOW = 0x100
_AT_EMPTY_PATH = 0x1000
_AT_HANDLE_FID = 0x200
"""A handle that tells files apart and cannot be opened: some filesystems have only these."""

_HANDLE = struct.Struct("=Ii")
_MOST_HANDLE_BYTES = 128
_MOUNT = struct.Struct("=i")
_MOUNT_AT = _HANDLE.size + _MOST_HANDLE_BYTES
_NO_HANDLE = _HANDLE.pack(_MOST_HANDLE_BYTES, 0) + bytes(_MOST_HANDLE_BYTES + _MOUNT.size)
"""What a call is given to fill: the bytes there are room for, the handle, the mount's number."""

_AT = ctypes.c_char * len(_NO_HANDLE)

_STATX = struct.Struct("=I12xI8xH2xQ40xqI52xQ")
"""What is asked of struct statx: its mask, links, mode, inode, birth time and mount id."""

_STATX_BYTES = 256
_STATX_WANTED = 0x3 | 0x4 | 0x100 | 0x800 | 0x1000  # mode, links, inode, birth, mount

TICK = 20_000_000
"""Nanoseconds; a kernel's tick is at most 10 ms."""

_LINUX = sys.platform.startswith("linux")
if _HAS_HANDLES := _LINUX and hasattr(LIBC, "name_to_handle_at"):
    LIBC.name_to_handle_at.argtypes = (
        ctypes.c_int,
        ctypes.c_char_p,
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_int,
    )
if _HAS_STATX := _LINUX and hasattr(LIBC, "statx"):
    LIBC.statx.argtypes = (
        ctypes.c_int,
        ctypes.c_char_p,
        ctypes.c_int,
        ctypes.c_uint,
        ctypes.c_void_p,
    )


def identity_at(folder: int, name: bytes = b"") -> str:
    """The identity of what has this name in an open folder, or of what is open itself.

    A symlink has one of its own. "" when nothing has the name, or it cannot be told from others.
    """
    found = _by_handle(folder, name) or _by_birth(folder, name)
    if found is None:
        return ""
    mount, file = found
    epoch = _epoch(mount)
    return epoch and epoch + sha256(file).hexdigest()[:_FILE_DIGITS]


def _by_handle(folder: int, name: bytes) -> tuple[int, bytes] | None:
    """The mount's number and the kernel's handle."""
    if not _HAS_HANDLES:
        return None
    given = bytearray(_NO_HANDLE)
    handle = _AT.from_buffer(given)
    mount = ctypes.byref(handle, _MOUNT_AT)
    flags = 0 if name else _AT_EMPTY_PATH
    for more in (0, _AT_HANDLE_FID):
        if not LIBC.name_to_handle_at(folder, name, handle, mount, flags | more):
            size, _ = _HANDLE.unpack_from(given)
            return _MOUNT.unpack_from(given, _MOUNT_AT)[0], bytes(given[: _HANDLE.size + size])
    return None


def _by_birth(folder: int, name: bytes) -> tuple[int, bytes] | None:
    """The mount's number, and the inode with the time of its birth."""
    seen = _statx(folder, name)
    if seen is None or not 0 < seen.born <= time.time_ns() - TICK:
        return None  # another may be given this inode and be born at the same tick
    return seen.mount, f"{seen.inode} {seen.born}".encode()


def born_at(folder: int, name: bytes) -> int | None:
    """When a file was made, in ns since 1970; None when it has other names, or it is not known.

    A rename does not change the time (stx_btime of statx(2)).
    """
    seen = _statx(folder, name)
    if seen is None or (seen.links > 1 and not stat.S_ISDIR(seen.mode)):
        return None
    return seen.born or None


class _Statx(NamedTuple):
    links: int
    mode: int
    inode: int
    born: int
    mount: int


def _statx(folder: int, name: bytes) -> _Statx | None:
    if not _HAS_STATX:
        return None
    buffer = ctypes.create_string_buffer(_STATX_BYTES)
    flags = _AT_SYMLINK_NOFOLLOW | (0 if name else _AT_EMPTY_PATH)
    if LIBC.statx(folder, name, flags, _STATX_WANTED, buffer):
        return None
    mask, links, mode, inode, seconds, nanoseconds, mount = _STATX.unpack_from(buffer)
    if mask & _STATX_WANTED != _STATX_WANTED:
        return None
    return _Statx(links, mode, inode, seconds * 1_000_000_000 + nanoseconds, mount)


@functools.cache
def _epoch(mount: int) -> str:
    """What all identities of one mount begin with until the next boot."""
    boot = _boot_id()
    return boot and sha256(f"{boot} {mount}".encode()).hexdigest()[:_EPOCH_DIGITS]


@functools.cache
def _boot_id() -> str:
    with suppress(OSError, UnicodeError):
        return _BOOT_ID.read_text("utf-8").strip()
    return ""
