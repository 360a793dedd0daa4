"""Notes of JSON by name, as one small file each, which processes keep for each other. A cache."""

import json
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from loom_audit.disk.access.paths import audit_errors
from loom_audit.disk.access.system import put_file


class DiskLooks:
    """A `ports.Looks` in one folder, which is made when the first one is kept."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(self, name: str, seen: Any) -> None:
        """Write JSON into the file of a name, in the place of what was there. StorageFailed."""
        with audit_errors(str(self._folder)):
            # escaped, since a path may hold bytes that no encoding takes
            put_file(self._file(name), json.dumps(seen).encode("ascii"), mode=0o666)

    def get(self, name: str) -> Any:
        """The JSON in the file of a name; None where none can be read. StorageFailed."""
        with audit_errors(str(self._folder)), suppress(FileNotFoundError, ValueError):
            return json.loads(self._file(name).read_text("ascii"))
        return None

    def discard(self, name: str) -> None:
        """Delete the file of a name; nothing where there is none. StorageFailed."""
        with audit_errors(str(self._folder)):
            self._file(name).unlink(missing_ok=True)

    def _file(self, name: str) -> Path:
        return self._folder / f"{sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()}.json"
