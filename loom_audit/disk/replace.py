"""Putting one state at one path, atomically, and keeping what was there until told.

A file or symlink is made under a temporary name, made durable, and trades places with what is
at the path. What was there stays under the temporary name until `discard` or `put_back`.
"""

import contextlib
import errno
import hashlib
import os
import stat
from typing import BinaryIO

from loom_audit.disk import system
from loom_audit.disk.beneath import Directories
from loom_audit.disk.displaced import (
    CHUNK,
    ModeChanged,
    Put,
    Replaced,
    hash_file,
    put_of,
    remove,
    sync_inode,
)
from loom_audit.disk.exchange import Spot, exchange, move, spot
from loom_audit.disk.paths import kind_of, not_a_file, shown
from loom_audit.errors import AuditError, Conflict, Corrupt
from loom_audit.model.files import FileChange, FileState
from loom_audit.ports import Displaced

_ATTEMPTS = 16
_FILE_KINDS = {stat.S_IFREG: "file", stat.S_IFLNK: "symlink", stat.S_IFDIR: "directory"}


def stage(temporary: Spot, after: FileState, content: BinaryIO | None, *, durable: bool) -> Put:
    """Make the state under a temporary name, with its exact mode; nothing is left on failure."""
    try:
        if after.kind == "directory":
            temporary.mkdir()
            temporary.chmod(after.mode)
        elif content is None:
            raise ValueError(f"no content for the {after.kind} {shown(temporary.path)}")
        elif after.kind == "symlink":
            target = content.read()
            _check(hashlib.sha256(target).hexdigest(), after, temporary)
            os.symlink(target, os.fsencode(temporary.name), dir_fd=temporary.fd)
        else:
            return _write(temporary, after, content, durable=durable)
        made = temporary.lstat()
        if made is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), temporary.name)
        return put_of(made)
    except BaseException:
        remove(temporary)
        raise


def _write(temporary: Spot, after: FileState, content: BinaryIO, *, durable: bool) -> Put:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    descriptor = temporary.open(flags, after.mode & 0o777)
    try:
        digest = hashlib.sha256()
        while chunk := content.read(CHUNK):
            digest.update(chunk)
            written = os.write(descriptor, chunk)
            while written < len(chunk):
                written += os.write(descriptor, memoryview(chunk)[written:])
        _check(digest.hexdigest(), after, temporary)
        made = os.fstat(descriptor)
        if stat.S_IMODE(made.st_mode) != after.mode:
            os.fchmod(descriptor, after.mode)
        if durable:
            system.fsync(descriptor)
        return put_of(made)
    finally:
        os.close(descriptor)


def _check(found: str, after: FileState, temporary: Spot) -> None:
    if after.blob is not None and found != after.blob:
        raise Corrupt(
            f"the content for {shown(temporary.parent) or 'the root'} has hash {found[:12]}, "
            f"not {after.blob[:12]}",
            hint="Run `loom-audit verify`.",
            details={"expected": after.blob, "found": found},
        )


def place(temporary: Spot, at: Spot, *, occupied: bool) -> os.stat_result | None:
    """Let the temporary take the path; what was there is then under the temporary name.

    Its lstat is returned, None when the path was free. Anything that may not be displaced
    (a FIFO, a folder with something in it) is put back, and the temporary removed.
    """
    for _ in range(_ATTEMPTS):
        try:
            if not occupied:
                move(temporary, at)
                return None
            exchange(temporary, at)
        except FileExistsError:
            occupied = True
            continue
        except FileNotFoundError:
            if temporary.lstat() is None:
                raise
            occupied = False
            continue
        found = temporary.lstat()
        if found is None:
            raise Conflict(f"somebody took what was displaced from {shown(at.path)}")
        _keep_only_what_may_go(temporary, at, found)
        return found
    raise Conflict(
        f"somebody keeps creating and deleting {shown(at.path)}",
        hint="Stop that program and try again.",
        details={"path": shown(at.path)},
    )


def _keep_only_what_may_go(temporary: Spot, at: Spot, found: os.stat_result) -> None:
    kind = stat.S_IFMT(found.st_mode)
    if kind in (stat.S_IFREG, stat.S_IFLNK):
        return
    if kind == stat.S_IFDIR:
        at.folders.forget(at.path)
        try:
            temporary.rmdir()
        except OSError as error:
            exchange(temporary, at)
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                raise not_empty(at) from error
            raise
        return
    exchange(temporary, at)
    raise not_a_file(at.path, found.st_mode)


