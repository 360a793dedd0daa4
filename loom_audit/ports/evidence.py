"""The stored rows of one log, unchecked, for verification."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from loom_audit.model.events import Fact
from loom_audit.model.files import FileState
from loom_audit.model.stored.merkle import Node
from loom_audit.ports.content import BlobStore
from loom_audit.ports.processes import OnProgress


class EventRow(NamedTuple):
    """A stored row of the log, unchecked; `leaf` is None when it cannot be unpacked."""

    seq: int
    id: str
    kind: str
    leaf: bytes | None
    leaf_hash: bytes


class PayloadRow(NamedTuple):
    """A stored payload, unchecked: `content` when it is in the row, else its blob's SHA-256."""

    seq: int
    role: str
    n: int
    salt: bytes
    content: bytes | None
    digest: bytes | None
    size: int | None


class ReferencedBlob(NamedTuple):
    """A content that events refer to; `seq` is the first of them, and `size` is as in that event.

    `has_row` is whether the store has a row for it, `has_bytes` whether that says that the bytes
    are stored.
    """

    digest: bytes
    seq: int
    size: int
    has_row: bool
    has_bytes: bool


CheckedEvent = tuple[int, Mapping[str, Any], Fact | None]
"""An event that was found in order: its seq, its envelope and its fact."""


class Evidence(Protocol):
    """The stored rows of one log, unchecked, for verification. Read only.

    One instance reads one consistent state. StorageFailed where the store is damaged.
    """

    @property
    def log(self) -> str:
        """The id of the log."""
        ...

    @property
    def blobs(self) -> BlobStore:
        """The contents as they are stored now, without a cache."""
        ...

    @property
    def node_levels(self) -> int:
        """Complete Merkle nodes are stored at the multiples of this level."""
        ...

    def events(self, after: int = 0, until: int | None = None) -> Iterator[Sequence[EventRow]]:
        """Batches of a few hundred rows, by seq, with `after < seq <= until`."""
        ...

    def payloads(self, after: int = 0, until: int | None = None) -> Iterator[PayloadRow]:
        """The payloads of the events with `after < seq <= until`, in order of seq."""
        ...

    def nodes(self) -> Iterator[Node]:
        """Every stored node of the Merkle tree, in any order."""
        ...

    def add_references(self, contents: Mapping[bytes, tuple[int, int]]) -> None:
        """Remember contents by SHA-256 as (seq, size), outside memory, for `references`."""
        ...

    def references(self) -> Iterator[ReferencedBlob]:
        """Each content that events refer to, once, in the order in which contents are best read."""
        ...

    def add_checked(self, events: Sequence[CheckedEvent]) -> None:
        """Take events that were found in order, so that `differences` is quick.

        In order of seq; the fact may be None for a kind that projections do not use. When all
        events were given and all projections agree, the log is not read a second time.
        """
        ...

    def differences(self, progress: OnProgress | None = None) -> Iterator[tuple[int | None, str]]:
        """Where projections differ from the log, as (seq if known, message)."""
        ...

    def tree(
        self, at: int, *, plain: bool = False
    ) -> tuple[Mapping[str, FileState], Collection[str]]:
        """The tree after event `at` as the projections have it, and what is untracked.

        The `plain` one is folded from changes alone. Corrupt, StorageFailed.
        """
        ...

    def damage(self) -> Iterator[str]:
        """A sentence for each thing that is wrong with the database, whichever log it is of."""
        ...

    @property
    def is_forgotten(self) -> bool:
        """Whether the last row says that the log is forgotten."""
        ...

    def remains(self) -> Iterator[str]:
        """A sentence for each table that holds of a forgotten log what was to be erased."""
        ...

    def empty_logs(self) -> Iterator[str]:
        """The ids of other logs without events, which a kill at the making of a log leaves."""
        ...

    def close(self) -> None:
        """Release the database; no other method may be called after it."""
        ...
