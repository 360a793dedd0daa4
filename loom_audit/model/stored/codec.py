"""Events as they are stored: a small canonical envelope, hashed as a leaf, and payloads.

The leaf is the envelope as canonical JSON (RFC 8785), always under 64 KiB; its stored bytes are
what is hashed, and they are never encoded again. Everything secret or large is a payload:
`model/stored/facts.py` has which field is where, `payloads.py` and `manifest.py` beside it have how
it is encoded.
"""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from loom_audit.errors import Corrupt, NotSerializable, StorageFailed
from loom_audit.model.events import Draft, Event, Fact, PathsUntracked
from loom_audit.model.stored.envelope import fit_envelope
from loom_audit.model.stored.facts import (
    PayloadBytes,
    Record,
    fact_payload_of,
    join_fact,
    payloads_of,
    split_fact,
)
from loom_audit.model.stored.format_1 import upcast_from_1_0
from loom_audit.model.stored.manifest import Manifest
from loom_audit.model.stored.merkle import leaf_hash
from loom_audit.model.stored.payloads import Payload, Salts, commitment_text, parse_json
from loom_audit.model.stored.typed import check_texts_of

FORMAT = "2.1"
"""Major and minor version of envelope and payloads, as in every leaf's `v`."""

PREV_DIGITS = 16
"""How much of the hash of the leaf before stands in a leaf: for people, and to locate damage."""

MAX_LEAF = 64 * 1024

MANIFEST = ("manifest", 0), ("keys", 0)
"""The payloads by role and number that an event may have in common with its intention."""

_CANONICAL = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")
)
"""RFC 8785 for what an envelope holds: ASCII keys, texts of UTF-8, integers below 2**53."""

_TEXTS = ("v", "log", "kind", "at", "actor", "session", "id", "prev", "source", "parent", "call_id")
"""Fields of an envelope that hold text where they are there."""

MALFORMED = (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError)
"""What is raised where a forged event is read as if it were not."""

Upcaster = Callable[[Record], Record]


def upcast_from_2_0(record: Record) -> Record:
    """Return the record in format 2.1: in 2.0 an untracked path stayed in the tree."""
    envelope = {**record.envelope, "v": "2.1"}
    if envelope.get("kind") == PathsUntracked.kind:
        envelope["kept"] = True
    return replace(record, envelope=envelope)


UPCASTERS: Mapping[str, Upcaster] = {"1.0": upcast_from_1_0, "2.0": upcast_from_2_0}
"""By version: pure functions to a later one."""


class EncodedEvent(Struct, frozen=True):
    """An event ready to be stored; `leaf` are the exact bytes that are hashed."""

    leaf: bytes
    kind: str
    payloads: tuple[Payload, ...]

    @property
    def leaf_hash(self) -> bytes:
        """SHA-256(0x00 ‖ leaf), as RFC 9162 §2.1 defines it."""
        return leaf_hash(self.leaf)


def encode(
    draft: Draft, *, log: str, seq: int, at: datetime, prev: bytes | None, salts: Salts
) -> EncodedEvent:
    """Return a draft at its place as it is stored; `prev` is the hash of the leaf before.

    An id that was not given is not stored: it follows from the leaf (`id_of`).

    Deterministic in its arguments. NotSerializable for a value that JSON cannot hold, an id over
    256 bytes, a time without a zone, or a fact of an unknown kind.
    """
    split = split_fact(draft.fact)
    envelope: dict[str, Any] = {
        "v": FORMAT,
        "log": log,
        "seq": seq,
        "at": format_time(at),
        "actor": draft.actor,
        "kind": draft.fact.kind,
        **split.envelope,
    }
    if draft.id is not None:
        envelope["id"] = draft.id
    if draft.occurred_at is not None:
        envelope["occurred_at"] = format_time(draft.occurred_at)
    if draft.source:
        envelope["source"] = draft.source
    if draft.session:
        envelope["session"] = draft.session
    if draft.parent is not None:
        envelope["parent"] = draft.parent
    if prev is not None:
        envelope["prev"] = prev.hex()[:PREV_DIGITS]
    fit_envelope(envelope, split.fact_fields)
    payloads = payloads_of(split, salts)
    listed = [
        {"role": p.role, "n": p.n, "size": len(p.content), "commit": commitment_text(p.commitment)}
        for p in payloads
        # a key is checked against its commitment in the manifest, and may be erased alone
        if p.role != "keys"
    ]
    if listed:
        envelope["payloads"] = listed
    leaf = _CANONICAL.encode(envelope).encode()
    if len(leaf) >= MAX_LEAF:
        raise NotSerializable(
            f"The envelope of a {draft.fact.kind} event is {len(leaf)} bytes",
            hint=f"An envelope holds fewer than {MAX_LEAF} bytes; shorten its names.",
        )
    return EncodedEvent(leaf, draft.fact.kind, payloads)


def intention_of(leaf: bytes) -> int | None:
    """Return the seq of the event whose manifest holds this event's changes; None for its own.

    Corrupt.
    """
    return intention_in(read_envelope(leaf)) if b'"intention":' in leaf else None


def intention_in(envelope: Mapping[str, Any]) -> int | None:
    """Return what `intention_of` returns, from an envelope.

    A value that is equal to an int and is not one names no event.
    """
    found = envelope.get("intention")
    return found if type(found) is int else None


def id_of(seq: int, leaf_hash: bytes) -> str:
    """Return the id of an event that was given none: a UUID of version 8 (RFC 9562 §5.8), in hex.

    It is made of the first 60 bits of the leaf's hash and, in the last 62 bits, the seq.
    """
    start = leaf_hash[:8].hex()
    return f"{start[:12]}8{start[12:15]}{0b10 << 62 | seq:016x}"


