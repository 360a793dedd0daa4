"""A page of the web as text: title, paragraphs, links; without styles, scripts and markup."""

import re
from collections.abc import Iterable, Mapping
from itertools import islice
from urllib.parse import urljoin

from msgspec import Struct

MAX_LINKS = 200
MAX_TAGS = 50_000
"""What is behind so many is left out: tags that close nothing take the square of their number."""

_LEFT_OUT = frozenset({"script", "style", "noscript", "template", "svg", "iframe", "object"})
_INLINE = frozenset(
    {"a", "abbr", "b", "bdi", "bdo", "cite", "code", "data", "del", "dfn", "em", "font", "i"}
    | {"img", "ins", "kbd", "label", "mark", "q", "s", "samp", "small", "span", "strong", "sub"}
    | {"sup", "time", "tt", "u", "var", "wbr"}
)
_CELLS = frozenset({"td", "th"})
_MARKS = {**{f"h{n}": "#" * n + " " for n in range(1, 7)}, "li": "- "}
_APART = frozenset({*_MARKS, "p", "pre", "table", "ul", "ol", "blockquote"} - {"li"})
_SPACES = re.compile(r"\s+")
_TAG = re.compile("</?[A-Za-z]")
_UNSEEN = re.compile("[\0\ufffe\uffff\ud800-\udfff]")


class Page(Struct, frozen=True):
    """A page in words; a link is the text that leads on and a whole address.

    `truncated` when the page has more tags than are looked at, or more links than are named.
    """

    title: str
    text: str
    links: list[tuple[str, str]]
    truncated: bool


def readable(markup: str, address: str) -> Page:
    """Return a page as text, its links relative to its `address`; any markup is read."""
    from lxml import etree

    beyond = next(islice(_TAG.finditer(markup), MAX_TAGS, None), None)
    page = _Reading(address)
    parser = etree.HTMLParser(target=page, encoding="utf-8")
    parser.feed("<!doctype html>")  # an empty page is one too
    parser.feed(_UNSEEN.sub("\ufffd", markup[: beyond.start()] if beyond else markup).encode())
    parser.close()
    links = [*page.links]
    truncated = beyond is not None or len(links) > MAX_LINKS
    return Page(page.title(), page.text(), links[:MAX_LINKS], truncated)


class _Reading:
    """What the page has said so far: told by the parser what begins, ends and stands between."""

    def __init__(self, address: str) -> None:
        self.links: dict[tuple[str, str], None] = {}
        self._address = address
        self._title: list[str] = []
        self._lines: list[str] = []
        self._line: list[str] = []
        self._href = ""
        self._linked: list[str] = []
        """What stands on the link that is open."""
        self._left_out = 0
        self._exact = 0

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        self._left_out += tag in _LEFT_OUT
        if self._left_out:
            return
        if tag in _CELLS:
            self._line += [" | "] if self._line else []
        elif tag not in _INLINE:
            self._end_line(blank=tag in _APART)
            self._line += [_MARKS[tag]] if tag in _MARKS else []
        if tag == "a":
            self._href, self._linked = attributes.get("href", "").strip(), []
        elif tag == "img" and (said := attributes.get("alt")):
            self.data(f"[{said}]")
        self._exact += tag == "pre"

    def data(self, words: str) -> None:
        if not self._left_out:
            self._line.append(words)
            self._linked += [words] if self._href else []

    def end(self, tag: str) -> None:
        if self._left_out:
            self._left_out -= tag in _LEFT_OUT
            return
        if tag == "title" and not self._title:
            self._title, self._line = self._line, []
        elif tag == "a" and (address := _whole(self._href, self._address)):
            self.links[_words(self._linked)[:200], address] = None
            self._href = ""
        elif tag not in _INLINE and tag not in _CELLS:
            self._end_line(blank=tag in _APART)
        self._exact -= tag == "pre"

    def close(self) -> None:
        self._end_line(blank=False)

    def title(self) -> str:
        return _words(self._title)

    def text(self) -> str:
        return re.sub(r"\n{3,}", "\n\n", "\n".join(self._lines)).strip("\n")

    def _end_line(self, blank: bool) -> None:
        """End the line that was begun; with a blank one behind it."""
        line = "".join(self._line) if self._exact else _words(self._line)
        if line.strip(" -#|"):
            self._lines.append(line)
        if blank and self._lines and self._lines[-1]:
            self._lines.append("")
        self._line = []


def _words(texts: Iterable[str]) -> str:
    return _SPACES.sub(" ", "".join(texts)).strip()


def _whole(href: str, address: str) -> str:
    """Where a link leads, when that is a page of the web; else ""."""
    if not href or href.startswith("#"):
        return ""
    try:
        whole = urljoin(address, href)
    except ValueError:
        return ""  # not an address
    return whole if whole.startswith(("http://", "https://")) else ""
