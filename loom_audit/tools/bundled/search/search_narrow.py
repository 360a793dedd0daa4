"""Leaves out files without a match, by ripgrep or grep, before Python's `re` decides on the rest.

The dialect is Python's, whichever of them is there: the other program is not given the caller's
pattern but a weaker one over bytes, made from its parse, which every line that the caller's
matches is matched by too. What cannot be said in it (anchors, lookaround, back-references) is
left out of it or stands for anything. So results are the same with each, and without any.
Standard library only: a part of what `search_files` runs as a process of its own.
"""

import os
import re
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any

_parse = import_module("re._parser").parse

Narrow = Callable[[list[int]], "set[int] | None"]
_ANYTHING, _SOME = ".*", ".+"
_MAX_PATTERN = 64 * 1024
_MOST = 8
_SECONDS = 5.0
_BEYOND_ASCII = range(0x80, 0x100)
_FOLDED_BEYOND = frozenset(b"iksIKS")  # with IGNORECASE these match dotless i, Kelvin and long s
_REPLACEMENT = 0xFFFD  # what stands for bytes that are not UTF-8: any bytes
_CATEGORIES = {
    "CATEGORY_DIGIT": r"\d",
    "CATEGORY_NOT_DIGIT": r"\D",
    "CATEGORY_SPACE": r"\s",
    "CATEGORY_NOT_SPACE": r"\S",
    "CATEGORY_WORD": r"\w",
    "CATEGORY_NOT_WORD": r"\W",
}
_OPTIONS = {
    "rg": ("--no-config", "--text", "--encoding=none", "--no-mmap", "--null"),
    "grep": ("-E", "--text", "--null"),
}


