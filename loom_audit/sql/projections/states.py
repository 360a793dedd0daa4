"""A path's state as columns hold it: st_mode with its type bits, size, and the content's hash."""

import stat
from collections.abc import Mapping

from loom_audit.model.files import BlobId, FileState, Kind
from loom_audit.sql.packing import check_numbers

KINDS: Mapping[int, Kind] = {
    stat.S_IFREG: "file",
    stat.S_IFLNK: "symlink",
    stat.S_IFDIR: "directory",
}
_TYPE_BITS = {kind: bits for bits, kind in KINDS.items()}


def columns(state: FileState | None) -> tuple[int | None, int | None, bytes | None]:
    """Mode, size and hash; nothing of each for an absent path."""
    if state is None:
        return None, None, None
    digest = bytes.fromhex(state.blob) if state.blob else None
    return state.mode | _TYPE_BITS[state.kind], state.size, digest


def to_state(mode: int | None, size: int | None, sha256: bytes | None) -> FileState | None:
    """A state from its columns; None when the path was absent."""
    if mode is None:
        return None
    check_numbers(size)
    blob = None if sha256 is None else blob_id(sha256)
    return FileState(KINDS[stat.S_IFMT(mode)], blob, stat.S_IMODE(mode), size or 0)


def blob_id(sha256: bytes) -> BlobId:
    """The name of a content by its hash. ValueError for what is not a hash."""
    if len(sha256) != 32:
        raise ValueError(f"{sha256!a} is not a hash")
    return BlobId(sha256.hex())
