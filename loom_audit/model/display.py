"""Recorded text made safe to show: nothing in it can steer a terminal or reorder a line."""


def visible(text: str, *, multiline: bool = False) -> str:
    """The text with control and format characters as escapes; newline and tab if multiline."""
    raise NotImplementedError


def visible_path(path: str) -> str:
    """A path on one line; bytes that are not UTF-8 as \\xNN."""
    raise NotImplementedError


def visible_bytes(content: bytes, *, multiline: bool = False) -> str:
    """Content as text; bytes that are not UTF-8 as \\xNN."""
    raise NotImplementedError


def one_line(text: str, limit: int = 120) -> str:
    """The text on one visible line of at most `limit` characters, cut with an ellipsis."""
    raise NotImplementedError


def size_text(n: int) -> str:
    """A size in bytes for people: `512 B`, `1.5 KiB`."""
    raise NotImplementedError


def duration_text(us: int) -> str:
    """A duration in microseconds for people: `850 µs`, `12 ms`, `3.4 s`, `2 min 5 s`."""
    raise NotImplementedError
