"""What is ticked on a page is taken along to the next one by buttons of the form of the boxes.

The form sends its fields to the address of the button and, in GO, what that page is asked for.
"""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from loom_audit.web.shared.urls import Fields, encoded, fields, first, quoted

GO = "go"
ALONG = "along"
"""The field with what was ticked on pages before: numbers of calls, or paths."""
BETWEEN = "."
"""Stands between the numbers of calls in an address, which is long enough with hundreds of them."""
BOXES = 40
"""The number of choices that have boxes of their own on the next page; the others share one."""


class Ticks(Struct, frozen=True):
    """What was ticked before, and the `ways` on: the words of a button and the query that it leads
    to, of the page at `where`.

    `boxes` have the value of a field of this `name`, and what it stands for; one box has the values
    of all the `others`.
    """

    name: str = "target"
    boxes: tuple[tuple[str, str], ...] = ()
    others: tuple[str, ...] = ()
    where: str = ""
    ways: tuple[tuple[str, str], ...] = ()

    @property
    def more(self) -> int:
        """How many have no box of their own."""
        between = BETWEEN if self.name == "target" else None
        return sum(1 + (one.count(between) if between else 0) for one in self.others)


def followed(query: Fields) -> Fields:
    """The fields of the page that a button leads to, with what is ticked."""
    if GO not in query:
        return query
    asked = fields(first(query, GO).encode("utf-8", "surrogateescape"))
    return {**asked, ALONG: query.get("path" if first(query, "ticked") else "target", ())}


def taking_along(address: str, query: Fields) -> str:
    """An address of the same page, with the files that were ticked before it."""
    along = encoded((f"{ALONG}.q", quoted(path, safe="/")) for path in query.get(ALONG, ()))
    return f"{address}{'&' if '?' in address else '?'}{along}" if along else address


def calls_ticked(
    query: Fields, where: str, ways: Iterable[tuple[str, Iterable[tuple[str, str | int | None]]]]
) -> Ticks:
    """The calls that were ticked before this page; a way without fields is none."""
    texts = (*query.get(ALONG, ()), *query.get("target", ()))
    parts = [part for text in texts for part in text.split(BETWEEN)]
    numbers = list(dict.fromkeys(one for one in parts if one.isascii() and one.isdigit()))
    others = (BETWEEN.join(numbers[BOXES:]),) if numbers[BOXES:] else ()
    boxes = tuple((one, f"#{one}") for one in numbers[:BOXES])
    return Ticks("target", boxes, others, where, _asked(where, ways))


def paths_ticked(
    query: Fields, where: str, ways: Iterable[tuple[str, Iterable[tuple[str, str | int | None]]]]
) -> Ticks:
    """The files that were ticked before this page; a way without fields is none."""
    found = [(quoted(path, safe="/"), path) for path in dict.fromkeys(query.get(ALONG, ()))]
    others = tuple(value for value, _ in found[BOXES:])
    return Ticks("path.q", tuple(found[:BOXES]), others, where, _asked(where, ways))


def _asked(
    where: str, ways: Iterable[tuple[str, Iterable[tuple[str, str | int | None]]]]
) -> tuple[tuple[str, str], ...]:
    scope = where.partition("?")[2]
    made: Sequence[tuple[str, str]] = [(words, encoded(pairs)) for words, pairs in ways]
    return tuple((words, "&".join(filter(None, (scope, asked)))) for words, asked in made if asked)
