"""Holding a session and letting it go on."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from loom_audit.api.control.holding import hold, release
from loom_audit.errors import InvalidArguments
from loom_audit.web.shared.dependencies import Form, SignedIn, Workspace
from loom_audit.web.shared.pages import redirect
from loom_audit.web.shared.urls import address, first, unquoted

router = APIRouter()


@router.post("/w/{workspace}/s/{session}/hold")
def change(
    request: Request, workspace: Workspace, session: str, form: Form, visitor: SignedIn
) -> Response:
    """Hold a session, or release it, and show it again. InvalidArguments for another wish."""
    id, reason = unquoted(session), first(form, "reason").strip()
    wanted = first(form, "hold")
    if wanted == "1":
        hold(workspace, id, reason, actor=visitor.actor, label=visitor.label)
    elif wanted == "0":
        release(workspace, id, reason, actor=visitor.actor, label=visitor.label)
    else:
        raise InvalidArguments(f"{wanted!r} is neither 1, to hold it, nor 0, to release it")
    return redirect(request, address("w", workspace.id, "s", id))
