"""Folders that cannot be looked into: their mode is on record, and what is in them is not known.

On what something is mounted there is nothing to be seen of the folder either, not its mode.
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
"""The reason of what lies on another filesystem."""


def seen_stamp(on_disk: OnDisk, path: str) -> Stamp | None:
    """The stamp of what is at a path, None also where a folder above forbids to look."""
    with suppress(AuditError):
        return on_disk.workspace.stamp(path)
    return None


def closed_folders(
    attachment: Attachment, untracked: Iterable[Untracked]
) -> Iterator[tuple[FileChange, IndexEntry]]:
    """The changes of mode of recorded folders that cannot be read any more, and their entries."""
    for one in untracked:
        before = attachment.stored.reading.state(one.path) if one.reason != MOUNT else None
        stamp = seen_stamp(attachment.on_disk, one.path) if is_directory(before) else None
        if before is not None and stamp is not None and stat.S_ISDIR(stamp.mode):
            after = replace(before, mode=stat.S_IMODE(stamp.mode))
            entry = IndexEntry(stamp, None, attachment.on_disk.workspace.identity(one.path))
            yield FileChange(one.path, before, after), entry


def inside_closed(attachment: Attachment, untracked: Iterable[Untracked]) -> Iterator[Untracked]:
    """What is untracked; of a recorded folder that cannot be read what is recorded in it."""
    for one in untracked:
        stamp = seen_stamp(attachment.on_disk, one.path) if one.reason != MOUNT else None
        state = attachment.stored.reading.state(one.path) if stamp else None
        if stamp is None or not (is_directory(state) and stat.S_ISDIR(stamp.mode)):
            yield one
            continue
        for path in attachment.stored.reading.tree():
            if path.rpartition("/")[0] == one.path:
                yield Untracked(path, one.reason)
