"""The review of a session: what it was asked and said, what stands out, and what it changed."""

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import APIRouter, Request
from msgspec import Struct
from starlette.responses import RedirectResponse, Response

from loom_audit.api.control.approvals import decisions
from loom_audit.api.control.holding import still_running
from loom_audit.api.face import AuditedWorkspace
from loom_audit.api.lines import NetChange, lines_of
from loom_audit.api.review.aftermath import changed_later
from loom_audit.api.review.sessions import (
    MASS,
    Evidence,
    Reviews,
    SessionReview,
)
from loom_audit.errors import InvalidArguments, NotFound
from loom_audit.model.records import Call, OutsideChange, Session
from loom_audit.web.review.net import net_with_lines, show_net
from loom_audit.web.review.said import Quote, quote
from loom_audit.web.shared.budget import Budget, Part, weight
from loom_audit.web.shared.changes import LISTS, context_of, fragment_of
from loom_audit.web.shared.dependencies import Query, Render, Workspace, number
from loom_audit.web.shared.listing import FILTERS, Listing
from loom_audit.web.shared.pages import wants_fragment
from loom_audit.web.shared.urls import Fields, address, first, unquoted

router = APIRouter()

STANDS_OUT: Mapping[str, tuple[str, str, str]] = {
    "failed": ("failed", "failed", "Calls that failed"),
    "denied": ("denied", "denied", "Calls that were denied"),
    "allowed": ("allowed by a person", "allowed by a person", "Calls that a person allowed"),
    "deletions": (
        "mass deletion",
        "mass deletions",
        f"Calls that deleted {MASS} files or more",
    ),
    "modes": ("mode change", "mode changes", "Calls that changed permission bits"),
    "network": (
        "network was allowed",
        "network was allowed",
        "Calls that were allowed the network: tools of the network, and commands that ran "
        "unconfined",
    ),
    "programs": (
        "names a network program",
        "name a network program",
        "Commands that name a program of the network",
    ),
    "outside": (
        "change from outside",
        "changes from outside",
        "Changes without a call while the session ran",
    ),
    "coverage": ("not fully covered", "not fully covered", "Calls whose coverage is not full"),
}
"""What stands out in a session: one, several, and the heading of their list."""

EVIDENCE = 5
TURNS = 30
HEADING = 3_000
"""What the rows of the strip, the ways between pages and the forms weigh together."""


class Turn(Struct, frozen=True):
    """What was done from one prompt to the next: events `after < seq < before`."""

    number: int
    seq: int
    before: int
    title: str


class Mark(Struct, frozen=True):
    """A number of the strip, with its words and the list that it leads to."""

    count: int
    words: str
    where: str


@router.get("/w/{workspace}/s/{session}")
def review(
    request: Request, workspace: Workspace, session: str, query: Query, pages: Render
) -> Response:
    """Show what a session was asked, said and changed, with what stands out in it."""
    id = unquoted(session)
    base = address("w", workspace.id, "s", id)
    if kept := listing_fields(query):
        return RedirectResponse(address("w", workspace.id, "s", id, "calls", query=kept), 307)
    reviewed = reviews_of(request).of(workspace, id)
    turns = turns_of(reviewed)
    turn = chosen_turn(turns, query)
    scope = ask(base, turn)
    budget = Budget(query, LISTS, fragment=wants_fragment(request))
    quotes = {} if budget.wanted and wants_fragment(request) else quotes_of(reviewed)
    budget.remaining -= HEADING + sum(
        one.weight for one in quotes.values() if isinstance(one, Quote)
    )
    net, changes = None, None
    if reviewed.whole:
        net = net_of(reviews_of(request), workspace, reviewed, turn, query)
        later = changed_later(workspace, [file.path for file in net.files], net.calls.until)
        changes = show_net(net, workspace.timeline.content, query, budget, scope, later)
    if changes and (answer := fragment_of(request, pages, changes, budget)):
        return answer
    return pages.page(
        request,
        "review.html",
        **heading(workspace, reviewed),
        **quotes,
        strip=strip_of(reviewed, base),
        open_calls=[call for call in reviewed.calls if call.seq is None],
        evidence=reviewed.evidence[:EVIDENCE],
        changes=changes,
        net=net,
        turns=turns,
        turn=turn,
        base=base,
        head=workspace.log.head(),
        tab="",
    )


