"""What an answer shows of a text: numbered lines, or bytes, and where the rest of it begins."""

from codecs import getincrementaldecoder
from collections.abc import Iterable
from itertools import accumulate, takewhile

from msgspec import Struct

from loom_audit.model.text.cutting import ends_of
from loom_audit.model.text.lines import split_lines
from loom_audit.tools.bundled.text import Excerpt, decode
from loom_audit.tools.calls.result import MAX_OUTPUT

MAX_SHOWN = MAX_OUTPUT - 512
"""Bytes of a file that an answer has room for, beside what is said about them."""
MAX_HEAD = MAX_SHOWN * 3 // 4
MAX_TAIL = MAX_SHOWN // 4
NUMBER = 8
"""Bytes that the number of a line takes at most in a file of less than ten million lines."""


class ShownText(Struct, frozen=True):
    """The text of an answer, and where what it leaves out begins.

    `next_line` is the line that begins at the byte `next_offset`, None inside a line. `whole` when
    all of the part is in the text.
    """

    text: str
    next_offset: int | None = None
    next_line: int | None = None
    whole: bool = True


class ShownLines(Struct, frozen=True):
    """Lines read from a file of `size` bytes, the first of them with the number `first`.

    `total` are the lines of the file, 0 where nobody counted. `tail` is the end of a file of which
    not all was read.
    """

    part: Excerpt
    size: int
    first: int
    numbers: bool = True
    total: int = 0
    tail: bytes = b""

    @property
    def whole(self) -> ShownText:
        """All that was read, for an answer that has room for it."""
        return ShownText(self.text(self.part.raw, self.first))

    @property
    def fit(self) -> bool:
        """Whether an answer has room for all that was read."""
        raw = self.part.raw
        lines = raw.count(b"\n") + (not raw.endswith(b"\n"))
        return _size(raw) + (NUMBER * lines if self.numbers else 0) <= MAX_SHOWN

    def text(self, raw: bytes, first: int) -> str:
        """Return lines as an answer shows them, from the number `first` on; 0 for no numbers."""
        text = decode(raw)
        if not self.numbers or not first:
            return text
        *lines, rest = text.split("\n")
        numbered = [f"{n:>6}\t{line}\n" for n, line in enumerate(lines, first)]
        return "".join([*numbered, f"{first + len(lines):>6}\t{rest}"] if rest else numbered)


def shown_page(lines: ShownLines) -> ShownText:
    """Return as many lines from the first on as an answer has room for, and how to go on."""
    part, first = lines.part, lines.first
    found = split_lines(part.raw)
    if part.truncated and len(found) > 1 and not found[-1].endswith(b"\n"):
        found.pop()
    kept = found[: _fitting(found, MAX_SHOWN, lines.numbers)]
    if part.truncated and kept and not kept[-1].endswith(b"\n"):
        kept = []
    if found and not kept:
        piece = _beginning(found[0], MAX_SHOWN - NUMBER)
        end = part.start + len(piece)
        said = f"[bytes {part.start} to {end} of {lines.size}; offset {end} goes on]"
        return ShownText(f"{lines.text(piece, first)}\n{said}", end, whole=False)
    end, following = part.start + sum(map(len, kept)), first + len(kept)
    text, whole = lines.text(b"".join(kept), first), end == part.start + len(part.raw)
    if end >= lines.size:
        return ShownText(text)
    of = f" of {lines.total}" if lines.total else ""
    said = f"[lines {first} to {following - 1}{of}; line_offset {following} goes on]"
    return ShownText(text + said, end, following, whole)


