"""Whether the disk is as the log says, looked at now, and what to do where it is not."""

from typing import Literal, get_args

from fastapi import APIRouter, Request
from msgspec.structs import replace
from starlette.responses import Response

from loom_audit.api.agents.failed_hooks import waiting_in
from loom_audit.api.ground.held import agree
from loom_audit.api.upkeep.drift import accept_drift, content_of_drift
from loom_audit.errors import InvalidArguments
from loom_audit.model.actors import OUTSIDE
from loom_audit.model.plans.request import Verb
from loom_audit.web.shared.budget import Budget
from loom_audit.web.shared.changes import LISTS, fragment_of, show_changes
from loom_audit.web.shared.dependencies import Form, Query, Render, SignedIn, Workspace
from loom_audit.web.shared.pages import Place, redirect, wants_fragment
from loom_audit.web.shared.urls import address, first

router = APIRouter()
PLACES = (Place("status", "Status", ("status",), on_disk=True),)
UNTRACKED = 50
BEGUN = 20
TAKING_BACK = get_args(Verb)
LATELY = 5


@router.get("/w/{workspace}/status")
def status(request: Request, workspace: Workspace, query: Query, pages: Render) -> Response:
    """Show how the disk differs from the log, looked at now."""
    found = workspace.status()
    budget = Budget(query, LISTS, fragment=wants_fragment(request))
    changes = show_changes(
        found.drift,
        content_of_drift(workspace, found.drift),
        query,
        budget,
        address("w", workspace.id, "status"),
        old=found.head,
    )
    stopped = [call for call in found.interrupted if call.tool in TAKING_BACK]
    changes = replace(changes, unrecorded=not stopped)
    return fragment_of(request, pages, changes, budget) or pages.page(
        request,
        "status.html",
        failed_hooks=waiting_in(workspace),
        unrecorded=None if workspace.why_cut_off() else workspace.why_stopped(),
        section="status",
        found=found,
        changes=changes,
        untracked=found.untracked[:UNTRACKED],
        begun=found.begun[:BEGUN],
        halves=found.halves[:BEGUN],
        kept=found.kept[:BEGUN],
        stopped=stopped,
        lately=[one for one in workspace.timeline.outside(limit=LATELY) if one.actor == OUTSIDE],
    )


@router.post("/w/{workspace}/status")
def accept(request: Request, workspace: Workspace, form: Form) -> Response:
    """Put on record what differs, at one path or everywhere."""
    accept_drift(workspace, [path for path in form.get("path", ()) if path])
    return redirect(request, address("w", workspace.id, "status"))


@router.post("/w/{workspace}/recover")
def recover(request: Request, workspace: Workspace, form: Form, visitor: SignedIn) -> Response:
    """Finish what was interrupted, or leave things as they are, and show the status again; or only
    close calls whose process is gone, and show what else waits.

    Where something was kept its call is shown, which lists that. InvalidArguments for a form that
    says none of these.
    """
    mode = first(form, "mode")
    if mode not in ("auto", "continue", "abandon"):
        raise InvalidArguments(f"{mode!r} is neither auto, continue nor abandon")
    agree(workspace)
    if mode == "auto":
        workspace.recover(actor=visitor.actor)
        return redirect(request, address("w", workspace.id, "needs"))
    known: Literal["continue", "abandon"] = "continue" if mode == "continue" else "abandon"
    for one in workspace.recover(known, actor=visitor.actor):
        if one.kept and one.call.seq:
            return redirect(request, address("w", workspace.id, "c", one.call.seq))
    return redirect(request, address("w", workspace.id, "status"))
