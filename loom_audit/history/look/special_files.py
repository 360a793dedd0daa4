"""FIFOs, sockets and devices at a path that comes back: they are renamed, never overwritten.

Nothing of them is on record, so that nothing could bring them back.
"""

import stat
from collections.abc import Iterable, Iterator

from loom_audit.history.ground.attachment import OnDisk
from loom_audit.history.look.closed_folders import seen_stamp
from loom_audit.model.files import FileChange
from loom_audit.ports import Stamp

_SPECIAL = {
    stat.S_IFIFO: "fifo",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
}


def special_kind(stamp: Stamp | None) -> str:
    """What kind of inode it is that is not a file, a folder or a symlink; "" for one of these."""
    return "" if stamp is None else _SPECIAL.get(stat.S_IFMT(stamp.mode), "")


def displaced_special_files(
    on_disk: OnDisk, changes: Iterable[FileChange]
) -> Iterator[tuple[str, str]]:
    """The paths to be created at which a FIFO, socket or device is, each with a free name for it.

    Where a folder above forbids to look, none is seen.
    """
    for change in changes:
        if change.before is None and (kind := special_kind(seen_stamp(on_disk, change.path))):
            name, n = f"{change.path}.{kind}", 1
            while on_disk.workspace.stamp(name) is not None:
                n += 1
                name = f"{change.path}.{kind}-{n}"
            yield change.path, name
