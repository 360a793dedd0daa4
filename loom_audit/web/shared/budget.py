"""How much of its lists one answer holds, so that a browser can bear every page.

A page has one budget, and each list on it takes from there what it shows. What does not fit comes
in parts: `of` and `from` in the address name a list and where it starts. Asked for in that way, a
whole page shows only this list (its links work without JavaScript), and a fragment only its rows.
"""

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from markupsafe import escape
from msgspec import Struct

from loom_audit.errors import InvalidArguments
from loom_audit.model.text.display import visible
from loom_audit.web.shared.dependencies import number
from loom_audit.web.shared.urls import Fields, first, quoted

PAGE = 24_000
"""What the lists of a whole page may weigh, so that it stays below 1,500 nodes and 50 KB sent."""
FRAGMENT = 80_000
"""The same of a fragment, below 5,000 nodes and 300 KB."""
NODE = 18
"""What an element weighs; a byte of text weighs 1."""
LINKED = 2
"""How often a name counts that is shown and linked; what is sent is compressed."""

T = TypeVar("T")
S = TypeVar("S")


class Part(Struct, Generic[S], frozen=True):
    """A page shows a part of a list of `count` items, from `start` on."""

    name: str
    items: tuple[S, ...]
    start: int
    count: int

    @property
    def end(self) -> int:
        """The number of the first item after this part."""
        return self.start + len(self.items)

    @property
    def remaining(self) -> int:
        """How many items come after these."""
        return max(0, self.count - self.end)

    @property
    def fields(self) -> tuple[tuple[str, str], ...]:
        """The query of the next part's address."""
        return ("of", self.name), ("from", str(self.end))


class Budget:
    """The lists of an answer share a budget; `lists` are the names that `of` may have."""

    def __init__(self, query: Fields, lists: Sequence[str] = (), *, fragment: bool = False) -> None:
        self.remaining = FRAGMENT if fragment else PAGE
        self.wanted = first(query, "of")
        self._start = number(query, "from") or 0
        if self.wanted and self.wanted not in lists:
            raise InvalidArguments(
                f"{self.wanted!r} is not a list of this page",
                hint="They are " + ", ".join(lists) + "." if lists else "",
            )

    def part(
        self,
        name: str,
        items: Sequence[T],
        show: Callable[[T], tuple[S, int]],
        *,
        most: int | None = None,
    ) -> Part[S]:
        """The items that fit, always the first of them; none when another list is wanted.

        `show` gives what stands for an item and what it weighs; together they weigh at most
        `most`, where the list is not the one that is wanted; 0 shows none at first.
        """
        if self.wanted not in ("", name):
            return Part(name, (), 0, len(items))
        start = self._start if self.wanted else 0
        most = None if self.wanted else most
        space = self.remaining if most is None else min(most, self.remaining)
        shown: list[S] = []
        for item in items[start:]:
            found, weight = show(item)
            if weight > space and (shown or most == 0):
                break
            shown.append(found)
            space -= weight
            self.remaining -= weight
        return Part(name, tuple(shown), start, len(items))


def weight(nodes: int, *texts: str) -> int:
    """The weight of so many elements with these texts."""
    return nodes * NODE + sum([sent(text) for text in texts if text])


def sent(text: str) -> int:
    """The bytes of a text as a page sends it, escaped."""
    if text.isascii() and text.isprintable():  # there are hundreds on a page, nearly all like this
        longer = text.count("&") + text.count('"') + text.count("'")
        return len(text) + 4 * longer + 3 * (text.count("<") + text.count(">"))
    return len(escape(visible(text)).encode())


def row_weight(nodes: int, path: str) -> int:
    """The weight of a row of so many elements that shows a path and links it."""
    return weight(nodes) + LINKED * len(quoted(path, safe="/"))
