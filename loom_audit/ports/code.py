"""An index over the content of the files that are on record."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from loom_audit.model.files import BlobId

if TYPE_CHECKING:
    from loom_audit.model.text.code import Chunk, Definition


class FoundCode(Struct, frozen=True):
    """A search result: a definition with its kind and name, or a line of text (kind `text`)."""

    path: str
    line: int
    kind: str
    name: str
    snippet: str


class ReadCode(Struct, frozen=True):
    """The definitions and lines of a content by which it is found; none when it is not text."""

    blob: BlobId
    language: str
    definitions: "Sequence[Definition]" = ()
    chunks: "Sequence[Chunk]" = ()


class CodeIndex(Protocol):
    """Definitions and text by content, and which content is at which path at one point.

    A cache on this machine: losing it costs reading every recorded file once. Content is kept
    by its blob id and language, and dropped when a path with it is not listed any more. The
    results and their order depend on the listed contents only.
    """

    def head(self) -> int:
        """The seq up to which files are listed; 0 for an empty index."""
        ...

    def update_listing(
        self, changes: Mapping[str, BlobId | None], *, after: int, head: int
    ) -> None:
        """Change which content is at which path, from the listing of `after` to that of `head`.

        Nothing changes where the listing is not of `after`; 0 begins an empty one. A path with None
        is taken away.
        """
        ...

    def unindexed(self, limit: int) -> Sequence[tuple[BlobId, str]]:
        """The listed contents that are not indexed, with their languages; at most `limit`."""
        ...

    def count_unindexed(self) -> int:
        """How many listed contents are not indexed yet."""
        ...

    def add_contents(self, contents: Sequence[ReadCode]) -> None:
        """Add contents to the index, as one transaction."""
        ...

    def symbols(
        self, words: Sequence[str], below: str, limit: int, *, some: bool = False
    ) -> Sequence[FoundCode]:
        """Definitions whose names hold all the words, the same name first, then a beginning.

        With `some` those that hold one of them suffice: those that hold more of them come first.
        """
        ...

    def text(
        self, words: Sequence[str], below: str, limit: int, *, some: bool = False
    ) -> Sequence[FoundCode]:
        """Pieces of files that hold all the words (the last may be a beginning), best first.

        With `some` those that hold one of them suffice.
        """
        ...
