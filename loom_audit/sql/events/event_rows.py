"""Events to rows and back: leaves and payloads as they lie in the database."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from loom_audit.errors import Corrupt, NotFound
from loom_audit.model.events import Event
from loom_audit.model.files import BlobId
from loom_audit.model.stored.codec import MAX_LEAF, EncodedEvent, decode_envelope, read_envelope
from loom_audit.model.stored.commitments import (
    StoredPart,
    is_intention_of,
    opened_manifest,
    opened_payloads,
)
from loom_audit.model.stored.manifest import Manifest
from loom_audit.model.stored.merkle import leaf_hash
from loom_audit.model.stored.payloads import Payload
from loom_audit.ports import BlobStore
from loom_audit.sql.ground.conditions import chunks, in_values
from loom_audit.sql.ground.connection import Connection, Row
from loom_audit.sql.ground.packing import pack, pack_id, pack_raw, unpack
from loom_audit.sql.ground.statements import insert_into, prepare

INLINE_PAYLOAD = 800
"""Most packed bytes of a payload in its row: SQLite keeps such rows out of overflow pages."""

MAX_INLINE_PAYLOAD = 1 << 20
"""Most bytes that a payload in a row may unpack to."""

_KEPT_LEAVES = 8_000
"""Most checked leaves of a log that are kept, of 2 KB each."""

HEAD = prepare("SELECT max(seq) FROM event WHERE log = :log AND seq <= 9223372036854775807")
"""The last event; a seq of another type than a number sorts behind them all."""

KIND = prepare("SELECT kind FROM event WHERE log = :log AND seq = :seq")

_INSERT_EVENT = insert_into("event", ("seq", "id", "kind", "leaf", "leaf_hash"))
_INSERT_PAYLOAD = insert_into(
    "payload",
    ("seq", "role", "n", "salt", "content"),
    blob="(SELECT number FROM blob WHERE sha256 = :blob)",
)
_PAYLOADS = (
    "SELECT p.seq, p.role, p.n, p.salt, p.content, b.sha256 FROM payload p "
    "LEFT JOIN blob b ON b.number = p.blob WHERE p.log = :log AND p.seq IN ({seqs})"
)


def event_row(log: int, seq: int, id: str | None, encoded: EncodedEvent) -> dict[str, Any]:
    """The columns of an event; `id` only where one was given."""
    return {
        "log": log,
        "seq": seq,
        "id": pack_id(id or ""),
        "kind": encoded.kind,
        "leaf": pack(encoded.leaf),
        "leaf_hash": encoded.leaf_hash,
    }


PayloadColumns = tuple[str, int, bytes, bytes | None, bytes | None]
"""A payload's role, number, salt, packed content or None, SHA-256 of its blob or None."""


def payload_row(log: int, seq: int, payload: Payload, blobs: BlobStore) -> dict[str, Any]:
    """The columns of a payload; a content too long for a row is put into the blob store."""
    row = {"log": log, "seq": seq, "role": payload.role, "n": payload.n, "salt": payload.salt}
    packed: bytes | None = None
    if payload.role == "keys":
        packed = pack_raw(payload.content)
    elif payload.role != "content" and len(payload.content) <= 8 * INLINE_PAYLOAD:
        packed = pack(payload.content)
    if packed is not None and len(packed) <= INLINE_PAYLOAD:
        return {**row, "content": packed, "blob": None}
    blob = blobs.put(payload.content)
    return {**row, "content": None, "blob": bytes.fromhex(blob)}


def insert(
    connection: Connection, events: Sequence[dict[str, Any]], payloads: Sequence[dict[str, Any]]
) -> None:
    """Insert rows of events and of their payloads, whose blobs are in the database already."""
    _INSERT_EVENT.insert(connection, events)
    _INSERT_PAYLOAD.insert(connection, payloads)


def read_leaf(seq: int, packed: bytes, hashed: bytes) -> bytes:
    """The exact bytes of a leaf. Corrupt, naming the event, when they are not what was hashed."""
    try:
        leaf = unpack(packed, MAX_LEAF)
    except Corrupt as error:
        raise damage_error(seq, error.message) from error
    if leaf_hash(leaf) != hashed:
        raise damage_error(seq, "its leaf does not match its hash")
    return leaf


class CheckedLeaf(NamedTuple):
    """What a leaf says that is as it was hashed; `hexed` is its hash as the next leaf begins it."""

    seq: int
    hashed: bytes
    envelope: Mapping[str, Any]
    hexed: str


