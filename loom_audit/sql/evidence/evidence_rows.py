"""Columns of a log's tables as verification takes them: damage in one raises nothing."""

from collections.abc import Sequence
from typing import Any

from loom_audit.errors import Corrupt
from loom_audit.model.stored.codec import MAX_LEAF
from loom_audit.ports import PayloadRow
from loom_audit.sql.events.event_rows import MAX_INLINE_PAYLOAD
from loom_audit.sql.ground.packing import unpack, unpack_id

LAST = 2**63 - 1
"""Comes after every seq."""


def read_seq(stored: Any) -> int:
    """The seq of a column; one that is not a number comes after all numbers, as SQLite sorts it."""
    seq: int = LAST if isinstance(stored, (str, bytes)) else stored
    return seq


def read_hash(stored: Any) -> bytes:
    """The hash of a column; empty, which equals no other, where it does not hold bytes."""
    return stored if isinstance(stored, bytes) else b""


def read_leaf(packed: Any) -> bytes | None:
    """The unpacked leaf of a column; None when it cannot be unpacked."""
    try:
        return unpack(packed, MAX_LEAF)
    except Corrupt:
        return None


def read_payloads(rows: Sequence[Any]) -> Sequence[PayloadRow]:
    """The payloads of these rows; a content that cannot be unpacked gets another hash."""
    return [
        PayloadRow(read_seq(seq), role, n, salt, None, digest, size)
        if content is None
        else PayloadRow(read_seq(seq), role, n, salt, _content(content), None, size)
        for seq, role, n, salt, content, digest, size in rows
    ]


def _content(packed: Any) -> bytes:
    """The content; what cannot be unpacked is given as it lies, and so has another hash."""
    try:
        return unpack(packed, MAX_INLINE_PAYLOAD)
    except Corrupt:
        return b"\x00" + (
            packed if isinstance(packed, bytes) else repr(packed).encode("ascii", "replace")
        )


def read_id(packed: Any) -> str:
    """The id of a column; a text that is not an id where the column cannot be read."""
    try:
        return unpack_id(packed)
    except Corrupt:
        return repr(packed)
