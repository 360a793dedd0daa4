"""Bytes and text of tools: lossy decoding, lines of a range, edits and their context."""

import base64
import binascii
import codecs
from collections.abc import Sequence
from typing import BinaryIO

from msgspec import Struct

from loom_audit.errors import FileNotFound, InvalidArguments
from loom_audit.model.text.display import first_few
from loom_audit.model.text.nearest import nearest
from loom_audit.model.text.textdiff import diff_lines, hunks_text

_CHUNK = 64 * 1024
_CONTEXT = 3
_MAX_DIFFED = 1024 * 1024


def decode(raw: bytes, *, whole: bool = True) -> str:
    """Return bytes as UTF-8 text with U+FFFD for other bytes.

    Of a part (`whole` is False), an incomplete last character is left out.
    """
    return codecs.getincrementaldecoder("utf-8")("replace").decode(raw, final=whole)


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


class Part(Struct, frozen=True):
    """A part of a file, from the byte `start`; `truncated` when the limit cut it.

    `lines` are those seen before it ended, 0 where bytes were asked for.
    """

    raw: bytes
    truncated: bool
    lines: int
    start: int = 0


def read_part(stream: BinaryIO, first: int, last: int | None, limit: int) -> Part:
    """Read lines `first` to `last` (from 1, both included), at most `limit` bytes of them.

    Memory is bounded by `limit`. Lines end with LF; every byte is kept. `lines` of the part counts
    the lines begun so far.
    """
    kept = bytearray()
    line, begun, start, before = 1, False, 0, 0
    while chunk := stream.read(_CHUNK):
        position = 0
        while position < len(chunk):
            begun = True
            end = chunk.find(b"\n", position)
            stop = len(chunk) if end < 0 else end + 1
            if line >= first:
                start = start if kept else before + position
                space = limit - len(kept)
                kept += chunk[position : min(stop, position + space)]
                if stop - position > space:
                    return Part(bytes(kept), True, line, start)
            position = stop
            if end >= 0:
                if last is not None and line >= last:
                    return Part(bytes(kept), False, line, start)
                line, begun = line + 1, False
        before += len(chunk)
    return Part(bytes(kept), False, line if begun else line - 1, start)


def read_bytes(stream: BinaryIO, start: int, limit: int, size: int) -> Part:
    """Read at most `limit` bytes of a file of `size` bytes, from the byte `start`."""
    stream.seek(start)
    raw = stream.read(limit)
    return Part(raw, start + len(raw) < size, 0, start)


class TextEdit(Struct, frozen=True):
    """One replacement in a text: `old` must be there once, or at least once with `everywhere`."""

    old: bytes
    new: bytes
    everywhere: bool = False


def apply_edits(path: str, content: bytes | None, steps: Sequence[TextEdit]) -> bytes:
    """Return the content after all steps, each made on the result of the one before.

    A content of None is an absent file; an empty `old` appends. FileNotFound, InvalidArguments when
    an `old` is not there, or more than once.
    """
    current = content
    for number, step in enumerate(steps, 1):
        which = f"edit {number} of {len(steps)}, of which none was made: " if len(steps) > 1 else ""
        current = _apply_edit(path, current, step, which)
    return current or b""


def _apply_edit(path: str, content: bytes | None, step: TextEdit, which: str) -> bytes:
    if not step.old:
        return (content or b"") + step.new
    if content is None:
        raise FileNotFound(f"File not found: {path}", hint="An empty old_str creates a file.")
    at = content.find(step.old)
    if at < 0:
        raise InvalidArguments(
            f"{which}old_str not found in {path}: {_excerpt(step.old)}",
            hint=_mismatch_hint(content, step.old),
        )
    if step.everywhere:
        return content.replace(step.old, step.new)
    # one that overlaps the first counts: either could be meant
    if content.find(step.old, at + 1) >= 0:
        lines = _lines_of(content, step.old)
        shown = first_few(lines, 10)
        raise InvalidArguments(
            f"{which}old_str found {len(lines)} times in {path}: {_excerpt(step.old)}",
            hint=f"It begins in lines {shown}. Add what stands around it until it is the only "
            "one, or pass replace_all.",
            details={"count": len(lines), "lines": lines[:100]},
        )
    return content[:at] + step.new + content[at + len(step.old) :]


def _lines_of(content: bytes, old: bytes) -> list[int]:
    """The line of each place it stands at, from 1, overlapping ones too."""
    found, line, seen, at = list[int](), 1, 0, content.find(old)
    while at >= 0:
        line += content.count(b"\n", seen, at)
        seen = at
        found.append(line)
        at = content.find(old, at + 1)
    return found


def _mismatch_hint(content: bytes, old: bytes) -> str:
    found = nearest(content, old)
    if found is None:
        return "Read the file again: old_str must be exactly what stands there."
    return f"old_str must be exactly what stands there. {found.text()}"


def _excerpt(raw: bytes) -> str:
    text = decode(raw[:200])
    return repr(text[:80] + ("…" if len(raw) > 80 else ""))


def diff_text(old: bytes, new: bytes) -> str:
    """Return the difference of two contents as unified hunks; where it is not shown, why.

    Only what is between the ends they have in common, and some lines around it, is compared.
    """
    if old == new:
        return "[the content is as it was]"
    above = _line_starts_back(old, _common_length(old, new))
    rest = _common_length(old[above:], new[above:], from_end=True)
    old_part, new_part = (_without_tail(side[above:], rest) for side in (old, new))
    if max(len(old_part), len(new_part)) > _MAX_DIFFED:
        return "[the difference is too large to be shown]"
    text = hunks_text(diff_lines(old_part, new_part, _CONTEXT), above=old.count(b"\n", 0, above))
    return decode(text) if text else "[binary content is not shown]"


def _common_length(a: bytes, b: bytes, *, from_end: bool = False) -> int:
    """How many bytes at their beginning, or their end, two contents have in common."""
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
