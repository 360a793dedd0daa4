"""Every path in scope with its stamp: the scan that finds out what may have changed."""

import errno
import os
import stat
import time
from collections.abc import Iterator, Mapping
from typing import Any

from loom_audit.disk.beneath import Beneath
from loom_audit.disk.paths import in_our_words, join, kind_of, shown
from loom_audit.disk.stamps import COARSE, stamp_of
from loom_audit.errors import StorageFailed
from loom_audit.model.scope import Scope
from loom_audit.ports import Stamp

_DIRECTORY, _FILE, _LINK = stat.S_IFDIR, stat.S_IFREG, stat.S_IFLNK
_KIND = 0o170000
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_DEPTH = 64
"""How many folders are kept open at once."""

GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


def walk(
    beneath: Beneath, scope: Scope, known: Mapping[str, Any], excluded: frozenset[str], path: str
) -> Iterator[tuple[str, Stamp | str]]:
    """What is below `path`; a directory comes before what it holds, otherwise in any order.

    What vanishes meanwhile is left out. StorageFailed when `path` itself cannot be read, since
    a caller would take all that is in it for gone.
    """
    with _Folders(beneath, path) as folders:
        while (folder := folders.next()) is not None:
            if isinstance(folder, str):
                if folders.path == path:
                    raise StorageFailed(
                        f"{shown(path) or 'the workspace'} cannot be read: {folder}",
                        hint="See that it may be entered, then try again.",
                    )
                yield folders.path, folder
                continue
            if folders.path != path:
                seen = os.fstat(folder)
                if seen.st_dev != beneath.device:
                    yield folders.path, "mount"
                    continue
                yield folders.path, Stamp(seen.st_mode, 0, 0, 0, 0)
            prefix = folders.path + "/" if folders.path else ""
            with in_our_words(folders.path):
                found, inside = _entries(beneath.device, scope, known, excluded, prefix, folder)
            folders.enter(prefix, inside)
            yield from found


class _Folders:
    """Which folders are still to be visited, depth first, each opened by its parent's descriptor.

    From some depth on they are opened from the root, so that descriptors do not run out.
    """

    def __init__(self, beneath: Beneath, path: str) -> None:
        self._beneath = beneath
        self._first: str | None = path
        self._current = -1
        self._stack: list[tuple[int, str, list[str]]] = []
        self.path = path

    def __enter__(self) -> "_Folders":
        return self

    def __exit__(self, *_: object) -> None:
        self._let_go()
        while self._stack:
            self._leave()

    def _let_go(self) -> None:
        if self._current >= 0:
            os.close(self._current)
            self._current = -1

    def _leave(self) -> None:
        descriptor = self._stack.pop()[0]
        if descriptor >= 0:
            os.close(descriptor)

    def enter(self, prefix: str, names: list[str]) -> None:
        """Go on with these folders in the one that was opened last."""
        if not names:
            return
        descriptor = -1
        if len(self._stack) < _DEPTH:
            descriptor, self._current = self._current, -1
        self._stack.append((descriptor, prefix, names))

    def next(self) -> int | str | None:
        """The next folder's descriptor, or why it cannot be read; None at the end."""
        self._let_go()
        while self._stack and not self._stack[-1][2]:
            self._leave()
        try:
            if self._first is not None:
                self._first = None
                self._current = self._beneath.folder(self.path)
            elif self._stack:
                parent, prefix, names = self._stack[-1]
                name = names.pop()
                self.path = prefix + name
                if parent < 0:
                    self._current = self._beneath.folder(self.path)
                else:
                    self._current = os.open(name, _FOLDER, dir_fd=parent)
            else:
                return None
        except OSError as error:
            if error.errno in GONE:
                return self.next() if self._stack else None
            return "path too long" if error.errno == errno.ENAMETOOLONG else "unreadable"
        return self._current


def _entries(
    device: int,
    scope: Scope,
    known: Mapping[str, Any],
    excluded: frozenset[str],
    prefix: str,
    descriptor: int,
) -> tuple[list[tuple[str, Stamp | str]], list[str]]:
    """What a folder holds in scope, and the names of the folders in it."""
    found: list[tuple[str, Stamp | str]] = []
    folders: list[str] = []
    # Taken before any stat of this folder, so that no stamp passes for older than it is.
    now = time.time_ns()
    recent = now - COARSE
    new, excludes, add = tuple.__new__, scope.excludes, found.append
    with os.scandir(descriptor) as entries:
        for entry in entries:
            name = entry.name
            child = prefix + name
            folderish = entry.is_dir(follow_symlinks=False)
            if (folderish or child not in known) and excludes(child, directory=folderish):
                continue
            if excluded and child in excluded:
                found.append((child, "store"))
                continue
            if folderish:
                folders.append(name)
                continue
            try:
                seen = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            except OSError:
                found.append((child, "unreadable"))
                continue
            mode, inode, on, _, _, _, size, _, _, _ = seen
            ctime = seen.st_ctime_ns
            kind = mode & _KIND
            if kind not in (_FILE, _LINK):
                if kind == _DIRECTORY:
                    folders.append(name)
                else:
                    found.append((child, f"not a file: {kind_of(mode)}"))
            elif on != device:
                found.append((child, "mount"))
            elif ctime >= recent:
                found.append((child, stamp_of(seen, now)))
            else:
                add((child, new(Stamp, (mode, size, seen.st_mtime_ns, ctime, inode))))
    return found, folders


def leftovers(beneath: Beneath, prefix: str) -> Iterator[str]:
    """Names that begin with `prefix`, in every folder but `.git` and other filesystems."""
    waiting = [""]
    while waiting:
        folder = waiting.pop()
        try:
            descriptor = beneath.folder(folder)
        except OSError:
            continue
        try:
            if os.fstat(descriptor).st_dev != beneath.device:
                continue
            with os.scandir(descriptor) as entries:
                for entry in entries:
                    child = join(folder, entry.name)
                    if entry.name.startswith(prefix):
                        yield child
                    elif entry.is_dir(follow_symlinks=False) and entry.name != ".git":
                        waiting.append(child)
        finally:
            os.close(descriptor)
