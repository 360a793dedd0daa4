"""What happens in a workspace, as it happens: watchdog's observer, whose events name paths."""

import errno
import logging
import os
import queue
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import cast

from watchdog.events import (
    DirAttribEvent,
    DirCreatedEvent,
    DirDeletedEvent,
    DirMovedEvent,
    FileAttribEvent,
    FileClosedEvent,
    FileCreatedEvent,
    FileDeletedEvent,
    FileModifiedEvent,
    FileMovedEvent,
    FileSystemEvent,
    FileSystemEventHandler,
)
from watchdog.observers.api import BaseObserver
from watchdog.observers.inotify import InotifyEmitter, InotifyWatchGroup
from watchdog.observers.inotify_c import (
    CallbackId,
    InotifyEvent,
    InotifyFD,
    Mask,
    WatchCallback,
    WatchDescriptor,
    inotify_add_watch,
)

from loom_audit.disk.looking import inotify
from loom_audit.disk.looking.told_folders import ToldFolders
from loom_audit.disk.looking.watch import flaw_of
from loom_audit.errors import Conflict, StorageFailed
from loom_audit.model.scope import Scope
from loom_audit.ports import Noticed

LAG = 6_000_000_000
"""In ns: a path rests for 5 s at most, and half of a rename is held back for half a second."""

OVERFLOW = "more happened than the kernel keeps"
RENAMED = "folders were renamed faster than is told"
FORGOTTEN = "what was known of the folders is forgotten"

_WANTED: list[type[FileSystemEvent]] = [
    DirAttribEvent,
    DirCreatedEvent,
    DirDeletedEvent,
    DirMovedEvent,
    FileAttribEvent,
    FileClosedEvent,
    FileCreatedEvent,
    FileDeletedEvent,
    FileModifiedEvent,
    FileMovedEvent,
]
"""No event of opening and reading: without a filter the library's own reading of the folders fills
the queue, from 16,384 folders on again and again."""

_GATHERING = 0.02
"""Seconds for which what happens next is waited for, so that many events are taken at once."""

_LONGEST = 60.0
"""Seconds after which it is looked whether the library's threads are there."""


