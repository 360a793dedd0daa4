"""The lines of recorded contents, as far as they are text that is stored."""

from collections.abc import Sequence

from msgspec import Struct

from loom_audit.errors import Corrupt, NotFound
from loom_audit.model.authorship.walk import Unread
from loom_audit.model.files import FileState
from loom_audit.model.text.lines import split_lines
from loom_audit.model.text.merge import is_binary
from loom_audit.ports import BlobStore

MOST_BYTES = 8 * 1024 * 1024
"""The lines of a larger content are not told."""


class Contents(Struct, frozen=True):
    """Reads the lines of contents of at most so many bytes."""

    blobs: BlobStore
    most_bytes: int = MOST_BYTES

    def lines(self, state: FileState | None) -> Sequence[bytes] | Unread:
        """The lines of a file, or the one of a symlink's target, or why they cannot be told.

        What is absent, and a folder, has none.
        """
        if state is None or state.kind == "directory":
            return ()
        if state.kind == "opaque" or state.blob is None:
            return Unread("what is in it is not recorded")
        if state.size > self.most_bytes:
            return Unread(f"over {self.most_bytes // (1024 * 1024)} MiB")
        try:
            content = self.blobs.get(state.blob)
        except NotFound:
            return Unread("its content is not stored")
        except Corrupt:
            return Unread("its content is damaged")
        return Unread("binary") if is_binary(content) else split_lines(content)
