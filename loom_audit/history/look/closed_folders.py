"""Folders that cannot be read: their mode goes on record, and what is in them is not known.

Where something is mounted on a folder, the folder itself cannot be seen either, not even its mode.
"""

import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress

from msgspec.structs import replace

from loom_audit.errors import AuditError
from loom_audit.history.ground.attachment import Attachment, OnDisk
from loom_audit.model.events import Untracked
from loom_audit.model.files import FileChange, is_directory
from loom_audit.ports import IndexEntry, Stamp

MOUNT = "mount"
"""Why what lies on another filesystem is untracked."""


def seen_stamp(on_disk: OnDisk, path: str) -> Stamp | None:
    """The stamp of what is at a path; None where nothing is, or where a folder above forbids to
    look.
    """
    with suppress(AuditError):
        return on_disk.workspace.stamp(path)
    return None


def closed_folders(
    attachment: Attachment, untracked: Iterable[Untracked]
) -> Iterator[tuple[FileChange, IndexEntry]]:
    """For each recorded folder that cannot be read any more, its change of mode and index entry.

    The change may lead to the same mode. Corrupt.
    """
    for one in untracked:
        before = attachment.stored.reading.state(one.path) if one.reason != MOUNT else None
        stamp = seen_stamp(attachment.on_disk, one.path) if is_directory(before) else None
        if before is not None and stamp is not None and stat.S_ISDIR(stamp.mode):
            after = replace(before, mode=stat.S_IMODE(stamp.mode))
            entry = IndexEntry(stamp, None, attachment.on_disk.workspace.identity(one.path))
            yield FileChange(one.path, before, after), entry


def inside_closed(attachment: Attachment, untracked: Iterable[Untracked]) -> Iterator[Untracked]:
    """What is untracked, where a recorded folder that cannot be read stands for what is in it.

    The folder itself stays in the tree, with its mode; what is on record in it leaves the tree.
    """
    for one in untracked:
        stamp = seen_stamp(attachment.on_disk, one.path) if one.reason != MOUNT else None
        state = attachment.stored.reading.state(one.path) if stamp else None
        if stamp is None or not (is_directory(state) and stat.S_ISDIR(stamp.mode)):
            yield one
            continue
        for path in attachment.stored.reading.tree():
            if path.rpartition("/")[0] == one.path:
                yield Untracked(path, one.reason)
