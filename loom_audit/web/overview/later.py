"""What a first page asks for once it is shown, since it takes longer than the page may.

The rest of the week's strip, the lines of the sessions, and whether the disk is as on record.
"""

from fastapi import APIRouter, Request
from starlette.responses import Response

from loom_audit.api.face import AuditedWorkspace
from loom_audit.errors import InvalidArguments
from loom_audit.model.files import FileChange
from loom_audit.web.overview.memo import MOST_CALLS, NetLines, OverviewMemo
from loom_audit.web.shared.dependencies import Query, Render, Workspace, is_number
from loom_audit.web.shared.urls import Fields

router = APIRouter()
AT_ONCE = 2_000
"""The lines of sessions of so many calls are counted for one answer, always those of one."""
MOST_ASKED = 100


@router.get("/w/{workspace}/lately")
def strip(request: Request, workspace: Workspace, pages: Render) -> Response:
    """Show the week's strip with all that is counted."""
    memo: OverviewMemo = request.app.state.overview
    week = memo.strip(workspace, workspace.log.head(), all=True)
    return pages.fragment(request, "overview.html", "strip", week=week)


@router.get("/w/{workspace}/session-lines")
def session_lines(request: Request, workspace: Workspace, query: Query, pages: Render) -> Response:
    """The lines that sessions changed on balance, each for its place on the page, and the address
    of those that are not counted yet.

    InvalidArguments for what are not the first events of at most MOST_ASKED sessions.
    """
    memo: OverviewMemo = request.app.state.overview
    asked, calls = _asked(query), 0
    counted = dict[int, NetLines | None]()
    while asked and (not counted or calls < AT_ONCE):
        started = asked.pop(0)
        for session in workspace.timeline.sessions(before=started + 1, limit=1):
            if session.started == started:
                counted[started] = memo.lines(workspace, session)
                calls += min(session.calls, MOST_CALLS)
    return pages.page(
        request, "session_lines.html", counted=counted, asked=[("of", one) for one in asked]
    )


def _asked(query: Fields) -> list[int]:
    asked = query.get("of", ())
    if len(asked) > MOST_ASKED or not all(map(is_number, asked)):
        raise InvalidArguments(f"`of` are the first events of at most {MOST_ASKED} sessions")
    return [int(one) for one in asked]


@router.get("/w/{workspace}/drift")
def drift(request: Request, workspace: Workspace, query: Query, pages: Render) -> Response:
    """Show how the disk differs from the log, looked at now; no content where it does not."""
    found, _ = drift_of(workspace)
    if not found:
        return Response(status_code=204)
    return pages.page(request, "drift.html", drift=found, alone="alone" in query)


def drift_of(workspace: AuditedWorkspace) -> tuple[tuple[FileChange, ...], bool]:
    """How the disk differs from the log, and whether it was looked at: not where nothing is
    recorded.
    """
    if workspace.root.startswith("import:") or workspace.why_cut_off() or workspace.why_stopped():
        return (), False
    return tuple(workspace.status().drift), True
