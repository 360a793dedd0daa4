"""Waiting for programs that still have a file open for writing which is about to be deleted.

The kernel grants a read lease (fcntl(2), F_SETLEASE) only on a file that nobody has open for
writing, nor mapped so that it could be written. The lease is given back at once.
"""

import fcntl
import signal
import time

from msgspec import Struct

MOST = 0.2
"""Seconds that are waited at most: a program that opens, writes and closes may wait for a
processor in between."""

_PAUSE = 0.0005
_HAS_LEASES = hasattr(fcntl, "F_SETLEASE") and hasattr(fcntl, "F_SETSIG")


def is_open_for_writing(descriptor: int) -> bool:
    """Whether a program could still write into a file; False where that cannot be told."""
    if not _HAS_LEASES:
        return False
    try:
        # Who opens the file meanwhile breaks the lease: by default that would kill this process.
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except BlockingIOError:
        return True
    except OSError:
        return False  # not our file, or a filesystem without leases
    return False


class Patience(Struct):
    """The seconds for which is waited for whoever writes into a file.

    Half as long after each time in vain, and longer again by and by: some programs keep a file open
    for ever, and some filesystems grant no lease at all.
    """

    seconds: float = MOST

    def wait(self, descriptor: int) -> None:
        """Wait until nobody has the file open for writing, or the time is over."""
        end = time.monotonic() + self.seconds
        while is_open_for_writing(descriptor):
            if time.monotonic() >= end:
                self.seconds /= 2
                return
            time.sleep(_PAUSE)
        self.seconds = min(MOST, self.seconds + MOST / 16)
