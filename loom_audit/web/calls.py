"""The timeline of calls and the page of one call."""

import json
from typing import Any, get_args

from fastapi import APIRouter, Request
from msgspec import Struct
from starlette.responses import Response

from loom_audit.api.control.approvals import decisions
from loom_audit.api.control.holding import left_open_by, still_running
from loom_audit.api.face import AuditedWorkspace, CallDetail, Timeline
from loom_audit.errors import InvalidArguments
from loom_audit.model.coverage import STATUS_FILTERS
from loom_audit.model.kinds import without_encoded
from loom_audit.model.plans.request import Verb
from loom_audit.model.records import Call
from loom_audit.ports import CallFilter
from loom_audit.web.shared.budget import Budget, Part, weight
from loom_audit.web.shared.changes import LISTS, fragment_of, show_changes
from loom_audit.web.shared.dependencies import Query, Render, Workspace, number
from loom_audit.web.shared.listing import FILTERS, ONLY, page_of_calls, taken_back_by_agents
from loom_audit.web.shared.pages import Pages, Place, wants_fragment
from loom_audit.web.shared.urls import Fields, address, first, unquoted

router = APIRouter()
PLACES = (Place("calls", "Calls", ("calls",)),)
VALUE_CHARACTERS = 20_000
TEXTS = ("arguments", "output", "result")
TEXT = 3_500
"""What each of these may weigh beside the others."""
EVENTS = 2_000
PIECE = 500
"""Characters of a text that are shown together or not at all."""
TAKING_BACK = get_args(Verb)


class Value(Struct, frozen=True):
    """Arguments or a result as text; `length` counts the characters when it was cut."""

    text: str
    length: int | None = None


class TextPart(Struct, frozen=True):
    """A stretch of a long text; so many characters come `after` it."""

    part: Part[str]
    after: int

    @property
    def shown(self) -> str:
        """The characters that the page shows."""
        return "".join(self.part.items)


@router.get("/w/{workspace}/calls")
def timeline(request: Request, workspace: Workspace, query: Query, pages: Render) -> Response:
    """Show all calls of the workspace."""
    return _listing(request, workspace, query, pages, None)


@router.get("/w/{workspace}/s/{session}")
def session(
    request: Request, workspace: Workspace, session: str, query: Query, pages: Render
) -> Response:
    """Show the calls of one session."""
    return _listing(request, workspace, query, pages, unquoted(session))


@router.get("/w/{workspace}/c/{seq}")
def call(request: Request, workspace: Workspace, seq: int, query: Query, pages: Render) -> Response:
    """Show a call: what was asked and answered, its own diff, and how to take it back."""
    detail = workspace.timeline.call(seq)
    call = detail.call
    base = address("w", workspace.id, "c", call.seq or call.requested)
    budget = Budget(query, (*TEXTS, "events", *LISTS), fragment=wants_fragment(request))
    texts = {name: text_part(budget, name, text) for name, text in texts_of(detail).items()}
    if budget.wanted in TEXTS and wants_fragment(request):
        text = texts.get(budget.wanted)
        return pages.fragment(request, "_text.html", "text", text=text, base=base)
    events = budget.part("events", detail.events, lambda one: (one, weight(9)), most=EVENTS)
    changes = show_changes(
        detail.changes,
        workspace.timeline.content,
        query,
        budget,
        base,
        moves=detail.moves,
        old=call.requested,
        new=call.seq or "head",
    )
    if answer := fragment_of(request, pages, changes, budget):
        return answer
    values: dict[str, Any] = {"detail": detail, "call": call, "events": events, "base": base}
    if wants_fragment(request) and budget.wanted == "events":
        return pages.fragment(request, "call.html", "events", **values)
    older, newer = neighbours(workspace.timeline, call)
    return pages.page(
        request,
        "call.html",
        **values,
        changes=changes,
        texts=texts,
        held=workspace.timeline.hold(call.session),
        left_open=left_open_by(detail),
        kept=kept_by(detail),
        older=older,
        newer=newer,
        section="calls",
    )


