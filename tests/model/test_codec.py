"""Events to bytes and back: every fact, arbitrary JSON, names that are not UTF-8, tampering."""

import contextlib
import json
import math
import os
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from hashlib import sha256
from typing import Any, get_args
from uuid import RFC_4122, UUID

import pytest
import rfc8785
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import fields, replace

from loom_audit.errors import AuditError, Corrupt, NotSerializable, StorageFailed
from loom_audit.model.backgrounds import BackgroundFinished, BackgroundStarted, WritableFolder
from loom_audit.model.conversation import MessageReceived, PromptSubmitted
from loom_audit.model.coverage import Coverage, Effect, Inferred, Origin, Status
from loom_audit.model.events import (
    ApprovalRequested,
    BaselineFinished,
    CallDecided,
    CallFinished,
    CallReported,
    CallRequested,
    ChangeIntended,
    ChangesAttributed,
    CheckpointMarked,
    ContentFound,
    CoverageLowered,
    Draft,
    Event,
    Fact,
    FilesChanged,
    HookFailed,
    Lease,
    PathsUntracked,
    RulesChanged,
    ScopeAccepted,
    SessionEnded,
    SessionHeld,
    SessionReleased,
    SessionStarted,
    Temporary,
    TreeListed,
    TreeRelisted,
    UnknownFact,
    Untracked,
    WorkspaceAttached,
    WorkspaceForgotten,
)
from loom_audit.model.files import BlobId, FileChange, FileState, Move
from loom_audit.model.git.record import GitChanged, GitIntended, GitName
from loom_audit.model.noted import HeadNoted
from loom_audit.model.scope import LeftOut
from loom_audit.model.stored.codec import (
    MAX_LEAF,
    EncodedEvent,
    decode,
    encode,
    format_time,
    id_of,
    parse_time,
    read_envelope,
    seq_of,
)
from loom_audit.model.stored.facts import Record
from loom_audit.model.stored.manifest import check_manifest
from loom_audit.model.stored.payloads import (
    ERASED,
    MAX_CONTENTS,
    SALT_BYTES,
    StoredPayload,
    check_payloads,
    from_json,
    to_json,
)

KEY = SALT_BYTES + 32

AT = datetime(2026, 11, 21, 22, 41, 0, 123456, UTC)


Contents = dict[tuple[str, int], bytes]
"""What is stored beside an envelope: a payload's role and number → its bytes."""


def salts(seed: int = 0) -> Callable[[], bytes]:
    """Salts that are the same in every run."""
    stream = random.Random(seed)
    return lambda: stream.randbytes(SALT_BYTES)


def put(fact: Fact, seq: int = 7, **draft: Any) -> EncodedEvent:
    whole = {"session": "s-1", "actor": "agent:x", **draft}
    return encode(
        Draft(fact, **whole),
        log="log-1",
        seq=seq,
        at=AT,
        prev=b"\x07" * 32,
        salts=salts(),
    )


def stored(encoded: EncodedEvent) -> Contents:
    return {(item.role, item.n): item.content for item in encoded.payloads}


def back(encoded: EncodedEvent) -> Event:
    return decode(encoded.leaf, stored(encoded))


def intended(draft: Draft) -> Contents:
    """The manifest and keys of the intention that a draft refers to."""
    fact = draft.fact
    if not isinstance(fact, FilesChanged) or fact.intention is None:
        return {}
    return stored(put(ChangeIntended("c", fact.changes, fact.moves)))


