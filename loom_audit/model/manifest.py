"""Manifests: which paths an event changed, as one payload however many they are.

A manifest is JSON: `changes` as arrays of path, state before, state after; `moves` as pairs;
and what else the fact says. A state is null (absent), `["d", mode]`, or kind (`f` file, `l`
symlink), mode, size and commitment (base64url without padding) to its content.

Its keys are a payload of their own: for each content in the manifest's order a 32-byte salt and
the content's 32-byte SHA-256. They are not in the envelope: each is checked against its
commitment in the manifest, which is. So one content can be erased by zeroing its 64 bytes, and
all proofs stay valid. The BlobId of an erased content is its commitment: it has the right shape,
a blob store does not have it (NotFound), and it is never equal to that of a known content.
"""

from base64 import urlsafe_b64decode
from binascii import b2a_base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Literal, NamedTuple

from loom_audit.errors import NotSerializable
from loom_audit.model.files import BlobId, FileChange, FileState, Kind, Move
from loom_audit.model.payloads import Salts, parse_json, plain_json, unwrap_text, wrap_text

Side = Literal["before", "after"]
KEY_BYTES = 64
_ERASED_KEY = bytes(KEY_BYTES)
_TAGS: Mapping[str, str] = {"file": "f", "symlink": "l"}
_KINDS: Mapping[str, Kind] = {"f": "file", "l": "symlink"}


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a manifest says; `fields` are the fact's own beside changes and moves.

    `commitments` are those to the contents, in the order of their keys.
    """

    changes: tuple[FileChange, ...]
    moves: tuple[Move, ...]
    fields: Mapping[str, Any]
    commitments: Sequence[str]


def encode_manifest(
    changes: Sequence[FileChange], moves: Sequence[Move], fields: Mapping[str, Any], salts: Salts
) -> tuple[bytes, bytes]:
    """The manifest and its keys. NotSerializable for a file or symlink without a blob."""
    keys: list[bytes] = []
    rows = [
        [
            change.path,
            change.before and _encode_state(change.path, change.before, salts, keys),
            change.after and _encode_state(change.path, change.after, salts, keys),
        ]
        for change in changes
    ]
    body: dict[str, Any] = {**fields, "changes": rows}
    if moves:
        body["moves"] = [[wrap_text(move.source), wrap_text(move.target)] for move in moves]
    try:
        encoded = plain_json(body)
    except UnicodeEncodeError:
        for row in rows:
            row[0] = wrap_text(str(row[0]))
        encoded = plain_json(body)
    return encoded, b"".join(keys)


def decode_manifest(manifest: bytes, keys: bytes | None) -> Manifest:
    """The manifest of these bytes; missing keys mean erased contents. ValueError if malformed."""
    body = parse_json(manifest)
    rest = keys or b""
    commitments: list[str] = []

    def state(said: Sequence[Any] | None) -> FileState | None:
        if said is None:
            return None
        if said[0] == "d":
            return FileState("directory", None, said[1], 0)
        tag, mode, size, commitment = said
        start = KEY_BYTES * len(commitments)
        commitments.append(commitment)
        key = rest[start : start + KEY_BYTES]
        if len(key) < KEY_BYTES or key == _ERASED_KEY:
            return FileState(_KINDS[tag], BlobId(_bytes_of(commitment).hex()), mode, size)
        return FileState(_KINDS[tag], BlobId(key[32:].hex()), mode, size)

    changes = tuple(
        [
            FileChange(
                path if isinstance(path, str) else unwrap_text(path), state(before), state(after)
            )
            for path, before, after in body.pop("changes")
        ]
    )
    moves = tuple(Move(unwrap_text(a), unwrap_text(b)) for a, b in body.pop("moves", ()))
    return Manifest(changes, moves, body, commitments)


class Content(NamedTuple):
    """A content that a manifest names: `digest` is its SHA-256, None when it was erased."""

    path: str
    side: Side
    size: int
    digest: bytes | None
    proven: bool


def contents_of(manifest: Manifest, keys: bytes | None) -> Iterator[Content]:
    """The contents in the manifest's order, each proven when its key opens its commitment.

    ValueError when there are keys for more or for fewer contents.
    """
    rest = keys or b""
    position = 0
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
            key = rest[position : position + KEY_BYTES]
            position += KEY_BYTES
            if not key or key == _ERASED_KEY:
                yield Content(change.path, side, state.size, None, False)
            else:
                digest = key[32:]
                proven = _commitment(key[:32], digest) == commitment
                yield Content(change.path, side, state.size, digest, proven)
    if len(rest) not in (0, position):
        raise ValueError(f"{position} bytes of keys are due, {len(rest)} are stored")


def check_manifest(manifest: bytes, keys: bytes | None) -> Iterator[tuple[str, str]]:
    """Each content whose key does not open its commitment, as (code, message).

    Codes: `keys.mismatch`, `keys.erased`, `keys.length`.
    """
    try:
        for content in contents_of(decode_manifest(manifest, keys), keys):
            shown = f"the content of {content.path!a} {content.side} the change"
            if content.digest is None:
                yield "keys.erased", f"{shown} was erased"
            elif not content.proven:
                yield "keys.mismatch", f"{shown} is not the one on record"
    except ValueError as error:
        yield "keys.length", f"the keys of the manifest do not fit it: {error}"


def _encode_state(path: str, state: FileState, salts: Salts, keys: list[bytes]) -> list[Any]:
    if state.kind == "directory":
        return ["d", state.mode]
    if state.blob is None:
        raise NotSerializable(
            f"The {state.kind} {path!a} is without a content hash",
            hint="Put the content into the blob store first.",
        )
    key = salts(), bytes.fromhex(state.blob)
    keys += key
    return [_TAGS[state.kind], state.mode, state.size, _commitment(*key)]


_URL_SAFE = bytes.maketrans(b"+/", b"-_")


def _commitment(salt: bytes, digest: bytes) -> str:
    hashed = sha256(salt + b"content" + digest).digest()
    return b2a_base64(hashed, newline=False)[:43].translate(_URL_SAFE).decode("ascii")


def _bytes_of(commitment: str) -> bytes:
    return urlsafe_b64decode(commitment + "=")