class DiskObserver:
    """A `ports.Observer` of one root, by the library watchdog; its threads only fill a queue."""

    def __init__(self, root: str) -> None:
        self._root = os.path.realpath(root)
        self._noticed: queue.SimpleQueue[Noticed | str] = queue.SimpleQueue()
        self._folders: _Folders | None = None
        self._observer: BaseObserver | None = None
        self.watch = ToldFolders("", lag=LAG)

    @property
    def doubt(self) -> str:
        """The reason why a look at everything is due; "" where none is."""
        return "" if self.watch.doubt == FORGOTTEN else self.watch.doubt

    def start(self, scope: Scope) -> None:
        """Begin to notice what happens in the folders of the scope. Conflict, with the reason."""
        folder = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            flaw = flaw_of(folder)
        finally:
            os.close(folder)
        free = inotify.free_watches()
        self.close()
        try:
            if not flaw:
                self._begin(scope, None if free is None else free // 2)
                flaw = self._folders.flaw if self._folders else ""
        except OSError as error:
            flaw = f"inotify: {error.strerror}"
        if flaw:
            self.close()
            raise not_watched(self._root, flaw)

    def _begin(self, scope: Scope, most: int | None) -> None:
        # what it says of itself is said by us, or is nothing to a person
        warnings.filterwarnings("ignore", "Callback with id", RuntimeWarning)
        logging.getLogger("watchdog").addHandler(logging.NullHandler())
        self._folders = _Folders(self._root, scope, most, self._noticed.put)
        self._folders.start()
        self._observer = BaseObserver(InotifyEmitter, inotify_fd=self._folders)
        told = _Told(len(self._root) + 1, self._noticed.put)
        self._observer.schedule(told, self._root, recursive=True, event_filter=_WANTED)
        self._observer.start()

    def take(self, seconds: float | None) -> Sequence[Noticed]:
        """What was noticed since, in order; waited for up to so many seconds, or a minute.

        Conflict once not all folders can be watched any more; StorageFailed where nothing is told.
        """
        wait = _LONGEST if seconds is None else min(seconds, _LONGEST)
        taken: list[Noticed | str] = []
        try:
            taken.append(
                self._noticed.get(timeout=wait) if wait > 0 else self._noticed.get_nowait()
            )
            time.sleep(_GATHERING)
            while True:
                taken.append(self._noticed.get_nowait())
        except queue.Empty:
            pass
        for one in taken:
            if isinstance(one, str):
                self.watch.doubt = one
        if self._folders is not None and self._folders.flaw:
            raise not_watched(self._root, self._folders.flaw)
        emitters = () if self._observer is None else self._observer.emitters
        if not emitters or not all(one.is_alive() for one in emitters):
            raise StorageFailed(
                f"nothing is told of {self._root} any more",
                hint="See that the folder is there, then watch again.",
            )
        return [one for one in taken if isinstance(one, Noticed)]

    def check(self) -> None:
        """Watch all folders anew, and doubt, where the library has lost track of a renamed one."""
        folders, observer = self._folders, self._observer
        if folders is None or observer is None:
            return
        for emitter in observer.emitters:
            group = emitter._inotify if isinstance(emitter, InotifyEmitter) else None
            if group is not None and not folders.are_tracked(group, self.watch.folders):
                group.on_queue_overflow()  # what the library does when it has lost events
                self.watch.doubt = RENAMED

    def forget(self) -> None:
        """Forget what is known of the folders: the next look is of everything, and not due."""
        self.watch = ToldFolders("", lag=LAG)
        self.watch.doubt = FORGOTTEN

    def close(self) -> None:
        """Notice nothing any more."""
        observer, self._observer = self._observer, None
        folders, self._folders = self._folders, None
        for thread in (observer, folders):
            if thread is not None:
                thread.stop()
                if thread.is_alive():
                    thread.join()
        self.watch.close()


def not_watched(root: str, why: str) -> Conflict:
    """The error about a folder that cannot be watched."""
    return Conflict(
        f"{root} cannot be watched: {why}",
        hint="What changes is found by the look before each call, as without a watcher.",
    )


class _Folders(InotifyFD):
    """The kernel's queue, in which only folders in scope are watched, and not too many."""

    def __init__(
        self, root: str, scope: Scope, most: int | None, note: Callable[[Noticed | str], object]
    ) -> None:
        super().__init__()
        self._root = os.fsencode(root)
        self._scope = scope
        self._most = most
        self._note = note
        self.flaw = ""

    def add_callback(
        self, path: bytes, mask: Mask, callback: WatchCallback, id_: CallbackId
    ) -> WatchDescriptor:
        """As the library's; OSError for a folder that is left out, which it passes over."""
        inside = os.fsdecode(path[len(self._root) + 1 :])
        if inside and not self._scope.includes(inside, directory=True):
            raise OSError(errno.EPERM, "left out")
        if self._most is not None and len(self._watch_for_wd) >= self._most:
            self._fail(f"it has more than {self._most:,} folders, half of what may be watched")
        try:
            return super().add_callback(path, mask, callback, id_)
        except OSError as error:
            if error.errno == errno.ENOSPC:
                self._fail("more folders than fs.inotify.max_user_watches allows")
            raise

    def _fail(self, flaw: str) -> None:
        if not self.flaw:
            self.flaw = flaw
            self._note(flaw)
        raise OSError(errno.ENOSPC, flaw)

    def are_tracked(self, group: InotifyWatchGroup, known: Iterable[str]) -> bool:
        """Whether each known folder is watched, and by the path that it has."""
        with group._lock:
            told = dict(group._active_callbacks_by_watch)
        watched = {*told.values()}
        if any(os.path.join(self._root, os.fsencode(p)).rstrip(b"/") not in watched for p in known):
            return False
        with self._lock:  # to watch again what is watched gives the number that it has
            return not self._closed and all(
                inotify_add_watch(self._inotify_fd, path, group.event_mask) == number
                for number, path in told.items()
            )

    def handle_event(self, event: InotifyEvent) -> None:
        """As the library's, which does not tell of an overflow; its folders are watched anew."""
        super().handle_event(event)
        if event.is_queue_overflow:
            self._note(OVERFLOW)


class _Told(FileSystemEventHandler):
    """What the library's events say of paths in the root."""

    def __init__(self, start: int, note: Callable[[Noticed | str], object]) -> None:
        """Paths are told from the character `start` on."""
        self._start = start
        self._note = note

    def dispatch(self, event: FileSystemEvent) -> None:
        """Note both paths of a move, or the one of another event."""
        renewed = event.is_directory and not isinstance(event, DirAttribEvent)
        for path in filter(None, (event.src_path, event.dest_path)):
            self._note(Noticed(os.fsdecode(cast("str | bytes", path))[self._start :], renewed))
