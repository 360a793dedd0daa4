"""Finds by words, in calls, prompts, messages and changes from outside, each with its place in the
log and how the words stand there.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from loom_audit.history.read.timeline import Timeline
from loom_audit.model.conversation import MessageReceived, PromptSubmitted, Role
from loom_audit.model.events import CallFinished, CallRequested, Event
from loom_audit.model.kinds import without_encoded
from loom_audit.model.records import Call, FoundPlace
from loom_audit.model.text.display import visible
from loom_audit.model.text.sought import Snippet, best_snippets, sought_words
from loom_audit.ports import CallFilter, OnProgress, Progress, WordsFilter

INDEXED_AT_ONCE = 10_000
"""Events between two reports of how far the index is."""
COUNTED = 1_000
"""The number of places that are counted; more are "1,000+"."""
VALUES = 8
"""Values of one facet that are listed, the most frequent first."""
FACETS = ("kind", "tool", "status", "actor", "session")
_PATHS = 1_000
_TEXTS = 200
"""Texts of one call that are looked at."""
_CHARACTERS = 256 * 1024


class Hit(Struct, frozen=True):
    """A place with its time and the stretches of text in which the words stand.

    A call is there as lists have it; `title` is the beginning of any other text, and `role` tells
    whose a text is, "" where nobody said it.
    """

    place: FoundPlace
    at: datetime
    snippets: tuple[Snippet, ...]
    call: Call | None = None
    title: str = ""
    role: Role | Literal[""] = ""


class Facet(Struct, frozen=True):
    """The values of one property among the counted places, each with how often it is there."""

    name: str
    values: tuple[tuple[str, int], ...]
    others: int = 0


class Findings(Struct, frozen=True):
    """The newest hits of a search, and what was counted of all places.

    `counted` places are in the facets, and `more` says that there are further ones. `before` is the
    seq before which the next hits lie, None where these are the last.
    """

    hits: tuple[Hit, ...]
    before: int | None
    counted: int = 0
    more: bool = False
    facets: tuple[Facet, ...] = ()


def prepare_search(
    timeline: Timeline, most: int | None = None, report: OnProgress | None = None
) -> Progress:
    """Bring the index of words up to date, or about `most` events further, and tell how far it is.

    AuditUnavailable when there is something to add and the store cannot be written.
    """
    head = timeline.log.head()
    while True:
        done = min(head, timeline.projections.index_words(most or INDEXED_AT_ONCE))
        reached = Progress("indexing", done, head, "events")
        if report is not None and done < head:
            report(reached)
        if most is not None or done >= head:
            return reached


def find(timeline: Timeline, wanted: WordsFilter) -> Findings:
    """The hits of a filter, as far as the index has come; facets count from the newest hit on.

    Corrupt where a hit's event is not as it was recorded.
    """
    counting = wanted.before is None
    found = timeline.projections.places(replace(wanted, limit=COUNTED) if counting else wanted)
    shown = found.places[: wanted.limit]
    before = shown[-1].seq if len(found.places) > len(shown) else found.before
    hits = tuple(_hits(timeline, shown, sought_words(wanted.words)))
    if not counting:
        return Findings(hits, before)
    return Findings(
        hits=hits,
        before=before,
        counted=len(found.places),
        more=found.before is not None,
        facets=tuple(_facet(name, found.places) for name in FACETS),
    )


def _facet(name: str, places: Sequence[FoundPlace]) -> Facet:
    counted = Counter(filter(None, (getattr(place, name) for place in places)))
    values = counted.most_common()
    return Facet(name, tuple(values[:VALUES]), len(values[VALUES:]))


def _hits(timeline: Timeline, places: Sequence[FoundPlace], words: Sequence[str]) -> Iterator[Hit]:
    requests = tuple(one.requested for one in places if one.requested is not None)
    calls = timeline.calls(CallFilter(only=requests, limit=None)) if requests else ()
    by_request = {call.requested: call for call in calls}
    seqs = [one.seq for one in places if one.kind != "outside"]
    events = {one.seq: one for one in timeline.log.picked([*seqs, *requests])}
    for place in places:
        call = by_request.get(place.requested or 0)
        if place.kind == "outside":
            yield from _outside(timeline, place, words)
        elif place.kind != "call":
            (text, role), at = _said(events[place.seq]), events[place.seq].at
            snippets = best_snippets([("", text)], words, most=1)
            yield Hit(place, at, snippets, title=text[:400], role=role)
        elif call is not None:
            texts = _texts(call, events[call.requested], events[place.seq])
            yield Hit(place, call.at, best_snippets(texts, words), call)


def _outside(timeline: Timeline, place: FoundPlace, words: Sequence[str]) -> Iterator[Hit]:
    found = timeline.outside(after=place.seq - 1, before=place.seq + 1, limit=1)
    if not found:
        return
    changes = timeline.projections.changes(after=place.seq - 1, until=place.seq)
    paths = (visible(one.change.path) for one in islice(changes, _PATHS))
    snippets = best_snippets([("", path) for path in paths], words)
    title = ", ".join(map(visible, found[0].paths[:4]))
    more = found[0].changed - len(found[0].paths[:4])
    yield Hit(place, found[0].at, snippets, title=title + (f" and {more} more" if more else ""))


def _said(event: Event) -> tuple[str, Role | Literal[""]]:
    fact = event.fact
    if isinstance(fact, PromptSubmitted):
        return fact.text, "prompt"
    return (fact.text, fact.role) if isinstance(fact, MessageReceived) else ("", "")


def _texts(call: Call, request: Event, finish: Event) -> Iterator[tuple[str, str]]:
    """The texts of a call with what each is, in the order in which a person would look at them."""
    asked, ended = request.fact, finish.fact
    yield "tool", call.tool
    if isinstance(asked, CallRequested):
        yield from _flat("", asked.arguments)
    for path in call.paths:
        yield "changed", visible(path)
    if isinstance(ended, CallFinished):
        result = without_encoded(ended.result)
        if isinstance(result, Mapping):
            output = result.get("output")
            if isinstance(output, str):
                yield "output", output
            yield from _flat("result", {k: v for k, v in result.items() if k != "output"})
        else:
            yield from _flat("result", result)


def _flat(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """The texts within a JSON value, each with the name under which it stands."""
    left, size, given = [(name, value)], 0, 0
    while left and given < _TEXTS and size < _CHARACTERS:
        name, one = left.pop()
        if isinstance(one, Mapping):
            left += [(str(key), item) for key, item in reversed([*one.items()])]
        elif isinstance(one, (list, tuple)):
            left += [(name, item) for item in reversed(one)]
        elif one is not None and not isinstance(one, bool):
            text = one if isinstance(one, str) else str(one)
            size, given = size + len(text), given + 1
            yield name, text