def not_empty(at: Spot) -> Conflict:
    return Conflict(
        f"the folder is not empty: {shown(at.path)}",
        hint="Delete what is in it first.",
        details={"path": shown(at.path)},
    )


def replace(
    folders: Directories,
    change: FileChange,
    content: BinaryIO | None,
    *,
    durable: bool = True,
    staging: str | None = None,
) -> Displaced:
    """Put `change.after` at its path. OSError as the system gives it, or our own errors.

    `staging` is the folder for temporaries, by default the path's own. Unless `durable`, names
    and modes need a flush of the filesystem.
    """
    at = spot(folders, change.path)
    found = at.lstat()
    if found is not None and stat.S_IFMT(found.st_mode) not in (
        stat.S_IFREG,
        stat.S_IFLNK,
        stat.S_IFDIR,
    ):
        raise not_a_file(change.path, found.st_mode)
    if found is not None:
        changed = _in_place(at, found, change, durable=durable)
        if changed is not None:
            return changed
    temporary = Spot(folders, at.parent if staging is None else staging, at.name).beside()
    if change.after is None:
        displaced = _take_away(at, found, temporary)
    else:
        put = stage(temporary, change.after, content, durable=True)
        displaced = put_at(temporary, at, put, occupied=found is not None)
    if durable:
        try:
            folders.sync(at.parent)
        except OSError:
            # What may not last is not done. Who wrote in between keeps what is there now.
            with contextlib.suppress(AuditError):
                displaced.put_back()
            raise
    return displaced


def put_at(temporary: Spot, at: Spot, put: Put, *, occupied: bool) -> Replaced:
    """What was staged takes its path."""
    try:
        prior = place(temporary, at, occupied=occupied)
    except BaseException:
        if put.is_at(temporary):
            remove(temporary)
        raise
    aside = temporary if prior is not None and not stat.S_ISDIR(prior.st_mode) else None
    return Replaced(at, put, prior, aside)


def _take_away(at: Spot, found: os.stat_result | None, temporary: Spot) -> Replaced:
    if found is None:
        return Replaced(at, None, None, None)
    if stat.S_ISDIR(found.st_mode):
        try:
            at.rmdir()
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                raise not_empty(at) from error
            raise
        return Replaced(at, None, found, None)
    try:
        move(at, temporary)
    except FileNotFoundError:
        return Replaced(at, None, None, None)
    gone = temporary.lstat()
    if gone is None:
        raise Conflict(f"somebody took what was displaced from {shown(at.path)}")
    if stat.S_IFMT(gone.st_mode) not in (stat.S_IFREG, stat.S_IFLNK):
        move(temporary, at)
        raise Conflict(f"{shown(at.path)} has become a {kind_of(gone.st_mode)}")
    return Replaced(at, None, gone, temporary)


def _in_place(
    at: Spot, found: os.stat_result, change: FileChange, *, durable: bool
) -> ModeChanged | None:
    """Change the mode alone where the content stays, so that its inode and mtime stay too.

    A file's content is hashed first: when it is not what `change` says, or when the inode has
    other names, None is returned and the file is replaced as a whole.
    """
    before, after = change.before, change.after
    if after is None or after.kind != _FILE_KINDS.get(stat.S_IFMT(found.st_mode)):
        return None
    mode = stat.S_IMODE(found.st_mode)
    if after.kind == "directory":
        state = FileState("directory", None, mode, 0)
    else:
        same = before is not None and before.kind == "file" and before.blob == after.blob
        if not same or after.kind != "file" or after.blob is None or found.st_nlink != 1:
            return None
        blob, size = hash_file(at, found)
        if blob != after.blob:
            return None
        state = FileState("file", blob, mode, size)
    if mode != after.mode:
        at.chmod(after.mode)
    now = at.lstat()
    if now is None or put_of(now) != put_of(found):
        raise Conflict(
            f"somebody else is changing {shown(at.path)}",
            hint="Try again.",
            details={"path": shown(at.path)},
        )
    if durable and mode != after.mode:
        sync_inode(at)
    return ModeChanged(at, state, stat.S_IMODE(now.st_mode), put_of(now))
