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

_UNSUPPORTED = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)
_NO_LINKS = (errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EACCES)


class Location(Struct, frozen=True):
    """A name in a folder that is reached by its descriptor."""

    folders: OpenFolders
    parent: str
    name: str

    @property
    def path(self) -> str:
        return join(self.parent, self.name)

    @property
    def fd(self) -> int:
        """The folder's descriptor."""
        return self.folders.fd(self.parent)

    def lstat(self) -> os.stat_result | None:
        try:
            return os.stat(self.name, dir_fd=self.fd, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def open(self, flags: int, mode: int = 0o600) -> int:
        """Open it, never through a link."""
        flags |= os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        return os.open(self.name, flags, mode, dir_fd=self.fd)

    def read_link(self) -> bytes:
        return os.fsencode(os.readlink(self.name, dir_fd=self.fd))

    def unlink(self) -> None:
        os.unlink(self.name, dir_fd=self.fd)

    def rmdir(self) -> None:
        self.folders.forget(self.path)
        os.rmdir(self.name, dir_fd=self.fd)

    def mkdir(self) -> None:
        os.mkdir(self.name, 0o700, dir_fd=self.fd)

    def chmod(self, mode: int) -> None:
        """Set the exact permission bits of a file or directory, never through a link."""
        if not os.path.isdir("/proc/self/fd"):
            os.chmod(self.name, mode, dir_fd=self.fd, follow_symlinks=False)
            return
        descriptor = self.open(system.O_PATH)
        try:
            if stat.S_ISLNK(os.fstat(descriptor).st_mode):
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), self.name)
            Path(f"/proc/self/fd/{descriptor}").chmod(mode)
        finally:
            os.close(descriptor)

    def temporary_sibling(self) -> "Location":
        """A fresh temporary name in the same folder."""
        return Location(self.folders, self.parent, self.folders.fresh_name())


def location_of(folders: OpenFolders, path: str) -> Location:
    parent, name = split(path)
    return Location(folders, parent, name)


def exchange(one: Location, other: Location) -> None:
    """Exchange the two; FileNotFoundError when one is absent."""
    if one.folders.beneath.calls.renameat2:
        try:
            _renameat2(one, other, system.RENAME_EXCHANGE)
            return
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise
    aside = other.temporary_sibling()
    found = other.lstat()
    if found is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), other.name)
    new = one.lstat()
    if stat.S_ISDIR(found.st_mode) or (new is not None and stat.S_ISDIR(new.st_mode)):
        _rename(other, aside)
    else:
        try:
            link_to(other, aside)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            _rename(other, aside)
    try:
        _rename(one, other)
    except OSError:
        _rename(aside, other)
        raise
    _rename(aside, one)


def move(source: Location, target: Location) -> None:
    """Move to a name where nothing is; FileExistsError when something is there."""
    if source.folders.beneath.calls.renameat2:
        try:
            _renameat2(source, target, system.RENAME_NOREPLACE)
            return
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise
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


def _renameat2(source: Location, target: Location, flags: int) -> None:
    system.renameat2(
        source.fd,
        source.name.encode("utf-8", "surrogateescape"),
        target.fd,
        target.name.encode("utf-8", "surrogateescape"),
        flags,
    )


def _rename(source: Location, target: Location) -> None:
    os.rename(source.name, target.name, src_dir_fd=source.fd, dst_dir_fd=target.fd)


def link_to(source: Location, target: Location) -> None:
    """Give what is at the source another name; FileExistsError when something has it."""
    os.link(
        source.name,
        target.name,
        src_dir_fd=source.fd,
        dst_dir_fd=target.fd,
        follow_symlinks=False,
    )