def seq_of(id: str) -> int | None:
    """Return the seq in an id that `id_of` made; None for another id."""
    if len(id) != 32 or id[12] != "8" or id[16] not in "89ab":
        return None
    try:
        return int(id[16:], 16) & ((1 << 62) - 1)
    except ValueError:
        return None


def read_envelope(leaf: bytes) -> dict[str, Any]:
    """Return the envelope of a leaf as it was stored, in any version. Corrupt when malformed."""
    try:
        envelope = parse_json(leaf)
        if not isinstance(envelope, dict):
            raise TypeError("not an object")
        _major(envelope)
        check_texts_of(envelope, _TEXTS)
        if type(envelope.get("seq", 0)) is not int:
            raise TypeError("its seq is not a whole number")
    except MALFORMED as error:
        raise Corrupt(
            f"An event's envelope cannot be read: {error}",
            hint="Run `loom-audit verify` to locate the damage.",
        ) from error
    return envelope


def decode(
    leaf: bytes,
    payloads: PayloadBytes,
    *,
    manifest: Manifest | None = None,
    upcasters: Mapping[str, Upcaster] = UPCASTERS,
) -> Event:
    """Return an event with its whole fact; `payloads` are the stored bytes by (role, n).

    Their keys are among the payloads. `manifest` is the one among them, where it was decoded
    already. Where `intention_of` the leaf names another event, its manifest and keys are among the
    payloads.

    What is missing from `payloads` was erased: arguments and results become `{"$erased": true}`,
    contents in them too, a file's blob its commitment (see `model/stored/manifest.py`), and a fact
    that needs what is missing becomes an UnknownFact.

    Unknown kinds become UnknownFact. Corrupt when stored bytes are malformed; StorageFailed when a
    newer major version wrote them.
    """
    return decode_envelope(
        read_envelope(leaf), leaf_hash(leaf), payloads, manifest=manifest, upcasters=upcasters
    )


def decode_envelope(
    envelope: Mapping[str, Any],
    hashed: bytes,
    payloads: PayloadBytes,
    *,
    manifest: Manifest | None = None,
    upcasters: Mapping[str, Upcaster] = UPCASTERS,
) -> Event:
    """Return what `decode` returns, of a leaf that was read and hashed. Corrupt, StorageFailed."""
    kind = str(envelope.get("kind"))
    try:
        record = _upcast(Record(envelope, payloads, manifest), upcasters)
        envelope = record.envelope
        kind = str(envelope.get("kind"))
        fact_fields = fact_payload_of(record)
        uncut = fact_fields or {}
        occurred_at = envelope.get("occurred_at")
        return Event(
            log=envelope["log"],
            seq=envelope["seq"],
            id=envelope.get("id") or id_of(envelope["seq"], hashed),
            at=parse_time(envelope["at"]),
            session=envelope.get("session", ""),
            actor=uncut.get("actor", envelope["actor"]),
            fact=join_fact(kind, record, fact_fields),
            leaf_hash=hashed,
            occurred_at=None if occurred_at is None else parse_time(occurred_at),
            source=uncut.get("source", envelope.get("source", "")),
            parent=envelope.get("parent"),
        )
    except MALFORMED as error:
        raise Corrupt(
            f"Event {envelope.get('seq')} ({kind}) cannot be read: {error!r}",
            hint="Run `loom-audit verify` to locate the damage.",
            details={"seq": envelope.get("seq")},
        ) from error


def decode_fact(
    envelope: Mapping[str, Any], payloads: PayloadBytes, manifest: Manifest | None = None
) -> Fact:
    """Return the fact alone, of an envelope (and manifest) that was read already.

    Corrupt, StorageFailed.
    """
    kind = str(envelope.get("kind"))
    try:
        record = _upcast(Record(envelope, payloads, manifest), UPCASTERS)
        kind = str(record.envelope.get("kind"))
        return join_fact(kind, record, fact_payload_of(record))
    except MALFORMED as error:
        raise Corrupt(f"Event {envelope.get('seq')} ({kind}) cannot be read: {error!r}") from error


def _upcast(record: Record, upcasters: Mapping[str, Upcaster]) -> Record:
    """The record in the present version. StorageFailed when it is of a newer major one."""
    version = record.envelope["v"]
    while version != FORMAT:
        upcast = upcasters.get(str(version))
        if upcast is None:
            break
        record = upcast(record)
        version = record.envelope["v"]
    # a newer minor version only adds what this one may pass over
    if version != FORMAT and _major(record.envelope) > _major({"v": FORMAT}):
        raise StorageFailed(
            f"Event {record.envelope.get('seq')} is in format {version}, newer than {FORMAT}",
            hint="Upgrade loom-audit to read this store.",
            details={"version": version},
        )
    return record


def format_time(moment: datetime) -> str:
    """Return a time in UTC with microseconds:

    `2026-11-21T22:41:00.000000Z`. NotSerializable without a zone.
    """
    if moment.tzinfo is None:
        raise NotSerializable(f"The time {moment} is without a zone", hint="Use an aware datetime.")
    return moment.astimezone(UTC).isoformat(timespec="microseconds")[:-6] + "Z"


@lru_cache(maxsize=256)
def parse_time(text: str) -> datetime:
    """Return the time that `format_time` was given, in UTC. ValueError for another text.

    Lately read ones are kept: the events of a commit have the same, and checks read it again.
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"the time {text} is without a zone")
    return moment


def _major(envelope: Mapping[str, Any]) -> int:
    return int(str(envelope["v"]).partition(".")[0])
