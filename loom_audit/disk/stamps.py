"""Stamps from lstat, and the rule that makes them safe to compare.

A file that changes twice within one tick of the filesystem's clock can keep its ctime, so a
stamp taken soon after a change proves nothing. Git calls such entries racy and hashes them
again. Here the stamp itself says so: its ctime is the negated time at which it was taken, so
it equals no other stamp, and whoever compares stamps hashes again without knowing the rule.
"""

import os
import stat
import time

from loom_audit.ports import Stamp

TICK = 20_000_000
"""Nanoseconds; a kernel's tick is at most 10 ms."""

COARSE = 2_100_000_000
"""Nanoseconds; FAT counts in 2 seconds, HFS+ and old NFS in 1. Their times are whole seconds."""

_SECOND = 1_000_000_000


def is_fresh(ctime_ns: int, now: int) -> bool:
    """Whether a change after `now` could leave this ctime as it is."""
    return ctime_ns >= now - COARSE and (ctime_ns >= now - TICK or ctime_ns % _SECOND == 0)


def stamp_of(seen: os.stat_result, now: int | None = None) -> Stamp:
    """The stamp of an lstat; `now` is the time in ns, taken before the content is read."""
    mode = seen.st_mode
    if stat.S_ISDIR(mode):
        return Stamp(mode, 0, 0, 0, 0)
    if now is None:
        now = time.time_ns()
    ctime = seen.st_ctime_ns
    if is_fresh(ctime, now):
        ctime = -now
    return Stamp(mode, seen.st_size, seen.st_mtime_ns, ctime, seen.st_ino)
