"""Which part of a fact stands in the envelope and which in payloads, and back.

`LAYOUTS` says it for every kind: fields of the envelope, the field that is the payload `args`,
and whether there is a `result` or a `manifest` (with `keys`). All other fields are in the payload
`fact`, by name; those that have their default are left out of it. A value that is a struct is
stored as the array of its fields.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, get_args, get_origin

from msgspec import NODEFAULT, Struct, field
from msgspec.structs import astuple, fields

from loom_audit.errors import NotSerializable
from loom_audit.model.backgrounds import BackgroundFinished, BackgroundStarted, WritableFolder
from loom_audit.model.coverage import Coverage
from loom_audit.model.events import (
    ApprovalRequested,
    BaselineFinished,
    CallDecided,
    CallFinished,
    CallReported,
    CallRequested,
    ChangeIntended,
    ChangesAttributed,
    ContentFound,
    CoverageLowered,
    Fact,
    FilesChanged,
    Lease,
    OpenedFolder,
    PathsUntracked,
    ScopeAccepted,
    SessionEnded,
    SessionStarted,
    Temporary,
    TreeRelisted,
    UnknownFact,
    Untracked,
)
from loom_audit.model.files import FileChange
from loom_audit.model.git.record import GitChanged, GitIntended, GitName
from loom_audit.model.scope import LeftOut
from loom_audit.model.stored.manifest import Manifest, decode_manifest, encode_manifest
from loom_audit.model.stored.payloads import (
    ERASED,
    Payload,
    Role,
    Salts,
    SeparateTexts,
    from_json,
    make_payload,
    to_json,
)
from loom_audit.model.stored.typed import check_types

_ERASED_TEXT = "[erased]"

PayloadBytes = Mapping[tuple[str, int], bytes]


class Layout(Struct, frozen=True):
    """The places in which the fields of a kind are stored; the payload `fact` holds the others.

    `envelope` pairs a field with its name there. `manifest` fields are in the manifest, beside
    its changes and moves. A fact with an `optional` argument has the payload when it is not None.
    """

    envelope: Mapping[str, str] = field(default_factory=dict)
    args: str = ""
    optional: bool = False
    result: tuple[str, ...] = ()
    manifest: tuple[str, ...] = ()
    tolerant: bool = False
    """Whether a fact whose payload `fact` was erased is still one of its kind."""


def _same(*names: str) -> Mapping[str, str]:
    return {name: name for name in names}


_CALL = _same("tool", "call_id")
_CHANGES = ("changes", "moves")

LAYOUTS: Mapping[type[Any], Layout] = {
    CallRequested: Layout({**_CALL, **_same("effect", "within")}, args="arguments", tolerant=True),
    ApprovalRequested: Layout(_CALL, args="arguments"),
    CallDecided: Layout(
        {**_CALL, "decision": "status"}, args="arguments", optional=True, tolerant=True
    ),
    ChangeIntended: Layout(
        _same("call_id", "reverts"), manifest=(*_CHANGES, "temporaries", "opened"), tolerant=True
    ),
    FilesChanged: Layout(
        _same("call_id", "reverts", "causes", "origin", "intention"),
        manifest=_CHANGES,
        tolerant=True,
    ),
    GitChanged: Layout(_same("call_id", "causes", "origin"), manifest=("changes",)),
    GitIntended: Layout(_same("call_id"), manifest=("changes",)),
    TreeRelisted: Layout(manifest=("changes",)),
    PathsUntracked: Layout(_same("kept")),
    ContentFound: Layout(_same("call_id"), manifest=("path", "state")),
    CallFinished: Layout(
        {**_CALL, **_same("effect", "status", "coverage", "sandbox", "reverts", "inferred")},
        result=("duration", "result"),
        tolerant=True,
    ),
    BackgroundStarted: Layout(_same("call_id")),
    BackgroundFinished: Layout({"call_id": "call_id", "how": "status"}, tolerant=True),
    CallReported: Layout(
        {**_CALL, **_same("status", "replaces", "inferred")}, result=("result",), tolerant=True
    ),
    ChangesAttributed: Layout(_same("event", "call")),
    CoverageLowered: Layout(_same("coverage")),
    SessionEnded: Layout(_same("status"), tolerant=True),
}
"""By fact; a kind that is not here is wholly in the payload `fact`."""

_PLAIN = Layout()
_ITEMS: Mapping[tuple[type[Any], str], type[Any]] = {
    (PathsUntracked, "paths"): Untracked,
    (GitChanged, "names"): GitName,
    (GitIntended, "names"): GitName,
    (TreeRelisted, "untracked"): Untracked,
    (BaselineFinished, "left_out"): LeftOut,
    (ScopeAccepted, "left_out"): LeftOut,
    (SessionStarted, "lease"): Lease,
    (ChangeIntended, "temporaries"): Temporary,
    (BackgroundStarted, "writes"): WritableFolder,
    (ChangeIntended, "opened"): OpenedFolder,
}
"""Fields that hold structs, or lists of them."""

_KINDS: Mapping[str, type[Any]] = {
    fact.kind: fact for fact in get_args(Fact) if fact is not UnknownFact
}
_FIELDS: Mapping[str, Sequence[tuple[str, Any]]] = {
    kind: [(item.name, item.default) for item in fields(fact)] for kind, fact in _KINDS.items()
}
"""The names of a fact's fields with their defaults, NODEFAULT where there is none."""

