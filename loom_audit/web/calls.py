"""The timeline of calls, of the workspace or of one session."""

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from loom_audit.api.control.approvals import decisions
from loom_audit.api.face import AuditedWorkspace
from loom_audit.errors import InvalidArguments
from loom_audit.model.coverage import STATUS_FILTERS
from loom_audit.web.shared.dependencies import Query, Render, Workspace, number
from loom_audit.web.shared.listing import (
    FILTERS,
    ONLY,
    page_of_calls,
    taken_back_by_agents,
)
from loom_audit.web.shared.pages import Pages, Place, wants_fragment
from loom_audit.web.shared.ticks import calls_ticked
from loom_audit.web.shared.urls import Fields, address, first, unquoted

router = APIRouter()
PLACES = (Place("calls", "Calls", ("calls",)),)


@router.get("/w/{workspace}/calls")
def timeline(request: Request, workspace: Workspace, query: Query, pages: Render) -> Response:
    """Show all calls of the workspace."""
    return _listing(request, workspace, query, pages, None)


@router.get("/w/{workspace}/s/{session}/calls")
def session(
    request: Request, workspace: Workspace, session: str, query: Query, pages: Render
) -> Response:
    """Show the calls of one session."""
    return _listing(request, workspace, query, pages, unquoted(session))


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
    flagged_calls = request.app.state.flagged_calls
    listing = page_of_calls(workspace, query, session, flagged_calls)
    base = address("w", workspace.id, *(("s", session) if session else ()), "calls")
    kept = [*filters.items(), ("reads", first(query, "reads"))]
    values: dict[str, Any] = {
        "listing": listing,
        "session": shown,
        "filters": filters,
        "kept": kept,
        "ticks": calls_ticked(
            query,
            base,
            [
                ("Older calls", [*kept, ("before", listing.older)] if listing.older else ()),
                ("Newer calls", [*kept, ("after", listing.newer)] if listing.newer else ()),
            ],
        ),
        "base": base,
        "decided": decisions(workspace, listing.calls),
        "git": listing.git,
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
        statuses=STATUS_FILTERS,
        parts_of_it=ONLY,
        section="calls",
    )
