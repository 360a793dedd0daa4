"""Exchanging two names, and moving a name to where nothing is: atomic where the system can.

With renameat2(2) both are one step. Elsewhere, and on filesystems that refuse its flags, an
exchange is link(2) of the old, then rename(2) of the new over it: readers always see the one
or the other. Between the two calls a third party's replacement would be lost unseen; and on
filesystems without hard links, or for directories, the name is absent for a moment.
"""

import errno
import os
import stat
from pathlib import Path

from msgspec import Struct

from loom_audit.disk.access import system
from loom_audit.disk.access.paths import join, split
from loom_audit.disk.access.root_directory import OpenFolders
from loom_audit.disk.access.system import closing_fd

_UNSUPPORTED = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)
_NO_LINKS = (errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EACCES)


class Location(Struct, frozen=True):
    """A name in a folder that is reached by its descriptor."""

    folders: OpenFolders
    parent: str
    name: str

    @property
    def path(self) -> str:
        """The name's path from the root."""
        return join(self.parent, self.name)

    @property
    def fd(self) -> int:
        """The folder's descriptor."""
        return self.folders.fd(self.parent)

    def stat(self) -> os.stat_result:
        """Stat the name itself, never what a link leads to. FileNotFoundError."""
        return os.stat(self.name, dir_fd=self.fd, follow_symlinks=False)

    def lstat(self) -> os.stat_result | None:
        """Stat the name itself; None where nothing has it."""
        try:
            return self.stat()
        except FileNotFoundError:
            return None

    def open(self, flags: int, mode: int = 0o600) -> int:
        """Open what has the name, never through a link. OSError."""
        flags |= os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        return os.open(self.name, flags, mode, dir_fd=self.fd)

    def read_link(self) -> bytes:
        """The target of the symlink, as bytes. OSError."""
        return os.fsencode(os.readlink(self.name, dir_fd=self.fd))

    def unlink(self) -> None:
        """Delete the file or link. OSError."""
        os.unlink(self.name, dir_fd=self.fd)

    def rmdir(self) -> None:
        """Delete the empty folder, and close descriptors in it. OSError."""
        self.folders.forget(self.path)
        os.rmdir(self.name, dir_fd=self.fd)

    def mkdir(self) -> None:
        """Make a folder that only its owner may enter. OSError."""
        os.mkdir(self.name, 0o700, dir_fd=self.fd)

    def chmod(self, mode: int) -> None:
        """Set the exact permission bits of a file or directory, never through a link.

        fchmod(2) refuses a descriptor of O_PATH, and a file that may not be read can have no other:
        the path of /proc leads to what is open.
        """
        if not os.path.isdir("/proc/self/fd"):
            os.chmod(self.name, mode, dir_fd=self.fd, follow_symlinks=False)
            return
        with closing_fd(self.open(system.O_PATH)) as descriptor:
            if stat.S_ISLNK(os.fstat(descriptor).st_mode):
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), self.name)
            Path(f"/proc/self/fd/{descriptor}").chmod(mode)

    def temporary_sibling(self) -> "Location":
        """A fresh temporary name in the same folder."""
        return Location(self.folders, self.parent, self.folders.fresh_name())


def location_of(folders: OpenFolders, path: str) -> Location:
    """The location that a path names; nothing is opened yet."""
    parent, name = split(path)
    return Location(folders, parent, name)


def exchange(one: Location, other: Location) -> None:
    """Exchange what has two names; FileNotFoundError when one of the names is absent."""
    if _renamed_at_once(one, other, system.RENAME_EXCHANGE):
        return
    displaced = other.temporary_sibling()
    found = other.stat()
    new = one.lstat()
    if stat.S_ISDIR(found.st_mode) or (new is not None and stat.S_ISDIR(new.st_mode)):
        _rename(other, displaced)
    else:
        try:
            link_to(other, displaced)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            _rename(other, displaced)
    try:
        _rename(one, other)
    except OSError:
        _rename(displaced, other)
        raise
    _rename(displaced, one)


def move(source: Location, target: Location) -> None:
    """Move what has a name to a name that nothing has; FileExistsError when something has it."""
    if _renamed_at_once(source, target, system.RENAME_NOREPLACE):
        return
    found = source.lstat()
    if found is not None and not stat.S_ISDIR(found.st_mode):
        try:
            link_to(source, target)
            source.unlink()
            return
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
    if target.lstat() is not None:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target.name)
    _rename(source, target)


def _renamed_at_once(source: Location, target: Location, flags: int) -> bool:
    """Rename by renameat2(2); False where the system or the filesystem has no such call."""
    if not source.folders.beneath.calls.renameat2:
        return False
    old, new = (one.name.encode("utf-8", "surrogateescape") for one in (source, target))
    try:
        system.renameat2(source.fd, old, target.fd, new, flags)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
        return False
    return True


def _rename(source: Location, target: Location) -> None:
    os.rename(source.name, target.name, src_dir_fd=source.fd, dst_dir_fd=target.fd)


def link_to(source: Location, target: Location) -> None:
    """Give what is at the source another name; FileExistsError when something has that name."""
    os.link(
        source.name,
        target.name,
        src_dir_fd=source.fd,
        dst_dir_fd=target.fd,
        follow_symlinks=False,
    )
