"""The file in which hooks note what they could not hand over, in space that is reserved for it.

`hook_client.py` appends to the file also on a full disk, since the warm process has reserved
space behind its end. Who takes the lines displaces the file first: what is written meanwhile goes
into another, and what was taken and not put on record stays for the next one.
"""

import ctypes
import fcntl
import os
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from loom_audit.disk.access import system
from loom_audit.disk.access.system import LIBC, closing_fd

NAME = "spool"
RESERVED = 256 * 1024
"""Bytes, which are some thousand lines."""

LONGEST_LINE = 4096
MOST_BYTES = 16 * 1024 * 1024
"""The number of bytes of one file that are read: hooks have not written more."""

_KEEP_SIZE = 1
_HERE = -100
"""AT_FDCWD."""


class Spool:
    """The spool of a folder, which several processes may use at once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = folder / NAME

    @property
    def is_empty(self) -> bool:
        """Whether no line waits; asked often, and answered without reading."""
        with suppress(OSError):
            return not self._file.lstat().st_size and not self._displaced()
        return not self._displaced()

    def waiting(self) -> Sequence[bytes]:
        """The lines that wait, oldest first; nothing is changed."""
        files = [*self._displaced(), self._file]
        return [line for file in files for line in _lines(file)]

    def reserve(self) -> None:
        """Make a file with space for lines, where there is none."""
        with suppress(OSError):  # lines go into a file without it
            if not self._file.lstat().st_blocks:
                _allocate(self._file)
            return
        self._make()

    @contextmanager
    def taken(self) -> Iterator[tuple[Sequence[bytes], list[bytes]]]:
        """The lines that wait, which are gone after the block unless it raises.

        The second list is for lines that are to wait on. While another process takes lines there
        are none. OSError.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        with closing_fd(os.open(self._folder / f"{NAME}.lock", flags, 0o600)) as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield (), []
                return
            with suppress(OSError):
                if self._file.lstat().st_size:
                    self._displace()
            files = self._displaced()
            again = list[bytes]()
            yield [line for file in files for line in _lines(file)], again
            if again:
                self._put(again)
            for file in files:
                with suppress(OSError):
                    file.unlink()

    def _displaced(self) -> list[Path]:
        """The files that were displaced and not removed, oldest first; a folder is not ours."""
        with suppress(OSError):
            found = sorted(self._folder.glob(f"{NAME}-*"))
            return [one for one in found if not stat.S_ISDIR(one.lstat().st_mode)]
        return []

    def _displace(self) -> None:
        """Let an empty file and this one trade places, so that there is one with space at any time.

        Where the filesystem cannot do that, this one is renamed first.
        """
        displaced = self._displaced_name()
        try:
            self._make_at(displaced)
            system.renameat2(
                source_in=_HERE,
                source=os.fsencode(displaced),
                target_in=_HERE,
                target=os.fsencode(self._file),
                flags=system.RENAME_EXCHANGE,
            )
        except (OSError, KeyError):  # no room, a filesystem or a processor that has none
            self._file.rename(displaced)
            self._make()

    def _displaced_name(self) -> Path:
        return self._folder / f"{NAME}-{time.time_ns()}-{os.getpid()}"

    def _put(self, lines: Sequence[bytes]) -> None:
        """Put lines into a displaced file, durably."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with os.fdopen(os.open(self._displaced_name(), flags, 0o600), "wb") as file:
            file.write(b"".join(line + b"\n" for line in lines))
            file.flush()
            os.fsync(file.fileno())

    def _make(self) -> None:
        """Make the file with its space, unless a hook makes it just now."""
        made = self._folder / f"{NAME}.{os.getpid()}"
        with suppress(OSError):  # then the next hook makes it, without space
            self._make_at(made)
            try:
                _rename_to_absent(made, self._file)
            finally:
                made.unlink(missing_ok=True)

    def _make_at(self, file: Path) -> None:
        """Make an empty file with space for lines."""
        os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        _allocate(file)


def _rename_to_absent(file: Path, target: Path) -> None:
    """Rename a file to a name that nothing has; OSError where something has it.

    It has one name at any time, where its filesystem can: hooks write no file that has two.
    """
    try:
        system.renameat2(
            _HERE, os.fsencode(file), _HERE, os.fsencode(target), system.RENAME_NOREPLACE
        )
    except FileExistsError:
        raise
    except (OSError, KeyError):  # a filesystem or a processor that has none
        os.link(file, target)


def _allocate(file: Path) -> None:
    """Reserve space for a file behind its end, where its filesystem can."""
    flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with closing_fd(os.open(file, flags)) as descriptor:
        if stat.S_ISREG(os.fstat(descriptor).st_mode) and hasattr(LIBC, "fallocate"):
            length = ctypes.c_longlong(RESERVED)
            LIBC.fallocate(descriptor, _KEEP_SIZE, ctypes.c_longlong(0), length)


def _lines(file: Path) -> Sequence[bytes]:
    """The whole lines of a file of our own; none of what is something else."""
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(file, flags)
    except OSError:
        return ()
    try:
        seen = os.fstat(descriptor)
        if not stat.S_ISREG(seen.st_mode) or seen.st_uid != os.geteuid():
            return ()
        data = b""
        while len(data) < MOST_BYTES and (part := os.read(descriptor, 1 << 20)):
            data += part
    except OSError:
        return ()
    finally:
        os.close(descriptor)
    return [line for line in data.split(b"\n")[:-1] if 0 < len(line) < LONGEST_LINE]
