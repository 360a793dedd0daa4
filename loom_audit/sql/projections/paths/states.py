"""A path's state as columns hold it: mode, size, and the content's hash.

A mode is st_mode with its type bits; bit 16 says that an access control list was there, and from
bit 17 on is the number of the group of hard links plus one, where there is one.
"""

import stat
from collections.abc import Mapping

from loom_audit.model.files import BlobId, FileState, Kind
from loom_audit.sql.ground.packing import check_numbers

KINDS: Mapping[int, Kind] = {
    stat.S_IFREG: "file",
    stat.S_IFLNK: "symlink",
    stat.S_IFDIR: "directory",
    0o170000: "opaque",
}
_TYPE_BITS = {kind: bits for bits, kind in KINDS.items()}
_ACL_BIT, _GROUP_BITS = 16, 17
_ST_MODE = (1 << _ACL_BIT) - 1


def columns(state: FileState | None) -> tuple[int | None, int | None, bytes | None]:
    """The mode, size and hash of a state; None for each where the path is absent."""
    if state is None:
        return None, None, None
    digest = bytes.fromhex(state.blob) if state.blob else None
    mode = state.mode | _TYPE_BITS[state.kind] | state.acl << _ACL_BIT
    if state.group is not None:
        mode |= (state.group + 1) << _GROUP_BITS
    return mode, state.size, digest


def to_state(mode: int | None, size: int | None, sha256: bytes | None) -> FileState | None:
    """The state that columns hold; None when the path was absent."""
    if mode is None:
        return None
    check_numbers(size)
    blob = None if sha256 is None else blob_id(sha256)
    kind, bits, group, acl = shape(mode)
    return FileState(kind, blob, bits, size or 0, group, acl)


def shape(mode: int) -> tuple[Kind, int, int | None, bool]:
    """The kind, permission bits, group of hard links and list of a mode's column."""
    group = (mode >> _GROUP_BITS) - 1
    return (
        KINDS[stat.S_IFMT(mode & _ST_MODE)],
        stat.S_IMODE(mode & _ST_MODE),
        group if group >= 0 else None,
        bool(mode >> _ACL_BIT & 1),
    )


def blob_id(sha256: bytes) -> BlobId:
    """The name of a content by its hash. ValueError for what is not a hash."""
    if len(sha256) != 32:
        raise ValueError(f"{sha256!a} is not a hash")
    return BlobId(sha256.hex())
