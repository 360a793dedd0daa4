"""What people type to find files: a path, names of it, a part of one, or a pattern."""

import re
from collections.abc import Callable, Iterable
from fnmatch import translate
from functools import lru_cache
from typing import Literal

from msgspec import Struct

from loom_audit.errors import InvalidArguments
from loom_audit.model.text.display import one_line
from loom_audit.model.text.summaries import plain_text

MAX_TYPED = 4096
MAX_PATTERN = 1000
"""Characters of a pattern; one takes time by its length times that of each name."""

Reading = Literal["here", "names", "part", "pattern"]
"""`here`: the path, or what is below it. `names`: whole names of a path, one after the other.
`part`: anywhere in a path. `pattern`: of one name, or with a slash of the whole path.
"""
_BETWEEN = re.compile(r"[\s'\"`;|&<>()=,:]+")


class Typed(Struct, frozen=True):
    """A text that a person typed to find files, and how it is read."""

    text: str
    reading: Reading

    def finds(self, path: str) -> bool:
        """Return whether the text means a path in the workspace."""
        match self.reading:
            case "here":
                return path == self.text or path.startswith(self.text + "/")
            case "names":
                return f"/{self.text}/" in f"/{path}/"
            case "part":
                return self.text in path
        matches = _matcher(self.text)
        names = (path,) if "/" in self.text else path.split("/")
        return any(map(matches, names))

    def finds_in(self, line: str) -> bool:
        """Return whether the summary of a call names such a path, alone or among other words."""
        shown = Typed(" ".join(plain_text(self.text).split()), self.reading)
        return any(map(shown._is_named, (line, *_BETWEEN.split(line))))

    def _is_named(self, word: str) -> bool:
        path = word.removeprefix("./").rstrip("/")
        if self.reading == "here" and path.startswith("/"):
            return f"/{self.text}/" in f"{path}/"
        return bool(path) and self.finds(path)

    @property
    def longest(self) -> str:
        """The longest text that stands in every summary which names such a path."""
        text = " ".join(plain_text(self.text).split())
        if self.reading != "pattern":
            return text
        return "" if "[" in text else max(re.split(r"[*?]", text), key=len).strip()


def read_typed(text: str) -> tuple[Typed, ...]:
    """Return how a text may be meant, the most exact reading first.

    InvalidArguments when it is too long.
    """
    text = text.strip().removeprefix("./").strip("/")
    is_pattern = any(mark in text for mark in "*?[")
    most = MAX_PATTERN if is_pattern else MAX_TYPED
    try:
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise InvalidArguments(f"{one_line(text, 100)!r} cannot be the name of a file") from None
    if len(text) > most:
        kind = "pattern" if is_pattern else "path"
        raise InvalidArguments(f"a {kind} has at most {most:,} characters, not {len(text):,}")
    # a file may be called so, or the pattern not be whole yet
    between: Reading = "pattern" if is_pattern else "names"
    return Typed(text, "here"), Typed(text, between), Typed(text, "part")


def choose_reading(
    readings: Iterable[Typed], paths: Iterable[str], lines: Callable[[Typed], bool]
) -> Typed:
    """Return the first reading that finds a path, or that calls name according to `lines`."""
    known = [*paths]
    *rather, last = readings
    for typed in rather:
        if any(map(typed.finds, known)) or (typed.reading != "here" and lines(typed)):
            return typed
    return last


@lru_cache(maxsize=16)
def _matcher(pattern: str) -> Callable[[str], object]:
    # `translate` makes an expression that never goes back (atomic groups)
    return re.compile(translate(pattern)).match
