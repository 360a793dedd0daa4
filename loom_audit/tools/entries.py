"""Paths as listings show them."""

import stat
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

EntryType = Literal["file", "directory", "symlink", "other"]


@dataclass(frozen=True, slots=True)
class Entry:
    """A path as listings show it; `modified` in UTC, `size` in bytes (0 for directories)."""

    path: str
    type: EntryType
    size: int
    modified: datetime

    @property
    def name(self) -> str:
        return self.path.rsplit("/", 1)[-1]

    def to_dict(self, name: str | None = None) -> dict[str, str | int]:
        return {
            "name": self.name if name is None else name,
            "type": self.type,
            "size": self.size,
            "modified": self.modified.isoformat(),
        }


def type_of(mode: int) -> EntryType:
    """The type by `st_mode`; FIFOs, sockets and devices are `other`."""
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "directory"
    return "symlink" if stat.S_ISLNK(mode) else "other"
