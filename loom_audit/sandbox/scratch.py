"""Temporary folders of sessions, and deleting what commands left in a folder.

A folder is deleted when its session ends, or by a later session when that was killed.
"""

import errno
import fcntl
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from loom_audit.errors import StorageFailed

PREFIX = "loom-audit-scratch-"
ATTEMPTS = 8
_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def scratch_folder() -> Iterator[str]:
    """A new folder of the system's temporary ones, mode 0700, deleted at the end of the block.

    Its owner holds flock(2) on it as long as it lives; folders of ours that nobody holds are
    those of killed processes, and are deleted first. StorageFailed where none can be made.
    """
    try:
        _delete_abandoned()
        folder, held = _make_locked_folder()
    except OSError as error:
        raise StorageFailed(
            f"No temporary folder could be made in {tempfile.gettempdir()}: {error.strerror}",
            hint="Make room there, or name another folder in TMPDIR.",
        ) from error
    try:
        yield folder
    finally:
        # a command may have deleted it, or put there what only another user can delete
        with suppress(OSError):
            remove_tree(folder)
        os.close(held)


def _make_locked_folder() -> tuple[str, int]:
    for _ in range(ATTEMPTS):
        folder = tempfile.mkdtemp(prefix=PREFIX)
        # Before we hold it, another may take it for abandoned: then we make the next.
        if (held := _lock_folder(folder)) is not None:
            return folder, held
        with suppress(FileNotFoundError):
            Path(folder).rmdir()
    raise OSError(errno.ENOLCK, "new folders cannot be locked there")


def _lock_folder(folder: str) -> int | None:
    """The lock on a folder of ours, as a descriptor; None when another has it, or it is gone."""
    try:
        descriptor = os.open(folder, _FLAGS)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        held, named = os.fstat(descriptor), os.lstat(folder)
        if os.path.samestat(held, named) and held.st_uid == os.geteuid():
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return None


def _delete_abandoned() -> None:
    top = tempfile.gettempdir()
    for name in os.listdir(top):
        folder = os.path.join(top, name)
        if name.startswith(PREFIX) and (held := _lock_folder(folder)) is not None:
            try:
                # what cannot be deleted is in nobody's way
                with suppress(OSError):
                    remove_tree(folder)
            finally:
                os.close(held)


def remove_tree(folder: str) -> None:
    """Delete a folder with all below it: however deep, unreadable folders too, links not followed.

    Inner directories are moved to the top one by one, so that depth takes neither stack nor
    descriptors. Nobody else may be changing the folder meanwhile. OSError.
    """
    Path(folder).chmod(stat.S_IRWXU)
    top = os.open(folder, _FLAGS)
    try:
        waiting = _empty_directory(top, top)
        while waiting:
            name = waiting.pop()
            inner = os.open(name, _FLAGS, dir_fd=top)
            try:
                waiting += _empty_directory(inner, top)
            finally:
                os.close(inner)
            os.rmdir(name, dir_fd=top)
    finally:
        os.close(top)
    Path(folder).rmdir()


def _empty_directory(directory: int, top: int) -> list[str]:
    """Delete a directory's files; its directories, by the names they now have at the top."""
    moved = []
    for name in os.listdir(directory):
        if stat.S_ISDIR(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
            os.chmod(name, stat.S_IRWXU, dir_fd=directory)
            fresh = uuid4().hex
            os.rename(name, fresh, src_dir_fd=directory, dst_dir_fd=top)
            moved.append(fresh)
        else:
            os.unlink(name, dir_fd=directory)
    return moved
