"""Files that this process writes through memory: what a stamp says of them proves nothing.

A write to a shared mapping sets a file's times only when it is the first to a page since that
was last written back, which on a tmpfs it never is (mmap(2)). A recorded function may keep such
memory (numpy.memmap, LMDB) from one call to the next.
"""

import os
import re
from contextlib import suppress
from pathlib import Path

_MAPS = Path("/proc/self/maps")
_SHARED = re.compile(rb" .w.s \S+ \S+ \d+ +(/.*)")
"""In a line of a mapping that is writable and shared: its path (proc_pid_maps(5))."""


def mapped_below(root: str) -> frozenset[int]:
    """The inodes of files below an absolute path that we may write as memory; none off Linux."""
    try:
        table = _MAPS.read_bytes()
    except FileNotFoundError:
        return frozenset()
    prefix = os.fsencode(root).rstrip(b"/") + b"/"
    inodes = set()
    for found in _SHARED.finditer(table):
        path = found[1].replace(rb"\012", b"\n")
        if path.startswith(prefix):
            with suppress(OSError):  # deleted: there is no stamp of it
                inodes.add(os.lstat(path).st_ino)
    return frozenset(inodes)
