"""A cache as one SQLite file of its own, beside the store and never in it.

The file is never synced: after a power cut it may be damaged. One in which SQLite notices damage is
made anew, and so is one of another version, or one that is not a database.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from loom_audit.errors import AuditUnavailable, StorageFailed
from loom_audit.sql.ground.driver import connect, driver

T = TypeVar("T")


class CacheFile:
    """The file of a cache with these tables; the statements that make them have a version."""

    def __init__(self, path: Path, tables: str, version: int) -> None:
        self._path = path
        self._tables = tables
        self._version = version
        self._mutex = threading.Lock()

    def do(self, step: Callable[[Any], T]) -> T:
        """Run a step in a transaction; once more with a new file when this one is damaged.

        StorageFailed where the file cannot be used.
        """
        with self._mutex:
            try:
                try:
                    with self._open() as db:
                        return step(db)
                except (AuditUnavailable, driver().DatabaseError) as error:
                    if isinstance(error, driver().OperationalError):
                        raise
                    for name in ("", "-wal", "-shm"):
                        Path(f"{self._path}{name}").unlink(missing_ok=True)
                    with self._open() as db:
                        return step(db)
            except (OSError, driver().OperationalError) as error:
                raise StorageFailed(
                    f"a cache cannot be used: {error}",
                    hint=f"It is only a cache: delete {self._path}.",
                ) from error

    @contextmanager
    def _open(self) -> Iterator[Any]:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path.touch(mode=0o600)
        db = connect(str(self._path), "rw")
        try:
            db.execute("PRAGMA synchronous=OFF")
            db.execute("BEGIN IMMEDIATE")
            version = db.execute("PRAGMA user_version").fetchone()[0]
            if version not in (0, self._version):
                raise driver().DatabaseError("another version made it")
            if version == 0:
                for statement in self._tables.split(";"):
                    db.execute(statement)
                db.execute(f"PRAGMA user_version={self._version}")
            yield db
            db.execute("COMMIT")
        finally:
            db.close()
