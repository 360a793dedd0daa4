"""What is at one path: its state, of which the content is stored or only hashed."""

import hashlib
import stat
from contextlib import suppress

from msgspec.structs import replace

from loom_audit.errors import FileNotFound, PermissionDenied, TooLarge
from loom_audit.history.ground.attachment import STALE, Attachment, OnDisk
from loom_audit.history.ground.contents import MAX_READ_AT_ONCE, blob_of, blob_of_stream
from loom_audit.history.look.opaque import observe_opaque
from loom_audit.model.files import BlobId, FileState
from loom_audit.model.text.display import size_text
from loom_audit.ports import Attributes, IndexEntry, Stamp

MAX_READ = 32 * 1024 * 1024 * 1024
"""A file over so many bytes is not read: hashing it would take most of a minute, and a sparse
file of petabytes is made in an instant."""

_GROUP_DIGITS = 10
"""Hex digits of a group: few enough for a number in JSON, too many for two files to share one."""


def observe(
    attachment: Attachment,
    path: str,
    before: FileState | None,
    *,
    keep: bool = True,
    seen: Stamp | None = None,
) -> tuple[FileState | None, IndexEntry | None]:
    """The state at a path now, with its entry for the change index; (None, None) for nothing.

    The content is put into the store, or only hashed without `keep`. `before` is the recorded
    state, with whose content the new one is stored as a delta. `seen` is a stamp taken earlier that
    stands for the first lstat. A file that changes while it is read is read up to three times; then
    its entry is stale, so that the next scan reads it again. PermissionDenied, InvalidPath;
    TooLarge over both `MAX_READ` and the scope's limit; AuditUnavailable where the content cannot
    be stored.
    """
    for attempt in range(3):
        stamp = seen or attachment.on_disk.workspace.stamp(path)
        seen = None
        if stamp is None:
            return None, None
        if (opaque := observe_opaque(attachment, path, stamp)) is not None:
            return opaque
        try:
            state, after, identity = _read_state(attachment, path, stamp, before, keep=keep)
        except FileNotFound:
            continue
        except PermissionDenied:
            if (closed := _closed(attachment.on_disk, path, stamp, before)) is None:
                raise
            return closed
        if _is_unchanged(stamp, after):
            return state, IndexEntry(stamp, state.blob, identity)
        if attempt == 2:
            return state, IndexEntry(STALE, state.blob, identity)
    return None, None


def _closed(
    on_disk: OnDisk, path: str, stamp: Stamp, before: FileState | None
) -> tuple[FileState, IndexEntry] | None:
    """The state of a recorded file that may not be read any more and still has its content.

    It has when inode, size and time of writing are as when it was last read. None where it may have
    another content.
    """
    known = on_disk.index.get(path)
    if known is None or before is None or before.kind != "file" or known.blob != before.blob:
        return None
    if (known.stamp.ino, known.stamp[1:3]) != (stamp.ino, stamp[1:3]):
        return None
    if not stat.S_ISREG(stamp.mode) or not known.blob:
        return None
    state = replace(before, mode=stat.S_IMODE(stamp.mode))
    return state, IndexEntry(stamp, known.blob, known.identity)


def _is_unchanged(before: Stamp, after: Stamp | None) -> bool:
    """Whether two stamps are of one unchanged file. The ctime is not compared: it may be racy."""
    return after is not None and before[:3] == after[:3] and before.ino == after.ino


def _read_state(
    attachment: Attachment, path: str, stamp: Stamp, before: FileState | None, *, keep: bool
) -> tuple[FileState, Stamp | None, str]:
    """The state of a path with this stamp; its stamp after the content was read; its identity."""
    workspace = attachment.on_disk.workspace
    if stat.S_ISDIR(stamp.mode):
        has = workspace.attributes(path)
        state = FileState("directory", None, has.mode, 0, acl=has.acl)
        return state, workspace.stamp(path), has.identity
    if stat.S_ISLNK(stamp.mode):
        target = workspace.read_link(path)
        state = FileState(
            "symlink", blob_of(attachment.stored, target, None, keep), 0o777, len(target)
        )
        return state, workspace.stamp(path), workspace.identity(path)
    similar = before.blob if before and before.kind == "file" else None
    kept = keep and stamp.size <= attachment.scope.max_file_bytes
    if stamp.size <= MAX_READ_AT_ONCE and kept == keep:
        content, after, has = workspace.read_and_stamp(path, stamp.size)
        blob = blob_of(attachment.stored, content, similar, keep)
        return _file_state(blob, len(content), has), after, has.identity
    if stamp.size > max(MAX_READ, attachment.scope.max_file_bytes):
        raise TooLarge(
            f"too large to be read ({size_text(stamp.size)})",
            hint="Exclude it in .loomignore and run `loom-audit scope accept`.",
        )
    has = workspace.attributes(path)
    with workspace.open(path) as stream:
        blob, size = blob_of_stream(attachment.stored, stream, stamp.size, similar, kept)
    return _file_state(blob, size, has), workspace.stamp(path), has.identity


def _file_state(blob: BlobId, size: int, has: Attributes) -> FileState:
    """The state of a file. One with several names gets a group that says which file it is."""
    group = None
    if has.links > 1:
        group = int(hashlib.sha256(has.identity.encode()).hexdigest()[:_GROUP_DIGITS], 16)
    return FileState("file", blob, has.mode, size, group, has.acl)


def names_in(on_disk: OnDisk, folder: str) -> list[str]:
    """The names in a folder; none where it is gone, perhaps just now."""
    with suppress(FileNotFound):
        return [name for name, _ in on_disk.workspace.list(folder)]
    return []


def is_missed(attachment: Attachment, path: str, indexed: IndexEntry) -> bool:
    """Whether a file was last changed before the last look began, and that look did not see it.

    That look was only of what the kernel told, and the kernel told nothing of this path: the file
    was written by another name, which came and went between two looks.
    """
    seen = attachment.process.last_seen
    if not seen.unchecked or seen.last_look is None or not stat.S_ISREG(indexed.stamp.mode):
        return False
    known = attachment.on_disk.index.get(path)
    if known is None or not known.identity or known.identity != indexed.identity:
        return False
    # a stamp that may be racy, or of a file mapped into memory, has no ctime above zero
    return 0 < indexed.stamp.ctime_ns <= seen.last_look
