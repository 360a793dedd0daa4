"""How leaves, small payloads and ids are stored in a row, and whether a row read is sound.

A packed text is one byte that says how, then the text:

    0   as it is
    1   raw deflate (RFC 1951) with dictionary 1 before it; what 0.1.0 wrote
    2   raw deflate with dictionary 2 of the folded text, then what was folded out of it

Deflate spends a byte on each digit of a hash, so a folded text has a marker for each quoted value
that is one of `_FOLDS`; their bytes follow uncompressed, in order. A dictionary is never changed
once released: a better one gets the next number. What was packed comes back exactly, so hashes are
over unpacked bytes.
"""

import re
import zlib
from binascii import a2b_base64, b2a_base64, hexlify, unhexlify
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import date, datetime, timedelta
from functools import lru_cache, partial
from typing import Any

from loom_audit.errors import Corrupt
from loom_audit.sql.ground.clock import to_micros

_RAW, _DEFLATED, _FOLDED = b"\x00", b"\x01", b"\x02"

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

_WORDS_2 = (
    b'{"duration":,"result":{"success":true,"output":"","data":{"exit_code":0,"stdout"'
    b':"","stderr":"","timed_out":false,"truncated":false},"files_changed":[],"error":'
    b'null}}"error":{"code":"EXECUTION_ERROR","message":"","hint":"","details":{"excep'
    b'tion":"Conflict","text":"{"agent":"","title":"","cwd":"","version":"0.1.0","leas'
    b'e":[{"command":"python3 -c ","timeout":30,"cwd":"","argv":["{"path":"src/","old_'
    b'string":"","new_string":"","old_str":"","new_str":"","replace_all":false,"edits"'
    b':[{{"duration":1,"result":{"success":true,"output":"Wrote .py: 1 bytes","data":{'
    b'"path":".py","size":1,"created":false},"files_changed":["{"path":"","content":"{'
    b'"path":"src/test.py","content":{"$content":0,"size":1}}{"changes":[["tests/",nul'
    b'l,["d",493]],["docs/.md",["f",420,1,"\x03"],null],["src/.py",["f",420,1,"\x03"],["f",4'
    b'20,1,"\x03"]]]}{"actor":"outside","at":"\x04","kind":"files.changed","log":"\x01","origin'
    b'":"outside","payloads":[{"commit":"\x03","n":0,"role":"manifest","size":1}],"prev":'
    b'"\x02","seq":1,"v":"2.0"}{"actor":"person:","at":"\x04","kind":"checkpoint.marked","lo'
    b'g":"\x01","payloads":[{"commit":"\x03","n":0,"role":"fact","size":"kind":"session.star'
    b'ted""kind":"session.ended","log":"\x01","prev":"\x02","seq":1,"session":"\x02","status":"'
    b'completed","v":"2.0"}"reasons":["shared with other commands","killed at the end:'
    b' "]},"effect":"execute","level":"partial","causes":["reverts":[1],"sandbox":"lan'
    b'dlock","sandbox":"plain","session":"\x02","source":"recovery","status":"error","too'
    b'l":"run_code""effect":"network","kind":"call.decided","kind":"approval.requested'
    b'","n":1,"role":"content","size":{"commit":"\x03","n":0,"role":"fact","size":{"actor'
    b'":"agent:","at":"\x04","call_id":"\x02","kind":"files.changed","log":"\x01","origin":"com'
    b'mand","payloads":[{"commit":"\x03","n":0,"role":"manifest","size":1}],"prev":"\x02","s'
    b'eq":1,"session":"\x02","v":"2.0"}{"actor":"agent:","at":"\x04","call_id":"\x02","intentio'
    b'n":1,"kind":"files.changed","log":"\x01","origin":"tool","prev":"\x02","seq":1,"sessio'
    b'n":"\x02","v":"2.0"}{"actor":"agent:","at":"\x04","call_id":"\x02","kind":"change.intende'
    b'd","log":"\x01","payloads":[{"commit":"\x03","n":0,"role":"manifest","size":1}],"prev"'
    b':"\x02","seq":1,"session":"\x02","v":"2.0"}{"actor":"agent:","at":"\x04","call_id":"\x02","e'
    b'ffect":"read","kind":"call.requested","log":"\x01","payloads":[{"commit":"\x03","n":0,'
    b'"role":"args","size":1},{"commit":"\x03","n":0,"role":"content","size":1}],"prev":"'
    b'\x02","seq":1,"session":"\x02","tool":"edit_file","tool":"shell_execute","tool":"read_'
    b'file","tool":"write_file","v":"2.0"}{"actor":"agent:","at":"\x04","call_id":"\x02","co'
    b'verage":{"level":"full"},"effect":"execute","effect":"read","effect":"write","ki'
    b'nd":"call.finished","log":"\x01","payloads":[{"commit":"\x03","n":0,"role":"result","s'
    b'ize":1}],"prev":"\x02","sandbox":"bubblewrap","seq":1,"session":"\x02","status":"ok","'
    b'tool":"run","tool":"write_file","v":"2.0"}'
)

