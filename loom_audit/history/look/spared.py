"""Files that a look leaves for a later one, since they are still being written."""

import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

from msgspec import Struct, field

from loom_audit.errors import AuditError
from loom_audit.history.ground.attachment import Attachment
from loom_audit.ports import Stamp, StampedPaths, Stamps

_FILES = (stat.S_IFREG, stat.S_IFLNK)


class Spared(Struct):
    """The files that a look spares, and `met`, those of them that it came upon.

    `spares` says so of a path, and whether what is there is new. A file is spared only where
    nothing else depends on it: it has one name, and was a file or nothing before.
    """

    spares: Callable[[str, bool], bool]
    met: StampedPaths = field(default_factory=StampedPaths)

    def without(
        self,
        attachment: Attachment,
        differences: Iterable[tuple[str, Stamp | str | None]],
        known: Stamps,
    ) -> Iterator[tuple[str, Stamp | str | None]]:
        """Yield the differences from what is `known`, without those of spared files."""
        for path, stamp in differences:
            if isinstance(stamp, Stamp) and _is_file(stamp):
                was = known.get(path)
                plain = was is None or _is_file(was)
                if plain and self.spares(path, was is None) and _has_one_name(attachment, path):
                    self.met.add(path, stamp)
                    continue
            yield path, stamp


def _is_file(stamp: Stamp) -> bool:
    return stat.S_IFMT(stamp.mode) in _FILES


def _has_one_name(attachment: Attachment, path: str) -> bool:
    with suppress(AuditError):
        return attachment.on_disk.workspace.links(path) == 1
    return False
