"""Manifests: which paths an event changed, as one payload however many they are.

A manifest is JSON: `changes` as arrays of path, state before, state after; `moves` as pairs;
and what else the fact says. A state is null (absent), `["d", mode]` (directory), `["o"]` (opaque),
or kind (`f` file, `l` symlink), mode, size and commitment (base64url without padding) to its
content. One more item, an object, holds what few states have: `g` group, `a` access control list,
`i` identity.

Its keys are a payload of their own: for each content in the manifest's order a salt (16 bytes; in
format 1 32) and the content's 32-byte SHA-256. They are not in the envelope: each is checked
against its commitment in the manifest, which is. So one content can be erased by zeroing its
key, and all proofs stay valid. The BlobId of an erased content is its commitment: it has the right
shape, a blob store does not have it (NotFound), and it is never equal to that of a known content.
"""

from base64 import urlsafe_b64decode
from binascii import b2a_base64
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from types import NoneType
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from loom_audit.errors import NotSerializable
from loom_audit.model.files import BlobId, FileChange, FileState, Kind, Move
from loom_audit.model.stored.payloads import (
    SALT_BYTES,
    Salts,
    parse_json,
    plain_json,
    unwrap,
    unwrap_text,
    wrap,
)

Side = Literal["before", "after"]
_DIGEST_BYTES = 32
_TAGS: Mapping[str, str] = {"file": "f", "symlink": "l"}
_KINDS: Mapping[str, Kind] = {"f": "file", "l": "symlink"}


class Manifest(Struct, frozen=True):
    """A decoded manifest; `fields` are the fact's own beside changes and moves.

    `commitments` are those to the contents, in the order of their keys; `salt_bytes` is how long
    the salts in these are.
    """

    changes: tuple[FileChange, ...]
    moves: tuple[Move, ...]
    fields: Mapping[str, Any]
    commitments: Sequence[str]
    salt_bytes: int = SALT_BYTES


def encode_manifest(
    changes: Sequence[FileChange], moves: Sequence[Move], fields: Mapping[str, Any], salts: Salts
) -> tuple[bytes, bytes]:
    """Return a manifest and its keys. NotSerializable for a file or symlink without a blob."""
    keys: list[bytes] = []
    rows = [
        [
            change.path,
            change.before and _encode_state(change.path, change.before, salts, keys),
            change.after and _encode_state(change.path, change.after, salts, keys),
        ]
        for change in changes
    ]
    body: dict[str, Any] = {**wrap(fields), "changes": rows}
    if moves:
        body["moves"] = [[wrap(move.source), wrap(move.target)] for move in moves]
    try:
        encoded = plain_json(body)
    # a path is not UTF-8: rare, so the paths are wrapped only when it happens
    except UnicodeEncodeError:
        for row in rows:
            row[0] = wrap(row[0])
        encoded = plain_json(body)
    return encoded, b"".join(keys)


def decode_manifest(
    manifest: bytes, keys: bytes | None, *, salt_bytes: int = SALT_BYTES
) -> Manifest:
    """Return the manifest of these bytes; missing keys mean erased contents.

    ValueError if malformed.
    """
    body = parse_json(manifest)
    rest = keys or b""
    commitments: list[str] = []
    key_bytes = salt_bytes + _DIGEST_BYTES
    erased = bytes(key_bytes)

    def state(said: Sequence[Any] | None) -> FileState | None:
        if said is None:
            return None
        tag = said[0]
        if tag == "d":
            plain = FileState("directory", None, _number(said[1]), 0)
            return plain if len(said) == 2 else _with_more(plain, said[2])
        if tag == "o":
            plain = FileState("opaque", None, 0, 0)
            return plain if len(said) == 1 else _with_more(plain, said[1])
        _, mode, size, commitment, *more = said
        start = key_bytes * len(commitments)
        commitments.append(commitment)
        key = rest[start : start + key_bytes]
        if len(key) < key_bytes or key == erased:
            blob = BlobId(_bytes_of(commitment).hex())
        else:
            blob = BlobId(key[salt_bytes:].hex())
        plain = FileState(_KINDS[tag], blob, _number(mode), _number(size))
        return _with_more(plain, more[0]) if more else plain

    changes = tuple(
        [
            FileChange(
                path if isinstance(path, str) else unwrap_text(path), state(before), state(after)
            )
            for path, before, after in body.pop("changes")
        ]
    )
    moves = tuple(Move(unwrap_text(a), unwrap_text(b)) for a, b in body.pop("moves", ()))
    more = unwrap(body) if b'"$' in manifest else body
    return Manifest(changes, moves, more, commitments, salt_bytes)


