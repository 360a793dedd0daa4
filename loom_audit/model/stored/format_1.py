"""Reading what 0.1.0 wrote: format 1.0, as a record of format 2.0.

It differs in its salts of 32 bytes, in the origin of changes, which stood in the manifest, and in
the envelope's texts: commitments in hexadecimal, the whole hash of the leaf before, always an id.
"""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from loom_audit.model.stored.facts import Record
from loom_audit.model.stored.manifest import decode_manifest
from loom_audit.model.stored.payloads import SALT_BYTES

_SALT_BYTES = 32


def is_format_1(envelope: Mapping[str, Any]) -> bool:
    """Return whether an envelope is of format 1, which release 0.1.0 wrote."""
    return str(envelope["v"]).startswith("1.")


def salt_bytes_of(envelope: Mapping[str, Any]) -> int:
    """Return how many bytes the salts of an event's payloads and keys have."""
    return _SALT_BYTES if is_format_1(envelope) else SALT_BYTES


def upcast_from_1_0(record: Record) -> Record:
    """Return the record in format 2.0. ValueError when its manifest is malformed."""
    envelope = {**record.envelope, "v": "2.0"}
    manifest = record.manifest
    stored = record.payloads.get(("manifest", 0))
    if manifest is None and stored is not None:
        manifest = decode_manifest(stored, record.payloads.get(("keys", 0)), salt_bytes=_SALT_BYTES)
    if manifest is not None and "origin" in manifest.fields:
        envelope["origin"] = manifest.fields["origin"]
    return replace(record, envelope=envelope, manifest=manifest)
