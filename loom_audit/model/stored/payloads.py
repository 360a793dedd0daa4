"""Payloads: what an event says beyond its envelope, kept apart so that it can be erased.

The envelope holds a salted commitment to each payload, never the payload itself. Values are
stored as JSON; what JSON cannot say exactly is wrapped in an object with one `$` key:

    {"$b64": …}      text that is not UTF-8: the bytes behind its surrogates (PEP 383)
    {"$wtf8": …}     any other text with lone surrogates, as base64 of its surrogatepass bytes
    {"$float": …}    nan, inf, -inf
    {"$int": …}      an integer over 2,048 bits, in hexadecimal
    {"$dict": …}     pairs of an object with a `$` key or a key that is not UTF-8
    {"$content": n, "size": bytes}   text over 4,096 bytes: payload `content`, n

A `$content` is without a hash, so that it can be erased while the arguments around it stay.
What was erased reads as `{"$erased": true}`.
"""

import json
import math
from base64 import b64decode, b64encode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Any, Literal

from msgspec import MsgspecError, Struct
from msgspec.json import Decoder as JsonDecoder

from loom_audit.errors import NotSerializable
from loom_audit.model.files import BlobId

Role = Literal["args", "result", "fact", "manifest", "keys", "content"]
SALT_BYTES = 16
"""As RFC 9901 §9.3 asks of salts for hashed disclosures: 128 bits cannot be guessed."""

Salts = Callable[[], bytes]
"""Gives a fresh random salt of `SALT_BYTES` at each call."""

MAX_INLINE = 4096
MAX_CONTENTS = 64
"""Most texts of one event that are stored separately; others stay inside its payload."""

MAX_DEPTH = 100
_MAX_INT_BITS = 2048

ERASED: Mapping[str, Any] = {"$erased": True}

_ENCODER = json.JSONEncoder(
    separators=(",", ":"), ensure_ascii=False, allow_nan=False, check_circular=False
)

_READ = json.JSONDecoder().raw_decode
_DECODE = JsonDecoder().decode
_SPACE = 0x20


class Payload(Struct, frozen=True):
    """One payload: its bytes, their blob id, and the commitment that the envelope holds.

    `commitment` is 32 bytes; role `keys` has neither (both are empty), because each
    of its entries is checked against the manifest instead.
    """

    role: Role
    n: int
    salt: bytes
    content: bytes
    blob: BlobId
    commitment: bytes


def commit(salt: bytes, role: str, digest: bytes) -> bytes:
    """Return SHA-256(salt ‖ role ‖ digest); `digest` is the content's SHA-256, 32 bytes."""
    return sha256(salt + role.encode("ascii") + digest).digest()


def commitment_text(commitment: bytes) -> str:
    """Return a commitment as an envelope has it: base64url without padding."""
    return urlsafe_b64encode(commitment).rstrip(b"=").decode("ascii")


def opens(salt: bytes, role: str, digest: bytes, text: str) -> bool:
    """Return whether an envelope has committed to this content; format 1 wrote hexadecimal."""
    commitment = commit(salt, role, digest)
    return text == (commitment.hex() if len(text) == 64 else commitment_text(commitment))


def make_payload(role: Role, n: int, content: bytes, salts: Salts) -> Payload:
    """Return a content as a payload, with a salt of its own."""
    digest = sha256(content)
    if role == "keys":
        return Payload(role, n, b"", content, BlobId(digest.hexdigest()), b"")
    salt = salts()
    commitment = commit(salt, role, digest.digest())
    return Payload(role, n, salt, content, BlobId(digest.hexdigest()), commitment)


class StoredPayload(Struct, frozen=True):
    """A payload as the store has it; `digest` is the content's SHA-256.

    Both are None when it was erased. `size` is that of the content, None when not known.
    """

    role: str
    n: int
    salt: bytes | None
    digest: bytes | None
    size: int | None


