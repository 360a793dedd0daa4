"""Contents read from the store some at a time, in the order in which they will be written."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from io import BytesIO
from typing import BinaryIO

from loom_audit.history.capture import MAX_READ_AT_ONCE
from loom_audit.model.files import BlobId, FileState
from loom_audit.ports import BlobStore

MAX_BYTES = 4 * 1024 * 1024
"""Contents that are read together take up to so much memory."""

MAX_COUNT = 128
"""Most contents that are read together."""


class Prefetch:
    """Opens the contents of states, best in the order in which the states were named.

    `known` are contents that need not be read. At any time no more than one reading's worth of
    the others is in memory.
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
        """Opens a state's content when it is written, not before; None when it has none."""
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
        room = MAX_BYTES
        for blob, size in self._wanted.items():
            room -= size
            if len(some) == MAX_COUNT or (some and room < 0):
                break
            some.append(blob)
        for blob in some:
            del self._wanted[blob]
        return some
