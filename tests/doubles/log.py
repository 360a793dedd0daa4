"""A log and its contents in memory."""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from hashlib import sha256
from io import BytesIO
from secrets import token_bytes
from typing import BinaryIO

from loom_audit.errors import AuditUnavailable, Conflict, Corrupt, InvalidArguments, NotFound
from loom_audit.model.events import (
    CallFinished,
    CallRequested,
    Draft,
    Event,
    TreeHead,
    WorkspaceForgotten,
)
from loom_audit.model.files import BlobId
from loom_audit.model.stored.codec import decode, encode, id_of, intention_of, read_envelope
from loom_audit.model.stored.merkle import root
from loom_audit.model.stored.payloads import SALT_BYTES
from loom_audit.ports import BLOCK, Clock, EventFilter, Wanted


class MemoryBlobStore:
    """Contents in a dict; what is put waits for the next append of a log opened on it."""

    def __init__(self) -> None:
        self._contents: dict[str, bytes] = {}
        self._waiting: dict[str, int] = {}

    def put(self, content: bytes | BinaryIO, *, similar_to: BlobId | None = None) -> BlobId:
        whole = bytes(content) if not hasattr(content, "read") else content.read()
        blob = BlobId(sha256(whole).hexdigest())
        if blob not in self._contents:
            self._waiting[blob] = len(whole)
            self._contents[blob] = whole
        return blob

    def get(self, blob: BlobId) -> bytes:
        if len(blob) != 64 or set(blob) - set("0123456789abcdef"):
            raise InvalidArguments(f"{blob!r} is not a blob id")
        if blob not in self._contents:
            raise NotFound(f"The content {blob} is not in the store", details={"blob": blob})
        content = self._contents[blob]
        if sha256(content).hexdigest() != blob:
            raise Corrupt(f"The content {blob} does not match its hash", details={"blob": blob})
        return content

    def get_many(self, blobs: Sequence[BlobId]) -> dict[BlobId, bytes]:
        found = {}
        for blob in blobs:
            with suppress(NotFound, Corrupt):
                found[blob] = self.get(blob)
        return found

    def open(self, blob: BlobId) -> BinaryIO:
        return BytesIO(self.get(blob))

    def __contains__(self, blob: object) -> bool:
        return blob in self._contents

    def missing(self, blobs: Iterable[BlobId]) -> set[BlobId]:
        return {blob for blob in blobs if blob not in self}

    def size(self, blob: BlobId) -> int:
        return len(self.get(blob))

    def pending_bytes(self) -> int:
        return sum(self._waiting.values())

    def settle(self) -> None:
        """What a log does when it appends: nothing waits any more."""
        self._waiting.clear()

    def damage(self, blob: BlobId, content: bytes) -> None:
        """For tests: other bytes under the same name."""
        self._contents[blob] = content