_CHOICES: Mapping[str, Sequence[tuple[str, Sequence[str]]]] = {
    kind: [
        (item.name, get_args(item.type))
        for item in fields(fact)
        if get_origin(item.type) is Literal
    ]
    for kind, fact in _KINDS.items()
}
"""Fields that hold one of a few texts: what else would stand there could not be read back."""


def _places(fact: type[Any]) -> Iterator[tuple[str, Any, str, type[Any] | None]]:
    layout = LAYOUTS.get(fact, _PLAIN)
    elsewhere = {layout.args, *layout.result, *layout.manifest}
    for name, default in _FIELDS[fact.kind]:
        if name not in elsewhere:
            yield name, default, layout.envelope.get(name, ""), _ITEMS.get((fact, name))


_PLACES = {kind: [*_places(fact)] for kind, fact in _KINDS.items()}
"""Of the fields in the envelope or in `fact`: name, default, name in the envelope, struct."""


class Record(Struct, frozen=True):
    """A stored event before decoding, which an upcaster turns into one of the next version.

    `envelope["v"]` is the version it is in. `manifest` is the payload of this role where it was
    decoded already.
    """

    envelope: Mapping[str, Any]
    payloads: PayloadBytes
    manifest: Manifest | None = None


class SplitFact(Struct):
    """A fact divided into fields of the envelope and contents of payloads.

    `args` is a tuple of one value, or None for a fact without arguments; `manifest` the changes,
    the moves and what else stands in the manifest.
    """

    envelope: dict[str, Any]
    fact_fields: dict[str, Any] = field(default_factory=dict)
    args: tuple[Any] | None = None
    result: dict[str, Any] | None = None
    manifest: tuple[Sequence[FileChange], Sequence[Any], Mapping[str, Any]] | None = None


# --- writing ------------------------------------------------------------------------------


def split_fact(fact: Fact) -> SplitFact:
    """Return a fact in the parts in which it is stored. NotSerializable for an unknown kind."""
    if isinstance(fact, UnknownFact):
        raise NotSerializable(
            f"A fact of the unknown kind {fact.kind!r} cannot be recorded",
            hint="Upgrade loom-audit: a newer version knows it.",
        )
    for name, allowed in _CHOICES[fact.kind]:
        if getattr(fact, name) not in allowed:
            raise NotSerializable(
                f"The {name} of {fact.kind} cannot be {getattr(fact, name)!r}",
                hint=f"It is one of {', '.join(allowed)}.",
            )
    layout = LAYOUTS.get(type(fact), _PLAIN)
    split = SplitFact({})
    for name, default in _FIELDS[fact.kind]:
        value = getattr(fact, name)
        if name in layout.envelope:
            if isinstance(value, Coverage):
                value = {"level": value.level, "reasons": value.reasons}
            # what says nothing is left out, as in events of before the field
            if value is not None and value is not False and not (value == "" == default):
                split.envelope[layout.envelope[name]] = value
        elif name == layout.args:
            split.args = None if layout.optional and value is None else (value,)
        elif name not in layout.result and name not in layout.manifest and value != default:
            split.fact_fields[name] = _plain(value)
    if layout.result:
        split.result = {name: getattr(fact, name) for name in layout.result}
    if layout.manifest:
        split.manifest = _manifest_of(fact, layout)
    return split


def _manifest_of(
    fact: Any, layout: Layout
) -> tuple[Sequence[FileChange], Sequence[Any], Mapping[str, Any]] | None:
    """What goes into the manifest; None where that of its intention says what happened."""
    if isinstance(fact, ContentFound):
        return (FileChange(fact.path, None, fact.state),), (), {}
    if isinstance(fact, FilesChanged) and fact.intention is not None:
        return None
    beside = {name: getattr(fact, name) for name in layout.manifest if name not in _CHANGES}
    more = {name: _plain(items) for name, items in beside.items() if items}
    return fact.changes, fact.moves if "moves" in layout.manifest else (), more


