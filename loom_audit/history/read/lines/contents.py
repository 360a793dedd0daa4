"""The lines of recorded contents, as far as they are text that is stored."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from msgspec import Struct

from loom_audit.errors import Corrupt, NotFound
from loom_audit.model.authorship.walk import Read, UnreadableLines
from loom_audit.model.files import BlobId, FileState
from loom_audit.model.text.lines import split_lines
from loom_audit.model.text.merge import is_binary
from loom_audit.ports import BlobStore

MOST_BYTES = 8 * 1024 * 1024
"""The lines of a larger content are not told."""
SMALL_BYTES = 64 * 1024
"""Contents up to this are read many at once."""
NOTHING: Mapping[BlobId, bytes] = {}


class Contents(Struct, frozen=True):
    """Reads the lines of contents of at most so many bytes."""

    blobs: BlobStore
    most_bytes: int = MOST_BYTES

    def reader_of(self, states: Iterable[FileState | None]) -> Read:
        """Return a reader of the lines of these states, as `lines`, which has their small contents
        already, read by a few statements for all.
        """
        small = {one.blob for one in states if one and one.blob and one.size <= SMALL_BYTES}
        return partial(self.lines, known=self.blobs.get_many([*small]))

    def lines(
        self, state: FileState | None, known: Mapping[BlobId, bytes] = NOTHING
    ) -> Sequence[bytes] | UnreadableLines:
        """The lines of a file, or the one of a symlink's target, or why they cannot be told.

        What is absent, and a folder, has none. What is `known` is not read.
        """
        if state is None or state.kind == "directory":
            return ()
        if state.kind == "opaque" or state.blob is None:
            return UnreadableLines("what is in it is not recorded")
        if state.size > self.most_bytes:
            return UnreadableLines(f"over {self.most_bytes // (1024 * 1024)} MiB")
        try:
            content = known.get(state.blob)
            if content is None:
                content = self.blobs.get(state.blob)
        except NotFound:
            return UnreadableLines("its content is not stored")
        except Corrupt:
            return UnreadableLines("its content is damaged")
        return UnreadableLines("binary") if is_binary(content) else split_lines(content)
