"""Puts the contents of files that are looked at into the store, or only hashes them."""

from hashlib import sha256
from typing import BinaryIO, cast

from loom_audit.history.ground.attachment import StoredLog
from loom_audit.model.files import BlobId

MAX_READ_AT_ONCE = 1024 * 1024
"""A file of at most so many bytes is read in one piece, a larger one as a stream."""


def blob_of(stored: StoredLog, content: bytes, similar: BlobId | None, keep: bool) -> BlobId:
    """The name of a content; with `keep` the content is stored, as a delta of a `similar` one."""
    if keep:
        return stored.blobs.put(content, similar_to=similar)
    return BlobId(sha256(content).hexdigest())


def blob_of_stream(
    stored: StoredLog, stream: BinaryIO, most: int, similar: BlobId | None, keep: bool
) -> tuple[BlobId, int]:
    """As `blob_of`, for the first `most` bytes of a stream, with how many bytes there were."""
    first = _FirstBytes(stream, most)
    if keep:
        blob = stored.blobs.put(cast("BinaryIO", first), similar_to=similar)
        return blob, stored.blobs.size(blob)
    digest, size = sha256(), 0
    while part := first.read(1024 * 1024):
        digest.update(part)
        size += len(part)
    return BlobId(digest.hexdigest()), size


class _FirstBytes:
    """The first bytes of a stream, so that reading a file that grows comes to an end."""

    def __init__(self, stream: BinaryIO, size: int) -> None:
        self._stream = stream
        self._rest = size

    def read(self, size: int = -1) -> bytes:
        part = self._stream.read(self._rest if size < 0 else min(size, self._rest))
        self._rest -= len(part)
        return part
