"""Deletes a directory of ours that a command could fill as it liked."""

import os
import stat
from pathlib import Path
from uuid import uuid4

_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(folder: str) -> None:
    """Delete it with all below it: however deep, unreadable ones too, links not followed.

    Inner directories are moved to the top one by one, so that depth takes neither stack nor
    descriptors. Nobody else may be changing it meanwhile. OSError.
    """
    Path(folder).chmod(stat.S_IRWXU)
    top = os.open(folder, _FLAGS)
    try:
        waiting = _emptied(top, top)
        while waiting:
            name = waiting.pop()
            inner = os.open(name, _FLAGS, dir_fd=top)
            try:
                waiting += _emptied(inner, top)
            finally:
                os.close(inner)
            os.rmdir(name, dir_fd=top)
    finally:
        os.close(top)
    Path(folder).rmdir()


def _emptied(directory: int, top: int) -> list[str]:
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
