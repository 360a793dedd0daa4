"""Events as they are stored: a small canonical envelope, hashed as a leaf, and payloads.

The leaf is the envelope as canonical JSON (RFC 8785), always under 64 KiB; its stored bytes are
what is hashed and they are never encoded again. Everything secret or large is a payload. Where
each fact keeps its fields:

    call.requested   envelope: tool call_id effect          `args`
    call.decided     envelope: tool call_id status          `fact` by reason, `args` if modified
    change.intended  envelope: call_id reverts              `manifest` + `keys`
    files.changed    envelope: call_id reverts causes       `manifest` (with origin) + `keys`
    call.finished    envelope: tool call_id effect status coverage sandbox reverts
                                                            `result` with duration
    session.ended    envelope: status
    all others                                              `fact`

Names over 256 bytes (or not UTF-8) are cut in the envelope and lists over 100 items or 8 KiB
left out of it; then they stand whole in `fact`. Ids are never cut but refused.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any

import rfc8785

from loom_audit.errors import Corrupt, NotSerializable, StorageFailed
from loom_audit.model.events import (
    BaselineFinished,
    CallDecided,
    CallFinished,
    CallRequested,
    ChangeIntended,
    CheckpointMarked,
    Coverage,
    Draft,
    Event,
    Fact,
    FilesChanged,
    PathsUntracked,
    ScopeAccepted,
    SessionEnded,
    SessionStarted,
    UnknownFact,
    Untracked,
    WorkspaceAttached,
)
from loom_audit.model.manifest import decode_manifest, encode_manifest
from loom_audit.model.merkle import leaf_hash
from loom_audit.model.payloads import (
    ERASED,
    Contents,
    Payload,
    Role,
    Salts,
    from_json,
    make_payload,
    to_json,
)

FORMAT = "1.0"
"""Major and minor version of envelope and payloads, as in every leaf's `v`."""

MAX_LEAF = 64 * 1024
MAX_NAME = 256
MAX_LIST = 100
_MAX_LIST_BYTES = 8 * 1024
_NAMES = ("actor", "source", "tool", "sandbox")
_IDS = ("log", "id", "session", "parent", "call_id")

Upcaster = Callable[["Record"], "Record"]
PayloadBytes = Mapping[tuple[str, int], bytes]


@dataclass(frozen=True, slots=True)
class Encoded:
    """An event ready to be stored; `leaf` are the exact bytes that are hashed."""

    leaf: bytes
    kind: str
    payloads: tuple[Payload, ...]

    @property
    def leaf_hash(self) -> bytes:
        """SHA-256(0x00 ‖ leaf), RFC 9162 §2.1."""
        return leaf_hash(self.leaf)


@dataclass(frozen=True, slots=True)
class Record:
    """A stored event before it is a fact: what upcasters turn into the next version's.

    `envelope["v"]` is the version it is in.
    """

    envelope: Mapping[str, Any]
    payloads: PayloadBytes


UPCASTERS: Mapping[tuple[str, str], Upcaster] = {}
"""By (kind, version): pure functions to a later version; none is needed so far."""


@dataclass(slots=True)
class _Parts:
    """What a fact comes to: envelope fields, and values for payloads where there are any."""

    envelope: dict[str, Any]
    fact: dict[str, Any]
    args: tuple[Any] | None = None
    result: dict[str, Any] | None = None
    manifest: ChangeIntended | FilesChanged | None = None


def encode(
    draft: Draft, *, log: str, seq: int, id: str, at: datetime, prev: bytes | None, salts: Salts
) -> Encoded:
    """The draft with its place, as it is stored. `prev` is the previous leaf's hash.

    Deterministic in its arguments. NotSerializable for a value that JSON cannot hold, an id
    over 256 bytes, a time without a zone, or a fact of an unknown kind.
    """
    parts = _split(draft.fact)
    envelope: dict[str, Any] = {
        "v": FORMAT,
        "log": log,
        "seq": seq,
        "id": id,
        "at": format_time(at),
        "actor": draft.actor,
        "kind": draft.fact.kind,
        **parts.envelope,
    }
    if draft.occurred_at is not None:
        envelope["occurred_at"] = format_time(draft.occurred_at)
    for name in ("source", "session", "parent"):
        value = getattr(draft, name)
        if value:
            envelope[name] = value
    if prev is not None:
        envelope["prev"] = prev.hex()
    _fit(envelope, parts.fact)
    payloads = _payloads(parts, salts)
    listed = [
        {"role": p.role, "n": p.n, "size": len(p.content), "commit": p.commitment.hex()}
        for p in payloads
        if p.role != "keys"
    ]
    if listed:
        envelope["payloads"] = listed
    leaf = rfc8785.dumps(envelope)
    if len(leaf) >= MAX_LEAF:
        raise NotSerializable(
            f"The envelope of a {draft.fact.kind} event is {len(leaf)} bytes",
            hint=f"Shorten its names and lists; an envelope holds at most {MAX_LEAF} bytes.",
        )
    return Encoded(leaf, draft.fact.kind, payloads)