def _listing(
    request: Request, workspace: AuditedWorkspace, query: Fields, pages: Pages, session: str | None
) -> Response:
    status = first(query, "status")
    if status and status not in STATUS_FILTERS:
        raise InvalidArguments(
            f"{status!r} is not a status", hint="It is one of " + ", ".join(STATUS_FILTERS) + "."
        )
    if (only := first(query, "only")) and only not in ONLY:
        raise InvalidArguments(
            f"{only!r} is not a part of the calls", hint="It is one of " + ", ".join(ONLY) + "."
        )
    shown = workspace.timeline.session(session) if session else None
    # a path may be pasted with the workspace's own before it
    typed = first(query, "path").strip().removeprefix(workspace.root + "/")
    query = {**query, "path": (typed,)}
    filters = {name: first(query, name) for name in FILTERS}
    head = workspace.log.head()
    listing = page_of_calls(workspace.timeline, query, session)
    base = address("w", workspace.id, *(("s", session) if session else ("calls",)))
    values: dict[str, Any] = {
        "listing": listing,
        "session": shown,
        "filters": filters,
        "kept": [*filters.items(), ("reads", first(query, "reads"))],
        "base": base,
        "decided": decisions(workspace, listing.calls),
        "by_agents": taken_back_by_agents(workspace.timeline, listing.calls),
        "since": None if first(query, "before") or first(query, "after") else head,
        "narrowed": any(filters.values()),
    }
    if wants_fragment(request):
        older = number(query, "before") is not None and first(query, "more")
        return pages.fragment(request, "calls.html", "rows" if older else "listing", **values)
    return pages.page(
        request,
        "calls.html",
        **values,
        held=workspace.timeline.hold(shown.id) if shown else None,
        running=dict(still_running(workspace)) if shown and shown.ended is None else {},
        statuses=STATUS_FILTERS,
        parts_of_it=ONLY,
        section="calls",
    )


def neighbours(timeline: Timeline, call: Call) -> tuple[int | None, int | None]:
    """The numbers of the calls of this session before and after a call."""
    older = timeline.calls(CallFilter(before=call.requested, session=call.session, limit=1))
    newer = timeline.calls(
        CallFilter(after=call.requested, session=call.session, newest_first=False, limit=1)
    )
    return (
        (older[0].seq or older[0].requested) if older else None,
        (newer[0].seq or newer[0].requested) if newer else None,
    )


def kept_by(detail: CallDetail) -> list[tuple[str, str]]:
    """The paths, with the reasons, that an undo kept when it was finished after an interruption."""
    result, call = without_encoded(detail.result), detail.call
    found = result.get("data") if isinstance(result, dict) else None
    listed = found.get("kept") if isinstance(found, dict) else None
    if call.tool not in TAKING_BACK or call.effect != "write" or not isinstance(listed, list):
        return []
    return [(path, reason) for path, reason in listed]


def texts_of(detail: CallDetail) -> dict[str, str]:
    """A call's arguments, output and result as texts by name; those that are empty are left out."""
    result = without_encoded(detail.result)
    output = result.get("output") if isinstance(result, dict) else None
    found = {
        "arguments": None
        if detail.arguments is None
        else full_text(without_encoded(detail.arguments)),
        "output": output if isinstance(output, str) else None,
        "result": None if result is None else full_text(result),
    }
    return {name: text for name, text in found.items() if text}


def text_part(budget: Budget, name: str, text: str) -> TextPart:
    """The first pieces of a text that fit into the budget."""
    pieces = [text[at : at + PIECE] for at in range(0, len(text), PIECE)]
    part = budget.part(name, pieces, lambda one: (one, weight(0, one)), most=TEXT)
    return TextPart(part, max(0, len(text) - part.end * PIECE))


def as_text(value: Any) -> Value | None:
    """A JSON value for reading, cut in the middle when it is long."""
    return None if value is None else cut(full_text(value))


def full_text(value: Any) -> str:
    """A JSON value for reading: a flat text as itself, the rest indented."""
    if isinstance(value, str):
        return value
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


def cut(text: str) -> Value:
    """Cut a text in the middle where it has over VALUE_CHARACTERS."""
    if len(text) <= VALUE_CHARACTERS:
        return Value(text)
    half = VALUE_CHARACTERS // 2
    middle = f"\n… {len(text) - VALUE_CHARACTERS:,} characters left out …\n"
    return Value(text[:half] + middle + text[-half:], len(text))
