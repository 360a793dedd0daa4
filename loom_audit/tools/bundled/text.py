"""Bytes and text of tools: lossy decoding, parts of a file, and what two contents differ in."""

import base64
import binascii
import codecs
from collections.abc import Iterable, Iterator
from typing import AnyStr, BinaryIO
from unicodedata import category, normalize

from msgspec import Struct

from loom_audit.errors import InvalidArguments
from loom_audit.model.text.textdiff import Diff, diff_lines, hunks_text, marked_lines

_CHUNK = 64 * 1024
_CONTEXT = 3
_MAX_DIFFED = 1024 * 1024
_MAX_ALIKE, _MAX_SAID, _MAX_CODE_POINTS = 8, 8, 4
"""Lines that look alike which are compared with one, what is said of a hunk, and of two lines."""
_VARIANTS = dict.fromkeys([*range(0xFE00, 0xFE10), 0x34F, 0x115F, 0x1160, 0x3164, 0xFFA0])
"""Characters of other categories than Cc and Cf that are not seen."""


def decode(raw: bytes, *, whole: bool = True) -> str:
    """Return bytes as UTF-8 text with U+FFFD for other bytes.

    Of a part (`whole` is False), an incomplete last character is left out.
    """
    if whole:
        return raw.decode("utf-8", "replace")
    return codecs.getincrementaldecoder("utf-8")("replace").decode(raw)


