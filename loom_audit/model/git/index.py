"""The index of a repository as bytes (gitformat-index(5))."""

from collections.abc import Iterator
from hashlib import sha1, sha256

_HEAD = 12
_STAMPS = 40
"""The bytes of an entry before its object id."""
_LONG_NAME = 0x0FFF
_EXTENDED = 0x4000

_OF_THE_MACHINE = frozenset({b"FSMN", b"UNTR", b"EOIE", b"IEOT"})
"""Extensions that say what a monitor saw of the files, which is not so any more, and those that
say where the others are."""


_NAMING_MORE = frozenset({b"TREE", b"REUC"})
"""Extensions that name objects which nothing else may name: trees that are made again, and what
there was before a conflict was resolved."""


def without_caches(content: bytes, *, long_ids: bool, apart: bool = False) -> bytes:
    """An index without what it knows of the machine: its entries and other extensions stay.

    With `apart` it comes without the objects that only its extensions name, and without these.
    ValueError for what is not an index.
    """
    size = 32 if long_ids else 20
    if content[:4] != b"DIRC" or len(content) < _HEAD + size:
        raise ValueError("not an index")
    body, said = content[: len(content) - size], content[-size:]
    made_by = sha256 if long_ids else sha1
    if said not in (made_by(body).digest(), bytes(size)):  # none with index.skipHash
        raise ValueError("an index that was cut off")
    version, count = (int.from_bytes(body[at : at + 4]) for at in (4, 8))
    start = _end_of_entries(body, version, count, size)
    left = _OF_THE_MACHINE | (_NAMING_MORE if apart else frozenset())
    kept = b"".join(one for one in _extensions(body, start) if one[:4] not in left)
    made = body[:start] + kept
    return made + made_by(made).digest()


def _end_of_entries(body: bytes, version: int, count: int, size: int) -> int:
    at = _HEAD
    for _ in range(count):
        flags_at = at + _STAMPS + size
        flags = int.from_bytes(body[flags_at : flags_at + 2])
        name = flags_at + (4 if flags & _EXTENDED else 2)
        if version == 4:
            while body[name] & 0x80:  # how much of the name before it stays
                name += 1
            at = body.index(b"\0", name + 1) + 1
            continue
        length = flags & _LONG_NAME
        end = name + length if length < _LONG_NAME else body.index(b"\0", name)
        at += (end - at + 8) // 8 * 8  # padded with one to eight NUL
    if at > len(body):
        raise ValueError("an index that was cut off")
    return at


def _extensions(body: bytes, start: int) -> Iterator[bytes]:
    while start < len(body):
        end = start + 8 + int.from_bytes(body[start + 4 : start + 8])
        if end > len(body):
            raise ValueError("an index that was cut off")
        yield body[start:end]
        start = end
