"""The contents of files and payloads, each by its hash."""

from collections.abc import Iterable, Sequence
from typing import BinaryIO, Protocol

from loom_audit.model.files import BlobId


class BlobStore(Protocol):
    """Content by its SHA-256; safe in any thread. Putting the same bytes twice changes nothing.

    What was put can be read at once through the same store; it becomes durable with the next
    `append` of a log opened on it, in the same transaction. Content over the inline limit is
    written, fsynced and renamed into the large-object store before `put` returns. StorageFailed
    where the store cannot be read or written.
    """

    def put(self, content: bytes | BinaryIO, *, similar_to: BlobId | None = None) -> BlobId:
        """Store the content; `similar_to` names an earlier version to store a delta against.

        A stream is read to its end in bounded memory.
        """
        ...

    def get(self, blob: BlobId) -> bytes:
        """The whole content. NotFound when it is not stored, Corrupt when its hash differs."""
        ...

    def get_many(self, blobs: Sequence[BlobId]) -> dict[BlobId, bytes]:
        """The contents that can be read at once, checked against their hashes.

        For some hundred small ones. For a content that is missing in the result `get` returns
        it or raises why it cannot.
        """
        ...

    def open(self, blob: BlobId) -> BinaryIO:
        """The content as a stream in bounded memory, checked at its end. NotFound, Corrupt."""
        ...

    def __contains__(self, blob: BlobId) -> bool: ...

    def missing(self, blobs: Iterable[BlobId]) -> set[BlobId]:
        """The blobs whose content is not stored."""
        ...

    def size(self, blob: BlobId) -> int:
        """Bytes of the content. NotFound when it is not stored."""
        ...

    def pending_bytes(self) -> int:
        """Bytes put and not yet durable, for callers that bound memory by appending."""
        ...
