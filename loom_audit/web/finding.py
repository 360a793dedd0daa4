"""One search over all that was asked, said, answered and changed, and where that stands."""

from collections.abc import Sequence
from typing import Any, get_args

from fastapi import APIRouter, Request
from msgspec import Struct
from starlette.responses import Response

from loom_audit.api.face import Findings, Hit, find, prepare_search
from loom_audit.errors import InvalidArguments
from loom_audit.model.coverage import STATUS_FILTERS
from loom_audit.model.records import FoundKind
from loom_audit.ports import WordsFilter
from loom_audit.web.shared.dependencies import Query, Render, Workspace, number
from loom_audit.web.shared.pages import Place
from loom_audit.web.shared.urls import address, encoded, first

router = APIRouter()
PLACES = (Place("find", "Find", ("find",)),)
HITS = 25
INDEXED = 10_000
"""Events that are added to the index for one answer; what is more is added for the next."""
AROUND = 60
"""The number of events after a place that are on the page of the timeline which shows it."""
MOST_TYPED = 1_000

KINDS = get_args(FoundKind)
KIND_NAMES = {
    "call": "calls",
    "prompt": "prompts",
    "message": "agents' words",
    "outside": "changes from outside",
}
HEADINGS = {
    "kind": "Kind",
    "tool": "Tool",
    "status": "How it ended",
    "actor": "Who",
    "session": "Session",
}
FILTERS = tuple(HEADINGS)


class Choice(Struct, frozen=True):
    """A value of a facet as a link: to what has it, or where it is chosen, to all again."""

    shown: str
    count: str
    link: str
    chosen: bool = False


class Facet(Struct, frozen=True):
    """A facet as the page shows it; so many `others` are not listed."""

    heading: str
    choices: tuple[Choice, ...]
    others: int


@router.get("/w/{workspace}/find")
def page(request: Request, workspace: Workspace, query: Query, pages: Render) -> Response:
    """Show what says the words, or how far the index is that is made first."""
    typed = first(query, "q").strip()[:MOST_TYPED]
    chosen = {name: first(query, name) for name in FILTERS}
    base = address("w", workspace.id, "find")
    values: dict[str, Any] = {"section": "find", "typed": typed, "base": base, "chosen": chosen}
    wanted = _filter(typed, chosen, number(query, "before"))
    if not typed:
        return pages.page(request, "find.html", **values, found=None, reached=None)
    reached = prepare_search(workspace.timeline, most=INDEXED)
    if reached.total is not None and reached.done < reached.total:
        again = f"{base}?{encoded([('q', typed), *chosen.items()])}"
        return pages.page(request, "find.html", **values, found=None, reached=reached, again=again)
    found = find(workspace.timeline, wanted)
    older = None
    if found.before is not None:
        older = f"{base}?{encoded([('q', typed), *chosen.items(), ('before', found.before)])}"
    return pages.page(
        request,
        "find.html",
        **values,
        reached=None,
        found=found,
        count=_count(found.counted, found.more),
        facets=_facets(base, typed, chosen, found),
        picked=_picked(base, typed, chosen),
        older=older,
        before=wanted.before,
        standing={hit.place.seq: place_of(workspace.id, hit) for hit in found.hits},
        kinds=KIND_NAMES,
    )


def place_of(workspace: str, hit: Hit) -> str:
    """Where a hit stands among what was there before and after it: in the steps of its session what
    was said, in the timeline what was done.
    """
    seq = hit.place.seq
    if hit.place.kind in ("prompt", "message"):
        if not hit.place.session:
            return address("w", workspace, "said", seq)
        steps = "w", workspace, "s", hit.place.session, "steps"
        return f"{address(*steps, query={'after': seq - 1})}#e{seq}"
    at = hit.place.requested or seq
    anchor = f"o{seq}" if hit.place.kind == "outside" else f"c{seq}"
    page = address("w", workspace, "calls", query=(("before", at + AROUND), ("reads", "1")))
    return f"{page}#{anchor}"


def _filter(typed: str, chosen: dict[str, str], before: int | None) -> WordsFilter:
    kind, status = chosen["kind"], chosen["status"]
    if kind and kind not in KINDS:
        raise InvalidArguments(
            f"{kind!r} is not a kind", hint="It is one of " + ", ".join(KINDS) + "."
        )
    if status and status not in STATUS_FILTERS:
        raise InvalidArguments(
            f"{status!r} is not a status", hint="It is one of " + ", ".join(STATUS_FILTERS) + "."
        )
    return WordsFilter(
        words=typed,
        kind=next((one for one in KINDS if one == kind), None),
        tool=chosen["tool"] or None,
        status=status or None,
        actor=chosen["actor"] or None,
        session=chosen["session"] or None,
        before=before,
        limit=HITS,
    )


def _facets(base: str, typed: str, chosen: dict[str, str], found: Findings) -> Sequence[Facet]:
    """The facets that have a choice: of one value that all have there is none."""
    shown = []
    for facet in found.facets:
        if chosen[facet.name] or len(facet.values) < 2:
            continue
        choices = tuple(
            Choice(
                shown=KIND_NAMES.get(value, value) if facet.name == "kind" else value,
                count=_count(count, found.more),
                link=_link(base, typed, {**chosen, facet.name: value}),
            )
            for value, count in facet.values
        )
        shown.append(Facet(HEADINGS[facet.name], choices, facet.others))
    return shown


def _picked(base: str, typed: str, chosen: dict[str, str]) -> Sequence[Choice]:
    return [
        Choice(
            shown=KIND_NAMES.get(value, value) if name == "kind" else value,
            count="",
            link=_link(base, typed, {**chosen, name: ""}),
            chosen=True,
        )
        for name, value in chosen.items()
        if value
    ]


def _link(base: str, typed: str, chosen: dict[str, str]) -> str:
    return f"{base}?{encoded([('q', typed), *chosen.items()])}"


def _count(count: int, more: bool) -> str:
    """A count among the newest places, with "+" where there are further ones."""
    return f"{count:,}" + ("+" if more else "")
