"""What was seen when a foreign call began, as one small file for each open call."""

import json
import os
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from loom_audit.disk.access.paths import audit_errors


class DiskLooks:
    """A `ports.Looks` in one folder, which is made when the first one is kept."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(self, name: str, seen: Any) -> None:
        with audit_errors(str(self._folder)):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = self._file(name)
            written = file.with_suffix(f".{os.getpid()}")
            # escaped, since a path may hold bytes that no encoding takes
            written.write_text(json.dumps(seen), "ascii")
            written.replace(file)

    def get(self, name: str) -> Any:
        with audit_errors(str(self._folder)), suppress(FileNotFoundError, ValueError):
            return json.loads(self._file(name).read_text("ascii"))
        return None

    def discard(self, name: str) -> None:
        with audit_errors(str(self._folder)):
            self._file(name).unlink(missing_ok=True)

    def _file(self, name: str) -> Path:
        return self._folder / f"{sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()}.json"