def narrower(pattern: re.Pattern[str], program: str) -> Narrow | None:
    """A function from descriptors of files to those that may hold a match; None for all.

    None when nothing can be left out for this pattern. `program` is the path of ripgrep or of
    GNU grep.
    """
    name = os.path.basename(program)
    weak = weaker(pattern.pattern, pattern.flags, name)
    if weak is None:
        return None
    options = (*_OPTIONS[name], "--files-with-matches", "-e")

    def narrow(descriptors: list[int]) -> set[int] | None:
        import subprocess  # only when there is enough to search: its import takes a while

        paths = {f"/proc/self/fd/{one}".encode(): one for one in descriptors}
        argv: list[str | bytes] = [program, *options, weak, "--", *paths]
        try:
            done = subprocess.run(
                argv,
                env={"LC_ALL": "C"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                pass_fds=descriptors,
                timeout=_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        if done.returncode not in (0, 1):  # it could not read one of them, or not the pattern
            return None
        return {paths[path] for path in done.stdout.split(b"\0") if path}

    return narrow


def weaker(pattern: str, flags: int, name: str) -> bytes | None:
    """The pattern for `rg` or `grep` that every matching line matches; None when all lines do."""
    try:
        text, empty = _Weaker(name).sequence(_parse(pattern, flags), flags)
    except (_TooMuch, RecursionError):
        return None
    raw = (b"(?-u)" if name == "rg" else b"") + text.encode("latin-1")
    return None if empty or len(raw) > _MAX_PATTERN else raw


class _TooMuch(Exception):
    """A part that the weaker pattern has no words for: nothing is left out."""


class _Weaker:
    """Turns a parse into text of one byte a character, and whether that can match nothing."""

    def __init__(self, name: str) -> None:
        self._name = name

    def sequence(self, parts: Iterable[tuple[Any, Any]], flags: int) -> tuple[str, bool]:
        said = [self._one(str(kind), value, flags) for kind, value in parts]
        return "".join(text for text, _ in said), all(empty for _, empty in said)

    def _one(self, kind: str, value: Any, flags: int) -> tuple[str, bool]:
        if kind == "LITERAL":
            return self._literal(value, flags), False
        if kind in ("ANY", "NOT_LITERAL"):
            return _SOME, False
        if kind == "IN":
            return self._class(value, flags), False
        if kind in ("AT", "ASSERT", "ASSERT_NOT"):
            return "", True
        if kind == "ATOMIC_GROUP":
            return self._group(value, flags)
        if kind == "SUBPATTERN":
            _, added, removed, inner = value
            return self._group(inner, (flags | added) & ~removed)
        if kind == "BRANCH":
            said = [self._group(one, flags) for one in value[1]]
            return f"({'|'.join(text for text, _ in said)})", any(empty for _, empty in said)
        if kind in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            least, _, inner = value
            text, empty = self._group(inner, flags)
            if not text:
                return "", True
            counted = least > 1 and len(inner) == 1 and str(inner[0][0]) in ("LITERAL", "IN")
            count = f"{{{min(least, _MOST)},}}" if counted else "+" if least else "*"
            return text + count, empty or least == 0
        return _ANYTHING, True

    def _group(self, inner: Iterable[tuple[Any, Any]], flags: int) -> tuple[str, bool]:
        text, empty = self.sequence(inner, flags)
        return (f"({text})" if text else ""), empty

    def _literal(self, code: int, flags: int) -> str:
        if flags & re.IGNORECASE:
            return self._class([("LITERAL", code)], flags)
        if code < 0x80:
            return self._bytes({code})
        if code == _REPLACEMENT or 0xD800 <= code < 0xE000:
            return _SOME
        return "".join(self._bytes({byte}) for byte in chr(code).encode())

    def _class(self, items: list[tuple[Any, Any]], flags: int) -> str:
        """One character: an ASCII byte of the set, or bytes that are none where it has others."""
        ascii_: set[int] = set()
        wide = False
        folding = bool(flags & re.IGNORECASE)
        for kind, value in items:
            if str(kind) in ("LITERAL", "RANGE"):
                low, high = (value, value) if str(kind) == "LITERAL" else value
                ascii_.update(range(low, min(high, 0x7F) + 1))
                wide |= high > 0x7F
                if high > 0x7F and folding:
                    return _SOME
            elif str(kind) == "CATEGORY" and str(value) in _CATEGORIES and not _negates(items):
                rule = _CATEGORIES[str(value)]
                both = re.compile(rule), re.compile(rule, re.ASCII)
                ascii_ |= {c for c in range(0x80) if any(one.match(chr(c)) for one in both)}
                wide = True
            elif str(kind) != "NEGATE":
                return _SOME
        if _negates(items):
            if folding:
                return _SOME
            ascii_, wide = set(range(0x80)) - ascii_, True
        if folding:
            wide |= not _FOLDED_BEYOND.isdisjoint(ascii_)
            ascii_ |= {ord(same) for c in ascii_ for same in (chr(c).lower(), chr(c).upper())}
        plain = self._bytes(ascii_ - {0x0A}) if ascii_ - {0x0A} else ""
        if not wide:
            return plain or self._impossible()
        beyond = self._bytes(set(_BEYOND_ASCII)) + "+"
        return f"({plain}|{beyond})" if plain else beyond

    def _impossible(self) -> str:
        raise _TooMuch  # a line feed, which no line holds

    def _bytes(self, values: set[int]) -> str:
        """One byte out of these, in the syntax of the program."""
        if 0x0A in values:
            return self._impossible()
        if self._name == "rg":
            return "[" + "".join(f"\\x{low:02x}-\\x{high:02x}" for low, high in _runs(values)) + "]"
        if values == {ord("^")}:
            return r"\^"
        if 0 in values:  # no argument can hold it
            return _SOME
        first = "]" if ord("]") in values else ""
        runs = _runs(values - set(b"]^-"))
        first += "".join(chr(a) if a == b else f"{chr(a)}-{chr(b)}" for a, b in runs)
        caret, hyphen = ("^" if ord("^") in values else ""), ("-" if ord("-") in values else "")
        return f"[{first}{caret}{hyphen}]" if first else f"[{hyphen}{caret}]"


def _negates(items: list[tuple[Any, Any]]) -> bool:
    return str(items[0][0]) == "NEGATE"


def _runs(values: set[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for value in sorted(values):
        if runs and runs[-1][1] == value - 1:
            runs[-1] = (runs[-1][0], value)
        else:
            runs.append((value, value))
    return runs