DICTIONARIES = {1: _WORDS_1, 2: _WORDS_2}

_FOLDS = re.compile(
    rb'"(?:([0-9a-f]{32})|([0-9a-f]{16})|([0-9A-Za-z_-]{42}[AEIMQUYcgkosw048])'
    rb"|([0-9]{4}-[01][0-9]-[0-3][0-9]T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]\.[0-9]{6}Z))"
    rb'(?=")'
)
"""Marker 1: 32 hex digits, 2: 16 of them, 3: 32 bytes in base64url, 4: a time in microseconds.

Only what its bytes give back is one: 43 digits of base64 hold 258 bits, of which the last 2 are 0.
"""

_CONTROL = re.compile(rb"[\x00-\x1f]")
_MARKERS = b"\x01\x02\x03\x04"
_TO_ONE, _OTHERS = bytes.maketrans(_MARKERS, b"\x01" * 4), bytes(range(5, 256)) + b"\0"
_SHORT = 13_000
"""With a dictionary so many bytes lie within reach in a window of 16 KiB."""

_UUID_BYTES = 16
_SHORT_BYTES = 8


def pack(data: bytes) -> bytes:
    """The bytes as a row holds them, at most one longer than they were."""
    trailing: list[bytes] = []
    folded = data if _CONTROL.search(data) else _FOLDS.sub(partial(_fold, trailing), data)
    # memLevel 5 is the quickest to set up that still holds the whole dictionary; a window over
    # what is short and the dictionary is set up three times as fast as one of 32 KiB
    window = -14 if len(folded) <= _SHORT else -15
    packer = zlib.compressobj(6, zlib.DEFLATED, window, 5, zlib.Z_DEFAULT_STRATEGY, _WORDS_2)
    packed = b"".join((_FOLDED, packer.compress(folded), packer.flush(), *trailing))
    return packed if len(packed) <= len(data) else _RAW + data


def _fold(trailing: list[bytes], match: re.Match[bytes]) -> bytes:
    """The marker of a value, whose bytes go to the trailing ones; the value if it is not a time."""
    marker = match.lastindex or 0
    value = match[marker]
    if marker < 3:
        trailing.append(unhexlify(value))
    elif marker == 3:
        trailing.append(a2b_base64(value.translate(_FROM_URL) + b"="))
    else:
        try:
            moment = to_micros(datetime.fromisoformat(value.decode("ascii")))
            trailing.append(moment.to_bytes(8, "big"))
        except (ValueError, OverflowError):
            return match[0]
    return b'"%c' % marker


def _base64url(raw: bytes) -> bytes:
    return b2a_base64(raw, newline=False)[:43].translate(_TO_URL)


def _time(raw: bytes) -> bytes:
    seconds, micros = divmod(int.from_bytes(raw, "big"), 1_000_000)
    days, seconds = divmod(seconds, 86_400)
    hours, minutes = seconds // 3600, seconds // 60 % 60
    return b"%bT%02d:%02d:%02d.%06dZ" % (_day(days), hours, minutes, seconds % 60, micros)


@lru_cache(maxsize=64)
def _day(days: int) -> bytes:
    return (_START + timedelta(days)).isoformat().encode("ascii")


