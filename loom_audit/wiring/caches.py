"""The one list of places that hold what is derived, by which caches are measured, emptied and told.

Each is made again by itself. A test holds the list against what lies in a store, and the page of
the stored format against the list.
"""

import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from loom_audit.sql.line_maps import MOST_BYTES
from loom_audit.sql.store.places import FULL_TEXT, OF_LOG

FOLDER = "index"
"""Beside the database; the names of the files in it begin with the id of their workspace."""


class Cache(Struct, frozen=True):
    """A cache of a workspace on this machine: what it holds, and what it costs to lose it.

    `ends` is how the name of its file ends. It is no larger than `most_bytes`, where it has a limit
    of its own: the others grow with what is recorded.
    """

    name: str
    ends: str
    holds: str
    costs: str
    most_bytes: int | None = None


LINE_MAPS = Cache(
    "line maps",
    ".lines.db",
    "which version wrote which lines of long files, as ranges without any text, how many lines of "
    "each file of a review are changed, and how many calls ended in each stretch of the log",
    "following the lines from the first version, and counting the calls",
    MOST_BYTES,
)
CACHES = (
    Cache(
        "change index",
        ".db",
        "what was last seen of each path on disk",
        "reading every file once",
    ),
    Cache(
        "code index",
        ".code.db",
        "definitions and words of the files on record, for searches",
        "reading every recorded file once",
    ),
    LINE_MAPS,
)
TABLES = (*OF_LOG, FULL_TEXT)
"""Derived tables in the database itself, which `db rebuild` makes anew from the log."""

MIRROR = ".git"
"""How the name of the folder ends that holds copies of the objects of a workspace's repository:
not a cache, the repository may have them no longer."""

_OF_SQLITE = ("", "-wal", "-shm", "-journal")


def files_of(home: Path, id: str, cache: Cache) -> list[Path]:
    """The files of a cache of one workspace that are there."""
    named = (home / FOLDER / f"{id}{cache.ends}{end}" for end in _OF_SQLITE)
    return [file for file in named if file.is_file()]


def sizes_of(home: Path, id: str) -> Iterator[tuple[Cache, int]]:
    """Each cache of a workspace with the bytes that it takes on disk."""
    for cache in CACHES:
        size = 0
        for file in files_of(home, id, cache):
            with suppress(FileNotFoundError):
                size += file.stat().st_blocks * 512
        yield cache, size


def empty_caches(home: Path, id: str) -> None:
    """Delete the caches of a workspace; whoever needs one makes it anew."""
    for cache in CACHES:
        for file in files_of(home, id, cache):
            file.unlink(missing_ok=True)


def discard_all(home: Path, id: str) -> None:
    """Delete all that lies beside the store of a workspace that is forgotten, except the file that
    lists what is still to be erased.
    """
    for path in (home / FOLDER).glob(f"{id}.*"):
        if path.suffix == ".forgetting":
            continue
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
