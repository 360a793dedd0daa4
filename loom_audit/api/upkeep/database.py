"""The database file of a store, looked at without opening the store."""

from contextlib import closing
from pathlib import Path

from loom_audit.errors import StorageFailed
from loom_audit.ports import OnProgress
from loom_audit.wiring.database_file import REVISION, connect, driver, write_error
from loom_audit.wiring.salvage import Salvaged
from loom_audit.wiring.salvage import salvage as salvage_file

__all__ = ["REVISION", "Salvaged", "backups", "revision", "salvage"]


def revision(file: Path) -> str:
    """The revision of the tables in a store's file, `none` without one. StorageFailed."""
    try:
        with closing(connect(str(file), "ro")) as raw:
            rows = raw.execute("SELECT version_num FROM alembic_version").fetchall()
    except driver().Error as error:
        problem = write_error(error, str(file))
        raise StorageFailed(problem.message, hint=problem.hint, details=problem.details) from error
    return str(rows[0][0]) if rows else "none"


def backups(file: Path) -> set[Path]:
    """The copies of a store's file that were made before upgrades of its tables."""
    return set(file.parent.glob(f"{file.name}.before-upgrade-*"))


def salvage(file: Path, to: Path, *, report: OnProgress | None = None) -> Salvaged:
    """Write what can be read of a store's file into an absent or empty folder.

    Conflict when that is not empty; StorageFailed when nothing can be read at all, or the
    folder cannot be written. The store is only read.
    """
    return salvage_file(str(file), str(to), progress=report)
