"""What a file has beside content and mode: its access control list, attributes, and holes.

An access control list is `system.posix_acl_access` as the kernel gives it (acl(5)): a version, then
entries of tag, permissions and id, little-endian. The group's bits of an st_mode are then those of
the list's mask, an upper limit for all named users and groups, and not the group's own.
"""

import errno
import os
import stat
import struct
from collections.abc import Iterator, Mapping
from itertools import groupby

from loom_audit.disk.access.identity import identity_at
from loom_audit.disk.access.paths import split
from loom_audit.disk.access.root_directory import OpenFolders
from loom_audit.disk.access.system import write_all
from loom_audit.disk.writing.exchange import Location
from loom_audit.ports import Attributes

ACL = "system.posix_acl_access"
DEFAULT_ACL = "system.posix_acl_default"
"""Of a folder: what the lists of new files in it begin with."""

LABEL = "security.selinux"
_USER = "user."
_ABSENT = (errno.ENODATA, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOENT, errno.ENOTDIR)
_DENIED = (errno.EPERM, errno.EACCES, errno.ENOTSUP, errno.EOPNOTSUPP)

_VERSION = struct.Struct("<I")
_ENTRY = struct.Struct("<HHI")
_OWNER, _GROUP, _MASK, _OTHER = 0x01, 0x04, 0x10, 0x20

_HAS = hasattr(os, "listxattr")
_BLOCK = 4096
_ZEROS = bytes(_BLOCK)
SPARSE_FROM = 64 * 1024
"""Bytes of a content in which zeros are looked for."""


def names_of(where: int | str) -> list[str]:
    """The names of the attributes of a descriptor, or of a path that is not followed (xattr(7))."""
    if not _HAS:
        return []
    try:
        return os.listxattr(where, follow_symlinks=isinstance(where, int))
    except OSError as error:
        if error.errno not in _ABSENT:
            raise
        return []


def _get(where: int | str, name: str) -> bytes | None:
    try:
        return os.getxattr(where, name, follow_symlinks=isinstance(where, int))
    except OSError as error:
        if error.errno not in _ABSENT:
            raise
        return None


def acl_of(where: int | str) -> bytes | None:
    """The access control list of a descriptor, or of a path that is not followed."""
    return _get(where, ACL) if ACL in names_of(where) else None


def _path_of(location: Location) -> str:
    """A path to a name by its folder's descriptor: no call takes both for attributes."""
    return f"/proc/self/fd/{location.fd}/{location.name}"


def acl_at(location: Location) -> bytes | None:
    """The access control list of what is at the location."""
    return acl_of(_path_of(location))


def carried(location: Location) -> Mapping[str, bytes]:
    """The attributes of what is there that its replacement gets; never capabilities.

    `security.capability`, `security.ima` and `security.evm` vouch for the content that goes.
    """
    path = _path_of(location)
    wanted = (n for n in names_of(path) if n in (ACL, LABEL) or n.startswith(_USER))
    found = ((name, _get(path, name)) for name in wanted)
    return {name: value for name, value in found if value is not None}


def inherited_acl(folders: OpenFolders, folder: str, mode: int) -> bytes | None:
    """The list of a new file of this mode in a folder, None where the folder gives it none.

    A folder that is to be made will have what the one above it has. The owner's, the mask's and the
    others' bits are limited by the mode (acl(5), object creation and default ACLs).
    """
    while True:
        try:
            above = folders.fd(folder)
            break
        except (FileNotFoundError, NotADirectoryError):
            folder = split(folder)[0]
    default = _get(above, DEFAULT_ACL) if DEFAULT_ACL in names_of(above) else None
    if default is None or _MASK not in [tag for tag, _, _ in _entries(default)]:
        return None
    limits = {_OWNER: mode >> 6 & 7, _MASK: mode >> 3 & 7, _OTHER: mode & 7}
    return _packed((tag, bits & limits.get(tag, 7), id) for tag, bits, id in _entries(default))


def own_mode(mode: int, acl: bytes | None) -> int:
    """The permission bits of an st_mode, the group's those of its own entry as far as they count.

    With a list the bits of an st_mode are the mask's: given without the list to the file's group,
    they could be more than it had.
    """
    bits = stat.S_IMODE(mode)
    return bits if acl is None else bits & ~0o777 | _mode_of(acl)


def _mode_of(acl: bytes) -> int:
    bits = {tag: bits for tag, bits, _ in _entries(acl)}
    group = bits.get(_GROUP, 0) & bits.get(_MASK, 7)
    return bits.get(_OWNER, 0) << 6 | group << 3 | bits.get(_OTHER, 0)


