"""Replacing one path atomically; what was there is kept until it is discarded or put back.

A file or symlink is made under a temporary name, made durable, and exchanged with what is at
the path. What was there stays under the temporary name until `discard` or `put_back`.
"""

import contextlib
import errno
import hashlib
import os
import stat
from collections.abc import Mapping
from typing import BinaryIO

from loom_audit.disk.access import system
from loom_audit.disk.access.paths import conflict, kind_of, not_a_file_error, printable, split
from loom_audit.disk.access.root_directory import OpenFolders
from loom_audit.disk.access.system import closing_fd
from loom_audit.disk.writing import attributes
from loom_audit.disk.writing.attributes import ACL, acl_at, carried, inherited_acl
from loom_audit.disk.writing.exchange import Location, exchange, link_to, location_of, move
from loom_audit.disk.writing.reservation import Slot
from loom_audit.disk.writing.reversal import (
    CHUNK,
    Identity,
    ModeReversal,
    PathReversal,
    folder_state,
    identity_of,
    read_state,
    remove,
    sync_inode,
)
from loom_audit.errors import AuditError, Conflict, Corrupt
from loom_audit.model.files import FileChange, FileState
from loom_audit.ports import Displaced

_ATTEMPTS = 16
_FILE_KINDS = {stat.S_IFREG: "file", stat.S_IFLNK: "symlink", stat.S_IFDIR: "directory"}


def stage(
    folders: OpenFolders,
    slot: Slot,
    folder: str,
    after: FileState,
    content: BinaryIO | None,
    *,
    source: Location | None,
    durable: bool = False,
) -> Identity:
    """Make the state under a temporary name, with its exact mode; nothing is left on failure.

    The attributes of a file are those of the `source`; a list that it does not have is the one that
    the `folder` it will be in gives to new files. Corrupt when the content has another hash.
    """
    temporary = slot.location(folders)
    waiting, slot.inode = slot.inode, None
    try:
        if after.kind == "directory":
            _make_folder(temporary, folder, after)
        elif content is None:
            raise ValueError(f"no content for the {after.kind} {printable(temporary.path)}")
        elif after.kind == "symlink":
            target = content.read()
            _check_hash(hashlib.sha256(target).hexdigest(), after, temporary)
            os.symlink(target, os.fsencode(temporary.name), dir_fd=temporary.fd)
        else:
            given = _attributes_for(folders, folder, after, source)
            return _write(temporary, waiting, after, content, given, durable=durable)
        return identity_of(temporary.stat())
    except BaseException:
        remove(temporary)
        raise


def _stage_link(temporary: Location, source: Location, after: FileState) -> Identity:
    """Give the file at the source another name; Conflict when it has not this content."""
    link_to(source, temporary)
    try:
        made = temporary.lstat()
        if made is None or not stat.S_ISREG(made.st_mode):
            raise Conflict(f"{printable(source.path)} is not a file any more")
        if read_state(temporary, made).blob != after.blob:
            raise conflict(source.path, "{} is being changed right now", hint="Try again.")
        return identity_of(made)
    except BaseException:
        remove(temporary)
        raise


def _make_folder(temporary: Location, folder: str, after: FileState) -> None:
    temporary.mkdir()
    attributes.change_mode(temporary, after.mode, acl=False)
    acl = inherited_acl(temporary.folders, folder, after.mode) if after.acl else None
    if acl is not None:
        attributes.set_acl(temporary, attributes.acl_for(after.mode, acl))


def _attributes_for(
    folders: OpenFolders, folder: str, after: FileState, source: Location | None
) -> Mapping[str, bytes]:
    """The attributes of a new file: those of its source, or a list from its new folder."""
    given = {} if source is None else dict(carried(source))
    if not after.acl:
        given.pop(ACL, None)
    elif ACL not in given and (acl := inherited_acl(folders, folder, after.mode)) is not None:
        given[ACL] = acl
    return given


