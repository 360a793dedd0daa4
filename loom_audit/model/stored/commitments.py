"""Whether what is stored beside an event's leaf is what the leaf has committed to."""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from loom_audit.model.events import ChangeIntended
from loom_audit.model.stored.format_1 import is_format_1, salt_bytes_of
from loom_audit.model.stored.manifest import Manifest, are_proven, contents_of, decode_manifest
from loom_audit.model.stored.payloads import opens

StoredPart = tuple[str, int, bytes, bytes]
"""A payload as it is stored: role, number, salt and content."""

_KEYS = ("keys", 0)
_MANIFEST = ("manifest", 0)


def opened_payloads(
    envelope: Mapping[str, Any], payloads: Sequence[StoredPart]
) -> dict[tuple[str, int], bytes]:
    """Return the stored payloads that open their commitments, by role and number, and the keys.

    Payloads that the envelope does not list are left out. ValueError names one that is missing or
    is another one than was recorded: this version does not erase any.
    """
    stored = {(role, n): (salt, content) for role, n, salt, content in payloads}
    opened: dict[tuple[str, int], bytes] = {}
    for item in envelope.get("payloads", ()):
        key = item["role"], item["n"]
        if key not in stored:
            raise ValueError(f"its payload {key[0]} {key[1]} is missing")
        salt, content = stored[key]
        if not opens(salt, key[0], sha256(content).digest(), item["commit"]):
            raise ValueError(f"its payload {key[0]} {key[1]} is not the one on record")
        opened[key] = content
    if _MANIFEST in opened and _KEYS in stored:
        opened[_KEYS] = stored[_KEYS][1]
    return opened


def opened_manifest(
    envelope: Mapping[str, Any], payloads: Mapping[tuple[str, int], bytes]
) -> Manifest | None:
    """Return the manifest among opened payloads; None where there is none.

    ValueError, KeyError, TypeError when the manifest is malformed, or when a content in it is not
    proven.
    """
    stored = payloads.get(_MANIFEST)
    if stored is None:
        return None
    keys = payloads.get(_KEYS)
    manifest = decode_manifest(stored, keys, salt_bytes=salt_bytes_of(envelope))
    for content in () if are_proven(manifest, keys) else contents_of(manifest, keys):
        if not content.proven:
            raise ValueError(
                f"the content of {content.path!a} {content.side} the change is not on record"
            )
    return manifest


def is_intention_of(intention: Mapping[str, Any], envelope: Mapping[str, Any]) -> bool:
    """Return whether an event may refer to an intention: an earlier one of the same call."""
    return (
        intention.get("kind") == ChangeIntended.kind
        and not is_format_1(intention)
        and intention["seq"] < envelope["seq"]
        and intention.get("session", "") == envelope.get("session", "")
        and intention.get("call_id") == envelope.get("call_id")
    )
