"""A client's transcript, read as it grows."""

import os
import select
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from loom_audit.disk.access.system import closing_fd
from loom_audit.disk.looking import inotify

_NO_FOLDER_YET = 0.01
"""Seconds until a folder that is not there is looked for again."""

_AT_ONCE = 1 << 22
"""Bytes read at a time."""


class DiskTranscript:
    """A `ports.TranscriptFile`, by inotify(7) on its folder, else by looking now and then."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._identity: tuple[int, int] | None = None
        self._rest = b""
        self._queue: int | None = None
        self._folder: tuple[int, int] | None = None

    def read(self) -> Sequence[bytes]:
        """The whole lines since the last read, from the beginning where the file is another one."""
        lines: list[bytes] = []
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
        # one that is not there yet, or not for us, tells nothing
        with suppress(OSError), closing_fd(os.open(self._path, flags)) as descriptor:
            self._follow(os.fstat(descriptor))
            while data := os.pread(descriptor, _AT_ONCE, self._offset):
                self._offset += len(data)
                *whole, self._rest = (self._rest + data).split(b"\n")
                lines += whole
        return lines

    def _follow(self, seen: os.stat_result) -> None:
        identity = (seen.st_dev, seen.st_ino)
        if identity != self._identity or seen.st_size < self._offset:
            self._identity, self._offset, self._rest = identity, 0, b""

    def wait(self, seconds: float) -> bool:
        """Wait for an event in the folder, which may not be there yet, for at most `seconds`."""
        if self._is_watched():
            return True  # from now on; something may have been written before
        if self._queue is None:
            time.sleep(max(0, min(seconds, _NO_FOLDER_YET)))
            return True
        readable, _, _ = select.select([self._queue], [], [], max(seconds, 0))
        if readable:
            for _ in inotify.events(self._queue):
                pass
        return bool(readable)

    def _is_watched(self) -> bool:
        """Watch the folder, which may be another by now: whether that began just now."""
        try:
            seen = os.stat(self._path.parent)
            if self._queue is not None and self._folder == (seen.st_dev, seen.st_ino):
                return False
            self.close()
            if inotify.AVAILABLE:
                self._queue = inotify.open_queue()
                flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
                with closing_fd(os.open(self._path.parent, flags)) as folder:
                    inotify.add(self._queue, folder)
                self._folder = (seen.st_dev, seen.st_ino)
                return True
        except OSError:
            self.close()
        return False

    def close(self) -> None:
        """Close the queue of events."""
        if self._queue is not None:
            os.close(self._queue)
        self._queue = self._folder = None
