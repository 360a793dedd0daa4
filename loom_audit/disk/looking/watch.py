"""Which folders may have changed since they were last read, as the kernel tells (inotify(7)).

No library is used for it: watchdog reads its descriptor in a thread of its own, and holds a rename
back until its second half has come or half a second has passed. Here each folder is watched, by
its open descriptor, before its names are read, and a rename needs no second half: what came is
looked at whole, and a folder that is watched already is then known by its new path.
"""

import errno
import os
import weakref
from collections.abc import Callable

from loom_audit.disk.access.paths import join
from loom_audit.disk.access.root_directory import RootDirectory
from loom_audit.disk.looking import inotify
from loom_audit.disk.looking.told_folders import ToldFolders

TRUSTED = frozenset(
    {
        0xEF53,  # ext2, ext3, ext4
        0x58465342,  # xfs
        0x9123683E,  # btrfs
        0x01021994,  # tmpfs
        0xF2F52010,  # f2fs
        0x2FC12FC1,  # zfs
        0xCA451A4E,  # bcachefs
        0x794C7630,  # overlay, of which what lies below is not to be changed by other ways
    }
)
"""The kinds of filesystem of which all changes pass this kernel, so that it can tell of them."""

_FULL = {
    errno.ENOSPC: "more folders than fs.inotify.max_user_watches allows",
    errno.EMFILE: "more watchers than fs.inotify.max_user_instances allows",
}


class DiskWatch(ToldFolders):
    """A `ports.Watch` of one root.

    A watch has no thread; its descriptor is read in `read` only, to the end of what is queued. It
    is used under the workspace lock, by the process that made it: a forked process has the same
    queue and would take events away, so that it begins with a queue of its own.
    """

    def __init__(self, beneath: RootDirectory) -> None:
        super().__init__(flaw_of(beneath.fd))
        self._queue = -1
        self._owner = 0
        self._close: Callable[[], object] = _nothing
        self._paths: dict[int, str] = {}
        self._deleted: set[int] = set()

    def add(self, path: str, folder: int) -> None:
        """Watch an open folder, of which nothing was read yet, under this path."""
        if self.flaw:
            return
        try:
            watch = inotify.add(self._queue, folder)
        except OSError as error:
            self._give_up(error)
            return
        was = self._paths.get(watch)
        if was != path:
            if was is not None and self.folders.get(was) == watch:
                del self.folders[was]
            self._forget(path)
            self._paths[watch], self.folders[path] = path, watch

    # --- what happened ----------------------------------------------------------------------

    def read(self) -> None:
        """Take all that the kernel has queued, and doubt where it lost some (IN_Q_OVERFLOW)."""
        if self._queue < 0 or self._owner != os.getpid():
            self.distrust("this process has watched nothing yet")
            return
        for watch, mask, name in inotify.events(self._queue):
            if mask & inotify.OVERFLOW:
                self.distrust("more happened than the kernel keeps")
            elif (path := self._paths.get(watch)) is not None:
                self._note(watch, path, mask, name)

    def _note(self, watch: int, path: str, mask: int, name: str) -> None:
        if mask & inotify.UNMOUNT:
            self.distrust("the filesystem was unmounted")
        elif mask & inotify.DELETE_SELF:
            self._deleted.add(watch)
        elif mask & inotify.IGNORED:
            if watch not in self._deleted:
                self.distrust("the kernel stopped watching a folder")
            self._deleted.discard(watch)
            del self._paths[watch]
            if self.folders.get(path) == watch:
                del self.folders[path]
        else:
            self.touched.add(path)
            if name and mask & inotify.ISDIR:
                child = join(path, name)
                if not mask & inotify.ATTRIB:
                    self.renewed.add(child)
                elif child in self.folders:
                    self.touched.add(child)

    # --- the queue --------------------------------------------------------------------------

    def close(self) -> None:
        """Close the queue: nothing is watched any more."""
        self._close()
        self._queue = -1
        self._paths = {}
        super().close()

    def _begin_anew(self) -> None:
        super()._begin_anew()
        self._deleted = set()
        if self.flaw:
            return
        try:
            self._queue, self._owner = inotify.open_queue(), os.getpid()
        except OSError as error:
            self._give_up(error)
        else:
            self._close = weakref.finalize(self, os.close, self._queue)

    def _give_up(self, error: OSError) -> None:
        """Watch nothing from now on: a new try would cost each look what this one did."""
        self.flaw = _FULL.get(error.errno or 0, f"inotify: {error.strerror}")
        self.close()

    def _forget(self, path: str) -> None:
        watch = self.folders.pop(path, None)
        if watch is not None and self._paths.get(watch) == path:
            del self._paths[watch]
            self._deleted.discard(watch)
            inotify.remove(self._queue, watch)


def flaw_of(root: int) -> str:
    """The reason why what is below an open folder cannot be watched; "" where it can."""
    if not inotify.AVAILABLE:
        return "this system has no inotify"
    kind = inotify.filesystem_type(root)
    if kind not in TRUSTED:
        return f"not all changes pass this kernel on a filesystem of type {kind:#x}"
    return ""


def _nothing() -> None:
    return None
