"""Bytes and text of tools: lossy decoding, lines of a range, edits and their context."""

import base64
import binascii
import codecs
from collections.abc import Sequence
from dataclasses import dataclass
from typing import BinaryIO

from loom_audit.errors import FileNotFound, InvalidArguments

_CHUNK = 64 * 1024
_CONTEXT = 3
_WIDTH = 200
_SHOWN_EDITS = 5


def decode(raw: bytes, *, whole: bool = True) -> str:
    """UTF-8 with U+FFFD for other bytes; of a part, an incomplete last character is left out."""
    return codecs.getincrementaldecoder("utf-8")("replace").decode(raw, final=whole)


def encode(text: str, what: str) -> bytes:
    """The text as UTF-8. InvalidArguments for a lone surrogate, which no file can hold."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidArguments(
            f"{what} holds a lone surrogate at {error.start}, which is not a character",
            hint="Write bytes that are not UTF-8 with encoding base64.",
        ) from error


def from_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise InvalidArguments(
            f"content is not base64: {error}", hint="Write text with encoding utf-8."
        ) from error


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a file; `truncated` when the limit cut it, `lines` seen before it ended."""

    raw: bytes
    truncated: bool
    lines: int


def read_part(stream: BinaryIO, first: int, last: int | None, limit: int) -> Part:
    """Lines `first` to `last` (from 1, inclusive), at most `limit` bytes, in bounded memory.

    Lines end with LF; every byte is kept. `lines` counts those begun so far.
    """
    kept = bytearray()
    line, begun = 1, False
    while chunk := stream.read(_CHUNK):
        position = 0
        while position < len(chunk):
            begun = True
            end = chunk.find(b"\n", position)
            stop = len(chunk) if end < 0 else end + 1
            if line >= first:
                room = limit - len(kept)
                kept += chunk[position : min(stop, position + room)]
                if stop - position > room:
                    return Part(bytes(kept), True, line)
            position = stop
            if end >= 0:
                if last is not None and line >= last:
                    return Part(bytes(kept), False, line)
                line, begun = line + 1, False
    return Part(bytes(kept), False, line if begun else line - 1)


@dataclass(frozen=True, slots=True)
class TextEdit:
    """One replacement in a text: `old` must be there once, or at least once with `everywhere`."""

    old: bytes
    new: bytes
    everywhere: bool = False


@dataclass(frozen=True, slots=True)
class EditResult:
    """A file before and after, and for each edit where its first change begins in between."""

    before: bytes | None
    after: bytes
    contexts: tuple[str, ...]


def apply_edits(path: str, content: bytes | None, steps: Sequence[TextEdit]) -> EditResult:
    """The content after all steps, each on the result of the one before; None for an absent file.

    An empty `old` appends. FileNotFound, InvalidArguments when an `old` is not there, or more
    than once.
    """
    current, contexts = content, []
    for number, step in enumerate(steps, 1):
        which = f"edit {number} of {len(steps)}: " if len(steps) > 1 else ""
        current, at = _apply_edit(path, current, step, which)
        if number <= _SHOWN_EDITS:
            contexts.append(numbered_context(current, at, at + len(step.new)))
    return EditResult(content, current or b"", tuple(contexts))


def _apply_edit(path: str, content: bytes | None, step: TextEdit, which: str) -> tuple[bytes, int]:
    """The content after one step, and where the first replacement stands."""
    if not step.old:
        before = content or b""
        return before + step.new, len(before)
    if content is None:
        raise FileNotFound(f"File not found: {path}", hint="An empty old_str creates a file.")
    at = content.find(step.old)
    if at < 0:
        raise InvalidArguments(
            f"{which}old_str not found in {path}: {_excerpt(step.old)}",
            hint=_mismatch_hint(content, step.old),
        )
    if step.everywhere:
        return content.replace(step.old, step.new), at
    if content.find(step.old, at + 1) >= 0:
        count = _count(content, step.old)
        raise InvalidArguments(
            f"{which}old_str found {count} times in {path}: {_excerpt(step.old)}",
            hint="Add lines around it until it is the only one, or pass replace_all.",
            details={"count": count},
        )
    return content[:at] + step.new + content[at + len(step.old) :], at


def _count(content: bytes, old: bytes) -> int:
    """How many places it stands at, overlapping ones too."""
    count, at = 0, content.find(old)
    while at >= 0:
        count, at = count + 1, content.find(old, at + 1)
    return count


def _mismatch_hint(content: bytes, old: bytes) -> str:
    if b"\r\n" in content and b"\r\n" not in old and b"\n" in old:
        return "The file's lines end with CRLF, and those of old_str with LF."
    if old.strip() and old.strip() in content:
        return "It is there with other white space around it."
    return "Read the file again: old_str must be exactly what stands there."


def _excerpt(raw: bytes) -> str:
    text = decode(raw[:200])
    return repr(text[:80] + ("…" if len(raw) > 80 else ""))


def numbered_context(content: bytes, start: int, end: int) -> str:
    """The lines from three above `start` to three below `end`, numbered; a long middle is cut."""
    first = content.count(b"\n", 0, start) + 1
    last = first + content.count(b"\n", start, max(start, end - 1))
    top = start
    for _ in range(_CONTEXT + 1):
        top = content.rfind(b"\n", 0, top)
        if top < 0:
            break
    number = max(1, first - _CONTEXT)
    lines: list[str] = []
    position = top + 1
    while position < len(content) and number <= last + _CONTEXT:
        stop = content.find(b"\n", position)
        stop = len(content) if stop < 0 else stop
        if number <= first + 10 or number > last - 2:
            text = decode(content[position : min(stop, position + 4 * _WIDTH)])[:_WIDTH]
            lines.append(f"{number:>6}  {text.rstrip(chr(13))}")
        elif number == first + 11:
            lines.append("     …")
        position, number = stop + 1, number + 1
    return "\n".join(lines)