@router.get("/w/{workspace}/s/{session}/only/{what}")
def only(
    request: Request,
    workspace: Workspace,
    session: str,
    what: str,
    query: Query,
    pages: Render,
) -> Response:
    """Show the calls of a session that stand out in one way. NotFound for another way."""
    reviewed = reviews_of(request).of(workspace, unquoted(session))
    if what not in STANDS_OUT:
        raise NotFound(f"no list {what}", hint="They are " + ", ".join(STANDS_OUT) + ".")
    rows: Sequence[Call | OutsideChange] = reviewed.outside
    if what != "outside":
        requests = reviewed.flagged.get(what, frozenset())
        rows = [call for call in reversed(reviewed.calls) if call.requested in requests]
    title = STANDS_OUT[what][2]
    return _listed(request, workspace, reviewed, pages, query, rows, title, ("only", what), "")


@router.get("/w/{workspace}/s/{session}/commands")
def commands(
    request: Request, workspace: Workspace, session: str, query: Query, pages: Render
) -> Response:
    """Show the commands of a session, those that are tests, lints or builds first."""
    reviewed = reviews_of(request).of(workspace, unquoted(session))
    rows = [call for call in reversed(reviewed.calls) if call.effect == "execute"]
    return _listed(
        request, workspace, reviewed, pages, query, rows, "Commands", ("commands",), "commands"
    )


@router.get("/w/{workspace}/s/{session}/taken-back")
def taken_back(
    request: Request, workspace: Workspace, session: str, query: Query, pages: Render
) -> Response:
    """Show the calls of a session that are taken back, and those that took something back."""
    reviewed = reviews_of(request).of(workspace, unquoted(session))
    rows = [call for call in reversed(reviewed.calls) if call.undone_by or call.reverts]
    title = "Taken back, and what took back"
    return _listed(
        request, workspace, reviewed, pages, query, rows, title, ("taken-back",), "taken-back"
    )


def reviews_of(request: Request) -> Reviews:
    """The sessions that this dashboard has gathered."""
    reviewed: Reviews = request.app.state.reviews
    return reviewed


def listing_fields(query: Fields) -> list[tuple[str, str]]:
    """The fields by which this address listed calls before there was a review."""
    names = (*FILTERS, "before", "after", "reads", "more")
    return [(name, value) for name in names for value in query.get(name, ()) if value]


def heading(workspace: AuditedWorkspace, reviewed: SessionReview) -> dict[str, Any]:
    """What the heading of a session's pages needs."""
    session = reviewed.session
    ends = session.ended_at
    return {
        "session": session,
        "reviewed": reviewed,
        "duration": None if ends is None else micros(session),
        "held": workspace.timeline.hold(session.id),
        "running": dict(still_running(workspace)) if session.ended is None else {},
        "section": "overview",
    }


def micros(session: Session) -> int:
    """How long a session that has ended took, in microseconds."""
    assert session.ended_at is not None
    return int((session.ended_at - session.started_at).total_seconds() * 1_000_000)


def quotes_of(reviewed: SessionReview) -> dict[str, Any]:
    """What a session was asked first and last, and what its agent said last."""
    first_prompt = next(iter(reviewed.prompts), None)
    again = reviewed.last if reviewed.last != first_prompt else None
    return {
        "asked": quote(first_prompt),
        "again": quote(again),
        "words": quote(reviewed.words, 900),
    }