def acl_for(mode: int, acl: bytes) -> bytes:
    """The list changed so that `own_mode` of it is this mode; named entries stay."""
    if _mode_of(acl) == mode & 0o777:
        return acl
    group = mode >> 3 & 7
    fixed = {_OWNER: mode >> 6 & 7, _GROUP: group, _OTHER: mode & 7}
    return _packed(
        (tag, bits | group if tag == _MASK else fixed.get(tag, bits), id)
        for tag, bits, id in _entries(acl)
    )


def _entries(acl: bytes) -> Iterator[tuple[int, int, int]]:
    return _ENTRY.iter_unpack(acl[_VERSION.size :])


def _packed(entries: Iterator[tuple[int, int, int]]) -> bytes:
    return _VERSION.pack(2) + b"".join(_ENTRY.pack(*entry) for entry in entries)


def attributes_of(descriptor: int, seen: os.stat_result) -> Attributes:
    """The attributes of what is open, with the stat that was seen of it."""
    acl = acl_of(descriptor)
    identity = identity_at(descriptor)
    return Attributes(own_mode(seen.st_mode, acl), acl is not None, seen.st_nlink, identity)


def attributes_at(location: Location) -> Attributes:
    """The attributes of what is at the location. FileNotFoundError."""
    found = location.stat()
    acl = None if stat.S_ISLNK(found.st_mode) else acl_at(location)
    identity = identity_at(location.fd, os.fsencode(location.name))
    return Attributes(own_mode(found.st_mode, acl), acl is not None, found.st_nlink, identity)


def give(descriptor: int, mode: int, attributes: Mapping[str, bytes]) -> None:
    """Give a new file these attributes and exactly this mode, with a list only if one is given.

    A label that may not be set is the one that the system gives to new files.
    """
    # a default list of the folder has given the new file one (acl(5))
    if ACL in names_of(descriptor):
        os.removexattr(descriptor, ACL)
    more = {name: value for name, value in attributes.items() if name != ACL}
    if more:
        os.fchmod(descriptor, 0o600)  # or even its owner may not set them
    for name, value in more.items():
        if name == LABEL:
            _label(descriptor, value)
        else:
            os.setxattr(descriptor, name, value)
    if stat.S_IMODE(os.fstat(descriptor).st_mode) != mode:
        os.fchmod(descriptor, mode)
    if (acl := attributes.get(ACL)) is not None:
        os.setxattr(descriptor, ACL, acl_for(mode, acl))


def _label(descriptor: int, value: bytes) -> None:
    try:
        os.setxattr(descriptor, LABEL, value)
    except OSError as error:
        if error.errno not in _DENIED:
            raise


def change_mode(location: Location, mode: int, *, acl: bool) -> bytes | None:
    """Change the mode in place, and drop the list unless `acl`; returns the list that was there."""
    had = acl_at(location)
    if had is not None and not acl:
        os.removexattr(_path_of(location), ACL, follow_symlinks=False)
    location.chmod(mode)
    if had is not None and acl:
        set_acl(location, acl_for(mode, had))
    return had


def set_acl(location: Location, acl: bytes) -> None:
    """Give what is there this access control list. OSError."""
    os.setxattr(_path_of(location), ACL, acl, follow_symlinks=False)


def write_sparsely(descriptor: int, chunk: bytes) -> None:
    """Write a chunk at the place of the descriptor, leaving holes where whole blocks are zeros.

    A chunk shorter than `SPARSE_FROM` is written whole. A hole at the end needs `ftruncate` once
    all is written.
    """
    if len(chunk) < SPARSE_FROM:
        write_all(descriptor, chunk)
        return
    at = 0
    for start, part in _runs_with_data(chunk):
        if start > at:
            os.lseek(descriptor, start - at, os.SEEK_CUR)
        write_all(descriptor, part)
        at = start + len(part)
    if at < len(chunk):
        os.lseek(descriptor, len(chunk) - at, os.SEEK_CUR)


def _runs_with_data(chunk: bytes) -> Iterator[tuple[int, bytes]]:
    """The runs of blocks of a chunk that are not all zeros, each with its place in the chunk."""
    places = range(0, len(chunk), _BLOCK)
    for empty, run in groupby(places, lambda n: chunk[n : n + _BLOCK] == _ZEROS):
        if not empty:
            start, *rest = run
            yield start, chunk[start : (rest[-1] if rest else start) + _BLOCK]
