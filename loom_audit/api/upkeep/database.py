"""The database file of a store, looked at without opening the store."""

import os
from collections.abc import Iterable
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from loom_audit.config import Settings
from loom_audit.errors import StorageFailed
from loom_audit.model.text.display import size_text
from loom_audit.ports import OnProgress
from loom_audit.wiring.database_file import REVISION, connect, driver, write_error

if TYPE_CHECKING:
    from loom_audit.wiring.salvage import Salvaged

__all__ = [
    "REVISION",
    "backups",
    "revision",
    "salvage",
    "size_in_words",
    "size_on_disk",
]


def revision(file: Path) -> str:
    """The revision of the tables in a store's file, `none` without one. StorageFailed."""
    try:
        with closing(connect(str(file), "ro")) as raw:
            rows = raw.execute("SELECT version_num FROM alembic_version").fetchall()
    except driver().Error as error:
        problem = write_error(error, str(file))
        raise StorageFailed(problem.message, hint=problem.hint, details=problem.details) from error
    return str(rows[0][0]) if rows else "none"


def size_in_words(settings: Settings) -> str:
    """How large a store is on disk, and how much of that is not used."""
    whole, ballast = size_on_disk(settings), _size([f"{settings.file}.ballast"])
    spare = f" and {size_text(ballast)} in reserve, for a full disk" if ballast else ""
    return f"{size_text(whole - ballast)} on disk{spare}"


def size_on_disk(settings: Settings) -> int:
    """The bytes that a store takes on disk: its database, its large contents and its caches."""
    names = [f"{settings.file}{end}" for end in ("", "-wal", "-shm", ".ballast")]
    for folder in (settings.home / "blobs", settings.home / "index"):
        names += map(str, folder.rglob("*"))
    return _size(names)


def _size(names: Iterable[str]) -> int:
    found = 0
    for name in names:
        with suppress(OSError):  # there is none, or it went away meanwhile
            found += os.lstat(name).st_blocks * 512
    return found


def backups(file: Path) -> set[Path]:
    """The copies of a store's file that were made before upgrades of its tables."""
    return set(file.parent.glob(f"{file.name}.before-upgrade-*"))


def salvage(file: Path, to: Path, *, report: OnProgress | None = None) -> "Salvaged":
    """Write what can be read of a store's file into an absent or empty folder.

    Conflict when that is not empty; StorageFailed when nothing can be read at all, or the
    folder cannot be written. The store is only read.
    """
    from loom_audit.wiring.salvage import salvage as salvage_file

    return salvage_file(str(file), str(to), progress=report)
