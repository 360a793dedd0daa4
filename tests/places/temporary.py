"""Where tests keep their temporary files: in memory, where a flush to disk costs nothing.

Tests of the disk itself stay on it: their conftest.py takes `tmp_path_factory` from
tests/places/on_disk.py. Where memory has no room, all tests do, and `--basetemp` or
PYTEST_DEBUG_TEMPROOT names another place for all.
"""

import os
import re
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")
ROOM = 4 << 30
"""Bytes that must be free: each store holds a ballast file of 16 MiB."""

TEMPORARY_ROOT = "PYTEST_DEBUG_TEMPROOT"
"""Below it pytest makes the folders of a run, and removes those of earlier ones."""


def room_in_memory(folder: Path, mounts: str, meminfo: str) -> int:
    """Bytes that a folder can take in memory, none where it is not on a tmpfs that runs scripts.

    mounts: of the form of /proc/mounts; meminfo: of /proc/meminfo.
    """
    if not re.search(rf"^\S+ {re.escape(str(folder))} tmpfs ", mounts, re.M):
        return 0
    found = os.statvfs(folder)
    available = re.search(r"^MemAvailable:\s+(\d+) kB$", meminfo, re.M)
    if available is None or found.f_flag & os.ST_NOEXEC or not os.access(folder, os.W_OK):
        return 0
    return min(found.f_bavail * found.f_frsize, int(available[1]) << 10)


def in_memory() -> bool:
    return os.environ.get(TEMPORARY_ROOT) == str(MEMORY)


def has_room() -> bool:
    try:
        mounts, meminfo = (Path("/proc", name).read_text() for name in ("mounts", "meminfo"))
    except OSError:
        return False
    return room_in_memory(MEMORY, mounts, meminfo) >= ROOM


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Before pytest asks where; workers of xdist are told by `--basetemp`."""
    chosen = config.option.basetemp is not None or TEMPORARY_ROOT in os.environ
    if not chosen and has_room():
        os.environ[TEMPORARY_ROOT] = str(MEMORY)
