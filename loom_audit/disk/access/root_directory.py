"""Opening paths beneath a root so that no race with renames and symlinks leads out of it.

On Linux by openat2(2); elsewhere, and for links that openat2 refuses although they stay
inside (absolute ones), by a walk over directory descriptors that never lets the kernel follow
a link. A check of the path's text followed by an open is not used: it leaks under a swap.
Methods raise OSError; EXDEV means that the path leads outside.
"""

import errno
import itertools
import os
import secrets
import tempfile
import weakref
from collections import OrderedDict, deque
from pathlib import Path

from loom_audit.disk.access import system
from loom_audit.disk.access.late_writers import Patience
from loom_audit.disk.access.system import O_PATH, System, mounts_below
from loom_audit.errors import NoWorkspace
from loom_audit.model.scope import TEMPORARY

_BENEATH = system.RESOLVE_BENEATH | system.RESOLVE_NO_MAGICLINKS
_STRICT = _BENEATH | system.RESOLVE_NO_SYMLINKS
_FOLDER = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_ROOT = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_RETRIES = 32
_MAX_LINKS = 40

_CHANGED = (errno.ELOOP, errno.ENOTDIR)
"""Errors of an open when a folder has become a link or a file."""


def _oserror(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)


def _deleted_folder() -> int:
    """A descriptor of a directory that was deleted, in which nothing is and can be made."""
    made = tempfile.mkdtemp(prefix="loom-audit-")
    try:
        return os.open(made, _ROOT)
    finally:
        Path(made).rmdir()


