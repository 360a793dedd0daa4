"""Line maps as one SQLite file beside the change index, never in the store."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from loom_audit.errors import StorageFailed
from loom_audit.sql.cache_file import CacheFile
from loom_audit.sql.ground.conditions import chunks

MOST_BYTES = 32 * 1024 * 1024
"""What the maps of a workspace take together; the oldest go first."""

_TABLES = """
CREATE TABLE map (id INTEGER PRIMARY KEY, name BLOB NOT NULL UNIQUE, content BLOB NOT NULL);
CREATE INDEX map_size ON map (id, length(content))
"""
_ONE = "SELECT content FROM map WHERE name = ? AND length(content) <= ?"
_SEVERAL = "SELECT name, content FROM map WHERE name IN ({names}) AND length(content) <= ?"
_OLDEST = """
DELETE FROM map WHERE id <= (SELECT max(id) FROM (
    SELECT id, sum(length(content)) OVER (ORDER BY id DESC) AS size FROM map) WHERE size > ?)
"""


class SqlLineMaps:
    """A `ports.LineMaps` in one file. Where the file cannot be used there are no maps."""

    def __init__(self, path: Path, most_bytes: int = MOST_BYTES) -> None:
        self._path = path
        self._file = CacheFile(path, _TABLES, 1)
        self._most_bytes = most_bytes

    def newest(self, names: Sequence[bytes]) -> tuple[int, bytes] | None:
        """The first of these names of which there is a map, by its place, and the map."""

        def step(db: Any) -> tuple[int, bytes] | None:
            for n, name in enumerate(names):
                row = db.execute(_ONE, (name, self._most_bytes)).fetchone()
                if row is not None and isinstance(row[0], bytes):
                    return n, row[0]
            return None

        with suppress(StorageFailed):
            return self._file.do(step) if self._path.exists() else None
        return None

    def several(self, names: Sequence[bytes]) -> Mapping[bytes, bytes]:
        """What is kept by these names, by name."""

        def step(db: Any) -> dict[bytes, bytes]:
            found: dict[bytes, bytes] = {}
            for some in chunks(names):
                query = _SEVERAL.format(names=", ".join("?" * len(some)))
                for name, content in db.execute(query, (*some, self._most_bytes)):
                    if isinstance(name, bytes) and isinstance(content, bytes):
                        found[name] = content
            return found

        with suppress(StorageFailed):
            return self._file.do(step) if self._path.exists() else {}
        return {}

    def keep(self, maps: Mapping[bytes, bytes]) -> None:
        """Keep maps as the newest, and forget the oldest of those that are too many."""

        def step(db: Any) -> None:
            for name, content in maps.items():
                db.execute("DELETE FROM map WHERE name = ?", (name,))
                db.execute("INSERT INTO map (name, content) VALUES (?, ?)", (name, content))
            db.execute(_OLDEST, (self._most_bytes,))

        with suppress(StorageFailed):
            self._file.do(step)

    def discard(self, name: bytes) -> None:
        """Forget a map."""
        with suppress(StorageFailed):
            self._file.do(lambda db: db.execute("DELETE FROM map WHERE name = ?", (name,)))
