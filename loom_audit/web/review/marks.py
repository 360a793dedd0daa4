"""What a reader marks on a review: parts and files viewed, and how far they have read."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from loom_audit.api.face import AuditedWorkspace
from loom_audit.api.lines import NetChange, NetFile
from loom_audit.api.review.marks import (
    last_read,
    mark_unread,
    mark_viewed,
    read_up_to,
    viewed_among,
)
from loom_audit.errors import InvalidArguments, NotFound
from loom_audit.model.text.display import visible
from loom_audit.web.review.net import later_changes, net_of, reviews_of, show_net
from loom_audit.web.review.scope import Scope, scope_of, turns_of
from loom_audit.web.shared.admission import Visitor
from loom_audit.web.shared.budget import Budget
from loom_audit.web.shared.dependencies import Form, Render, SignedIn, Workspace, number
from loom_audit.web.shared.marking import Marking
from loom_audit.web.shared.pages import Pages, redirect, wants_fragment
from loom_audit.web.shared.urls import Fields, address, encoded, first, quoted, unquoted

router = APIRouter()

WISHES = ("view", "unview", "view-file", "unview-file", "read", "unread")
"""The names of the buttons, of which a form brings one."""

PLACE = ("of", "from", "diff", "line")
"""The fields by which an address leads to a part of a review's lists."""

PAGES = {"": "", "needs": "needs"}
"""The pages besides the review that a mark leads back to, each with its last segment."""


def marking_of(
    workspace: AuditedWorkspace,
    visitor: Visitor,
    net: NetChange,
    scope: Scope,
    base: str,
    query: Fields,
) -> Marking:
    """What a page of a net change needs to let its reader mark what they have viewed."""
    names = {file.path: file.named for file in net.files}
    every = [name for some in names.values() for name in some]
    session = unquoted(base.rsplit("/", 1)[1])
    place = [
        (f"{name}.q", quoted(first(query, name), safe="/")) for name in PLACE if first(query, name)
    ]
    return Marking(
        where=f"{base}/marks",
        fields=(*scope.fields, ("until", str(net.calls.until)), *place),
        names=names,
        unlined={file.path: file.unlined for file in net.files if file.unlined},
        viewed=viewed_among(workspace, every, actor=visitor.actor),
        until=net.calls.until,
        read=last_read(workspace, session, actor=visitor.actor),
    )


@router.post("/w/{workspace}/s/{session}/marks")
def mark(
    request: Request,
    workspace: Workspace,
    session: str,
    form: Form,
    pages: Render,
    visitor: SignedIn,
) -> Response:
    """Mark what a reader has viewed or read, as the button that was pressed says.

    InvalidArguments for a form that brings none of them, or several.
    """
    id = unquoted(session)
    base = address("w", workspace.id, "s", workspace.timeline.session(id).id)
    wishes = [(name, value) for name in WISHES for value in form.get(name, ())]
    if len(wishes) != 1:
        raise InvalidArguments(
            f"{len(wishes)} marks at once", hint="A button brings one of " + ", ".join(WISHES) + "."
        )
    [(wish, value)] = wishes
    if wish in ("read", "unread"):
        if wish == "unread":
            mark_unread(workspace, id, actor=visitor.actor)
        else:
            read_up_to(workspace, id, number(form, "read") or 0, actor=visitor.actor)
        return redirect(request, _back(workspace, base, form))
    if wish.endswith("-file"):
        file, fragment = _file(request, workspace, id, form, path=value), f"f-{quoted(value)}"
        names = file.named
    else:
        names, fragment = (value,), f"p-{value}"
    mark_viewed(workspace, names, viewed=not wish.startswith("un"), actor=visitor.actor)
    if wants_fragment(request):
        return _answer(request, workspace, id, base, form, pages, visitor, wish, value)
    return redirect(request, f"{_back(workspace, base, form)}#{fragment}")


def _back(workspace: AuditedWorkspace, base: str, form: Fields) -> str:
    """The address of the page whose button was pressed."""
    if "next" in form:
        page = PAGES.get(first(form, "next"))
        if page is None:
            raise InvalidArguments(f"{first(form, 'next')!r} is not a page that marks lead back to")
        return address("w", workspace.id, page) if page else address("w", workspace.id, path="")
    scope = [(name, first(form, name)) for name in ("turn", "since") if number(form, name)]
    asked = encoded([*scope, *((name, first(form, name)) for name in PLACE)])
    return f"{base}?{asked}" if asked else base


def _shown(
    request: Request, workspace: AuditedWorkspace, id: str, form: Fields, path: str = ""
) -> tuple[Scope, NetChange]:
    """What the page showed, as of the event up to which it did."""
    reviews = reviews_of(request)
    reviewed = reviews.of(workspace, id)
    scope = scope_of(turns_of(reviews, workspace, id), form)
    until = number(form, "until")
    if until is not None and not reviewed.session.started <= until <= workspace.log.head():
        raise InvalidArguments(f"no page of this session shows it up to {until}")
    return scope, net_of(reviews, workspace, reviewed, scope, path, until)


def _file(
    request: Request, workspace: AuditedWorkspace, id: str, form: Fields, *, path: str
) -> NetFile:
    """The file at a path, with its lines, as the page showed it. NotFound.

    The names of its parts are of these lines: kept sums are not evidence.
    """
    net = _shown(request, workspace, id, form, path)[1]
    for file in net.files:
        if file.path == path:
            return file
    raise NotFound(f"{visible(path)} is not among these changes")


def _answer(
    request: Request,
    workspace: AuditedWorkspace,
    id: str,
    base: str,
    form: Fields,
    pages: Pages,
    visitor: Visitor,
    wish: str,
    value: str,
) -> Response:
    """The file as it is shown now, for htmx to put in its place, and how much is viewed."""
    scope, net = _shown(request, workspace, id, form)
    found = next(
        (file for file in net.files if value in ((file.path,) if "file" in wish else file.named)),
        None,
    )
    if found is None:
        raise NotFound("that part is not among these changes", hint="Load the page anew.")
    if found.omitted:
        net = _shown(request, workspace, id, form, found.path)[1]
    query: Fields = {"diff": (found.path,)}
    shown = show_net(
        net,
        workspace.timeline.content,
        query,
        Budget(query, fragment=True),
        scope.of(base),
        later_changes(reviews_of(request), workspace, net),
        marking_of(workspace, visitor, net, scope, base, form),
    )
    return pages.fragment(request, "_marks.html", "marked", changes=shown)
