"""An index over the content of the files that are on record."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from loom_audit.model.code import Chunk, Definition
from loom_audit.model.files import BlobId


@dataclass(frozen=True, slots=True)
class FoundCode:
    """Something found: a definition with its kind and name, or a line of text (kind `text`)."""

    path: str
    line: int
    kind: str
    name: str
    snippet: str


@dataclass(frozen=True, slots=True)
class ReadCode:
    """What there is to be found in a content; nothing in one that is not text."""

    blob: BlobId
    language: str
    definitions: Sequence[Definition] = ()
    chunks: Sequence[Chunk] = ()


class CodeIndex(Protocol):
    """Definitions and text by content, and which content is at which path at one point.

    A cache on this machine: losing it costs reading every recorded file once. Content is known
    by its blob id and language, and forgotten when no path has it. What is found, and in which
    order, depends on the listed contents only, not on how they came to be listed.
    """

    def head(self) -> int:
        """The seq that the listing is of; 0 when there is none."""
        ...

    def relist(self, changes: Mapping[str, BlobId | None], *, after: int, head: int) -> None:
        """Change the listing where it is of `after`, an empty one for 0; None takes a path away."""
        ...

    def unread(self, limit: int) -> Sequence[tuple[BlobId, str]]:
        """Listed content that is not known yet, with its language; at most `limit`."""
        ...

    def count_unread(self) -> int: ...

    def learn(self, contents: Sequence[ReadCode]) -> None:
        """Keep what there is to be found in them, as one transaction."""
        ...

    def symbols(self, words: Sequence[str], below: str, limit: int) -> Sequence[FoundCode]:
        """Definitions whose names hold all the words, the same name first, then a beginning."""
        ...

    def text(self, words: Sequence[str], below: str, limit: int) -> Sequence[FoundCode]:
        """Pieces of files that hold all the words (the last may be a beginning), best first."""
        ...