class RootDirectory:
    """A root directory kept open, and the ways to reach what is in it.

    Usable from any thread. The descriptor is closed with the object.
    """

    def __init__(self, root: str, calls: System, *, deleted: bool = False) -> None:
        """A `deleted` root is one of which it is on record that it was deleted."""
        self.given = os.path.abspath(root)
        self.real = os.path.realpath(root)
        self.calls = calls
        self.patience = Patience()
        self._open(_deleted_folder() if deleted else os.open(self.real, _ROOT))

    def _open(self, descriptor: int) -> None:
        self.fd = descriptor
        self._close = weakref.finalize(self, os.close, descriptor)
        seen = os.fstat(descriptor)
        self.device = seen.st_dev
        self._inode = seen.st_ino

    def close(self) -> None:
        """Close the root's descriptor."""
        self._close()

    @property
    def is_deleted(self) -> bool:
        """Whether the root was deleted, and is neither moved, unmounted nor covered by a mount."""
        return os.fstat(self.fd).st_nlink == 0 and not os.path.lexists(self.real)

    def make_again(self) -> None:
        """Make the root where it was deleted; nothing where it is there. OSError."""
        if self.is_deleted:
            os.makedirs(self.real)
            system.sync_folder(os.path.dirname(self.real))
            self._open_anew()

    def _open_anew(self) -> None:
        """Go on with the directory that is in the place of the deleted one."""
        before = self._close
        self._open(os.open(self.real, _ROOT | os.O_NOFOLLOW))
        before()

    def check_present(self) -> None:
        """Raise NoWorkspace when nothing can be written: as `check`, and for a deleted root."""
        self.check()
        if self.is_deleted:
            raise NoWorkspace(
                f"the workspace was deleted: {self.real}",
                hint="`loom-audit undo` brings it back.",
                details={"root": self.real},
            )

    def check(self) -> None:
        """Raise NoWorkspace when the directory is no longer where it was.

        A root that was deleted is empty; what was made in its place is the workspace then.
        """
        if os.fstat(self.fd).st_nlink == 0:
            if not os.path.lexists(self.real):
                return
            if os.path.realpath(self.real) == self.real and os.path.isdir(self.real):
                self._open_anew()
        try:
            seen = os.stat(self.real)
        except OSError as error:
            raise NoWorkspace(
                f"the workspace has vanished: {self.real}",
                hint="Mount it or move it back.",
                details={"root": self.real},
            ) from error
        moved = os.path.realpath(self.real) != self.real
        if moved or (seen.st_dev, seen.st_ino) != (self.device, self._inode):
            raise NoWorkspace(
                f"another directory is in the workspace's place: {self.real}",
                hint="Move it back, or open the workspace again to go on with this one.",
                details={"root": self.real},
            )

    def relative_to_root(self, absolute: str) -> str | None:
        """The path of an absolute path from the root, None when it lies elsewhere."""
        for root in (self.real, self.given):
            if absolute == root:
                return ""
            prefix = root.rstrip("/") + "/"
            if absolute.startswith(prefix):
                return absolute[len(prefix) :]
        return None

    def open_folder(self, path: str, *, readable: bool = True) -> int:
        """A descriptor of a directory on whose path there is no link; else ELOOP or ENOTDIR.

        Without openat2(2) each folder is opened in the one above: no name is resolved twice.
        """
        flags = (os.O_RDONLY if readable else O_PATH) | _FOLDER
        if not path:
            return os.open(".", flags, dir_fd=self.fd)
        if self.calls.openat2:
            for _ in range(_RETRIES):
                try:
                    return system.openat2(self.fd, os.fsencode(path), flags, _STRICT)
                except OSError as error:
                    if error.errno != errno.EAGAIN:
                        raise
        parts = path.split("/")
        here = os.dup(self.fd)
        try:
            for part in parts[:-1]:
                below = os.open(part, O_PATH | _FOLDER, dir_fd=here)
                os.close(here)
                here = below
            return os.open(parts[-1], flags, dir_fd=here)
        finally:
            os.close(here)

    def is_mounted(self, folder: str) -> bool:
        """Whether a folder is, or lies in, what is mounted inside the root."""
        if self.calls.openat2:
            for _ in range(_RETRIES):
                try:
                    here = _STRICT | system.RESOLVE_NO_XDEV
                    os.close(system.openat2(self.fd, os.fsencode(folder or "."), O_PATH, here))
                    return False
                except OSError as error:
                    if error.errno != errno.EAGAIN:
                        return error.errno == errno.EXDEV
        return any(f"{folder}/".startswith(f"{point}/") for point in mounts_below(self.real))

    def is_elsewhere(self, path: str, device: int) -> bool:
        """Whether what is at a path, of this device, is on a mount inside the root.

        Another device alone does not say so: an overlay's files have those of its layers.
        """
        return device != self.device and self.is_mounted(path)

    def open(self, path: str, flags: int) -> int:
        """Open a path, following links that stay inside, its last one too unless O_NOFOLLOW.

        OSError; EXDEV where the path leads outside. EAGAIN of openat2(2) is tried again.
        """
        if self.calls.openat2:
            for _ in range(_RETRIES):
                try:
                    return system.openat2(self.fd, os.fsencode(path or "."), flags, _BENEATH)
                except OSError as error:
                    if error.errno == errno.EXDEV:
                        break
                    if error.errno != errno.EAGAIN:
                        raise
        for _ in range(_RETRIES):
            with _PathWalk(self, path, follow=not flags & os.O_NOFOLLOW) as walk:
                if walk.missing:
                    raise _oserror(errno.ENOENT, path)
                try:
                    last = flags | os.O_NOFOLLOW | os.O_CLOEXEC
                    return os.open(walk.name or ".", last, dir_fd=walk.fd)
                except OSError as error:
                    if error.errno != errno.ELOOP or flags & os.O_NOFOLLOW:
                        raise
        raise _oserror(errno.ELOOP, path)

    def resolve(self, path: str) -> str:
        """The path without links; what is not there yet is left as it is written. OSError."""
        if not path:
            return path
        if self.calls.openat2:
            try:
                os.close(system.openat2(self.fd, os.fsencode(path), O_PATH, _STRICT))
                return path
            except OSError as error:
                if error.errno not in (*_CHANGED, errno.ENOENT, errno.EAGAIN):
                    raise
        with _PathWalk(self, path, follow=True) as walk:
            return "/".join([*walk.trail, *([walk.name] if walk.name else []), *walk.missing])


