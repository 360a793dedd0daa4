"""A file that holds space on the disk, given up so that a running call's outcome still fits."""

import os
from contextlib import suppress

BALLAST_BYTES = 16 * 1024 * 1024
_SPARE = 4
"""The ballast is laid only where this many times its size is free."""


class Ballast:
    """The file beside a store; `hold` and `give_up` are quick and never raise OSError."""

    def __init__(self, path: str, size: int = BALLAST_BYTES) -> None:
        self.path = path
        self.size = size

    def hold(self) -> bool:
        """Lay the ballast where there is none and space enough; whether it lies there now."""
        try:
            if os.path.getsize(self.path) >= self.size:
                return True
        except OSError:
            pass
        try:
            room = os.statvfs(os.path.dirname(self.path))
            if room.f_bavail * room.f_frsize < _SPARE * self.size:
                return False
            descriptor = os.open(self.path, os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW, 0o600)
            try:
                os.posix_fallocate(descriptor, 0, self.size)
            finally:
                os.close(descriptor)
        except (OSError, AttributeError):
            # a part of it would not be enough; the next opening tries again
            with suppress(OSError):
                os.unlink(self.path)
            return False
        return True

    def give_up(self) -> bool:
        """Delete the ballast, so that its space is free; False when there was none."""
        try:
            os.unlink(self.path)
        except OSError:
            return False
        return True