class MemoryEventLog:
    """A log as a list of leaves and payloads, encoded and decoded as a real one does."""

    def __init__(
        self,
        id: str,
        blobs: MemoryBlobStore,
        clock: Clock,
        *,
        salts: Callable[[], bytes] = lambda: token_bytes(SALT_BYTES),
    ) -> None:
        self._id = id
        self._blobs = blobs
        self._clock = clock
        self._salts = salts
        self._lock = threading.Lock()
        self._leaves: list[bytes] = []
        self._hashes: list[bytes] = []
        self._payloads: list[dict[tuple[str, int], bytes]] = []
        self._seqs: dict[str, int] = {}
        self._finished: dict[tuple[str, str], bool] = {}
        self._decoded: dict[int, Event] = {}

    @property
    def id(self) -> str:
        return self._id

    def append(self, drafts: Sequence[Draft]) -> Sequence[Event]:
        if not drafts:
            return []
        with self._lock:
            known = self._already_there(drafts)
            if known:
                return known
            head = len(self._leaves)
            if head and read_envelope(self._leaves[-1])["kind"] == WorkspaceForgotten.kind:
                raise AuditUnavailable("The workspace is forgotten")
            calls = self._calls_after(drafts)
            self._store(drafts)
            self._finished.update(calls)
            self._blobs.settle()
            return [self._event(seq) for seq in range(head + 1, len(self._leaves) + 1)]

    def _store(self, drafts: Sequence[Draft]) -> None:
        now = self._clock.now()
        prev = self._hashes[-1] if self._hashes else None
        rows = []
        for seq, draft in enumerate(drafts, len(self._leaves) + 1):
            encoded = encode(draft, log=self._id, seq=seq, at=now, prev=prev, salts=self._salts)
            prev = encoded.leaf_hash
            rows.append((draft.id or id_of(seq, prev), encoded))
        for id, encoded in rows:
            self._leaves.append(encoded.leaf)
            self._hashes.append(encoded.leaf_hash)
            self._payloads.append({(p.role, p.n): p.content for p in encoded.payloads})
            self._seqs[id] = len(self._leaves)

    def _already_there(self, drafts: Sequence[Draft]) -> Sequence[Event]:
        given = [draft.id for draft in drafts if draft.id is not None]
        if len(set(given)) != len(given):
            raise Conflict("Two drafts of one append have the same id")
        seqs = [self._seqs[id] for id in given if id in self._seqs]
        if seqs and len(seqs) != len(drafts):
            raise Conflict("Some drafts of one append are on record already, and some are not")
        return [self._event(seq) for seq in seqs]

    def _calls_after(self, drafts: Sequence[Draft]) -> dict[tuple[str, str], bool]:
        changed: dict[tuple[str, str], bool] = {}
        for draft in drafts:
            fact = draft.fact
            if not isinstance(fact, (CallRequested, CallFinished)):
                continue
            key = draft.session, fact.call_id
            before = changed.get(key, self._finished.get(key))
            if isinstance(fact, CallRequested) != (before is None) or before is True:
                raise Conflict(f"Call {fact.call_id} is requested once and finished once")
            changed[key] = isinstance(fact, CallFinished)
        return changed

    def _event(self, seq: int) -> Event:
        """The event as its leaf and payloads say, which stay as they were appended."""
        if seq not in self._decoded:
            leaf, payloads = self._leaves[seq - 1], self._payloads[seq - 1]
            intention = intention_of(leaf)
            if intention is not None:
                payloads = self._payloads[intention - 1] | payloads
            self._decoded[seq] = decode(leaf, payloads)
        return self._decoded[seq]

    def read(self, filter: EventFilter = EventFilter()) -> Iterator[Event]:
        seqs = range(1, len(self._leaves) + 1)
        left = filter.limit
        for seq in reversed(seqs) if filter.newest_first else seqs:
            if left == 0:
                return
            if seq <= filter.after or (filter.before is not None and seq >= filter.before):
                continue
            event = self._event(seq)
            if (
                (filter.kinds and event.kind not in filter.kinds)
                or (filter.session is not None and event.session != filter.session)
                or (filter.call_id is not None and _call_id(event) != filter.call_id)
            ):
                continue
            yield event
            left = None if left is None else left - 1

    def picked(self, seqs: Sequence[int]) -> Sequence[Event]:
        return [self._event(seq) for seq in sorted(set(seqs))]

    def stretch(self, after: int, until: int, wanted: Wanted) -> Iterator[Event]:
        for seq in range(after + 1, until + 1):
            if seq > len(self._leaves):
                raise Corrupt(f"Event {seq} is missing from the log", details={"seq": seq})
            if wanted(read_envelope(self._leaves[seq - 1])):
                yield self._event(seq)

    def prove(self, after: int, until: int, head: TreeHead) -> None:
        if root(self._hashes[: head.size]) != head.root:
            raise Corrupt(f"Events {after + 1} to {until} are not those of a head kept elsewhere")

    def blocks(self, first: int, until: int, head: TreeHead) -> Sequence[bytes]:
        self.prove(first * BLOCK, until * BLOCK, head)
        return [root(self._hashes[n * BLOCK : (n + 1) * BLOCK]) for n in range(first, until)]

    def head(self) -> int:
        return len(self._leaves)

    def newest(self, kinds: Sequence[str], after: int) -> tuple[int, int]:
        events = self.read(EventFilter(after=after, kinds=tuple(kinds)))
        return self.head(), max((event.seq for event in events), default=0)

    def tree_head(self) -> TreeHead:
        return TreeHead(self._id, len(self._leaves), root(self._hashes))

    def listed_before(self, at: datetime) -> int:
        return 0


def _call_id(event: Event) -> str | None:
    return getattr(event.fact, "call_id", None)
