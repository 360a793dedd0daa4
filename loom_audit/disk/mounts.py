"""What is mounted inside a directory, other folders of the same filesystem (bind) among it."""

import os
import re
from pathlib import Path

_TABLE = Path("/proc/self/mountinfo")
_ESCAPED = re.compile(rb"\\([0-7]{3})")
_POINT = 4
"""Which field of a line is the mount point (proc_pid_mountinfo(5))."""


def mounts_below(root: str) -> frozenset[str]:
    """The mount points below an absolute path, relative to it; none where none are listed."""
    try:
        table = _TABLE.read_bytes()
    except FileNotFoundError:
        return frozenset()
    return points_below(table, root)


def points_below(table: bytes, root: str) -> frozenset[str]:
    """As `mounts_below`, in a table of this content."""
    prefix = os.fsencode(root).rstrip(b"/") + b"/"
    points = (
        _ESCAPED.sub(lambda found: bytes([int(found[1], 8)]), line.split(b" ", _POINT + 1)[_POINT])
        for line in table.splitlines()
    )
    return frozenset(os.fsdecode(p[len(prefix) :]) for p in points if p.startswith(prefix))