def shown_ends(lines: ShownLines) -> ShownText:
    """Return the lines at both ends of what is too long for an answer, and what is left out."""
    part, first = lines.part, lines.first
    found = split_lines(part.raw)
    head = found[: _fitting(found, MAX_HEAD, lines.numbers)]
    piece = b"" if head else _beginning(found[0], MAX_HEAD)
    begin = part.start + sum(map(len, head)) + len(piece)
    next_line = first + len(head) if head else None

    end = split_lines(lines.tail)[1:] or [lines.tail] if lines.tail else found
    tail = end[len(end) - _fitting(end[::-1], MAX_TAIL, lines.numbers) :]
    rest = b"" if tail else _end(end[-1], MAX_TAIL)
    resumed = (lines.size if lines.tail else part.start + len(part.raw)) - len(rest)
    resumed -= sum(map(len, tail))
    behind = (lines.total and lines.total + 1) if lines.tail else first + len(found)
    tail_line = behind - len(tail) if behind else 0

    way = f"line_offset {next_line}" if next_line else f"offset {begin}"
    if next_line and tail and tail_line:
        of = f" of {lines.total}" if lines.total else ""
        what = f"lines {next_line} to {tail_line - 1}{of}"
    else:
        what = f"bytes {begin} to {resumed} of {lines.size}"
    shown = lines.text(b"".join(head) or piece, first)
    shown += "" if shown.endswith("\n") else "\n"
    shown += f"[… {what} are left out: {way} goes on …]\n"
    shown += lines.text(b"".join(tail), tail_line) if tail else decode(rest)
    return ShownText(shown, begin, next_line, whole=False)


def shown_bytes(part: Excerpt, size: int) -> ShownText:
    """Return bytes as text, of many those at both ends, and where what is left out begins."""
    raw = part.raw[_half_before(part.raw) if part.start else 0 :]
    start = part.start + len(part.raw) - len(raw)
    if part.truncated:
        raw = raw[: len(raw) - _half_behind(raw)]
    end = start + len(raw)
    more = f"\n[bytes {start} to {end} of {size}; offset {end} goes on]" if part.truncated else ""
    if len(raw) <= MAX_SHOWN:
        return ShownText(decode(raw) + more, end if part.truncated else None)
    behind, again = ends_of(raw, MAX_HEAD, MAX_TAIL)
    head, tail = decode(raw[:behind]), decode(raw[again:])
    begin, resumed = start + behind, start + again
    said = f"[… bytes {begin} to {resumed} of {size} are left out: offset {begin} goes on …]\n"
    text = f"{head}{'' if head.endswith(chr(10)) else chr(10)}{said}{tail}{more}"
    return ShownText(text, begin, whole=False)


def _size(raw: bytes) -> int:
    """The bytes that a text takes in an answer, where other bytes than UTF-8 become three."""
    return len(raw) if raw.isascii() else len(decode(raw).encode())


def _fitting(lines: Iterable[bytes], most: int, numbers: bool) -> int:
    """How many of the lines fit into so many bytes of an answer."""
    sums = accumulate(_size(line) + (NUMBER if numbers else 0) for line in lines)
    return sum(1 for _ in takewhile(lambda size: size <= most, sums))


def _beginning(line: bytes, most: int) -> bytes:
    """The beginning of a line that an answer has room for, up to the end of a character."""
    piece = line[: _space(line[:most], most)]
    return piece[: len(piece) - _half_behind(piece)]


def _end(line: bytes, most: int) -> bytes:
    """The end of a line that an answer has room for, from the beginning of a character."""
    piece = line[-_space(line[-most:], most) :]
    return piece[_half_before(piece) :]


def _space(piece: bytes, most: int) -> int:
    """How many of the bytes fit: of those that are not UTF-8 each is shown by three."""
    return most if _size(piece) <= most else most // 3


def _half_before(raw: bytes) -> int:
    """Bytes at the beginning that belong to a character of UTF-8 that began before them."""
    return next((n for n, byte in enumerate(raw[:4]) if byte & 0xC0 != 0x80), 0)


def _half_behind(raw: bytes) -> int:
    """Bytes at the end of a character of UTF-8 that goes on behind them."""
    decoder = getincrementaldecoder("utf-8")("replace")
    decoder.decode(raw[-4:])
    return len(decoder.getstate()[0])
