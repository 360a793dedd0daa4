"""How leaves, small payloads and ids are stored in a row, and whether a row read is sound.

A packed text is one byte that says how, then the text: 0 as it is, n raw deflate (RFC 1951)
with dictionary n before it. A dictionary is never changed once released: a better one gets the
next number. What was packed comes back exactly, so hashes are over unpacked bytes.
"""

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from loom_audit.errors import Corrupt

_RAW, _NEWEST = b"\x00", b"\x02"

_WORDS_1 = (
    b'{"duration":1,"result":{"data":{"exit_code":0,"stderr":"","stdout":"","bytes":null,"error":'
    b'null,"files_changed":["src/"],"output":"Edited : 1 replacement","success":true}},"error":{"c'
    b'ode":"","message":"","details":{{"content":{"$content":0,"size":},"path":"src/","new_str":""'
    b',"old_str":"","command":"{"changes":[["",null,["f",420,["d",493]]],"origin":"outside","basel'
    b'ine""command"{"changes":[["src/",["f",420,,"origin":"tool"}'
    b'{"actor":"outside","at":"2026-{"actor":"agent:","at":"2026-11-21T22:50:40.000000Z","causes":'
    b'["coverage":{"level":"partial","reasons":["reverts":["sandbox":"plain","source":"session.sta'
    b'rted workspace.attached checkpoint.marked "status":"error""status":"denied""status":"timeout'
    b'""effect":"execute""effect":"read""call_id":"","coverage":{"level":"full"},"effect":"write",'
    b'"id":"","kind":"call.finished","log":"","payloads":[{"commit":"","n":0,"role":"result","size'
    b'":1"kind":"files.changed""kind":"change.intended","log":"","payloads":[{"commit":"","n":0,"r'
    b'ole":"manifest","size":1"n":0,"role":"fact","size":"n":1,"role":"content","size":,"n":0,"rol'
    b'e":"args","size":}],"prev":"","seq":1,"session":"","status":"ok","tool":"read_file","tool":"'
    b'write_file","tool":"shell_execute","tool":"edit_file","v":"1.0"}'
)

_WORDS_2 = b"@@2@@"

DICTIONARIES = {1: _WORDS_1, 2: _WORDS_2}

_UUID_BYTES = 16
_SHORT_BYTES = 8


def pack(data: bytes) -> bytes:
    """The bytes as they are stored, at most one longer than they were."""
    # memLevel 5 is the quickest to set up that still holds the whole dictionary
    packer = zlib.compressobj(6, zlib.DEFLATED, -15, 5, zlib.Z_DEFAULT_STRATEGY, _WORDS_2)
    packed = packer.compress(data) + packer.flush()
    return _NEWEST + packed if len(packed) < len(data) else _RAW + data


def pack_raw(data: bytes) -> bytes:
    """As `pack`, for what is known not to get shorter."""
    return _RAW + data


def unpack(stored: bytes, limit: int) -> bytes:
    """What was packed. Corrupt when it is damaged or longer than `limit` bytes."""
    if not isinstance(stored, bytes):
        raise Corrupt("A packed row does not hold bytes")
    how = stored[:1]
    if how == _RAW:
        data = stored[1:]
    elif how and how[0] in DICTIONARIES:
        unpacker = zlib.decompressobj(-15, zdict=DICTIONARIES[how[0]])
        try:
            data = unpacker.decompress(stored[1:], limit + 1)
        except zlib.error as error:
            raise Corrupt(f"A packed row cannot be unpacked: {error}") from error
        if not unpacker.eof and len(data) <= limit:
            raise Corrupt("A packed row ends too early")
    else:
        raise Corrupt(f"A row is packed in the unknown way {how!r}")
    if len(data) > limit:
        raise Corrupt(f"A packed row holds more than {limit} bytes")
    return data


def pack_id(id: str) -> bytes:
    """An id as a column holds it: 16 or 8 bytes for so many hex digits, else marked UTF-8."""
    if len(id) in (2 * _UUID_BYTES, 2 * _SHORT_BYTES):
        try:
            raw = bytes.fromhex(id)
        except ValueError:
            raw = b""
        if raw.hex() == id and (len(raw) == _UUID_BYTES or raw[0] != 0xFF):
            return raw
    marked = b"\xff" + id.encode("utf-8", "surrogatepass")
    # 16 bytes always mean hex; 0xff is in no UTF-8, so the padding cannot be mistaken
    return marked + b"\xff" if len(marked) == _UUID_BYTES else marked


def unpack_id(stored: bytes) -> str:
    """The id that `pack_id` was given. Corrupt when it was given none that makes this."""
    try:
        if len(stored) == _UUID_BYTES or (len(stored) == _SHORT_BYTES and stored[0] != 0xFF):
            return stored.hex()
        return stored[1:].rstrip(b"\xff").decode("utf-8", "surrogatepass")
    except (AttributeError, TypeError, ValueError) as error:
        raise Corrupt(f"An id cannot be read: {stored!a}") from error


def pack_event_id(id: str | None, seq: int) -> bytes:
    """The id of an event's row; where none was given the seq stands for it."""
    return pack_id(id) if id else b"\x00%d" % seq


def unpack_event_id(stored: bytes, seq: int) -> str:
    """The id that was given, "" when none was. Corrupt when it was given none that makes this."""
    if stored == b"\x00%d" % seq:
        return ""
    if not stored:
        raise Corrupt("An event's row is without its id")
    return unpack_id(stored)


@contextmanager
def corrupt_on_mismatch() -> Iterator[None]:
    """Corrupt where the block, which makes objects of rows, meets a value of another type."""
    try:
        yield
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise Corrupt(
            f"A row of the store is not as it was written: {error}",
            hint="Run `loom-audit verify`; the log itself may be whole.",
        ) from error


def check_texts(*values: Any) -> None:
    """TypeError unless each is a text or null."""
    for value in values:
        if not isinstance(value, str | None):
            raise TypeError(f"{value!a} is not a text")


def check_numbers(*values: Any) -> None:
    """TypeError unless each is a whole number or null."""
    for value in values:
        if not isinstance(value, int | None):
            raise TypeError(f"{value!a} is not a number")
