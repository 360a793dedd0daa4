"""What stands in a file nearest to a text that is not in it, and in what the two differ."""

from collections.abc import Callable, Mapping, Sequence
from difflib import SequenceMatcher

from msgspec import Struct

from loom_audit.model.text.display import count_text

MAX_BYTES = 1024 * 1024
"""The number of bytes of a file that are looked at."""
MAX_COMPARED = 5_000
"""Lines that are compared one by one where no way of writing leads to the text."""
MAX_MEASURED = 20
"""The number of these lines that are measured: the work grows with the square of a line."""
MAX_LINES, MAX_WIDTH = 12, 200
"""Lines and characters of each that are shown."""

_LEAST_ALIKE = 0.6
_QUOTES = str.maketrans({**dict.fromkeys("'“”„‟‘’‚‛`´«»", '"'), "–": "-", "—": "-", "…": "."})
_WAYS: Mapping[str, Callable[[str], str]] = {
    "line ends": lambda line: line.rstrip("\r"),
    "indentation": str.lstrip,
    "white space": lambda line: line[: len(line) - len(line.lstrip())] + "".join(line.split()),
    "quotes or dashes": lambda line: line.translate(_QUOTES),
    "upper and lower case": str.casefold,
}
"""In what two writings of a line may differ, and what a line is without that."""


class Nearest(Struct, frozen=True):
    """The lines nearest to a text, from the number `line` (from 1), and in what they differ.

    `differs` is empty where the words themselves differ.
    """

    line: int
    lines: Sequence[str]
    differs: tuple[str, ...]

    def text(self) -> str:
        """Return the lines with their numbers and how they differ, for a model to read."""
        last = self.line + len(self.lines) - 1
        where = f"line {self.line}" if last == self.line else f"lines {self.line} to {last}"
        differs = " and ".join(self.differs) or "what it says"
        shown = [
            f"{n:>6} | {_shown(line)}" for n, line in enumerate(self.lines[:MAX_LINES], self.line)
        ]
        if len(self.lines) > MAX_LINES:
            shown.append(f"       | [{len(self.lines) - MAX_LINES} more]")
        return "\n".join([f"Nearest is {where}, which differs in {differs}:", *shown])


def nearest(content: bytes, wanted: bytes) -> Nearest | None:
    """Return the lines nearest to a text; None where no line is like it, or it is binary."""
    if b"\0" in content[:8192]:
        return None
    lines = content[:MAX_BYTES].decode("utf-8", "replace").split("\n")
    text = wanted.decode("utf-8", "replace")
    if not text.strip():
        return None
    within = text.strip("\r\n").split("\n")
    return _written_otherwise(lines, [text.split("\n"), within]) or _most_alike(lines, within)


def _written_otherwise(lines: Sequence[str], texts: Sequence[Sequence[str]]) -> Nearest | None:
    """The first of the texts that is there, in as few ways otherwise as it can be."""
    whole, written = lines, texts
    used: list[str] = []
    for way in (None, *_WAYS):
        if way is not None:
            used.append(way)
            whole = [*map(_WAYS[way], whole)]
            written = [[*map(_WAYS[way], text)] for text in written]
        for asked, text in zip(texts, written, strict=True):
            at = _line_of(whole, text)
            if at is not None:
                return _written_at(lines, asked, at, used)
    return None


def _written_at(
    lines: Sequence[str], asked: Sequence[str], at: int, used: Sequence[str]
) -> Nearest:
    """What stands at a line, and which of the ways it takes to find it there."""
    found = lines[at : at + len(asked) - (not asked[-1])]
    rest = lines[at : at + len(asked) + 1]
    needed = [
        f"{way}{_detail(way, found, asked)}"
        for way in used
        if _find(rest, asked, [one for one in used if one != way]) is None
    ]
    return Nearest(at + 1, found, tuple(needed) or ("the white space around it",))


def _detail(way: str, lines: Sequence[str], asked: Sequence[str]) -> str:
    """How each side begins, or ends, where a model cannot see it."""
    if way not in ("line ends", "indentation"):
        return ""
    shown = _line_end if way == "line ends" else _indentation
    pairs = [*zip(map(shown, lines), map(shown, asked), strict=False)]
    if way == "indentation":
        pairs = [*pairs[1:], *pairs[:1]]  # the first may begin within a line
    return next((f" (the file: {a}, old_str: {b})" for a, b in pairs if a != b), "")


def _line_end(line: str) -> str:
    return "CRLF" if line.endswith("\r") else "LF"


def _indentation(line: str) -> str:
    begin = line[: len(line) - len(line.lstrip())]
    counted = [
        count_text(begin.count(mark), name)
        for mark, name in (("\t", "tab"), (" ", "space"))
        if mark in begin
    ]
    return " and ".join(counted) or "none"


def _find(lines: Sequence[str], asked: Sequence[str], ways: Sequence[str]) -> int | None:
    """The line where the text begins, both written without what these ways say."""
    for way in ways:
        lines, asked = ([*map(_WAYS[way], side)] for side in (lines, asked))
    return _line_of(lines, asked)


def _line_of(lines: Sequence[str], asked: Sequence[str]) -> int | None:
    whole = "\n".join(lines)
    at = whole.find("\n".join(asked))
    return None if at < 0 else whole.count("\n", 0, at)


def _most_alike(lines: Sequence[str], asked: Sequence[str]) -> Nearest | None:
    """Around the line most like the longest one of what was looked for."""
    place, longest = max(enumerate(asked), key=lambda one: len(one[1].strip()))
    matcher = SequenceMatcher(autojunk=False)
    matcher.set_seq2(longest.strip()[:MAX_WIDTH])
    likely: list[tuple[float, int]] = []
    for number, line in enumerate(lines[:MAX_COMPARED]):
        matcher.set_seq1(line.strip()[:MAX_WIDTH])
        if matcher.real_quick_ratio() > _LEAST_ALIKE:
            likely.append((-matcher.quick_ratio(), number))
    best, at = _LEAST_ALIKE, None
    for most, number in sorted(likely)[:MAX_MEASURED]:
        if -most <= best:
            break
        matcher.set_seq1(lines[number].strip()[:MAX_WIDTH])
        ratio = matcher.ratio()
        if ratio > best:
            best, at = ratio, number
    if at is None:
        return None
    first = max(0, at - place)
    return Nearest(first + 1, lines[first : first + len(asked)], ())


def _shown(line: str) -> str:
    line = line.rstrip("\r")
    return line[:MAX_WIDTH] + "…" if len(line) > MAX_WIDTH else line
