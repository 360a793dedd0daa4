"""Every path in scope with its stamp: the scan that finds out what may have changed."""

import errno
import os
import stat
import time
from collections.abc import Iterator, Mapping
from typing import Any

from loom_audit.disk.beneath import Beneath
from loom_audit.disk.paths import join, kind_of
from loom_audit.disk.stamps import COARSE, stamp_of
from loom_audit.model.scope import Scope
from loom_audit.ports import Stamp

_DIRECTORY, _FILE, _LINK = stat.S_IFDIR, stat.S_IFREG, stat.S_IFLNK
_KIND = 0o170000
GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


def walk(
    beneath: Beneath, scope: Scope, known: Mapping[str, Any], excluded: frozenset[str], path: str
) -> Iterator[tuple[str, Stamp | str]]:
    """What is below `path`; a directory comes before what it holds, otherwise in any order.

    What vanishes meanwhile is left out.
    """
    waiting = [path]
    while waiting:
        folder = waiting.pop()
        try:
            descriptor = beneath.folder(folder)
        except OSError as error:
            if error.errno in GONE:
                continue
            yield folder, "path too long" if error.errno == errno.ENAMETOOLONG else "unreadable"
            continue
        try:
            if folder != path:
                seen = os.fstat(descriptor)
                if seen.st_dev != beneath.device:
                    yield folder, "mount"
                    continue
                yield folder, Stamp(seen.st_mode, 0, 0, 0, 0)
            yield from _entries(beneath, scope, known, excluded, folder, descriptor, waiting)
        finally:
            os.close(descriptor)


def _entries(
    beneath: Beneath,
    scope: Scope,
    known: Mapping[str, Any],
    excluded: frozenset[str],
    folder: str,
    descriptor: int,
    waiting: list[str],
) -> Iterator[tuple[str, Stamp | str]]:
    prefix = folder + "/" if folder else ""
    device = beneath.device
    # Taken before any stat of this folder, so that no stamp passes for older than it is.
    now = time.time_ns()
    recent = now - COARSE
    new = tuple.__new__
    with os.scandir(descriptor) as entries:
        for entry in entries:
            child = prefix + entry.name
            folderish = entry.is_dir(follow_symlinks=False)
            if child not in known and scope.excludes(child, directory=folderish) is not None:
                continue
            if child in excluded:
                yield child, "store"
                continue
            if folderish:
                waiting.append(child)
                continue
            try:
                seen = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            except OSError:
                yield child, "unreadable"
                continue
            mode, ctime = seen.st_mode, seen.st_ctime_ns
            kind = mode & _KIND
            if kind == _DIRECTORY:
                waiting.append(child)
            elif kind not in (_FILE, _LINK):
                yield child, f"not a file: {kind_of(mode)}"
            elif seen.st_dev != device:
                yield child, "mount"
            elif ctime >= recent:
                yield child, stamp_of(seen, now)
            else:
                yield (
                    child,
                    new(Stamp, (mode, seen.st_size, seen.st_mtime_ns, ctime, seen.st_ino)),
                )


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