def same(left: Any, right: Any) -> bool:
    """Equality that also tells NaN, -0.0, True and 1 apart from their look-alikes."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[k], right[k]) for k in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, float):
        return (math.isnan(left) and math.isnan(right)) or (
            left == right and math.copysign(1, left) == math.copysign(1, right)
        )
    return bool(left == right)


# --- what there can be --------------------------------------------------------------------

any_text = st.text(st.characters(codec=None), max_size=40)
odd_text = st.one_of(
    any_text,
    st.binary(max_size=30).map(lambda raw: raw.decode("utf-8", "surrogateescape")),
    st.sampled_from(["$b64", "$dict", "$content", "$", "\ud83d\ude00", "\udcc3\udca9", "é" * 4096]),
)
any_json = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.integers(10**700, 10**720),
        st.integers(-(2**20000), -(2**19999)),
        st.floats(),
        odd_text,
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(odd_text, inner, max_size=4)
    ),
    max_leaves=15,
)
paths = (
    st.binary(min_size=1, max_size=60)
    .filter(lambda raw: b"\0" not in raw)
    .map(lambda raw: raw.decode("utf-8", "surrogateescape"))
)
blobs = st.binary(min_size=32, max_size=32).map(bytes.hex)
more = {
    "group": st.none() | st.integers(0, 2**50),
    "acl": st.booleans(),
    "identity": st.just("") | st.text(st.characters(codec="utf-8"), max_size=30),
}
known_states = st.one_of(
    st.builds(
        FileState, st.just("directory"), st.none(), st.integers(0, 0o7777), st.just(0), **more
    ),
    st.builds(FileState, st.just("opaque"), st.none(), st.just(0), st.just(0), **more),
    st.builds(
        FileState,
        st.sampled_from(["file", "symlink"]),
        blobs,
        st.integers(0, 0o7777),
        st.integers(0, 2**50),
        **more,
    ),
)
states = st.none() | known_states
changes = st.lists(st.builds(FileChange, paths, states, states), max_size=6).map(tuple)
moves = st.lists(st.builds(Move, paths, paths), max_size=3).map(tuple)
ids = st.text(st.characters(codec="utf-8"), min_size=1, max_size=30)
names = st.one_of(ids, any_text, st.text(min_size=200, max_size=900))
number, inferred = st.integers(1, 2**52), st.sampled_from(get_args(Inferred))
seqs = st.one_of(
    st.lists(st.integers(1, 2**62), max_size=4), st.lists(st.integers(1, 10**6), min_size=101)
).map(tuple)
reasons = st.lists(st.one_of(any_text, names), max_size=110).map(tuple)
coverages = st.builds(Coverage, st.sampled_from(["full", "partial", "none"]), reasons)
statuses = st.sampled_from(get_args(Status))
effects = st.sampled_from(get_args(Effect))
left_out = st.lists(
    st.builds(LeftOut, paths, any_text, st.integers(0), st.integers(0)), max_size=3
).map(tuple)
rules = st.lists(st.tuples(any_text, blobs), max_size=3).map(tuple)
some = st.none() | st.integers(0, 2**40)
leases = st.builds(Lease, some, some, any_text, any_text, st.integers(0))
writable = st.builds(WritableFolder, paths, any_text)
relisted = st.lists(
    st.builds(lambda path, state: FileChange(path, None, state), paths, known_states)
).map(tuple)

git_names = st.lists(
    st.builds(GitName, any_text, st.none() | any_text, st.none() | any_text, any_text), max_size=3
).map(tuple)

facts = st.one_of(
    st.builds(WorkspaceAttached, paths, any_text, st.integers(0, 2**60), paths, any_text),
    st.builds(BaselineFinished, st.integers(0), st.integers(0), left_out),
    st.builds(ScopeAccepted, any_text, left_out, st.lists(paths).map(tuple)),
    st.builds(RulesChanged, rules),
    st.builds(SessionHeld, any_text, any_text),
    st.builds(SessionReleased, any_text, any_text),
    st.builds(PromptSubmitted, odd_text, any_text),
    st.builds(MessageReceived, st.sampled_from(["assistant", "tool"]), odd_text, any_text),
    st.builds(ContentFound, paths, known_states, any_text, st.none() | ids),
    st.builds(BackgroundStarted, ids, any_text, st.lists(writable, max_size=3).map(tuple)),
    st.builds(
        BackgroundFinished,
        ids,
        any_text,
        st.sampled_from(["exited", "stopped", "closed", "interrupted"]),
        st.none() | st.integers(0, 255),
        number,
        any_text,
    ),
    st.builds(CallReported, ids, names, statuses, any_json),
    st.builds(CallReported, ids, names, statuses, any_json, number, inferred),
    st.builds(CoverageLowered, seqs, coverages),
    st.builds(TreeListed, st.integers(0), blobs, st.booleans()),
    st.builds(
        TreeRelisted,
        relisted,
        st.integers(1),
        st.booleans(),
        st.lists(st.builds(Untracked, paths, any_text)).map(tuple),
    ),
    st.builds(
        ChangesAttributed,
        st.integers(1, 2**53 - 1),
        st.lists(paths).map(tuple),
        st.integers(1, 2**53 - 1),
        any_text,
    ),
    st.builds(HookFailed, any_text, any_text, st.integers(1)),
    st.builds(PathsUntracked, st.lists(st.builds(Untracked, paths, any_text)).map(tuple)),
    st.builds(
        SessionStarted,
        any_text,
        any_text,
        st.none() | ids,
        any_text,
        any_text,
        rules,
        st.none() | leases,
    ),
    st.builds(SessionEnded, st.sampled_from(["completed", "failed", "interrupted"])),
    st.builds(
        CallRequested,
        ids,
        names,
        any_json,
        effects,
        any_text,
        st.none() | st.lists(paths, max_size=3).map(tuple),
        st.none() | st.integers(1, 2**52),
        st.none() | st.lists(paths, max_size=3).map(tuple),
    ),
    st.builds(
        CallDecided,
        ids,
        names,
        st.sampled_from(["allowed", "denied"]),
        any_text,
        any_text,
        any_json,
        st.booleans(),
    ),
    st.builds(
        ApprovalRequested,
        ids,
        names,
        any_json,
        any_text,
        any_text,
        any_text,
        any_text,
        st.integers(1, 9),
    ),
    st.builds(
        ChangeIntended,
        ids,
        changes,
        moves,
        seqs,
        st.lists(st.builds(Temporary, paths, paths, any_text), max_size=3).map(tuple),
    ),
    st.builds(
        FilesChanged,
        changes,
        st.sampled_from(["baseline", "tool", "command", "undo", "outside"]),
        st.none() | ids,
        moves,
        seqs,
        st.lists(ids, max_size=110).map(tuple),
        st.none() | st.integers(1, 2**52),
        st.lists(paths, max_size=3).map(tuple),
    ),
    st.builds(
        CallFinished,
        ids,
        names,
        effects,
        statuses,
        any_json,
        coverages,
        names,
        st.integers(0, 2**40),
        seqs,
        st.booleans(),
    ),
    st.builds(
        GitChanged,
        any_text,
        git_names,
        changes,
        st.sampled_from(get_args(Origin)),
        any_text,
        st.none() | ids,
        st.lists(st.integers(0, 2**40), max_size=3).map(tuple),
        any_text,
    ),
    st.builds(GitIntended, ids, any_text, git_names, changes, any_text, any_text, any_text),
    st.builds(CheckpointMarked, any_text, st.integers(0, 2**62), any_text),
    st.builds(HeadNoted, st.integers(0), any_text, st.integers(0), any_text, any_text),
    st.builds(WorkspaceForgotten, paths, any_text, *(st.integers(0, 2**60) for _ in range(3))),
)
zones = st.integers(-840, 840).map(lambda minutes: timezone(timedelta(minutes=minutes)))
times = st.datetimes(datetime(1970, 1, 3), datetime(9998, 1, 1), timezones=zones)
drafts = st.builds(
    Draft,
    facts,
    st.just("") | ids,
    names,
    st.none() | ids,
    st.none() | times,
    names,
    st.none() | ids,
)


def values_of(fact: Fact) -> list[object]:
    return [getattr(fact, item.name) for item in fields(fact)]


# --- round trips --------------------------------------------------------------------------


@given(drafts, st.integers(1, 2**53 - 1), times, st.none() | st.binary(min_size=32, max_size=32))
def test_every_event_reads_back_as_it_was_written(
    draft: Draft, seq: int, at: datetime, prev: bytes | None
) -> None:
    encoded = encode(draft, log="l", seq=seq, at=at, prev=prev, salts=salts())
    event = decode(encoded.leaf, intended(draft) | stored(encoded))
    assert type(event.fact) is type(draft.fact)
    for found, given_ in zip(values_of(event.fact), values_of(draft.fact), strict=True):
        assert same(found, given_)
    for name in ("session", "actor", "occurred_at", "source", "parent"):
        assert getattr(event, name) == getattr(draft, name)
    assert (event.log, event.seq, event.at) == ("l", seq, at)
    assert event.id == (draft.id or id_of(seq, encoded.leaf_hash))
    assert event.leaf_hash == encoded.leaf_hash == sha256(b"\0" + encoded.leaf).digest()
    assert len(encoded.leaf) < MAX_LEAF
    assert rfc8785.dumps(json.loads(encoded.leaf)) == encoded.leaf
    assert read_envelope(encoded.leaf).get("prev") == (prev and prev.hex()[:16])
    assert problems(encoded) == []


@given(any_json)
@example({"$erased": True})
@example({"$content": 0, "size": 5000})
@example([{"$b64": "AAAA"}, {"$dict": [["a", 1]]}, {"": {"\ud800": "\udfff"}}])
@example([-0.0, math.nan, math.inf, -math.inf, 5e-324, True, 1, 1.0, 10**5000, -(10**5000)])
@example({"a": "x" * 5000, "b": ["x" * 5000, "\udcff" * 5000, "\ud800" * 5000]})
def test_any_json_reads_back_exactly(value: object) -> None:
    assert same(back(put(CallRequested("c", "t", value, "read"))).fact.arguments, value)
    data = to_json(value, where="value")
    assert same(from_json(data, lambda n: None), value)
    assert data.decode("utf-8")


@given(st.dictionaries(odd_text, st.integers(), max_size=6))
def test_keys_read_back_in_the_order_in_which_they_were_given(value: dict[str, int]) -> None:
    found = back(put(CallRequested("c", "t", value, "read"))).fact.arguments
    assert list(found) == list(value)


def test_names_that_are_not_utf8_are_kept_byte_for_byte() -> None:
    raw = b"caf\xe9/\xff\xfe\n\x1b[31m"
    path = os.fsdecode(raw)
    change = FileChange(path, None, FileState("file", BlobId("ab" * 32), 0o644, 1))
    fact = FilesChanged((change,), "tool", moves=(Move(path, "plain"),))
    assert back(put(fact)).fact == fact
    assert os.fsencode(back(put(fact)).fact.changes[0].path) == raw


@given(st.integers(1, 2**53 - 1), st.binary(min_size=32, max_size=32))
def test_an_id_that_was_not_given_is_a_uuid_of_version_8_and_leads_back_to_its_event(
    seq: int, hashed: bytes
) -> None:
    made = UUID(hex=id_of(seq, hashed))
    assert (made.version, made.variant) == (8, RFC_4122)
    assert seq_of(made.hex) == seq


@pytest.mark.parametrize("id", ["", "x" * 32, "0" * 32, UUID(int=2**100, version=4).hex, "8" * 31])
def test_another_id_leads_to_no_event(id: str) -> None:
    assert seq_of(id) is None


def test_a_long_argument_is_the_same_blob_as_the_file_that_was_written_from_it() -> None:
    text = "zeile\r\n" * 1000
    bad = b"\xff\xfe" * 4000
    value = {"content": text, "again": text, "bytes": bad.decode("utf-8", "surrogateescape")}
    encoded = put(CallRequested("c", "write_file", value, "write"))
    kept = {item.blob: item.n for item in encoded.payloads if item.role == "content"}
    assert kept == {
        sha256(bad).hexdigest(): 0,
        sha256(text.encode()).hexdigest(): 1,
    } or kept == {sha256(text.encode()).hexdigest(): 0, sha256(bad).hexdigest(): 1}
    assert b"zeile" not in encoded.leaf + stored(encoded)["args", 0]
    assert back(encoded).fact.arguments == value


def test_text_of_4096_bytes_stays_and_one_byte_more_is_kept_apart() -> None:
    for text, apart in (("x" * 4096, False), ("x" * 4097, True), ("é" * 2049, True)):
        encoded = put(CallRequested("c", "t", {"a": text}, "read"))
        assert any(item.role == "content" for item in encoded.payloads) == apart


def test_an_event_with_very_many_long_texts_keeps_the_envelope_small() -> None:
    value = [f"{n}" * 5000 for n in range(1000, 1200)]
    encoded = put(CallRequested("c", "t", value, "read"))
    assert sum(item.role == "content" for item in encoded.payloads) == MAX_CONTENTS
    assert len(encoded.leaf) < MAX_LEAF
    assert back(encoded).fact.arguments == value


def test_the_largest_envelope_stays_under_64_kib() -> None:
    long = "\x01" * 256
    fact = CallFinished(
        call_id=long,
        tool=long + "x",
        effect="write",
        status="ok",
        result=[f"{n}" * 5000 for n in range(100, 200)],
        coverage=Coverage("partial", tuple(f"{n}\x01" for n in range(100))),
        sandbox=long,
        reverts=tuple(range(2**52, 2**52 + 100)),
    )
    draft = Draft(fact, long, long, id=long, occurred_at=AT, source=long, parent=long)
    encoded = encode(draft, log=long, seq=2**53 - 1, at=AT, prev=b"\0" * 32, salts=salts())
    assert len(encoded.leaf) < MAX_LEAF
    assert back(encoded).fact == fact


def test_secrets_never_reach_the_envelope() -> None:
    secret = "hunter2-canary"
    blob = BlobId(sha256(secret.encode()).hexdigest())
    state = FileState("file", blob, 0o644, len(secret))
    for fact in (
        CallRequested("c", "t", {"password": secret, "x": [secret * 500]}, "read", names=(secret,)),
        CallFinished("c", "t", "read", "ok", {"out": secret}),
        CallDecided("c", "t", "denied", secret, secret, {"a": secret}),
        FilesChanged((FileChange(secret, None, state),), "tool"),
        SessionStarted(secret, secret),
        CheckpointMarked(secret, 1, secret),
        GitChanged(
            secret,
            (GitName(secret, secret, secret, secret),),
            (FileChange(secret, None, state),),
            "outside",
            secret,
            folder=secret,
        ),
        GitIntended(
            "c",
            secret,
            (GitName(secret, secret, secret, secret),),
            (FileChange(secret, None, state),),
            secret,
            secret,
            secret,
        ),
        WorkspaceForgotten(secret, secret, 1, 1, 1),
        BackgroundStarted("c", secret, (WritableFolder(secret, secret),)),
        BackgroundFinished("c", secret, "exited", 0, 1, secret),
        HeadNoted(1, secret, 1, secret, secret),
        HookFailed(secret, secret),
        ChangesAttributed(1, (secret,), 2, secret),
        WorkspaceAttached(secret, secret, 1, secret, secret),
        PathsUntracked((Untracked(secret, secret),)),
        TreeRelisted((FileChange(secret, None, None),), 1, True, (Untracked(secret, secret),)),
    ):
        leaf = put(fact).leaf
        assert secret.encode() not in leaf
        assert blob.encode() not in leaf


def test_encoding_is_deterministic_and_salts_alone_make_commitments_differ() -> None:
    fact = CallRequested("c", "t", {"a": 1}, "read")
    assert put(fact) == put(fact)
    other = encode(
        Draft(fact, "s-1", "agent:x"),
        log="log-1",
        seq=7,
        at=AT,
        prev=b"\x07" * 32,
        salts=salts(1),
    )
    assert other.payloads[0].content == put(fact).payloads[0].content
    assert other.leaf != put(fact).leaf


def test_an_envelope_has_the_fields_of_the_format_and_leaves_out_empty_ones() -> None:
    envelope = read_envelope(put(CallFinished("c", "t", "read", "ok", None)).leaf)
    size = len(b'{"duration":0,"result":null}')
    assert envelope.pop("payloads")[0].items() >= {"role": "result", "n": 0, "size": size}.items()
    assert envelope == {
        "v": "2.1",
        "log": "log-1",
        "seq": 7,
        "at": "2026-11-21T22:41:00.123456Z",
        "session": "s-1",
        "actor": "agent:x",
        "kind": "call.finished",
        "tool": "t",
        "call_id": "c",
        "effect": "read",
        "status": "ok",
        "coverage": {"level": "full"},
        "prev": "07" * 8,
    }


def test_a_later_minor_version_may_add_parts_to_a_tuple() -> None:
    encoded = put(SessionStarted("a", lease=Lease(1, 2, "b", "n", 3)))
    longer = stored(encoded)["fact", 0].replace(b'"n",3]', b'"n",3,"more"]')
    assert b"more" in longer
    assert decode(encoded.leaf, {("fact", 0): longer}).fact == back(encoded).fact


# --- what is refused ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "place"),
    [
        (b"raw", "arguments"),
        ({"a": [1, {"b": {1, 2}}]}, "arguments.a[1].b"),
        ({"a": {3: "x"}}, "arguments.a"),
        ([object()], "arguments[0]"),
        ({"when": AT}, "arguments.when"),
    ],
)
def test_what_is_not_json_is_refused_with_its_place(value: object, place: str) -> None:
    with pytest.raises(NotSerializable) as caught:
        put(CallRequested("c", "t", value, "read"))
    assert caught.value.details == {"where": place}


def test_a_value_inside_itself_is_refused() -> None:
    value: list[object] = []
    value.append(value)
    with pytest.raises(NotSerializable, match="deeper"):
        put(CallRequested("c", "t", value, "read"))


def test_nesting_up_to_the_limit_is_kept() -> None:
    value: object = "core"
    for n in range(100):
        value = [value] if n % 2 else {"$k": value}
    assert back(put(CallRequested("c", "t", value, "read"))).fact.arguments == value
    with pytest.raises(NotSerializable):
        put(CallRequested("c", "t", [value], "read"))


@pytest.mark.parametrize("name", ["x" * 257, "é" * 129, "\ud800"])
def test_ids_that_do_not_fit_are_refused_and_other_names_are_kept_whole(name: str) -> None:
    for draft in (
        Draft(CallRequested(name, "t", None, "read"), "s", "a"),
        Draft(SessionEnded(), name, "a"),
        Draft(SessionEnded(), "s", "a", parent=name),
    ):
        with pytest.raises(NotSerializable, match="256 bytes"):
            encode(draft, log="l", seq=1, at=AT, prev=None, salts=salts())
    encoded = put(CallRequested("c", name, None, "read"), actor=name, source=name)
    event = back(encoded)
    assert (event.fact.tool, event.actor, event.source) == (name, name, name)
    assert len(read_envelope(encoded.leaf)["tool"].encode()) <= 256


@pytest.mark.parametrize(
    "fact",
    [
        CallRequested("c", "t", None, ""),  # type: ignore[arg-type]
        CallFinished("c", "t", "read", "", None),  # type: ignore[arg-type]
        CallFinished("c", "t", "read", "open", None),  # type: ignore[arg-type]
        CallReported("c", "t", "bogus", None),  # type: ignore[arg-type]
        FilesChanged((), "nobody"),  # type: ignore[arg-type]
        SessionEnded("gone"),  # type: ignore[arg-type]
        CallDecided("c", "t", "maybe", "me"),  # type: ignore[arg-type]
    ],
)
def test_what_could_not_be_read_back_is_refused(fact: Fact) -> None:
    with pytest.raises(NotSerializable, match="cannot be"):
        put(fact)


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(NotSerializable, match="zone"):
        format_time(datetime(2026, 1, 1))


@given(times)
def test_times_are_kept_to_the_microsecond_in_utc(moment: datetime) -> None:
    text = format_time(moment)
    assert parse_time(text) == moment
    assert len(text) == 27 and text.endswith("Z")


def test_a_file_without_a_hash_and_an_unknown_fact_cannot_be_recorded() -> None:
    with pytest.raises(NotSerializable, match="without a content hash"):
        put(FilesChanged((FileChange("a", None, FileState("file", None, 0, 0)),), "tool"))
    with pytest.raises(NotSerializable, match=r"x\.y"):
        put(UnknownFact("x.y", {}))


# --- versions -----------------------------------------------------------------------------


def leaf(**fields: Any) -> bytes:
    base: dict[str, Any] = {
        "v": "2.1",
        "log": "l",
        "seq": 3,
        "id": "i",
        "at": "2026-01-01T00:00:00.000000Z",
    }
    return rfc8785.dumps({**base, "actor": "a", "kind": "x.happened", **fields})


def test_a_kind_that_is_not_known_is_kept_whole() -> None:
    listed = [
        {"role": "fact", "n": 0, "size": 2, "commit": "00"},
        {"role": "fact", "n": 1, "size": 2, "commit": "00"},
        {"role": "new", "n": 0, "size": 1, "commit": "00"},
    ]
    event = decode(leaf(payloads=listed, extra=[1]), {("fact", 0): b"{}", ("new", 0): b"\xff"})
    assert event.kind == "x.happened"
    assert event.fact.envelope["extra"] == [1]
    assert event.fact.payloads == {"fact": "{}", "fact/1": {"$erased": True}, "new": "\udcff"}


def test_a_newer_minor_version_is_read_and_a_newer_major_one_is_refused() -> None:
    assert decode(leaf(v="2.9", new_field=1), {}).seq == 3
    with pytest.raises(StorageFailed, match=r"3\.0, newer than 2\.1") as caught:
        decode(leaf(v="3.0", kind="session.ended"), {})
    assert "Upgrade" in caught.value.hint


def test_upcasters_lead_step_by_step_to_the_present_version() -> None:
    def first(record: Record) -> Record:
        return Record({**record.envelope, "v": "0.2", "kind": "session.closed"}, record.payloads)

    def second(record: Record) -> Record:
        renamed = {**record.envelope, "v": "2.0", "kind": "session.ended", "status": "failed"}
        return Record(renamed, record.payloads)

    steps = {"0.1": first, "0.2": second}
    old = leaf(v="0.1", kind="session.stopped")
    event = decode(old, {}, upcasters=steps)
    assert event.fact == SessionEnded("failed")
    assert event.leaf_hash == sha256(b"\0" + old).digest()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"v":"x"}',
        b"\xff",
        b"[" * 100_000,
        b'{"v":"2.0"}',
        b'{"v":1,"v":[]}',
    ],
)
def test_a_leaf_that_is_not_an_envelope_is_corrupt(data: bytes) -> None:
    with pytest.raises(Corrupt):
        decode(data, {})


# --- erasing ------------------------------------------------------------------------------

STATE = FileState("file", BlobId("ab" * 32), 0o644, 5)
LONG = "secret " * 1000


def without(encoded: EncodedEvent, *gone: tuple[str, int]) -> Contents:
    return {key: item for key, item in stored(encoded).items() if key not in gone}


def test_erased_arguments_and_results_say_so() -> None:
    asked = put(CallRequested("c", "t", {"a": 1}, "read"))
    assert decode(asked.leaf, {}).fact == CallRequested("c", "t", {"$erased": True}, "read")
    done = put(CallFinished("c", "t", "read", "ok", {"a": 1}, duration=5))
    assert decode(done.leaf, {}).fact == CallFinished("c", "t", "read", "ok", dict(ERASED))
    decided = put(CallDecided("c", "t", "allowed", "me", "why", {"a": 1}))
    assert decode(decided.leaf, {}).fact == CallDecided(
        "c", "t", "allowed", "[erased]", "[erased]", {"$erased": True}
    )


def test_an_erased_attribution_names_no_path() -> None:
    told = put(ChangesAttributed(12, ("a",), 3, "the client told it"))
    fact = decode(told.leaf, {}).fact
    assert isinstance(fact, UnknownFact)
    assert (fact.kind, fact.envelope["event"], fact.envelope["call"]) == (told.kind, 12, 3)


def test_an_erased_text_leaves_the_arguments_around_it() -> None:
    encoded = put(CallRequested("c", "t", {"path": "a", "content": LONG}, "write"))
    event = decode(encoded.leaf, without(encoded, ("content", 0)))
    assert event.fact.arguments == {"path": "a", "content": {"$erased": True, "size": len(LONG)}}


def test_one_erased_content_of_a_manifest_reads_as_its_commitment() -> None:
    one = FileChange("a", STATE, FileState("symlink", BlobId("cd" * 32), 0o777, 2))
    two = FileChange("b", STATE, FileState("directory", None, 0o755, 0))
    encoded = put(ChangeIntended("c", (one, two)))
    keys = stored(encoded)["keys", 0]
    erased = keys[:KEY] + bytes(KEY) + keys[2 * KEY :]
    manifest = stored(encoded)["manifest", 0]
    event = decode(encoded.leaf, {("manifest", 0): manifest, ("keys", 0): erased})
    assert event.fact.changes[1] == two
    gone = event.fact.changes[0].after
    assert one.after is not None and gone is not None and gone.blob is not None
    assert gone == replace(one.after, blob=gone.blob)
    assert len(gone.blob) == 64 and gone.blob != one.after.blob
    assert [code for code, _ in check_manifest(manifest, erased)] == ["keys.erased"]
    assert [code for code, _ in check_manifest(manifest, None)] == ["keys.erased"] * 3


def test_all_keys_erased_leave_contents_that_equal_nothing_known() -> None:
    fact = FilesChanged((FileChange("a", STATE, None), FileChange("b", None, STATE)), "tool")
    encoded = put(fact)
    event = decode(encoded.leaf, without(encoded, ("keys", 0)))
    found = {event.fact.changes[0].before.blob, event.fact.changes[1].after.blob}
    assert len(found) == 2 and STATE.blob not in found


def test_a_fact_that_cannot_do_without_what_was_erased_says_so() -> None:
    for fact, role in (
        (FilesChanged((FileChange("a", None, STATE),), "tool"), "manifest"),
        (CheckpointMarked("n", 1), "fact"),
        (PathsUntracked((Untracked("a", "b"),)), "fact"),
    ):
        event = decode(put(fact).leaf, {})
        assert event.fact == UnknownFact(fact.kind, event.fact.envelope, {role: {"$erased": True}})


# --- tampering ----------------------------------------------------------------------------


def problems(encoded: EncodedEvent, contents: Contents | None = None) -> list[str]:
    """What verification of one event says, given the bytes that are stored now."""
    contents = stored(encoded) if contents is None else contents
    given_salts: dict[tuple[str, int], bytes] = {
        (item.role, item.n): item.salt for item in encoded.payloads
    }
    rows = [
        StoredPayload(role, n, given_salts.get((role, n)), sha256(data).digest(), len(data))
        for (role, n), data in contents.items()
    ]
    found = list(check_payloads(read_envelope(encoded.leaf).get("payloads", ()), rows))
    if ("manifest", 0) in contents and not found:
        found += check_manifest(contents["manifest", 0], contents.get(("keys", 0)))
    return [code for code, _ in found]


@given(facts, st.data())
def test_a_change_of_any_stored_byte_is_detected(fact: Fact, data: st.DataObject) -> None:
    encoded = put(fact)
    contents = stored(encoded)
    whole = encoded.leaf + b"".join(contents.values())
    at = data.draw(st.integers(0, len(whole) - 1))
    flip = data.draw(st.integers(1, 255))
    if at < len(encoded.leaf):
        changed = bytearray(encoded.leaf)
        changed[at] ^= flip
        assert sha256(b"\0" + changed).digest() != encoded.leaf_hash
        with contextlib.suppress(AuditError):
            decode(bytes(changed), contents)
        return
    at -= len(encoded.leaf)
    for key, content in contents.items():
        if at < len(content):
            changed = bytearray(content)
            changed[at] ^= flip
            assert problems(encoded, {**contents, key: bytes(changed)}) != []
            with contextlib.suppress(AuditError):
                decode(encoded.leaf, {**contents, key: bytes(changed)})
            return
        at -= len(content)


@given(facts)
def test_a_payload_that_is_gone_added_or_exchanged_is_detected(fact: Fact) -> None:
    encoded = put(fact)
    contents = stored(encoded)
    for key in contents:
        gone = problems(encoded, {k: v for k, v in contents.items() if k != key})
        assert set(gone) == ({"keys.erased"} if key[0] == "keys" else {"payload.missing"})
    assert "payload.extra" in problems(encoded, {**contents, ("content", 99): b"x"})
    for size in (1, KEY):
        if ("keys", 0) in contents:
            longer = contents["keys", 0] + b"x" * size
            assert problems(encoded, {**contents, ("keys", 0): longer}) == ["keys.length"]


def test_a_payload_whose_salt_was_erased_is_told_apart_from_a_wrong_one() -> None:
    encoded = put(CallRequested("c", "t", 1, "read"))
    listed = read_envelope(encoded.leaf)["payloads"]
    [item] = encoded.payloads
    digest = sha256(item.content).digest()
    erased = StoredPayload("args", 0, None, None, None)
    wrong = StoredPayload("args", 0, item.salt, digest, len(item.content) + 1)
    right = StoredPayload("args", 0, item.salt, digest, None)
    assert [code for code, _ in check_payloads(listed, [erased])] == ["payload.erased"]
    assert [code for code, _ in check_payloads(listed, [wrong])] == ["payload.mismatch"]
    assert list(check_payloads(listed, [right])) == []
