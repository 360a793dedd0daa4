"""Keeping an event's envelope small: what may stand in it, and what goes into the payload `fact`.

Names over 256 bytes (or not UTF-8) are cut in the envelope, lists over 100 items or 8 KiB are
left out of it; then they are stored whole in `fact`. Ids over 256 bytes are refused.
"""

from collections.abc import Sequence
from typing import Any

from loom_audit.errors import NotSerializable

MAX_NAME = 256
MAX_LIST = 100
_MAX_LIST_BYTES = 8 * 1024
_MAX_INTEGER = 2**53
_NAMES = ("actor", "source", "tool", "sandbox")
_IDS = ("log", "id", "session", "parent", "call_id")
_LISTS = ("reverts", "causes")


def fit_envelope(envelope: dict[str, Any], fact_fields: dict[str, Any]) -> None:
    """Keep an envelope small: move what does not fit to `fact_fields`, drop empty lists.

    NotSerializable for an id over 256 bytes.
    """
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
            # JSON writes a character in six bytes at most
            size += len(value) * 6
        elif abs(value) >= _MAX_INTEGER:
            return False
    return size <= _MAX_LIST_BYTES