def _number(said: Any) -> int:
    if type(said) is not int:
        raise TypeError(f"{said!a:.80} is not a whole number")
    return said


def _with_more(state: FileState, more: Mapping[str, Any]) -> FileState:
    group, identity = more.get("g"), more.get("i", "")
    if type(group) not in (int, NoneType) or type(identity) is not str:
        raise TypeError(f"{more!a:.80} says what cannot be of a file")
    return replace(state, group=group, acl=bool(more.get("a")), identity=identity)


class Content(Struct, frozen=True, gc=False):
    """A content that a manifest names: `digest` is its SHA-256, None when it was erased."""

    path: str
    side: Side
    size: int
    digest: bytes | None
    proven: bool


def are_proven(manifest: Manifest, keys: bytes | None) -> bool:
    """Return whether each content has a key, and each key opens its commitment."""
    rest, salt_bytes = keys or b"", manifest.salt_bytes
    starts = range(0, len(rest), salt_bytes + _DIGEST_BYTES)
    if len(rest) != (salt_bytes + _DIGEST_BYTES) * len(manifest.commitments):
        return False
    return all(
        _commitment(rest[n : n + salt_bytes], rest[n + salt_bytes : n + starts.step]) == commitment
        for n, commitment in zip(starts, manifest.commitments, strict=True)
    )


def contents_of(manifest: Manifest, keys: bytes | None) -> Iterator[Content]:
    """Yield the contents in the manifest's order, each proven when its key opens its commitment.

    ValueError when there are keys for more or for fewer contents.
    """
    rest = keys or b""
    position = 0
    salt_bytes = manifest.salt_bytes
    key_bytes = salt_bytes + _DIGEST_BYTES
    erased = bytes(key_bytes)
    commitments = iter(manifest.commitments)
    for change in manifest.changes:
        sides: tuple[tuple[Side, FileState | None], ...] = (
            ("before", change.before),
            ("after", change.after),
        )
        for side, state in sides:
            if state is None or state.blob is None:
                continue
            commitment = next(commitments)
            key = rest[position : position + key_bytes]
            position += key_bytes
            if not key or key == erased:
                yield Content(change.path, side, state.size, None, False)
            else:
                digest = key[salt_bytes:]
                proven = _commitment(key[:salt_bytes], digest) == commitment
                yield Content(change.path, side, state.size, digest, proven)
    if len(rest) not in (0, position):
        raise ValueError(f"{position} bytes of keys are due, {len(rest)} are stored")


def check_manifest(
    manifest: bytes, keys: bytes | None, *, salt_bytes: int = SALT_BYTES
) -> Iterator[tuple[str, str]]:
    """Yield each content whose key does not open its commitment, as (code, message).

    Codes: `keys.mismatch`, `keys.erased`, `keys.length`.
    """
    try:
        for content in contents_of(decode_manifest(manifest, keys, salt_bytes=salt_bytes), keys):
            shown = f"the content of {content.path!a} {content.side} the change"
            if content.digest is None:
                yield "keys.erased", f"{shown} was erased"
            elif not content.proven:
                yield "keys.mismatch", f"{shown} is not the one on record"
    except ValueError as error:
        yield "keys.length", f"the keys of the manifest do not fit it: {error}"


def _encode_state(path: str, state: FileState, salts: Salts, keys: list[bytes]) -> list[Any]:
    more: list[dict[str, Any]] = []
    if state.group is not None or state.acl or state.identity:
        said = {"g": state.group, "a": 1 if state.acl else None, "i": state.identity or None}
        more = [{name: value for name, value in said.items() if value is not None}]
    if state.kind == "directory":
        return ["d", state.mode, *more]
    if state.kind == "opaque":
        return ["o", *more]
    if state.blob is None:
        raise NotSerializable(
            f"The {state.kind} {path!a} is without a content hash",
            hint="Put the content into the blob store first.",
        )
    key = salts(), bytes.fromhex(state.blob)
    keys += key
    return [_TAGS[state.kind], state.mode, state.size, _commitment(*key), *more]


_URL_SAFE = bytes.maketrans(b"+/", b"-_")


def _commitment(salt: bytes, digest: bytes) -> str:
    hashed = sha256(salt + b"content" + digest).digest()
    return b2a_base64(hashed, newline=False)[:43].translate(_URL_SAFE).decode("ascii")


def _bytes_of(commitment: str) -> bytes:
    return urlsafe_b64decode(commitment + "=")
