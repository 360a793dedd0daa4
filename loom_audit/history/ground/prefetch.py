"""Reads contents from the store in batches, in the order in which they will be written."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from io import BytesIO
from typing import BinaryIO

from loom_audit.history.ground.contents import MAX_READ_AT_ONCE
from loom_audit.model.files import BlobId, FileState
from loom_audit.ports import BlobStore

MAX_BYTES = 4 * 1024 * 1024
"""Most bytes of the contents in one batch."""

MAX_COUNT = 128
"""Most contents in one batch."""


class Prefetch:
    """Opens the contents of states. It is quick where they are opened in the order of `states`.

    `known` are contents that the caller has in memory. Of the others at most one batch is in
    memory at a time; larger ones are streams.
    """

    def __init__(
        self,
        blobs: BlobStore,
        states: Iterable[FileState | None],
        known: Mapping[BlobId, bytes] | None = None,
    ) -> None:
        self._blobs = blobs
        self._in_memory = known or {}
        self._wanted = {
            state.blob: state.size
            for state in states
            if state
            and state.blob
            and state.size <= MAX_READ_AT_ONCE
            and state.blob not in self._in_memory
        }
        self._read: dict[BlobId, bytes] = {}

    def opener(self, state: FileState | None) -> Callable[[], BinaryIO] | None:
        """A function that opens the content of a state; None for a state without content.

        That function raises what the blob store raises for a content that is missing or damaged.
        """
        if state is None or state.blob is None:
            return None
        content = self._in_memory.get(state.blob)
        if content is not None:
            return partial(BytesIO, content)
        return partial(
            self._open if state.size <= MAX_READ_AT_ONCE else self._blobs.open, state.blob
        )

    def _open(self, blob: BlobId) -> BinaryIO:
        content = self._read.get(blob)
        if content is None and blob in self._wanted:
            some = self._next_batch()
            self._read = self._blobs.get_many(some) if len(some) > 1 else {}
            content = self._read.get(blob)
        return BytesIO(self._blobs.get(blob) if content is None else content)

    def _next_batch(self) -> list[BlobId]:
        some: list[BlobId] = []
        space = MAX_BYTES
        for blob, size in self._wanted.items():
            space -= size
            if len(some) == MAX_COUNT or (some and space < 0):
                break
            some.append(blob)
        for blob in some:
            del self._wanted[blob]
        return some
