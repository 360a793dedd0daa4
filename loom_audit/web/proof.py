"""Whether the log is as it was written: the heads that vouch for it, and verifying it."""

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from loom_audit.api.face import AuditedWorkspace, Verification
from loom_audit.api.upkeep.heads import kept_heads
from loom_audit.web.live import WorkProgress
from loom_audit.web.shared.dependencies import Form, Render, Workspace
from loom_audit.web.shared.pages import Pages, Place
from loom_audit.web.shared.urls import address, first

router = APIRouter()
PLACES = (Place("proof", "Proof", ("proof",)),)
HEADS = 20


@router.get("/w/{workspace}/verify")
def verify_before(workspace: Workspace) -> Response:
    """Lead to where this page is now."""
    return RedirectResponse(address("w", workspace.id, "proof"), 308)


@router.post("/w/{workspace}/verify")
def verify_from_before(workspace: Workspace) -> Response:
    """Lead the form of an old page to where it is answered now; it is sent again there."""
    return RedirectResponse(address("w", workspace.id, "proof"), 308)


@router.get("/w/{workspace}/proof")
def page(request: Request, workspace: Workspace, pages: Render) -> Response:
    """Show what vouches for the log, how far, and the button that verifies it."""
    return _shown(request, workspace, pages, None)


@router.post("/w/{workspace}/proof")
def verify(request: Request, workspace: Workspace, form: Form, pages: Render) -> Response:
    """Recompute everything and show what was found."""
    quick = first(form, "mode") == "quick"
    work: WorkProgress = request.app.state.progress
    with work.tracking(form) as report:
        result = workspace.verify(quick=quick, report=report)
    return _shown(request, workspace, pages, result, quick=quick)


def _shown(
    request: Request,
    workspace: AuditedWorkspace,
    pages: Pages,
    result: Verification | None,
    *,
    quick: bool = False,
) -> Response:
    head = workspace.log.tree_head()
    kept = kept_heads(workspace)
    vouched = max((one.size for one in kept if one.size <= head.size), default=0)
    return pages.page(
        request,
        "proof.html",
        section="proof",
        head=head,
        kept=kept[: -HEADS - 1 : -1],
        count=len(kept),
        unanchored=head.size - vouched,
        verified=workspace.last_verified(),
        result=result,
        quick=quick,
    )
