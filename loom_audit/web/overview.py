"""The start page and each workspace's first page."""

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from loom_audit.api import AuditedWorkspace
from loom_audit.model.events import Call
from loom_audit.ports import CallFilter
from loom_audit.web.dependencies import Here, Query, Render, Store, number
from loom_audit.web.listing import Listing, OutsideRow, outside_between
from loom_audit.web.urls import address

router = APIRouter()
SESSIONS = 20
LAST_CALLS = 12


@router.get("/")
def workspaces(request: Request, store: Store, pages: Render) -> Response:
    """Every workspace in the store."""
    return pages.page(request, "workspaces.html", entries=store.workspaces(), url=store.url)


@router.get("/w/{workspace}")
def slash(here: Here) -> Response:
    return RedirectResponse(address("w", here.id, path=""), 308)


@router.get("/w/{workspace}/")
def workspace(request: Request, here: Here, query: Query, pages: Render) -> Response:
    """Sessions, the last calls, checkpoints."""
    before = number(query, "before")
    sessions = here.timeline.sessions(before=before, limit=SESSIONS + 1)
    return pages.page(
        request,
        "overview.html",
        workspace=here,
        here="overview",
        head=here.timeline.point("head"),
        sessions=sessions[:SESSIONS],
        older=sessions[SESSIONS - 1].started if len(sessions) > SESSIONS else None,
        before=before,
        rows=() if before else last_rows(here),
        open_calls=() if before else here.timeline.open_calls(),
        checkpoints=() if before else here.timeline.checkpoints(),
    )


def last_rows(here: AuditedWorkspace) -> list[Call | OutsideRow]:
    """The newest calls, and what came from outside since the first of them."""
    calls = here.timeline.calls(CallFilter(limit=LAST_CALLS))
    low = calls[-1].requested if calls else 0
    return Listing(calls, None, None, outside_between(here.timeline, low, None)).rows[:LAST_CALLS]