def _plain(value: Any) -> Any:
    """A value as it is stored: structs as arrays of their fields."""
    if isinstance(value, Struct):
        parts = list(astuple(value))
        while parts and parts[-1] is None:  # what is not known is left out at the end
            parts.pop()
        return parts
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def payloads_of(split: SplitFact, salts: Salts) -> tuple[Payload, ...]:
    """Return the payloads of a fact whose envelope has been fitted."""
    texts = SeparateTexts()
    found: list[tuple[Role, bytes]] = []
    if split.args is not None:
        found.append(("args", to_json(split.args[0], where="arguments", texts=texts)))
    if split.result is not None:
        found.append(("result", to_json(split.result, where="call", texts=texts)))
    if split.manifest is not None:
        manifest, keys = encode_manifest(*split.manifest, salts)
        found.append(("manifest", manifest))
        if keys:
            found.append(("keys", keys))
    if split.fact_fields:
        found.append(("fact", to_json(split.fact_fields, where="fact")))
    return (
        *(make_payload(role, 0, content, salts) for role, content in found),
        *(make_payload("content", n, content, salts) for content, n in texts.numbers.items()),
    )


# --- reading ------------------------------------------------------------------------------


def fact_payload_of(record: Record) -> Mapping[str, Any] | None:
    """Return the payload `fact`; None when it was erased or the fact does not have one."""
    stored = record.payloads.get(("fact", 0))
    if stored is None:
        return None
    found = from_json(stored, _no_content)
    if not isinstance(found, dict):
        raise TypeError("the payload `fact` is not an object")
    return found


def join_fact(kind: str, record: Record, fact_fields: Mapping[str, Any] | None) -> Fact:
    """Return the fact of a record. KeyError, TypeError, ValueError when the record is malformed."""
    cls = _KINDS.get(kind)
    if cls is None:
        return _unknown(kind, record)
    layout = LAYOUTS.get(cls, _PLAIN)
    envelope = record.envelope
    erased = fact_fields is None and _lists(envelope, "fact")
    if erased and not layout.tolerant:
        return _unknown(kind, record)
    values = _stored_elsewhere(cls, layout, record)
    if values is None:
        return _unknown(kind, record)
    for name, default, near, made in _PLACES[kind]:
        if fact_fields and name in fact_fields:
            values[name] = _typed(made, fact_fields[name])
        elif near and near in envelope:
            values[name] = _frozen(envelope[near])
        elif name == "tool":
            values[name] = ""
        elif erased and not near and default in (NODEFAULT, ""):
            values[name] = _ERASED_TEXT
    if "coverage" in values:
        values["coverage"] = _coverage(values["coverage"], fact_fields or {})
    fact: Fact = cls(**values)
    check_types(fact)
    return fact


def _lists(envelope: Mapping[str, Any], role: str) -> bool:
    """Whether an event has, or had, a payload of this role."""
    return any(item["role"] == role for item in envelope.get("payloads", ()))


def _stored_elsewhere(cls: type[Any], layout: Layout, record: Record) -> dict[str, Any] | None:
    """The fields in `args`, `result` and the manifest; None when a manifest is not there."""
    values: dict[str, Any] = {}
    if layout.args and (not layout.optional or _lists(record.envelope, "args")):
        values[layout.args] = _value(record, "args")
    if layout.result:
        stored = _value(record, "result")
        gone = stored == ERASED
        values["result"] = stored if gone else stored["result"]
        if "duration" in layout.result:
            values["duration"] = 0 if gone else stored["duration"]
    if not layout.manifest:
        return values
    manifest = record.manifest or _decoded_manifest(record)
    if manifest is None:
        if "intention" in record.envelope or _lists(record.envelope, "manifest"):
            return None
        raise ValueError("it says of no paths what is there")
    if cls is ContentFound:
        [change] = manifest.changes
        return {**values, "path": change.path, "state": change.after}
    for name in layout.manifest:
        if name in _CHANGES:
            values[name] = getattr(manifest, name)
        elif name in manifest.fields:
            values[name] = _typed(_ITEMS.get((cls, name)), manifest.fields[name])
    return values


def _decoded_manifest(record: Record) -> Manifest | None:
    stored = record.payloads.get(("manifest", 0))
    return None if stored is None else decode_manifest(stored, record.payloads.get(("keys", 0)))


def _typed(made: type[Any] | None, value: Any) -> Any:
    """A stored value as the fact has it; `made` is the struct it holds, or holds several of."""
    if made is None or value is None:
        return _frozen(value)
    known = len(made.__struct_fields__)  # a later minor version may say more
    items = tuple(made(*item[:known]) for item in ([value] if made is Lease else value))
    for item in items:
        check_types(item)
    return items[0] if made is Lease else items


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _coverage(stored: Mapping[str, Any], fact_fields: Mapping[str, Any]) -> Coverage:
    reasons = fact_fields.get("reasons", stored.get("reasons", ()))
    coverage = Coverage(stored["level"], tuple(reasons))
    check_types(coverage)
    return coverage


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
