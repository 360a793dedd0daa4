"""inotify(7): what the kernel tells of folders, by a descriptor that is read without waiting."""

import ctypes
import os
import struct
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from loom_audit.disk.access.system import LIBC

MODIFY = 0x2
ATTRIB = 0x4
CLOSE_WRITE = 0x8
MOVED_FROM = 0x40
MOVED_TO = 0x80
CREATE = 0x100
DELETE = 0x200
DELETE_SELF = 0x400
UNMOUNT = 0x2000
OVERFLOW = 0x4000
IGNORED = 0x8000
ISDIR = 0x40000000
_ONLYDIR = 0x01000000

WANTED = MODIFY | ATTRIB | CLOSE_WRITE | MOVED_FROM | MOVED_TO | CREATE | DELETE | DELETE_SELF
"""No event of opening and reading: a search through all files would fill the queue with them.
A file written as memory is told by CLOSE_WRITE, once nobody has it open or mapped."""

_MOST_WATCHES = Path("/proc/sys/fs/inotify/max_user_watches")
_EVENT = struct.Struct("iIII")
_READ_BYTES = 1 << 18

AVAILABLE = sys.platform.startswith("linux") and hasattr(LIBC, "inotify_init1")
if AVAILABLE:
    LIBC.inotify_add_watch.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_uint32)
    LIBC.inotify_rm_watch.argtypes = (ctypes.c_int, ctypes.c_int)
if _HAS_FSTATFS := sys.platform.startswith("linux") and hasattr(LIBC, "fstatfs"):
    LIBC.fstatfs.argtypes = (ctypes.c_int, ctypes.c_void_p)


def open_queue() -> int:
    """A new queue (inotify_init1(2)) on whose descriptor nothing is watched yet; OSError."""
    return _checked(LIBC.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))


def add(queue: int, folder: int) -> int:
    """Watch an open folder; the number that its events have, the same as before; OSError.

    The call takes a path only: the one of /proc leads to the folder that is open, whatever its
    name.
    """
    return _checked(LIBC.inotify_add_watch(queue, b"/proc/self/fd/%d" % folder, WANTED | _ONLYDIR))


def remove(queue: int, watch: int) -> None:
    """Stop a watch; nothing when it was stopped already, as with its folder."""
    LIBC.inotify_rm_watch(queue, watch)


def events(queue: int) -> Iterator[tuple[int, int, str]]:
    """All queued events, oldest first: the watch, what happened, the name in the folder."""
    while True:
        try:
            data = os.read(queue, _READ_BYTES)
        except BlockingIOError:
            return
        at = 0
        while at < len(data):
            watch, mask, _, length = _EVENT.unpack_from(data, at)
            at += _EVENT.size + length
            yield watch, mask, os.fsdecode(data[at - length : at].rstrip(b"\0"))


def most_watches() -> int | None:
    """How many folders a user may watch; None where that is not told."""
    with suppress(OSError, ValueError):
        return int(_MOST_WATCHES.read_text("ascii"))
    return None


def free_watches() -> int | None:
    """How many more folders this user may watch; None where that is not told.

    Those of the processes that may not be looked at are not counted.
    """
    most = most_watches()
    if most is None:
        return None
    own, used = os.geteuid(), 0
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or is another user's
            if process.stat().st_uid != own:
                continue
            for entry in os.scandir(process / "fd"):
                with suppress(OSError):
                    if os.readlink(entry.path) == "anon_inode:inotify":
                        told = (process / "fdinfo" / entry.name).read_bytes()
                        used += told.count(b"inotify wd:")
    return max(0, most - used)


def filesystem_type(descriptor: int) -> int:
    """The f_type of statfs(2) of something open; 0 where it is not told."""
    told = ctypes.create_string_buffer(256)
    if not _HAS_FSTATFS or LIBC.fstatfs(descriptor, told):
        return 0
    return ctypes.c_ulong.from_buffer(told).value & 0xFFFFFFFF


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
