"""Which part of a fact stands in the envelope and which in payloads, and back.

    call.requested   envelope: tool call_id effect          `args`
    approval.requested  envelope: tool call_id              `args`, `fact`
    call.decided     envelope: tool call_id status          `fact`, and `args` when modified
    change.intended  envelope: call_id reverts              `manifest` + `keys`
    files.changed    envelope: call_id reverts causes       `manifest` (with origin) + `keys`
    call.finished    envelope: tool call_id effect status coverage sandbox reverts
                                                            `result` (with duration)
    session.ended    envelope: status
    all others                                              `fact`

Names over 256 bytes (or not UTF-8) are cut in the envelope, lists over 100 items or 8 KiB are
left out of it; then they are stored whole in `fact`. Ids over 256 bytes are refused.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from loom_audit.errors import NotSerializable
from loom_audit.model.events import (
    ApprovalRequested,
    BaselineFinished,
    CallDecided,
    CallFinished,
    CallRequested,
    ChangeIntended,
    CheckpointMarked,
    Coverage,
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
from loom_audit.model.manifest import Manifest, decode_manifest, encode_manifest
from loom_audit.model.payloads import (
    ERASED,
    Payload,
    Role,
    Salts,
    SeparateTexts,
    from_json,
    make_payload,
    to_json,
)

MAX_NAME = 256
MAX_LIST = 100
_MAX_LIST_BYTES = 8 * 1024
_MAX_INTEGER = 2**53
_NAMES = ("actor", "source", "tool", "sandbox")
_IDS = ("log", "id", "session", "parent", "call_id")
_LISTS = ("reverts", "causes")
_QUESTION_FIELDS = ("reason", "rule", "preview", "state", "number")

PayloadBytes = Mapping[tuple[str, int], bytes]


@dataclass(frozen=True, slots=True)
class Record:
    """A stored event before decoding: what upcasters change into the next version's.

    `envelope["v"]` is the version it is in. `manifest` is the payload of this role where it was
    decoded already.
    """

    envelope: Mapping[str, Any]
    payloads: PayloadBytes
    manifest: Manifest | None = None


@dataclass(slots=True)
class Parts:
    """A fact divided into envelope fields and what goes into payloads.

    `args` is a tuple of one value, or None for a fact without arguments.
    """

    envelope: dict[str, Any]
    fact_fields: dict[str, Any] = field(default_factory=dict)
    args: tuple[Any] | None = None
    result: dict[str, Any] | None = None
    manifest: ChangeIntended | FilesChanged | None = None


# --- writing ------------------------------------------------------------------------------


def split_fact(fact: Fact) -> Parts:
    """The fact in its parts. NotSerializable for a fact of an unknown kind."""
    match fact:
        case CallRequested():
            names = {"tool": fact.tool, "call_id": fact.call_id, "effect": fact.effect}
            return Parts(names, args=(fact.arguments,))
        case ApprovalRequested():
            names = {"tool": fact.tool, "call_id": fact.call_id}
            fact_fields = {name: getattr(fact, name) for name in _QUESTION_FIELDS}
            return Parts(names, fact_fields, (fact.arguments,))
        case CallDecided():
            names = {"tool": fact.tool, "call_id": fact.call_id, "status": fact.decision}
            fact_fields = {"by": fact.by, "reason": fact.reason}
            if fact.lasting:
                fact_fields["lasting"] = True
            return Parts(names, fact_fields, None if fact.arguments is None else (fact.arguments,))
        case ChangeIntended():
            return Parts({"call_id": fact.call_id, "reverts": fact.reverts}, manifest=fact)
        case FilesChanged():
            lists = {"reverts": fact.reverts, "causes": fact.causes}
            call = {} if fact.call_id is None else {"call_id": fact.call_id}
            return Parts({**lists, **call}, manifest=fact)
        case CallFinished():
            return _split_finish(fact)
        case SessionEnded():
            return Parts({"status": fact.status})
        case PathsUntracked():
            return Parts({}, {"paths": [[item.path, item.reason] for item in fact.paths]})
        case UnknownFact():
            raise NotSerializable(
                f"A fact of the unknown kind {fact.kind!r} cannot be recorded",
                hint="Upgrade loom-audit: a newer version knows it.",
            )
    return Parts({}, {item.name: getattr(fact, item.name) for item in fields(fact)})


def _split_finish(fact: CallFinished) -> Parts:
    envelope = {
        "tool": fact.tool,
        "call_id": fact.call_id,
        "effect": fact.effect,
        "status": fact.status,
        "coverage": {"level": fact.coverage.level, "reasons": fact.coverage.reasons},
        "sandbox": fact.sandbox,
        "reverts": fact.reverts,
    }
    return Parts(envelope, result={"duration": fact.duration, "result": fact.result})


def fit_envelope(envelope: dict[str, Any], fact_fields: dict[str, Any]) -> None:
    """Keep the envelope small: what does not fit is moved to `fact_fields`, empty lists dropped."""
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
        if value is not None and (shown := _cut(value)) != value:
            fact_fields[name], envelope[name] = value, shown
    for name in _LISTS:
        if name in envelope:
            _place(name, envelope.pop(name), envelope, fact_fields)
    if "coverage" in envelope:
        coverage = envelope["coverage"]
        _place("reasons", coverage.pop("reasons"), coverage, fact_fields)
    if envelope.get("sandbox") == "":
        del envelope["sandbox"]


def _place(
    name: str, values: Sequence[str | int], near: dict[str, Any], far: dict[str, Any]
) -> None:
    if values:
        (near if _is_small(values) else far)[name] = list(values)


def _cut(name: str) -> str:
    if len(name) <= MAX_NAME and name.isascii():
        return name
    raw = name.encode("utf-8", "replace")
    if len(raw) <= MAX_NAME:
        return raw.decode()
    return raw[: MAX_NAME - 3].decode("utf-8", "ignore") + "…"


def _is_small(values: Sequence[str | int]) -> bool:
    """Whether a list may stand in the envelope; RFC 8785 excludes integers from 2**53 on."""
    if len(values) > MAX_LIST:
        return False
    size = 0
    for value in values:
        if isinstance(value, str):
            if _cut(value) != value:
                return False
            size += len(value) * 6
        elif abs(value) >= _MAX_INTEGER:
            return False
    return size <= _MAX_LIST_BYTES


def payloads_of(parts: Parts, salts: Salts) -> tuple[Payload, ...]:
    """The payloads of a fact whose envelope has been fitted."""
    texts = SeparateTexts()
    found: list[tuple[Role, bytes]] = []
    if parts.args is not None:
        found.append(("args", to_json(parts.args[0], where="arguments", texts=texts)))
    if parts.result is not None:
        found.append(("result", to_json(parts.result, where="call", texts=texts)))
    if parts.manifest is not None:
        fact = parts.manifest
        more = {"origin": fact.origin} if isinstance(fact, FilesChanged) else {}
        manifest, keys = encode_manifest(fact.changes, fact.moves, more, salts)
        found.append(("manifest", manifest))
        if keys:
            found.append(("keys", keys))
    if parts.fact_fields:
        found.append(("fact", to_json(parts.fact_fields, where="fact")))
    return (
        *(make_payload(role, 0, content, salts) for role, content in found),
        *(make_payload("content", n, content, salts) for content, n in texts.numbers.items()),
    )


# --- reading ------------------------------------------------------------------------------

_PLAIN_FACTS: Mapping[str, type[Any]] = {
    cls.kind: cls
    for cls in (
        WorkspaceAttached,
        BaselineFinished,
        ScopeAccepted,
        SessionStarted,
        CheckpointMarked,
    )
}


def fact_payload_of(record: Record) -> Mapping[str, Any] | None:
    """The payload `fact`; None when it was erased or the fact does not have one."""
    stored = record.payloads.get(("fact", 0))
    if stored is None:
        return None
    found = from_json(stored, _no_content)
    if not isinstance(found, dict):
        raise TypeError("the payload `fact` is not an object")
    return found


def join_fact(kind: str, record: Record, fact_fields: Mapping[str, Any] | None) -> Fact:
    """The fact of a record. KeyError, TypeError, ValueError when it is malformed."""
    envelope = record.envelope
    uncut = fact_fields or {}
    tool = uncut.get("tool", envelope.get("tool", ""))
    if kind == CallRequested.kind:
        return CallRequested(envelope["call_id"], tool, _value(record, "args"), envelope["effect"])
    if kind == CallDecided.kind:
        modified = any(item["role"] == "args" for item in envelope.get("payloads", ()))
        return CallDecided(
            call_id=envelope["call_id"],
            tool=tool,
            decision=envelope["status"],
            by=uncut.get("by", "[erased]"),
            reason=uncut.get("reason", "[erased]"),
            arguments=_value(record, "args") if modified else None,
            lasting=bool(uncut.get("lasting", False)),
        )
    if kind == CallFinished.kind:
        return _join_finish(record, uncut, tool)
    if kind in (ChangeIntended.kind, FilesChanged.kind):
        return _join_changes(kind, record, uncut)
    if kind == SessionEnded.kind:
        return SessionEnded(envelope["status"])
    if fact_fields is None:
        return _unknown(kind, record)
    if kind == ApprovalRequested.kind:
        asked = {name: fact_fields[name] for name in _QUESTION_FIELDS}
        return ApprovalRequested(envelope["call_id"], tool, _value(record, "args"), **asked)
    if kind == PathsUntracked.kind:
        return PathsUntracked(
            tuple(Untracked(path, reason) for path, reason in fact_fields["paths"])
        )
    if kind in _PLAIN_FACTS:
        known = {item.name for item in fields(_PLAIN_FACTS[kind])}
        fact: Fact = _PLAIN_FACTS[kind](
            **{key: fact_fields[key] for key in known & fact_fields.keys()}
        )
        return fact
    return _unknown(kind, record)


def _join_finish(record: Record, uncut: Mapping[str, Any], tool: str) -> CallFinished:
    envelope = record.envelope
    coverage = envelope["coverage"]
    stored = _value(record, "result")
    erased = stored == ERASED
    return CallFinished(
        call_id=envelope["call_id"],
        tool=tool,
        effect=envelope["effect"],
        status=envelope["status"],
        result=stored if erased else stored["result"],
        coverage=Coverage(
            coverage["level"], tuple(uncut.get("reasons", coverage.get("reasons", ())))
        ),
        sandbox=uncut.get("sandbox", envelope.get("sandbox", "")),
        duration=0 if erased else stored["duration"],
        reverts=tuple(uncut.get("reverts", envelope.get("reverts", ()))),
    )


def _join_changes(kind: str, record: Record, uncut: Mapping[str, Any]) -> Fact:
    envelope = record.envelope
    manifest = record.manifest
    if manifest is None:
        stored = record.payloads.get(("manifest", 0))
        if stored is None:
            return _unknown(kind, record)
        manifest = decode_manifest(stored, record.payloads.get(("keys", 0)))
    reverts = tuple(uncut.get("reverts", envelope.get("reverts", ())))
    if kind == ChangeIntended.kind:
        return ChangeIntended(envelope["call_id"], manifest.changes, manifest.moves, reverts)
    return FilesChanged(
        changes=manifest.changes,
        origin=manifest.fields["origin"],
        call_id=envelope.get("call_id"),
        moves=manifest.moves,
        reverts=reverts,
        causes=tuple(uncut.get("causes", envelope.get("causes", ()))),
    )


def _value(record: Record, role: str) -> Any:
    stored = record.payloads.get((role, 0))
    if stored is None:
        return dict(ERASED)
    return from_json(stored, lambda n: record.payloads.get(("content", n)))


def _no_content(_: int) -> None:
    return None


def _unknown(kind: str, record: Record) -> UnknownFact:
    found: dict[str, Any] = {}
    for item in record.envelope.get("payloads", ()):
        role, n = item["role"], item["n"]
        stored = record.payloads.get((role, n))
        name = f"{role}/{n}" if n else role
        if stored is None:
            found[name] = dict(ERASED)
        else:
            found[name] = stored.decode("utf-8", "surrogateescape")
    return UnknownFact(kind, record.envelope, found)
