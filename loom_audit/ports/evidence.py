"""What the tables of one log hold, as it lies there."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from loom_audit.model.events import Fact
from loom_audit.model.merkle import Node
from loom_audit.ports.content import BlobStore
from loom_audit.ports.processes import Report


class EventRow(NamedTuple):
    """A row of the log as it lies there; `leaf` is None where it cannot be unpacked."""

    seq: int
    id: str
    kind: str
    leaf: bytes | None
    leaf_hash: bytes


class PayloadRow(NamedTuple):
    """A payload as it lies there: `content` when it is in the row, else its blob's SHA-256."""

    seq: int
    role: str
    n: int
    salt: bytes
    content: bytes | None
    digest: bytes | None
    size: int | None


class ReferencedBlob(NamedTuple):
    """A content that events name, and the first event that does; `size` as that one says.

    `has_row` is whether the store has a row for it, `has_bytes` whether it says to have the bytes.
    """

    digest: bytes
    seq: int
    size: int
    has_row: bool
    has_bytes: bool


CheckedEvent = tuple[int, Mapping[str, Any], Fact | None]
"""An event as its seq, its envelope, and its fact."""


class Evidence(Protocol):
    """What the tables of one log hold, as it lies there, for verification. Read only.

    All answers of one instance are of one moment. StorageFailed where the store is damaged.
    """

    @property
    def log(self) -> str:
        """The id of the log."""
        ...

    @property
    def blobs(self) -> BlobStore:
        """The contents as they are stored now, nothing remembered from earlier reading."""
        ...

    @property
    def node_levels(self) -> int:
        """Complete Merkle nodes are stored at the multiples of this level."""
        ...

    def events(self, after: int = 0, until: int | None = None) -> Iterator[Sequence[EventRow]]:
        """The rows with `after < seq <= until` in order of seq, a few hundred at a time."""
        ...

    def payloads(self, after: int = 0, until: int | None = None) -> Iterator[PayloadRow]:
        """The payloads of these events, in order of seq."""
        ...

    def nodes(self) -> Iterator[Node]:
        """Every stored node of the Merkle tree."""
        ...

    def add_references(self, contents: Mapping[bytes, tuple[int, int]]) -> None:
        """Remember contents by SHA-256 as (seq, size), outside memory, for `references`."""
        ...

    def references(self) -> Iterator[ReferencedBlob]:
        """Each content referred to, once, in the order in which they are best read."""
        ...

    def add_checked(self, events: Sequence[CheckedEvent]) -> None:
        """Be told of events that were found in order, so that `differences` is quick.

        In order of seq; a fact may be left out where no projection is made of its kind. When
        all events were told and all projections fit, they are not read a second time.
        """
        ...

    def differences(self, report: Report | None = None) -> Iterator[tuple[int | None, str]]:
        """Where projections differ from what the log says, as (seq if known, message)."""
        ...

    def damage(self) -> Iterator[str]:
        """What is wrong with the database that holds the log, also beside the log."""
        ...

    def close(self) -> None: ...
