"""The start page and each workspace's first page."""

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from loom_audit.api.agents.heard import heard_clients
from loom_audit.api.control.approvals import decisions
from loom_audit.api.face import AuditedWorkspace
from loom_audit.api.upkeep.forgetting import forgotten_workspaces
from loom_audit.ports import CallFilter
from loom_audit.web.overview.memo import MOST_CALLS, OverviewMemo, Week
from loom_audit.web.overview.needs import shown_needs
from loom_audit.web.shared.dependencies import (
    Query,
    Render,
    SignedIn,
    Store,
    Workspace,
    number,
)
from loom_audit.web.shared.listing import (
    OUTSIDE_ROWS,
    Listing,
    git_on_page,
    taken_back_by_agents,
)
from loom_audit.web.shared.pages import Place
from loom_audit.web.shared.urls import address

router = APIRouter()
PLACES = (Place("overview", "Overview", (), path=""),)
SESSIONS = 15
LAST_CALLS = 12


@router.get("/")
def workspaces(request: Request, store: Store, pages: Render) -> Response:
    """Show every workspace in the store."""
    entries = store.workspaces()
    cut_off = store.why_cut_off(entries)
    return pages.page(
        request,
        "workspaces.html",
        entries=entries,
        cut_off=cut_off,
        forgotten=forgotten_workspaces(store),
        url=store.url,
    )


@router.get("/w/{workspace}")
def slash(workspace: Workspace) -> Response:
    """Lead to the workspace's first page, whose address ends in a slash."""
    return RedirectResponse(address("w", workspace.id, path=""), 308)


@router.get("/w/{workspace}/")
def overview(
    request: Request, workspace: Workspace, query: Query, pages: Render, visitor: SignedIn
) -> Response:
    """Show what waits for a person, the week, the sessions, the last calls and the checkpoints."""
    before = number(query, "before")
    head = workspace.log.head()
    last = Listing((), None, None) if before else last_calls(workspace)
    sessions = workspace.timeline.sessions(before=before, limit=SESSIONS + 1, outermost=True)
    memo: OverviewMemo = request.app.state.overview
    needed = {} if before else shown_needs(workspace, visitor)
    may_be_held = not needed or bool(needed["needs"].held)
    still_open = [one.id for one in sessions if not one.ended and may_be_held]
    return pages.page(
        request,
        "overview.html",
        section="overview",
        head=head,
        sessions=sessions[:SESSIONS],
        words=(words := memo.words(workspace, sessions[:SESSIONS])),
        week=Week() if before else memo.strip(workspace, head, all="count" in query),
        lines=(lines := memo.known_lines(workspace, sessions, head)),
        uncounted=[
            ("of", one.started)
            for one in sessions[:SESSIONS]
            if (one.files or words[one.id].subagents)
            and one.calls <= MOST_CALLS
            and one.started not in lines
        ],
        held={one for one in still_open if workspace.timeline.hold(one)},
        older=sessions[SESSIONS - 1].started if len(sessions) > SESSIONS else None,
        before=before,
        heard=sorted(heard_clients(workspace).items()),
        rows=last.rows[:LAST_CALLS],
        nested=last.nested,
        counted=last.counted,
        decided=decisions(workspace, last.calls),
        git=git_on_page(workspace.timeline, last.calls),
        by_agents=taken_back_by_agents(workspace.timeline, last.calls),
        open_calls=() if before else workspace.timeline.open_calls(),
        checkpoints=() if before else workspace.timeline.checkpoints(),
        **needed,
    )


def last_calls(workspace: AuditedWorkspace) -> Listing:
    """The newest calls, and what came from outside since the first of them."""
    calls = workspace.timeline.calls(CallFilter(limit=LAST_CALLS))
    low = calls[-1].requested if calls else 0
    outside = workspace.timeline.outside(after=low, limit=OUTSIDE_ROWS)
    return Listing(calls, None, None, tuple(outside), fold=True)
