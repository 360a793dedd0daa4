"""Letting us work in folders of ours whose mode forbids it, and closing them again.

Only bits of the owner are added, to write and to search, on a descriptor that no link led to.
"""

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from loom_audit.disk.access.identity import identity_at
from loom_audit.disk.access.root_directory import RootDirectory
from loom_audit.disk.access.system import closing_fd
from loom_audit.model.events import OPENED, OpenedFolder
from loom_audit.model.files import is_same_identity, parents


def on_the_way(folder: str) -> Iterator[tuple[str, int]]:
    """The folders above one and that one, each with the mode bits that its owner needs to work in
    it.
    """
    if folder:
        yield "", stat.S_IXUSR
        yield from ((above, stat.S_IXUSR) for above in parents(folder))
    yield folder, OPENED


def closed_among(beneath: RootDirectory, folders: Iterable[str]) -> Iterator[OpenedFolder]:
    """The folders that are opened for work in these, each once, outermost first. OSError."""
    if os.geteuid() == 0:
        return
    needs: dict[str, int] = {}
    for folder in folders:
        for path, need in on_the_way(folder):
            needs[path] = needs.get(path, 0) | need
    for path, need in sorted(needs.items()):
        # what cannot be opened is made later, or is reached once one above it is opened
        with suppress(OSError), closing_fd(beneath.open_folder(path, readable=False)) as descriptor:
            seen = os.fstat(descriptor)
            if _is_closed(seen, need):
                mode = stat.S_IMODE(seen.st_mode)
                yield OpenedFolder(path, mode, identity_at(descriptor))


def open_folder(beneath: RootDirectory, folder: str, need: int = OPENED) -> os.stat_result | None:
    """Open a folder of ours that lacks the needed bits; its stat before, None where it has them.

    OSError, also where a link is on the way.
    """
    with closing_fd(beneath.open_folder(folder, readable=False)) as descriptor:
        return _open(descriptor, need)


def close_folder(beneath: RootDirectory, folder: str, was: os.stat_result) -> None:
    """Close a folder again; another folder, or one whose mode was changed since, stays as it is."""
    with closing_fd(beneath.open_folder(folder, readable=False)) as descriptor:
        seen = os.fstat(descriptor)
        if (seen.st_dev, seen.st_ino) == (was.st_dev, was.st_ino):
            _close(descriptor, was)


def close_opened(beneath: RootDirectory, folder: OpenedFolder, mode: int) -> bool:
    """Give a folder that a crash left open this mode; False where it is another one, or not open.

    OSError, also where it is gone.
    """
    with closing_fd(beneath.open_folder(folder.path, readable=False)) as descriptor:
        seen = os.fstat(descriptor)
        is_open = stat.S_IMODE(seen.st_mode) == folder.mode | OPENED != mode
        same = not folder.identity or is_same_identity(identity_at(descriptor), folder.identity)
        if is_open and same and seen.st_uid == os.geteuid():
            _set_mode(descriptor, mode)
            return True
        return False


@contextmanager
def opened(beneath: RootDirectory, folders: Iterable[str]) -> Iterator[None]:
    """Let us work in these few folders for the block, wherever each is at its end. OSError."""
    held: list[tuple[int, os.stat_result]] = []
    try:
        for folder, need in (one for each in folders for one in on_the_way(each)):
            descriptor = beneath.open_folder(folder, readable=False)
            was = _open(descriptor, need)
            if was is None:
                os.close(descriptor)
            else:
                held.append((descriptor, was))
        yield
    finally:
        for descriptor, was in reversed(held):
            try:
                _close(descriptor, was)
            finally:
                os.close(descriptor)


def _is_closed(seen: os.stat_result, need: int) -> bool:
    """Whether a folder is this account's and its mode forbids this; root is forbidden nothing."""
    return seen.st_uid == os.geteuid() != 0 and seen.st_mode & need != need


def _open(descriptor: int, need: int) -> os.stat_result | None:
    seen = os.fstat(descriptor)
    if not _is_closed(seen, need):
        return None
    _set_mode(descriptor, stat.S_IMODE(seen.st_mode) | OPENED)
    return seen


def _close(descriptor: int, was: os.stat_result) -> None:
    if os.fstat(descriptor).st_mode == was.st_mode | OPENED:
        _set_mode(descriptor, stat.S_IMODE(was.st_mode))


def _set_mode(descriptor: int, mode: int) -> None:
    """Set the permission bits of what is open, maybe only as a path."""
    if os.path.isdir("/proc/self/fd"):
        Path(f"/proc/self/fd/{descriptor}").chmod(mode)
    else:
        os.chmod(descriptor, mode)
