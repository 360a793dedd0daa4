"""Two questions a person asks: is the disk as the log says, and is the log as it was written?"""

from fastapi import APIRouter, Request
from starlette.responses import Response

from loom_audit.web.dependencies import Form, Render, Workspace
from loom_audit.web.urls import first

router = APIRouter()
FILES_PER_PAGE = 100


@router.get("/w/{workspace}/status")
def status(request: Request, workspace: Workspace, pages: Render) -> Response:
    """Disk against log, looked at now."""
    found = workspace.status()
    return pages.page(
        request,
        "status.html",
        section="status",
        found=found,
        drift=found.drift[:FILES_PER_PAGE],
    )


@router.get("/w/{workspace}/verify")
def ask(request: Request, workspace: Workspace, pages: Render) -> Response:
    """What verifying does, and the button."""
    return pages.page(request, "verify.html", section="verify", head=workspace.head(), result=None)


@router.post("/w/{workspace}/verify")
def verify(request: Request, workspace: Workspace, form: Form, pages: Render) -> Response:
    """Recompute everything and show what was found."""
    quick = first(form, "mode") == "quick"
    return pages.page(
        request,
        "verify.html",
        section="verify",
        head=workspace.head(),
        result=workspace.verify(quick=quick),
        quick=quick,
    )