_START = date(1970, 1, 1)
_TO_URL, _FROM_URL = bytes.maketrans(b"+/", b"-_"), bytes.maketrans(b"-_", b"+/")
_UNFOLDED: Mapping[int, tuple[int, Callable[[bytes], bytes]]] = {
    1: (16, hexlify),
    2: (8, hexlify),
    3: (32, _base64url),
    4: (8, _time),
}
"""By marker: how many bytes it stands for, and the text they give back."""


def _unfold(data: bytes, trailing: bytes) -> bytes:
    """The text whose markers stand for these bytes. ValueError when they do not fit."""
    if not trailing:
        return data
    first, *pieces = data.translate(_TO_ONE).split(b"\x01")
    text, start = [first], 0
    for marker, piece in zip(data.translate(None, _OTHERS), pieces, strict=True):
        size, unfolded = _UNFOLDED[marker]
        text += unfolded(trailing[start : start + size]), piece
        start += size
    if start != len(trailing):
        raise ValueError(f"{start} bytes are due, {len(trailing)} are there")
    return b"".join(text)


def pack_raw(data: bytes) -> bytes:
    """The bytes as a row holds them, without trying to make them shorter."""
    return _RAW + data


def unpack(stored: bytes, limit: int) -> bytes:
    """The bytes that were packed. Corrupt when they are damaged or longer than `limit`."""
    if not isinstance(stored, bytes):
        raise Corrupt("A packed row does not hold bytes")
    how = stored[:1]
    if how == _RAW:
        data = stored[1:]
    elif how in (_DEFLATED, _FOLDED):
        unpacker = zlib.decompressobj(-15, zdict=DICTIONARIES[how[0]])
        try:
            data = unpacker.decompress(stored[1:], limit + 1)
            if not unpacker.eof and len(data) <= limit:
                raise Corrupt("A packed row ends too early")
            if how == _FOLDED:
                data = _unfold(data, unpacker.unused_data)
        except (zlib.error, ValueError, OverflowError) as error:
            raise Corrupt(f"A packed row cannot be unpacked: {error}") from error
    else:
        raise Corrupt(f"A row is packed in the unknown way {how!r}")
    if len(data) > limit:
        raise Corrupt(f"A packed row holds more than {limit} bytes")
    return data


def pack_id(id: str) -> bytes:
    """An id as a column holds it: 16 or 8 bytes for so many hex digits, else marked UTF-8.

    An empty id is empty.
    """
    if not id:
        return b""
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
    """The id that was packed. Corrupt for bytes that no id is packed as."""
    try:
        if stored == b"":
            return ""
        if len(stored) == _UUID_BYTES or (len(stored) == _SHORT_BYTES and stored[0] != 0xFF):
            return stored.hex()
        id = stored[1:].rstrip(b"\xff").decode("utf-8", "surrogatepass")
    except (AttributeError, TypeError, ValueError) as error:
        raise Corrupt(f"An id cannot be read: {stored!a}") from error
    if pack_id(id) != stored:
        raise Corrupt(f"An id cannot be read: {stored!a}")
    return id


def pack_path(path: str) -> bytes:
    """The bytes of a path on disk, as a column holds it (PEP 383)."""
    return path.encode("utf-8", "surrogateescape")


def unpack_path(stored: bytes) -> str:
    """The path that was packed, bytes that are not UTF-8 as surrogates (PEP 383)."""
    return stored.decode("utf-8", "surrogateescape")


def below(folder: bytes) -> tuple[bytes, bytes]:
    """The two bounds between which the packed paths below a folder sort: "0" follows "/"."""
    return folder + b"/", folder + b"0"


@contextmanager
def corrupt_on_mismatch() -> Iterator[None]:
    """Raise Corrupt where the block makes an object of a row that holds another type."""
    try:
        yield
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise Corrupt(
            f"A row of the store is not as it was written: {error}",
            hint="Run `loom-audit verify`; the log itself may be whole.",
        ) from error


def check_texts(*values: Any) -> None:
    """Raise TypeError unless each value is a text: null is what a row that is gone leaves."""
    for value in values:
        if not isinstance(value, str):
            raise TypeError(f"{value!a} is not a text")


def check_numbers(*values: Any) -> None:
    """Raise TypeError unless each value is a whole number or null."""
    for value in values:
        if not isinstance(value, int | None):
            raise TypeError(f"{value!a} is not a number")