def check_leaf(seq: int, packed: bytes, hashed: bytes) -> CheckedLeaf:
    """The leaf of a row, read. Corrupt, as `read_leaf`."""
    return CheckedLeaf(seq, hashed, read_envelope(read_leaf(seq, packed, hashed)), hashed.hex())


def damage_error(seq: int, why: str) -> Corrupt:
    """The error for an event that cannot be read as it was written."""
    return Corrupt(
        f"Event {seq} is damaged: {why}",
        hint="Run `loom-audit verify` to see what else is.",
        details={"seq": seq},
    )


def load_payloads(
    connection: Connection, log: int, seqs: Sequence[int]
) -> dict[int, list[PayloadColumns]]:
    """The payloads of these events by seq."""
    found: dict[int, list[PayloadColumns]] = {}
    for some in chunks(seqs):
        listed, values = in_values("seq", some)
        rows = prepare(_PAYLOADS.format(seqs=listed)).rows(connection, log=log, **values)
        for seq, *part in rows:
            found.setdefault(seq, []).append(tuple(part))
    return found


def check_place(log_id: str, leaf: CheckedLeaf) -> None:
    """Refuse a leaf that says another place than the one where it lies: Corrupt."""
    place = leaf.envelope.get("log"), leaf.envelope.get("seq")
    if place != (log_id, leaf.seq):
        raise damage_error(leaf.seq, f"its leaf says event {place[1]} of log {place[0]}")


class CheckedLeaves:
    """Reads the leaves of one log; a row that is the same to the byte is not decoded again."""

    def __init__(self, log_id: str) -> None:
        self._log_id = log_id
        self._kept: dict[int, tuple[Row, CheckedLeaf]] = {}

    def read(self, row: Row, *, keep: bool) -> CheckedLeaf:
        """The leaf of a row; Corrupt where its hash, its log or its seq is another."""
        known = self._kept.get(row[0])
        if known is not None and known[0] == row:
            return known[1]
        leaf = check_leaf(*row)
        check_place(self._log_id, leaf)
        if keep:
            if len(self._kept) >= _KEPT_LEAVES:
                self._kept.clear()
            self._kept[leaf.seq] = row, leaf
        return leaf


class StoredEvent:
    """An event of a log as it lies in the database: its leaf and its payloads, checked when read.

    Corrupt, naming the event, for what is not as it was recorded.
    """

    __slots__ = ("_blobs", "_hashed", "_payloads", "envelope", "seq")

    def __init__(
        self,
        log_id: str,
        leaf: CheckedLeaf,
        payloads: Iterable[PayloadColumns],
        blobs: BlobStore,
    ) -> None:
        self.seq, self._hashed, self.envelope, _ = leaf
        self._payloads = payloads
        self._blobs = blobs
        check_place(log_id, leaf)

    def decoded(self, intention: "StoredEvent | None" = None) -> Event:
        """The event with its whole fact; its changes are those of the intention that it names.

        Corrupt when the intention is none of its call.
        """
        payloads = self.payloads()
        manifest = self.manifest(payloads)
        if intention is not None:
            if not is_intention_of(intention.envelope, self.envelope):
                raise damage_error(
                    self.seq,
                    f"event {intention.seq}, which it names, is not an intention of its call",
                )
            manifest = intention.manifest(intention.payloads())
        return decode_envelope(self.envelope, self._hashed, payloads, manifest=manifest)

    def payloads(self) -> dict[tuple[str, int], bytes]:
        """The bytes of the payloads, each checked by the commitment in the leaf. Corrupt."""
        try:
            return opened_payloads(self.envelope, self._stored_payloads())
        except (Corrupt, KeyError, TypeError, ValueError) as error:
            raise damage_error(self.seq, str(error)) from error

    def manifest(self, payloads: Mapping[tuple[str, int], bytes]) -> Manifest | None:
        """The manifest of the payloads, each content checked by its commitment. Corrupt."""
        try:
            return opened_manifest(self.envelope, payloads)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise damage_error(self.seq, f"its manifest: {error}") from error

    def _stored_payloads(self) -> Sequence[StoredPart]:
        stored: list[StoredPart] = []
        for role, n, salt, content, digest in self._payloads:
            if content is not None:
                stored.append((role, n, salt, unpack(content, MAX_INLINE_PAYLOAD)))
            elif digest is not None:
                with suppress(NotFound):  # what is needed of it is missed
                    stored.append((role, n, salt, self._blobs.get(BlobId(digest.hex()))))
        return stored


def belongs_to(envelope: Mapping[str, Any], session: str | None, call_id: str | None) -> bool:
    """Whether an event is of this session and call, by its envelope."""
    return (session is None or envelope.get("session", "") == session) and (
        call_id is None or envelope.get("call_id") == call_id
    )
