"""The files of rules that hold in a session, as hashes: a change of one goes on record."""

import hashlib
import os
from pathlib import Path

from loom_audit.config import APPROVALS, TOOLS
from loom_audit.model.events import Rules

_FILES = {"approvals": APPROVALS, "tools": TOOLS}


class RuleFiles:
    """The hashes of `approvals.toml` and `tools.toml`, each hashed again when its stamp differs.

    `rules` are those of the last reading, none before the first.
    """

    def __init__(self, folder: Path) -> None:
        self._files = {name: folder / file for name, file in _FILES.items()}
        self._stamps: list[tuple[int, ...] | None] = []
        self.rules: Rules = ()

    def read_again(self) -> bool:
        """Read the files that look different; whether `rules` are others than before."""
        stamps = [_stamp(file) for file in self._files.values()]
        if stamps == self._stamps:
            return False
        before, self._stamps = self.rules, stamps
        hashed = ((name, _hash(file)) for name, file in sorted(self._files.items()))
        self.rules = tuple((name, digest) for name, digest in hashed if digest)
        return self.rules != before


def _stamp(file: Path) -> tuple[int, ...] | None:
    try:
        seen = os.stat(file)
    except OSError:
        return None
    return seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns


def _hash(file: Path) -> str:
    """SHA-256 of the file in hex; empty where there is none, or it cannot be read."""
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError:
        return ""
