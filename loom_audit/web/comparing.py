"""What differs between two points, chosen or typed, or what one session changed between them."""

from collections.abc import Sequence

from fastapi import APIRouter, Request
from msgspec import Struct
from starlette.responses import RedirectResponse, Response

from loom_audit.api.face import AuditedWorkspace
from loom_audit.api.lines import NetChange, lines_of
from loom_audit.api.review.git_points import git_between, git_by
from loom_audit.errors import InvalidArguments, TooLarge
from loom_audit.model.text.display import one_line
from loom_audit.web.points import unseen_at
from loom_audit.web.review.net import later_changes, net_with_lines, reviews_of, show_net
from loom_audit.web.shared.budget import Budget, weight
from loom_audit.web.shared.changes import LISTS, around_of, fragment_of, show_changes
from loom_audit.web.shared.dependencies import Query, Render, Workspace, point_text
from loom_audit.web.shared.listing import words_shown
from loom_audit.web.shared.pages import Place, wants_fragment, when
from loom_audit.web.shared.urls import Fields, address, first, unquoted

router = APIRouter()
PLACES = (Place("compare", "Compare", ("compare",)),)
GIT = 20
"""The number of lines of what differs of git that are shown."""
OFFERED = 20
"""Checkpoints, and sessions, that are offered, the newest ones."""


class Pick(Struct, frozen=True):
    """A point that is offered: what is sent for it, and what it is."""

    value: str
    title: str


class Picks(Struct, frozen=True):
    """Points that are offered under one heading."""

    heading: str
    picks: tuple[Pick, ...]


@router.get("/w/{workspace}/compare")
def choose_two(workspace: Workspace, query: Query) -> Response:
    """Lead to the two points that were chosen; by default what the last session changed.

    NotFound, InvalidArguments and Corrupt for what is not a point.
    """
    sessions = workspace.timeline.sessions(limit=1)
    start = str(sessions[0].started if sessions else workspace.timeline.first_listing() or "head")
    zone = first(query, "zone")
    old = _point(workspace, first(query, "a_of") or point_text(first(query, "a"), zone) or start)
    new = _point(workspace, first(query, "b_of") or point_text(first(query, "b"), zone) or "head")
    by = (("by", first(query, "by")),)
    return RedirectResponse(address("w", workspace.id, "compare", f"{old}..{new}", query=by), 303)


@router.get("/w/{workspace}/compare/{points}")
def compare(
    request: Request, workspace: Workspace, points: str, query: Query, pages: Render
) -> Response:
    """Show what differs between two points, or with `by` what that session changed between them.

    InvalidArguments for a text that is not two points, NotFound for a session that is not there.
    """
    old_name, dots, new_name = unquoted(points).partition("..")
    if not (dots and old_name and new_name):
        raise InvalidArguments("two points are written A..B", hint="For example 12..head.")
    (old, later_old), (new, later_new) = map(workspace.timeline.meanings, (old_name, new_name))
    doubtful = [(old, later_old)] * (old != later_old) + [(new, later_new)] * (new != later_new)
    workspace.timeline.check_listed(old, new)
    by = first(query, "by")
    budget = Budget(query, LISTS, fragment=wants_fragment(request))
    base = address("w", workspace.id, "compare", f"{old_name}..{new_name}", query=(("by", by),))
    net = changed_by(request, workspace, by, old, new, query) if by else None
    content = workspace.timeline.content
    facts = git_by(workspace, net.calls) if net else git_between(workspace, old, new)
    git = [*words_shown(facts)]
    budget.remaining -= sum(weight(2, text) for text in git[:GIT])
    if net is None:
        changes = workspace.timeline.diff(old, new)
        shown = show_changes(changes, content, query, budget, base, old=old, new=new)
    else:
        later = later_changes(reviews_of(request), workspace, net)
        shown = show_net(net, content, query, budget, base, later)
    if answer := fragment_of(request, pages, shown, budget):
        return answer
    return pages.page(
        request,
        "compare.html",
        changes=shown,
        net=net,
        git=git[:GIT],
        more_git=len(git[GIT:]),
        git_is_shared=any(one.causes for one in facts),
        session=workspace.timeline.verified.session(by) if by else None,
        old=old,
        new=new,
        old_name=old_name,
        new_name=new_name,
        doubtful=doubtful,
        unseen=unseen_at(workspace, "", old, new),
        picks=offered(workspace),
        sessions=workspace.timeline.sessions(limit=OFFERED),
        section="compare",
    )


def changed_by(
    request: Request, workspace: AuditedWorkspace, session: str, old: int, new: int, query: Fields
) -> NetChange:
    """The own net change of a session, with those within it, between two points. NotFound, Corrupt;
    InvalidArguments where the points are the wrong way round, TooLarge for too many calls.
    """
    reviews = reviews_of(request)
    if old > new:
        raise InvalidArguments(
            f"#{old} is after #{new}: a session changed nothing backwards",
            hint="Name the earlier point first.",
        )
    if not reviews.of(workspace, session).whole:
        raise TooLarge(
            "the session has too many calls to be looked at together",
            hint="Compare the two points as a whole, or look at the session's calls.",
        )

    def gather() -> NetChange:
        lines = lines_of(workspace)
        calls = lines.between(old, new, session=session)
        return net_with_lines(lines, calls, path, context)

    path, context = first(query, "diff"), around_of(query).compared
    name = "between", session, old, new, path, path and context
    return reviews.once(workspace, name, gather)


def offered(workspace: AuditedWorkspace) -> Sequence[Picks]:
    """The points that a person is likely to mean: checkpoints, and where sessions began and
    ended.
    """
    checkpoints = tuple(
        Pick(str(one.point), f"@{one.name} #{one.point}")
        for one in workspace.timeline.checkpoints()[:OFFERED]
    )
    starts, ends = [], []
    for one in workspace.timeline.sessions(limit=OFFERED):
        title = one_line(one.title or one.agent, 40)
        starts.append(Pick(str(one.started), f"{when(one.started_at)} UTC {title}"))
        if one.ended is not None and one.ended_at is not None:
            ends.append(Pick(str(one.ended), f"{when(one.ended_at)} UTC {title}"))
    found = (
        Picks("Checkpoints", checkpoints),
        Picks("Before a session", tuple(starts)),
        Picks("After a session", tuple(ends)),
    )
    return [one for one in found if one.picks]


def _point(workspace: AuditedWorkspace, text: str) -> int | str:
    """The number of the point that a text names; the text itself where it may mean two."""
    earlier, later = workspace.timeline.meanings(text)
    return earlier if earlier == later else text
