"""Words that somebody looks for: how a text is cut into words, and where the sought ones stand."""

import re
from collections.abc import Iterable, Iterator, Sequence
from unicodedata import combining, normalize

from msgspec import Struct

MOST_WORDS = 64
"""Words of one question; further ones are ignored."""
MOST_CHARACTERS = 32 * 1024
"""The number of characters of a text that are looked at."""
MOST_MARKS = 200
_ROUNDABOUT = 8 * 1024
"""Characters that are looked at word by word, where accents may hide one."""
_WORD = re.compile(r"\w+")
_SPACES = re.compile(r"\s+")

Pieces = tuple[tuple[str, bool], ...]
"""A text in pieces, each with whether it is a sought word."""


def words_of(text: str) -> list[str]:
    """The words of a text, without case and accents: letters, digits and underscores."""
    if not text.isascii():
        parts = normalize("NFKD", text.casefold())
        text = "".join(part for part in parts if not combining(part))
    return _WORD.findall(text.lower())


def sought_words(text: str) -> tuple[str, ...]:
    """The words of a question, each once; the last may be the beginning of one."""
    return tuple(dict.fromkeys(words_of(text)))[:MOST_WORDS]


class Snippet(Struct, frozen=True):
    """A stretch of a text around sought words, which stand in it so many (`found`) at once.

    `label` says of which text it is.
    """

    label: str
    pieces: Pieces
    found: frozenset[str]


def snippet(label: str, text: str, words: Sequence[str], width: int) -> Snippet | None:
    """The stretch of a text with most of the words, on one line; None where none stands there."""
    text = text[:MOST_CHARACTERS]
    marks = [*_marks(text, words)]
    if not marks:
        return None
    best, last, found = 0, 0, frozenset[str]()
    for n, (start, _, _) in enumerate(marks):
        near = [marks[n], *(one for one in marks[n + 1 : n + 20] if one[1] <= start + width)]
        said = frozenset(word for _, _, word in near)
        if len(said) > len(found):
            best, last, found = start, near[-1][1], said
        if len(found) == len(words):
            break
    start = max(0, best - max(0, width - (last - best)) // 2)
    if start:  # not within a word
        start = next((m.end() for m in _SPACES.finditer(text, start, best)), start)
    end = min(len(text), start + width)
    inside = [(begin, min(stop, end)) for begin, stop, _ in marks if start <= begin < end]
    return Snippet(label, tuple(_pieces(text, start, end, inside)), found)


def best_snippets(
    texts: Iterable[tuple[str, str]], words: Sequence[str], *, width: int = 200, most: int = 2
) -> tuple[Snippet, ...]:
    """The stretches that show most of the words, of texts with their labels, the earlier first.

    A further one is there for words that those before it do not have.
    """
    found: list[Snippet] = []
    for label, text in texts:
        one = snippet(label, text, words, width)
        if one and len(one.found) == len(words):
            return (one,)  # no other has more words
        found += [one] if one else []
    chosen: list[Snippet] = []
    seen = frozenset[str]()
    while len(chosen) < most and found:
        best = max(found, key=lambda one: len(one.found - seen))
        if not best.found - seen:
            break
        chosen.append(best)
        seen |= best.found
        found.remove(best)
    return tuple(chosen)


def _pieces(
    text: str, start: int, end: int, marks: Sequence[tuple[int, int]]
) -> Iterator[tuple[str, bool]]:
    if start:
        yield "… ", False
    at = start
    for begin, stop in marks:
        if begin > at:
            yield _SPACES.sub(" ", text[at:begin]), False
        yield text[begin:stop], True
        at = stop
    if at < end:
        yield _SPACES.sub(" ", text[at:end]), False
    if end < len(text):
        yield " …", False


def _marks(text: str, words: Sequence[str]) -> Iterator[tuple[int, int, str]]:
    """Where sought words stand, the first of them, each with the word it is."""
    if not words:
        return
    *whole, begun = words
    found = 0
    if all(word.isascii() for word in words):
        listed = "|".join([*map(re.escape, whole), re.escape(begun) + r"\w*"])
        # ASCII letters match without case, as they are indexed
        for match in re.finditer(rf"\b(?:{listed})\b", text, re.IGNORECASE):
            found += 1
            said = match[0].lower()
            yield match.start(), match.end(), said if said in whole else begun
            if found == MOST_MARKS:
                return
    if found or text.isascii():
        return
    for match in _WORD.finditer(text, 0, _ROUNDABOUT):
        for part in words_of(match[0]):
            if part in whole or part.startswith(begun):
                found += 1
                yield match.start(), match.end(), part if part in whole else begun
                break
        if found == MOST_MARKS:
            return