def read_envelope(leaf: bytes) -> dict[str, Any]:
    """The envelope as it was stored, of any version. Corrupt when it is not one."""
    try:
        envelope = json.loads(leaf)
        if not isinstance(envelope, dict):
            raise TypeError("not an object")
        int(str(envelope["v"]).partition(".")[0])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise Corrupt(
            f"An event's envelope cannot be read: {error}",
            hint="Run `loom-audit verify` to locate the damage.",
        ) from error
    return envelope


def decode(
    leaf: bytes,
    payloads: PayloadBytes,
    *,
    upcasters: Mapping[tuple[str, str], Upcaster] = UPCASTERS,
) -> Event:
    """The event, its fact whole; `payloads` are the stored bytes by (role, n), keys included.

    What is missing from `payloads` was erased: arguments and results become
    `{"$erased": true}`, contents in them too, a file's blob its commitment (see
    `model.manifest`), and a fact that cannot do without becomes an UnknownFact that says so.
    Unknown kinds become UnknownFact. Corrupt when stored bytes are malformed; StorageFailed
    when a newer major version wrote them.
    """
    record = Record(read_envelope(leaf), payloads)
    while True:
        version, kind = str(record.envelope["v"]), str(record.envelope.get("kind"))
        upcast = upcasters.get((kind, version))
        if upcast is None:
            break
        record = upcast(record)
    if int(version.partition(".")[0]) > int(FORMAT.partition(".")[0]):
        raise StorageFailed(
            f"Event {record.envelope.get('seq')} is in format {version}, newer than {FORMAT}",
            hint="Upgrade loom-audit to read this store.",
            details={"version": version},
        )
    envelope = record.envelope
    try:
        fact = _fact(kind, record)
        whole = _fact_fields(record) or {}
        return Event(
            log=envelope["log"],
            seq=envelope["seq"],
            id=envelope["id"],
            at=parse_time(envelope["at"]),
            session=envelope.get("session", ""),
            actor=whole.get("actor", envelope["actor"]),
            fact=fact,
            leaf_hash=leaf_hash(leaf),
            occurred_at=(
                parse_time(envelope["occurred_at"]) if "occurred_at" in envelope else None
            ),
            source=whole.get("source", envelope.get("source", "")),
            parent=envelope.get("parent"),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Corrupt(
            f"Event {envelope.get('seq')} ({kind}) cannot be read: {error!r}",
            hint="Run `loom-audit verify` to locate the damage.",
            details={"seq": envelope.get("seq")},
        ) from error


def format_time(moment: datetime) -> str:
    """UTC with microseconds, `2026-11-21T22:41:00.000000Z`."""
    if moment.tzinfo is None:
        raise NotSerializable(f"The time {moment} has no zone", hint="Use an aware datetime.")
    return moment.astimezone(UTC).isoformat(timespec="microseconds")[:-6] + "Z"


def parse_time(text: str) -> datetime:
    """What `format_time` was given."""
    return datetime.fromisoformat(text)


# --- writing ------------------------------------------------------------------------------


def _split(fact: Fact) -> _Parts:
    match fact:
        case CallRequested():
            names = {"tool": fact.tool, "call_id": fact.call_id, "effect": fact.effect}
            return _Parts(names, {}, args=(fact.arguments,))
        case CallDecided():
            names = {"tool": fact.tool, "call_id": fact.call_id, "status": fact.decision}
            said = {"by": fact.by, "reason": fact.reason}
            modified = None if fact.arguments is None else (fact.arguments,)
            return _Parts(names, said, args=modified)
        case ChangeIntended():
            names = {"call_id": fact.call_id, "reverts": fact.reverts}
            return _Parts(names, {}, manifest=fact)
        case FilesChanged():
            listed = {"reverts": fact.reverts, "causes": fact.causes}
            if fact.call_id is not None:
                listed["call_id"] = fact.call_id
            return _Parts(listed, {}, manifest=fact)
        case CallFinished():
            names = {
                "tool": fact.tool,
                "call_id": fact.call_id,
                "effect": fact.effect,
                "status": fact.status,
                "coverage": {"level": fact.coverage.level, "reasons": fact.coverage.reasons},
                "sandbox": fact.sandbox,
                "reverts": fact.reverts,
            }
            return _Parts(names, {}, result={"duration": fact.duration, "result": fact.result})
        case SessionEnded():
            return _Parts({"status": fact.status}, {})
        case PathsUntracked():
            return _Parts({}, {"paths": [[item.path, item.reason] for item in fact.paths]})
        case UnknownFact():
            raise NotSerializable(
                f"A fact of the unknown kind {fact.kind!r} cannot be recorded",
                hint="Upgrade loom-audit: a newer version knows it.",
            )
    return _Parts({}, {field.name: getattr(fact, field.name) for field in fields(fact)})


def _fit(envelope: dict[str, Any], fact: dict[str, Any]) -> None:
    """Keep the envelope small: what does not fit moves to the fact, what is empty goes."""
    for name in _IDS:
        value = envelope.get(name)
        if value is not None and _cut(value) != value:
            raise NotSerializable(
                f"The {name} {value[:80]!r} is over {MAX_NAME} bytes, or not UTF-8",
                hint=f"Use at most {MAX_NAME} bytes of UTF-8.",
                details={"field": name},
            )
    for name in _NAMES:
        value = envelope.get(name)
        if value is not None and _cut(value) != value:
            fact[name], envelope[name] = value, _cut(value)
    for name in ("reverts", "causes"):
        if name in envelope:
            values = envelope.pop(name)
            if values:
                (envelope if _is_small(values) else fact)[name] = list(values)
    coverage = envelope.get("coverage")
    if coverage is not None:
        reasons = coverage.pop("reasons")
        if reasons:
            (coverage if _is_small(reasons) else fact)["reasons"] = list(reasons)
    if not envelope.get("sandbox", True):
        del envelope["sandbox"]


def _cut(name: str) -> str:
    raw = name.encode("utf-8", "replace")
    if len(raw) <= MAX_NAME:
        return raw.decode()
    return raw[: MAX_NAME - 3].decode("utf-8", "ignore") + "…"


def _is_small(values: Iterable[str | int]) -> bool:
    """Whether a list may stand in the envelope: RFC 8785 allows integers below 2**53 only."""
    items = list(values)
    if len(items) > MAX_LIST:
        return False
    texts = [str(item) if isinstance(item, int) else item for item in items]
    return sum(map(len, texts)) <= _MAX_LIST_BYTES // 6 and all(_cut(t) == t for t in texts)


def _payloads(parts: _Parts, salts: Salts) -> tuple[Payload, ...]:
    contents = Contents()
    found: list[tuple[Role, bytes]] = []
    if parts.args is not None:
        found.append(("args", to_json(parts.args[0], where="arguments", contents=contents)))
    if parts.result is not None:
        found.append(("result", to_json(parts.result, where="call", contents=contents)))
    if parts.manifest is not None:
        fact = parts.manifest
        said = {"origin": fact.origin} if isinstance(fact, FilesChanged) else {}
        manifest, keys = encode_manifest(fact.changes, fact.moves, said, salts)
        found.append(("manifest", manifest))
        if keys:
            found.append(("keys", keys))
    if parts.fact:
        found.append(("fact", to_json(parts.fact, where="fact")))
    return (
        *(make_payload(role, 0, content, salts) for role, content in found),
        *(make_payload("content", n, content, salts) for content, n in contents.numbers.items()),
    )


# --- reading ------------------------------------------------------------------------------

_PLAIN: Mapping[str, type[Any]] = {
    cls.kind: cls
    for cls in (
        WorkspaceAttached,
        BaselineFinished,
        ScopeAccepted,
        SessionStarted,
        CheckpointMarked,
    )
}


def _fact(kind: str, record: Record) -> Fact:
    envelope = record.envelope
    said = _fact_fields(record)
    if kind in _PLAIN:
        if said is None:
            return _unknown(kind, record)
        known = {field.name for field in fields(_PLAIN[kind])}
        fact: Fact = _PLAIN[kind](**{key: said[key] for key in known & said.keys()})
        return fact
    whole = said or {}
    if kind == CallRequested.kind:
        tool = whole.get("tool", envelope["tool"])
        arguments = _value(record, "args")
        return CallRequested(envelope["call_id"], tool, arguments, envelope["effect"])
    if kind == CallDecided.kind:
        return CallDecided(
            call_id=envelope["call_id"],
            tool=whole.get("tool", envelope["tool"]),
            decision=envelope["status"],
            by=whole.get("by", "[erased]") if said is None else whole["by"],
            reason=whole.get("reason", "[erased]"),
            arguments=_value(record, "args") if _lists(record, "args") else None,
        )
    if kind == CallFinished.kind:
        return _call_finished(record, whole)
    if kind in (ChangeIntended.kind, FilesChanged.kind):
        return _changes(kind, record, whole)
    if kind == SessionEnded.kind:
        return SessionEnded(envelope["status"])
    if kind == PathsUntracked.kind and said is not None:
        return PathsUntracked(tuple(Untracked(path, reason) for path, reason in said["paths"]))
    return _unknown(kind, record)


def _call_finished(record: Record, whole: Mapping[str, Any]) -> CallFinished:
    envelope = record.envelope
    coverage = envelope["coverage"]
    reasons = whole.get("reasons", coverage.get("reasons", ()))
    stored = _value(record, "result")
    erased = "$erased" in stored
    return CallFinished(
        call_id=envelope["call_id"],
        tool=whole.get("tool", envelope["tool"]),
        effect=envelope["effect"],
        status=envelope["status"],
        result=stored if erased else stored["result"],
        coverage=Coverage(coverage["level"], tuple(reasons)),
        sandbox=whole.get("sandbox", envelope.get("sandbox", "")),
        duration=0 if erased else stored["duration"],
        reverts=tuple(whole.get("reverts", envelope.get("reverts", ()))),
    )


def _changes(kind: str, record: Record, whole: Mapping[str, Any]) -> Fact:
    envelope = record.envelope
    stored = record.payloads.get(("manifest", 0))
    if stored is None:
        return _unknown(kind, record)
    manifest = decode_manifest(stored, record.payloads.get(("keys", 0)))
    reverts = tuple(whole.get("reverts", envelope.get("reverts", ())))
    if kind == ChangeIntended.kind:
        return ChangeIntended(envelope["call_id"], manifest.changes, manifest.moves, reverts)
    return FilesChanged(
        changes=manifest.changes,
        origin=manifest.fields["origin"],
        call_id=envelope.get("call_id"),
        moves=manifest.moves,
        reverts=reverts,
        causes=tuple(whole.get("causes", envelope.get("causes", ()))),
    )


def _lists(record: Record, role: str) -> bool:
    return any(item["role"] == role for item in record.envelope.get("payloads", ()))


def _value(record: Record, role: str) -> Any:
    stored = record.payloads.get((role, 0))
    if stored is None:
        return dict(ERASED)
    return from_json(stored, lambda n: record.payloads.get(("content", n)))


def _fact_fields(record: Record) -> Mapping[str, Any] | None:
    """The payload `fact`; None when there is none or it was erased."""
    stored = record.payloads.get(("fact", 0))
    if stored is None:
        return None
    found = from_json(stored, lambda n: None)
    if not isinstance(found, dict):
        raise TypeError("the payload `fact` is not an object")
    return found


def _unknown(kind: str, record: Record) -> UnknownFact:
    found: dict[str, Any] = {}
    for item in record.envelope.get("payloads", ()):
        role, n = item["role"], item["n"]
        stored = record.payloads.get((role, n))
        name = f"{role}/{n}" if n else role
        if stored is None:
            found[name] = dict(ERASED)
        elif role == "content":
            found[name] = stored.decode("utf-8", "surrogateescape")
        else:
            found[name] = from_json(stored, lambda n: record.payloads.get(("content", n)))
    return UnknownFact(kind, record.envelope, found)