class _PathWalk:
    """A walk to the folder that holds a path's last name, one descriptor per folder entered.

    `..` in a link's text goes back to a descriptor that was passed, never to the kernel's
    idea of a parent. After it `fd` and `name` say where the path ends ("" = the folder
    itself) and `missing` which names behind `name` do not exist.
    """

    def __init__(self, beneath: RootDirectory, path: str, *, follow: bool) -> None:
        self._beneath = beneath
        self._path = path
        self._follow = follow
        self._stack: list[int] = []
        self._todo = deque(part for part in path.split("/") if part)
        self._links = 0
        self.trail: list[str] = []
        self.name = ""
        self.missing: list[str] = []

    @property
    def fd(self) -> int:
        return self._stack[-1] if self._stack else self._beneath.fd

    def __enter__(self) -> "_PathWalk":
        try:
            while self._todo and not self.missing:
                self._step(self._todo.popleft())
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._leave()

    def _leave(self) -> None:
        while self._stack:
            os.close(self._stack.pop())

    def _step(self, part: str) -> None:
        if part == "..":
            if not self._stack:
                raise _oserror(errno.EXDEV, self._path)
            os.close(self._stack.pop())
            self.trail.pop()
            return
        last = not self._todo
        if not last or self._follow:
            target = self._link(part)
            if target is not None:
                self._enter_link(target)
                return
        if last:
            self.name = part
            return
        try:
            self._stack.append(os.open(part, O_PATH | _FOLDER, dir_fd=self.fd))
            self.trail.append(part)
        except FileNotFoundError:
            self.name = part
            self.missing = [name for name in self._todo if name != ".."]
            if len(self.missing) != len(self._todo):
                raise
        except OSError as error:
            if error.errno not in _CHANGED or self._link(part) is None:
                raise
            self._count_link()
            self._todo.appendleft(part)

    def _link(self, name: str) -> str | None:
        try:
            return os.readlink(name, dir_fd=self.fd)
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.ENOENT):
                return None
            raise

    def _count_link(self) -> None:
        self._links += 1
        if self._links > _MAX_LINKS:
            raise _oserror(errno.ELOOP, self._path)

    def _enter_link(self, target: str) -> None:
        self._count_link()
        if target.startswith("/"):
            rest = self._beneath.relative_to_root(target)
            if rest is None:
                raise _oserror(errno.EXDEV, self._path)
            while self._stack:
                os.close(self._stack.pop())
            self.trail.clear()
            target = rest
        self._todo.extendleft(part for part in reversed(target.split("/")) if part not in ("", "."))


class OpenFolders:
    """Descriptors of folders, opened when asked for; the least used are closed beyond `capacity`.

    For work on many paths by one thread. A folder that cannot be listed is opened for
    passing through.
    """

    def __init__(self, beneath: RootDirectory, capacity: int = 64) -> None:
        self.beneath = beneath
        self._capacity = capacity
        self._open: OrderedDict[str, int] = OrderedDict()
        self._unlistable: set[str] = set()
        self._names = itertools.count()
        self._newest = ""
        self._token = ""

    def fresh_name(self) -> str:
        """A name for a temporary that nobody else makes: 64 random bits and a count."""
        self._token = self._token or secrets.token_hex(8)
        return f"{TEMPORARY}{self._token}-{next(self._names):x}"

    def fd(self, path: str) -> int:
        """The descriptor of a folder, open until many others have been asked for. OSError."""
        found = self._open.get(path)
        if found is not None:
            if path != self._newest:
                self._open.move_to_end(path)
                self._newest = path
            return found
        self._unlistable.discard(path)
        try:
            found = self.beneath.open_folder(path)
        except PermissionError:
            found = self.beneath.open_folder(path, readable=False)
            self._unlistable.add(path)
        self._open[path] = found
        self._newest = path
        if len(self._open) > self._capacity:
            os.close(self._open.popitem(last=False)[1])
        return found

    def sync(self, path: str) -> None:
        """Make the names in a folder durable (fsync(2) of the folder itself). OSError."""
        descriptor = self.fd(path)
        if path in self._unlistable:
            sync_filesystem(self.beneath)
        else:
            system.fsync(descriptor)

    def forget(self, path: str) -> None:
        """Close a folder that is about to go, and all below it."""
        below = path + "/"
        for known in [known for known in self._open if known == path or known.startswith(below)]:
            os.close(self._open.pop(known))

    def close(self) -> None:
        """Close all descriptors that are kept."""
        while self._open:
            os.close(self._open.popitem()[1])

    def __del__(self) -> None:
        self.close()


def sync_filesystem(beneath: RootDirectory) -> None:
    """Flush the whole filesystem of the root, or all of the machine where there is no syncfs(2)."""
    if beneath.calls.syncfs:
        system.syncfs(beneath.fd)
    else:
        os.sync()