def turns_of(reviewed: SessionReview) -> list[Turn]:
    """The first turns of a session that was prompted more than once, oldest first."""
    if len(reviewed.prompts) < 2:
        return []
    ends = [*(said.seq for said in reviewed.prompts[1:]), reviewed.until + 1]
    return [
        Turn(n, said.seq, end, said.text.strip()[:200])
        for n, (said, end) in enumerate(zip(reviewed.prompts, ends, strict=True), 1)
    ][:TURNS]


def chosen_turn(turns: Sequence[Turn], query: Fields) -> Turn | None:
    """The turn that an address asks for. InvalidArguments for one that there is not."""
    wanted = number(query, "turn")
    if wanted is None:
        return None
    reviewed = next((turn for turn in turns if turn.seq == wanted), None)
    if reviewed is None:
        raise InvalidArguments(
            f"no turn begins at {wanted}", hint="A turn begins with a prompt of the session."
        )
    return reviewed


def ask(base: str, turn: Turn | None) -> str:
    """The address of the review, of one turn where there is one."""
    return base if turn is None else f"{base}?turn={turn.seq}"


def net_of(
    reviews: Reviews,
    workspace: AuditedWorkspace,
    reviewed: SessionReview,
    turn: Turn | None,
    query: Fields,
) -> NetChange:
    """The own net change of a session with those within it, or of one turn; with the lines of the
    first files, or of the one that the query asks for.
    """

    def gather() -> NetChange:
        lines = lines_of(workspace)
        id = reviewed.session.id
        if turn is None:
            calls = lines.of_session(id)
        else:
            calls = lines.between(turn.seq, turn.before - 1, session=id)
        return net_with_lines(lines, calls, query)

    path = first(query, "diff")
    name = "net", reviewed.session.id, turn and turn.seq, path, path and context_of(query)
    return reviews.once(workspace, name, gather)


def strip_of(reviewed: SessionReview, base: str) -> list[Mark]:
    """The numbers of what stands out, each with the address of its list; none that is zero."""
    counts = {name: len(requests) for name, requests in reviewed.flagged.items()}
    counts["outside"] = len(reviewed.outside)
    return [
        Mark(counts[name], words[counts[name] != 1], f"{base}/only/{name}")
        for name, words in STANDS_OUT.items()
        if counts.get(name)
    ]


def _listed(
    request: Request,
    workspace: AuditedWorkspace,
    reviewed: SessionReview,
    pages: Render,
    query: Fields,
    rows: Sequence[Call | OutsideChange],
    title: str,
    place: tuple[str, ...],
    tab: str,
) -> Response:
    budget = Budget(query, ("rows",), fragment=wants_fragment(request))
    evidence: Sequence[Evidence] = reviewed.evidence if tab == "commands" else ()
    tests = budget.part("evidence", evidence, _evidence, most=8_000)
    part: Part[Call | OutsideChange] = budget.part("rows", rows, _row)
    calls = [row for row in part.items if isinstance(row, Call)]
    listing = Listing(calls, None, None)
    base = address("w", workspace.id, "s", reviewed.session.id, *place)
    values: dict[str, Any] = {
        "rows": part,
        "counted": listing.counted,
        "decided": decisions(workspace, calls),
        "base": base,
    }
    if wants_fragment(request) and budget.wanted:
        return pages.fragment(request, "session_calls.html", "rows", **values)
    return pages.page(
        request,
        "session_calls.html",
        **heading(workspace, reviewed),
        **values,
        evidence=tests.items,
        title=title,
        tab=tab,
        first=first(query, "from"),
    )


def _row(row: Call | OutsideChange) -> tuple[Call | OutsideChange, int]:
    if isinstance(row, OutsideChange):
        return row, weight(13, *row.paths, *row.paths)
    return row, weight(17, row.summary, row.error[:100], *row.paths)


def _evidence(one: Evidence) -> tuple[Evidence, int]:
    return one, weight(12, one.call.summary[:120])