def _write(
    temporary: Location,
    inode: int | None,
    after: FileState,
    content: BinaryIO,
    given: Mapping[str, bytes],
    *,
    durable: bool,
) -> Identity:
    with closing_fd(_open_new(temporary, inode, after.mode & 0o777)) as descriptor:
        digest, size = hashlib.sha256(), 0
        while chunk := content.read(CHUNK):
            digest.update(chunk)
            attributes.write_sparsely(descriptor, chunk)
            size += len(chunk)
        _check_hash(digest.hexdigest(), after, temporary)
        if size >= attributes.SPARSE_FROM:
            os.ftruncate(descriptor, size)  # a hole may be at the end
        attributes.give(descriptor, after.mode, given)
        made = os.fstat(descriptor)
        if durable:
            system.fsync(descriptor)
        return identity_of(made)


def _open_new(temporary: Location, inode: int | None, mode: int) -> int:
    """Open the empty file that waits there, or make one."""
    if inode is None:
        return temporary.open(os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    descriptor = temporary.open(os.O_WRONLY)
    if os.fstat(descriptor).st_ino != inode:
        os.close(descriptor)
        raise Conflict(
            f"somebody took the temporary of {printable(temporary.parent) or 'the root'}"
        )
    return descriptor


def _check_hash(hashed: str, after: FileState, temporary: Location) -> None:
    if after.blob is not None and hashed != after.blob:
        raise Corrupt(
            f"the content for {printable(temporary.parent) or 'the root'} has hash {hashed[:12]}, "
            f"not {after.blob[:12]}",
            hint="Run `loom-audit verify`.",
            details={"expected": after.blob, "found": hashed},
        )


def take_path(
    temporary: Location, target: Location, *, occupied: bool
) -> tuple[os.stat_result, FileState | None] | None:
    """Let the temporary take the path; what was there is then under the temporary name.

    Its lstat is returned, with the state of a folder; None when the path was free. Anything that
    may not be displaced (a FIFO, a folder with something in it) is put back, and the temporary
    removed. Conflict when somebody takes what was displaced, or changes the path again and again.
    """
    for _ in range(_ATTEMPTS):
        try:
            if not occupied:
                move(temporary, target)
                return None
            exchange(temporary, target)
        except FileExistsError:
            occupied = True
            continue
        except FileNotFoundError:
            if temporary.lstat() is None:
                raise
            occupied = False
            continue
        seen = temporary.lstat()
        if seen is None:
            raise Conflict(f"somebody took what was displaced from {printable(target.path)}")
        return seen, _accept_displaced(temporary, target, seen)
    raise conflict(
        target.path,
        "somebody keeps creating and deleting {}",
        hint="Stop that program and try again.",
    )


def _accept_displaced(
    temporary: Location, target: Location, seen: os.stat_result
) -> FileState | None:
    """Delete an empty folder that was displaced; its state."""
    kind = stat.S_IFMT(seen.st_mode)
    if kind in (stat.S_IFREG, stat.S_IFLNK):
        return None
    if kind == stat.S_IFDIR:
        target.folders.forget(target.path)
        try:
            return _remove_folder(temporary, seen, target)
        except (OSError, AuditError):
            exchange(temporary, target)
            raise
    exchange(temporary, target)
    raise not_a_file_error(target.path, seen.st_mode)


def _remove_folder(location: Location, seen: os.stat_result, target: Location) -> FileState:
    """Delete an empty folder; its state. Conflict, naming the target, when something is in it."""
    state = folder_state(location, seen)
    try:
        location.rmdir()
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            hint = "Delete what is in it first."
            raise conflict(target.path, "the folder is not empty: {}", hint=hint) from error
        raise
    return state


def replace(
    folders: OpenFolders,
    change: FileChange,
    content: BinaryIO | None,
    *,
    durable: bool = True,
    slot: Slot | None = None,
    link: str | None = None,
) -> Displaced:
    """Put `change.after` at its path. OSError as the system gives it, or our own errors.

    The temporary takes the `slot`, by default a new one beside the path. Unless `durable`, names
    and modes need a flush of the filesystem.
    """
    slot = slot or Slot(split(change.path)[0], folders.fresh_name())
    target = location_of(folders, change.path)
    seen = target.lstat()
    if seen is not None and stat.S_IFMT(seen.st_mode) not in (
        stat.S_IFREG,
        stat.S_IFLNK,
        stat.S_IFDIR,
    ):
        raise not_a_file_error(change.path, seen.st_mode)
    if seen is not None and link is None:
        changed = _change_mode(target, seen, change, durable=durable)
        if changed is not None:
            return changed
    temporary = slot.location(folders)
    if change.after is None:
        displaced = _displace(target, seen, temporary)
    else:
        if link is None:
            source = None if seen is None else target
            identity = stage(
                folders, slot, target.parent, change.after, content, source=source, durable=True
            )
        else:
            identity = _stage_link(temporary, location_of(folders, link), change.after)
        displaced = put_staged(temporary, target, identity, occupied=seen is not None)
    if durable:
        # fsync(2) of a file says nothing of its name: that is flushed with the folder
        try:
            folders.sync(target.parent)
        except OSError:
            # It may not be durable, so it is taken back; an edit made in between stays.
            with contextlib.suppress(AuditError):
                displaced.put_back()
            raise
    return displaced


def put_staged(
    temporary: Location, target: Location, identity: Identity, *, occupied: bool
) -> PathReversal:
    """Exchange what was staged with what is at the path. OSError, Conflict."""
    try:
        taken = take_path(temporary, target, occupied=occupied)
    except BaseException:
        if identity.is_at(temporary):
            remove(temporary)
        raise
    if taken is None:
        return PathReversal(target, identity, None, None)
    prior, state = taken
    return PathReversal(target, identity, prior, None if state else temporary, state)


def _displace(target: Location, seen: os.stat_result | None, temporary: Location) -> PathReversal:
    if seen is None:
        return PathReversal(target, None, None, None)
    if stat.S_ISDIR(seen.st_mode):
        return PathReversal(target, None, seen, None, _remove_folder(target, seen, target))
    try:
        move(target, temporary)
    except FileNotFoundError:
        return PathReversal(target, None, None, None)
    gone = temporary.lstat()
    if gone is None:
        raise Conflict(f"somebody took what was displaced from {printable(target.path)}")
    if stat.S_IFMT(gone.st_mode) not in (stat.S_IFREG, stat.S_IFLNK):
        move(temporary, target)
        raise Conflict(f"{printable(target.path)} has become a {kind_of(gone.st_mode)}")
    return PathReversal(target, None, gone, temporary)


def _change_mode(
    target: Location, seen: os.stat_result, change: FileChange, *, durable: bool
) -> ModeReversal | None:
    """Change the mode alone where the content stays, so that its inode and mtime stay too.

    A file's content is hashed first: when it is not what `change` says, or when the inode has
    other names, None is returned and the file is replaced as a whole.
    """
    before, after = change.before, change.after
    if after is None or after.kind != _FILE_KINDS.get(stat.S_IFMT(seen.st_mode)):
        return None
    if after.kind == "directory":
        state = folder_state(target, seen)
    else:
        same = before is not None and before.kind == "file" and before.blob == after.blob
        if not same or after.kind != "file" or after.blob is None or seen.st_nlink != 1:
            return None
        state = read_state(target, seen)
        if state.blob != after.blob:
            return None
    acl = acl_at(target) if state.acl else None
    changed = state.mode != after.mode or (state.acl and not after.acl)
    if changed:
        attributes.change_mode(target, after.mode, acl=after.acl)
    now = target.lstat()
    if now is None or identity_of(now) != identity_of(seen):
        raise conflict(target.path, "somebody else is changing {}", hint="Try again.")
    if durable and changed:
        sync_inode(target)
    return ModeReversal(target, state, stat.S_IMODE(now.st_mode), identity_of(now), acl)