def check_payloads(
    listed: Iterable[Mapping[str, Any]], stored: Iterable[StoredPayload]
) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with an event's payloads, as (code, message).

    `listed` are the payloads in the envelope, `stored` those in the store; contents are not read,
    only their hashes are compared. Codes: `payload.missing`, `payload.erased`, `payload.mismatch`,
    `payload.extra`.
    """
    found = {(item.role, item.n): item for item in stored if item.role != "keys"}
    for entry in listed:
        role, n = entry["role"], entry["n"]
        item = found.pop((role, n), None)
        if item is None:
            yield "payload.missing", f"payload {role} {n} is not stored"
        elif not item.salt or not item.digest:
            yield "payload.erased", f"payload {role} {n} was erased"
        elif not opens(item.salt, role, item.digest, entry["commit"]) or (
            item.size is not None and item.size != entry["size"]
        ):
            yield "payload.mismatch", f"payload {role} {n} is not the one on record"
    for role, n in found:
        yield "payload.extra", f"payload {role} {n} is stored and not on record"


class SeparateTexts:
    """The texts of one event that are stored separately, each once, in order of appearance."""

    __slots__ = ("numbers",)

    def __init__(self) -> None:
        self.numbers: dict[bytes, int] = {}

    def keep(self, content: bytes) -> int | None:
        """Add a content and return its number; None when the event has `MAX_CONTENTS` already."""
        number = self.numbers.get(content)
        if number is None and len(self.numbers) < MAX_CONTENTS:
            number = self.numbers[content] = len(self.numbers)
        return number


def to_json(value: Any, *, where: str, texts: SeparateTexts | None = None) -> bytes:
    """Return a value as stored JSON, keys in their order.

    Tuples are stored as lists. Without `texts` long texts stay inside. NotSerializable names the
    place of a value that is not JSON.
    """
    try:
        return plain_json(_wrap(value, texts, 0))
    except (TypeError, RecursionError) as error:
        place, what = next(_unrecordable(value, where, 0), (where, str(error)))
        raise NotSerializable(
            f"{place} cannot be put on record: {what}",
            hint="Only None, bool, int, float, str, lists and string-keyed dicts can be recorded.",
            details={"where": place},
        ) from None


def from_json(data: bytes, content: Callable[[int], bytes | None]) -> Any:
    """Return the value that `to_json` was given; `content` gives separate texts, None if erased.

    ValueError when the data is not what `to_json` wrote.
    """
    value = parse_json(data)
    return _unwrap(value, content) if b'"$' in data else value


def parse_json(data: bytes) -> Any:
    """Return the value of JSON as we write it, quicker than `json.loads`.

    ValueError for anything else.
    """
    try:
        if data[0] > _SPACE < data[-1]:  # what we write neither begins nor ends with space
            return _DECODE(data)
    except (IndexError, MsgspecError):
        pass  # malformed, or numbers and lone surrogates that only `json` takes
    text = data.decode()
    value, end = _READ(text)
    if end != len(text):
        raise ValueError(f"more than JSON at {end}")
    return value


def plain_json(value: Any) -> bytes:
    """Return JSON without spaces, keys in their order. UnicodeEncodeError for lone surrogates."""
    return _ENCODER.encode(value).encode()


def wrap(value: Any) -> Any:
    """Return a value as it stands in stored JSON."""
    return _wrap(value, None, 0)


def unwrap(value: Any) -> Any:
    """Return the value that `wrap` was given. ValueError for JSON that `wrap` does not make."""
    return _unwrap(value, lambda n: None)


def unwrap_text(value: Any) -> str:
    """Return the text that `wrap` was given. ValueError when the value is not a text."""
    text = value if isinstance(value, str) else unwrap(value)
    if not isinstance(text, str):
        raise ValueError("not a text")
    return text


def _wrap(value: Any, texts: SeparateTexts | None, depth: int) -> Any:
    if isinstance(value, str):
        return _wrap_text(value, texts)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if value.bit_length() <= _MAX_INT_BITS else {"$int": f"{value:x}"}
    if isinstance(value, float):
        return value if math.isfinite(value) else {"$float": f"{value:f}"}
    if depth >= MAX_DEPTH:
        raise TypeError
    if isinstance(value, (list, tuple)):
        return [_wrap(item, texts, depth + 1) for item in value]
    if isinstance(value, dict):
        if any(_is_odd_key(key) for key in value):
            return {
                "$dict": [
                    [_wrap_text(key, None), _wrap(item, texts, depth + 1)]
                    for key, item in value.items()
                ]
            }
        return {key: _wrap(item, texts, depth + 1) for key, item in value.items()}
    raise TypeError


def _is_odd_key(key: Any) -> bool:
    if not isinstance(key, str):
        raise TypeError
    # a key with `$` would be read back as a wrapper
    return key.startswith("$") or not (key.isascii() or _is_utf8(key))


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _wrap_text(text: str, texts: SeparateTexts | None) -> Any:
    # nearly every text is such a one, and needs no wrapper
    if len(text) <= MAX_INLINE and text.isascii():
        return text
    form, raw = _text_bytes(text)
    if texts is not None and len(raw) > MAX_INLINE:
        number = texts.keep(raw)
        if number is not None:
            kept: dict[str, Any] = {"$content": number, "size": len(raw)}
            return kept if form == "utf8" else {**kept, "as": form}
    return text if form == "utf8" else {f"${form}": b64encode(raw).decode("ascii")}


def _text_bytes(text: str) -> tuple[str, bytes]:
    """The bytes a text stands for, and how to read them back as the same text."""
    try:
        return "utf8", text.encode()
    except UnicodeEncodeError:
        pass
    try:
        raw = text.encode("utf-8", "surrogateescape")
        if raw.decode("utf-8", "surrogateescape") == text:
            return "b64", raw
    except UnicodeEncodeError:
        pass
    return "wtf8", text.encode("utf-8", "surrogatepass")


_TEXT_ERRORS = {"utf8": "strict", "b64": "surrogateescape", "wtf8": "surrogatepass"}


def _unwrap(value: Any, content: Callable[[int], bytes | None]) -> Any:
    if isinstance(value, list):
        return [_unwrap(item, content) for item in value]
    if not isinstance(value, dict):
        return value
    tag = next((key for key in value if key.startswith("$")), None)
    if tag is None:
        return {key: _unwrap(item, content) for key, item in value.items()}
    inner = value[tag]
    if tag == "$content":
        raw = content(inner)
        if raw is None:
            return {**ERASED, "size": value["size"]}
        return raw.decode("utf-8", _TEXT_ERRORS[value.get("as", "utf8")])
    if tag in ("$b64", "$wtf8"):
        return b64decode(inner, validate=True).decode("utf-8", _TEXT_ERRORS[tag[1:]])
    if tag == "$float":
        return float(inner)
    if tag == "$int":
        return int(inner, 16)
    if tag == "$dict":
        return {unwrap_text(key): _unwrap(item, content) for key, item in inner}
    raise ValueError(f"unknown wrapper {tag}")


def _unrecordable(value: Any, where: str, depth: int) -> Iterator[tuple[str, str]]:
    """Each place in the value that is not JSON, with what is there."""
    if value is None or isinstance(value, (str, int, float)):
        return
    if not isinstance(value, (list, tuple, dict)):
        yield where, f"{type(value).__module__}.{type(value).__qualname__}"
    elif depth >= MAX_DEPTH:
        yield where, f"nested deeper than {MAX_DEPTH}"
    elif isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                yield where, f"the key {key!r} is not text"
            yield from _unrecordable(item, f"{where}.{key}", depth + 1)
    else:
        for index, item in enumerate(value):
            yield from _unrecordable(item, f"{where}[{index}]", depth + 1)