def encode(text: str, what: str) -> bytes:
    """Return the text as UTF-8. InvalidArguments for a lone surrogate, which no file can hold."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidArguments(
            f"{what} holds a lone surrogate at {error.start}, which is not a character",
            hint="Write bytes that are not UTF-8 with encoding base64.",
        ) from error


def from_base64(text: str) -> bytes:
    """Return the bytes that a text encodes in base64. InvalidArguments for another text."""
    try:
        return base64.b64decode(text.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise InvalidArguments(
            f"content is not base64: {error}", hint="Write text with encoding utf-8."
        ) from error


class Excerpt(Struct, frozen=True):
    """A part of a file, from the byte `start`; `truncated` when the limit cut it.

    `lines` are those seen before it ended, 0 where bytes were asked for.
    """

    raw: bytes
    truncated: bool
    lines: int
    start: int = 0


def read_part(stream: BinaryIO, first: int, last: int | None, limit: int) -> Excerpt:
    """Read lines `first` to `last` (from 1, both included), at most `limit` bytes of them.

    Memory is bounded by `limit`. Lines end with LF; every byte is kept. `lines` of the part counts
    the lines begun so far.
    """
    kept = bytearray()
    line, begun, start, before = 1, False, 0, 0
    while chunk := stream.read(_CHUNK):
        position = 0
        if line < first and line + (passed := chunk.count(b"\n")) < first:
            line, begun, position = line + passed, chunk[-1:] != b"\n", len(chunk)
        while position < len(chunk):
            begun = True
            end = chunk.find(b"\n", position)
            stop = len(chunk) if end < 0 else end + 1
            if line >= first:
                start = start if kept else before + position
                space = limit - len(kept)
                kept += chunk[position : min(stop, position + space)]
                if stop - position > space:
                    return Excerpt(bytes(kept), True, line, start)
            position = stop
            if end >= 0:
                if last is not None and line >= last:
                    return Excerpt(bytes(kept), False, line, start)
                line, begun = line + 1, False
        before += len(chunk)
    return Excerpt(bytes(kept), False, line if begun else line - 1, start)


def read_bytes(stream: BinaryIO, start: int, limit: int, size: int) -> Excerpt:
    """Read at most `limit` bytes of a file of `size` bytes, from the byte `start`."""
    stream.seek(start)
    raw = stream.read(limit)
    return Excerpt(raw, start + len(raw) < size, 0, start)


def count_lines(stream: BinaryIO) -> int:
    """Return how many lines a file has, a last one without LF included."""
    stream.seek(0)
    count, last = 0, b"\n"
    while chunk := stream.read(_CHUNK):
        count, last = count + chunk.count(b"\n"), chunk[-1:]
    return count + (last != b"\n")


def diff_text(old: bytes, new: bytes) -> str:
    """Return the difference of two contents as unified hunks; where it is not shown, why.

    Only what is between the ends they have in common, and some lines around it, is compared. Where
    a line that goes and one that comes look alike, a line behind the hunk says what differs.
    """
    if old == new:
        return "[the content is as it was]"
    above = _line_starts_back(old, _common_length(old, new))
    rest = _common_length(old[above:], new[above:], from_end=True)
    old_part, new_part = (_without_tail(side[above:], rest) for side in (old, new))
    if max(len(old_part), len(new_part)) > _MAX_DIFFED:
        return "[the difference is too large to be shown]"
    diff = diff_lines(old_part, new_part, _CONTEXT)
    if not diff.hunks:
        return "[binary content is not shown]"
    number = old.count(b"\n", 0, above)
    shown = [
        decode(hunks_text(Diff((hunk,), 0, 0), above=number))
        + _unseen(*([line.content for line in hunk.lines if line.kind == kind] for kind in "-+"))
        for hunk in diff.hunks
    ]
    return "".join(shown)


def patch_text(patch: bytes) -> str:
    """Return a patch in git's format as text, with what lines of a hunk differ in that look alike.

    What differs stands in a line behind the hunk.
    """
    shown: list[str] = []
    sides: dict[str, list[bytes]] = {"del": [], "ins": []}
    last: list[bytes] = []
    *lines, rest = patch.decode("utf-8", "surrogateescape").split("\n")
    for text, mark in (*marked_lines(lines), ("", "head")):
        if mark in ("at", "head"):
            shown.append(_unseen(sides["del"], sides["ins"]))
            sides = {"del": [], "ins": []}
        elif text.startswith("\\") and last:
            last[-1] = last[-1].removesuffix(b"\n")
        line = text.encode("utf-8", "surrogateescape") + b"\n"
        last = sides.get(mark, [])
        last.append(line[1:])
        shown.append(decode(line))
    return "".join(shown[:-1]) + decode(rest.encode("utf-8", "surrogateescape"))


def _unseen(gone: Iterable[bytes], come: Iterable[bytes]) -> str:
    """What lines differ in that look alike: their ends, bytes that are not UTF-8, characters."""
    now: dict[str, dict[bytes, None]] = {}
    for line in come:
        alike = now.setdefault(_looks(line), {})
        if len(alike) < _MAX_ALIKE:
            alike[line] = None
    said: dict[str, None] = {}
    for old in dict.fromkeys(gone):
        for new in now.get(_looks(old), ()):
            if old != new and len(said) < _MAX_SAID:
                said |= dict.fromkeys(_differences(old, new))
    return "".join(f"[lines that look alike {what}]\n" for what in said)


def _differences(old: bytes, new: bytes) -> Iterator[str]:
    ends = _end_name(old), _end_name(new)
    # that there is no end is said at the line itself
    if all(ends) and ends[0] != ends[1]:
        yield f"end with {ends[0]} before, with {ends[1]} now"
    bodies = old.rstrip(b"\r\n"), new.rstrip(b"\r\n")
    before, after = map(decode, bodies)
    if before != after:
        start = _common_length(before, after)
        before, after = before[start:], after[start:]
        end = _common_length(before, after, from_end=True)
        sides = (_code_points(side[: len(side) - end]) for side in (before, after))
        yield "have {} before, {} now".format(*sides)
    elif bodies[0] != bodies[1]:
        yield "differ in bytes that are not UTF-8"


def _code_points(text: str) -> str:
    few = " ".join(f"U+{ord(char):04X}" for char in text[:_MAX_CODE_POINTS])
    return f"{few} …" if len(text) > _MAX_CODE_POINTS else few or "nothing"


def _looks(line: bytes) -> str:
    """A line as a reader sees it: without what is not seen, letters composed, spaces alike."""
    text = decode(line.rstrip(b"\r\n"))
    if not text.isascii() or not text.isprintable():
        shown = (char for char in text if char == "\t" or category(char) not in ("Cc", "Cf"))
        text = "".join(" " if category(char) == "Zs" else char for char in shown)
        text = normalize("NFC", text.translate(_VARIANTS))
    return text.rstrip()


def _end_name(line: bytes) -> str:
    end = line[len(line.rstrip(b"\r\n")) :]
    return {b"\r\n": "CRLF", b"\n": "LF", b"": ""}.get(end, "CR")


def _common_length(a: AnyStr, b: AnyStr, *, from_end: bool = False) -> int:
    """How many bytes or characters two contents have in common at their beginning or end."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if from_end:
            equal = a[len(a) - middle : len(a) - low] == b[len(b) - middle : len(b) - low]
        else:
            equal = a[low:middle] == b[low:middle]
        low, high = (middle, high) if equal else (low, middle - 1)
    return low


def _line_starts_back(content: bytes, position: int) -> int:
    """Where the line some lines above the one of `position` begins."""
    for _ in range(_CONTEXT + 1):
        position = content.rfind(b"\n", 0, position)
        if position < 0:
            break
    return position + 1


def _without_tail(content: bytes, tail: int) -> bytes:
    """The content without its last `tail` bytes, but with some whole lines of them."""
    end = len(content) - tail
    for _ in range(_CONTEXT + 1):
        end = content.find(b"\n", end) + 1
        if not end:
            return content
    return content[:end]
