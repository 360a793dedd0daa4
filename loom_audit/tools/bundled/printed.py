"""What a program printed, as a terminal would show it at the end: for a model that reads it."""

import re
from collections.abc import Iterator

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\x9b]")
_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"
    r"|\x1b[PX^_][^\x1b]*\x1b\\"
    r"|\x1b[ -/]*[0-~]"
)
"""What steers a terminal: control sequences and strings of ECMA-48, and the shorter escapes."""
_UNSHOWN = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x9b]")


def printed_text(text: str) -> str:
    """Return a text without control sequences.

    Of a line that was written again and again, the last text stays; CRLF at the end of one does.
    """
    if not _CONTROL.search(text):
        return text
    lines = _SEQUENCE.sub("", text).split("\n")
    return _UNSHOWN.sub("", "\n".join("".join(_overwritten(line)) for line in lines))


def _overwritten(line: str) -> Iterator[str]:
    """What stays of a line that carriage returns and backspaces went back over."""
    shown = next((part for part in reversed(line.split("\r")) if part), "")
    if "\b" in shown:
        kept: list[str] = []
        for sign in shown:
            if sign != "\b":
                kept.append(sign)
            elif kept:
                kept.pop()
        yield from kept
    else:
        yield shown
    if line.endswith("\r"):
        yield "\r"
