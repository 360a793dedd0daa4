r"""Recorded text made safe to show: nothing in it can steer a terminal or reorder a line.

What is not visible by itself is written as a Python escape (`\x1b`, `\u202e`); bytes that are
not UTF-8 (PEP 383 surrogates) as `\xNN`. Visible text stays as it is, backslashes too, so the
result is for reading only and cannot be decoded.
"""

import re
import unicodedata
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, TypeVar

T = TypeVar("T")

# Categories Cc, Cf, Cs, Zl and Zp, and the invisible characters of other categories: fillers,
# joiners, variation selectors (bytes can be hidden in them) and the tag block.
_HIDDEN: Final = (
    "\\x00-\\x1f\\x7f-\\x9f\\xad\\u034f\\u0600-\\u0605\\u061c\\u06dd\\u070f\\u0890\\u0891"
    "\\u08e2\\u115f\\u1160\\u17b4\\u17b5\\u180b-\\u180f\\u200b-\\u200f\\u2028-\\u202e"
    "\\u2060-\\u206f\\u3164\\ud800-\\udfff\\ufe00-\\ufe0d\\ufeff\\uffa0\\ufff0-\\ufffb"
    "\\U000110bd\\U000110cd\\U00013430-\\U0001343f\\U0001bca0-\\U0001bca3"
    "\\U0001d173-\\U0001d17a\\U000e0000-\\U000e0fff"
)
# One selector after an emoji is ordinary text, a second one hides something.
_ESCAPED: Final = re.compile(f"[{_HIDDEN}]|(?<=[\ufe0e\ufe0f])[\ufe0e\ufe0f]")
_SPACES: Final = re.compile(r"[\s\x1c-\x1f\x85]+")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NAMED: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def visible(text: str, *, multiline: bool = False) -> str:
    """Return a text with control and format characters as escapes.

    With `multiline` newlines and tabs stay; a carriage return is always shown.
    """
    if text.isascii() and text.isprintable():
        return text

    def escape(match: re.Match[str]) -> str:
        char = match.group()
        return char if multiline and char in "\n\t" else _escape(char)

    return _ESCAPED.sub(escape, text)


def visible_bytes(content: bytes, *, multiline: bool = False) -> str:
    r"""Return a content as text; its bytes that are not UTF-8 as `\xNN`."""
    return visible(content.decode("utf-8", "surrogateescape"), multiline=multiline)


def one_line(text: str, limit: int = 120) -> str:
    """Return a text on one visible line of at most `limit` characters, cut with an ellipsis.

    Every stretch of white space becomes one space.
    """
    text = text.lstrip()
    # Four times the limit is enough text even where it is mostly white space.
    part = text[: 4 * limit + 4]
    line = visible(_SPACES.sub(" ", part).rstrip())
    if len(line) <= limit and len(part) == len(text):
        return line
    return line[: max(limit - 1, 0)].rstrip() + "…" if limit > 0 else ""


def moment(ns: int) -> datetime:
    """Return a file's time in nanoseconds since 1970 as UTC, the nearest that a datetime holds.

    Filesystems store years that a datetime cannot hold.
    """
    try:
        return _EPOCH + timedelta(microseconds=ns // 1000)
    except OverflowError:
        return (datetime.max if ns > 0 else datetime.min).replace(tzinfo=UTC)


def first_few(items: Sequence[T], most: int, text: Callable[[T], str] = str) -> str:
    """Return the first `most` items in words, and how many more there are: `a, b and 3 more`."""
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return ", ".join(map(text, items[:most])) + more


def count_text(n: float, what: str, *, grouped: bool = False) -> str:
    """Return a number with its noun: `1 call`, `2 calls`, `0.5 seconds`; grouped: `1,000 calls`."""
    shown = f"{n:,}" if grouped else str(n) if isinstance(n, int) else f"{n:g}"
    return f"{shown} {what}" if n == 1 else f"{shown} {what}s"


def size_text(n: int) -> str:
    """Return a number of bytes for people: `512 B`, `1.5 KiB`, `20 MiB`."""
    if n < 1024:
        return f"{n} B"
    size = float(n)
    for unit in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        size /= 1024
        # 1023.96 would be rounded to 1024 of this unit
        if round(size, 1) < 1024 or unit == "PiB":
            break
    return f"{size:.1f}".removesuffix(".0") + f" {unit}"


def duration_text(us: int) -> str:
    """Return microseconds for people: `850 µs`, `12 ms`, `3.4 s`, `2 min 5 s`, `3 h 2 min`."""
    if us < 1000:
        return f"{us} µs"
    if us < 1_000_000:
        return f"{us // 1000} ms"
    if us < 60_000_000:
        return f"{us // 100_000 / 10:.1f}".removesuffix(".0") + " s"
    seconds = us // 1_000_000
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60} s"
    return f"{seconds // 3600} h {seconds % 3600 // 60} min"


def _escape(char: str) -> str:
    code = ord(char)
    if char in _NAMED:
        return _NAMED[char]
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def columns(text: str) -> int:
    """How many columns of a terminal a text of one line takes."""
    wide = sum(unicodedata.east_asian_width(one) in "WF" for one in text)
    return len(text) + wide - sum(1 for one in text if unicodedata.combining(one))
