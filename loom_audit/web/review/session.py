"""The review of a session: what it was asked and said, what stands out, and what it changed."""

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Request
from msgspec.structs import replace
from starlette.responses import RedirectResponse, Response

from loom_audit.api.control.holding import still_running
from loom_audit.api.face import AuditedWorkspace
from loom_audit.api.review.conversation import conversation_of
from loom_audit.api.review.sessions import (
    MOST_OUTSIDE,
    Evidence,
    SessionReview,
)
from loom_audit.errors import NotFound
from loom_audit.model.actors import OUTSIDE
from loom_audit.model.records import Call, OutsideChange, Session
from loom_audit.web.review.marks import marking_of
from loom_audit.web.review.net import later_changes, net_of, reviews_of, show_net
from loom_audit.web.review.said import Quote, quote
from loom_audit.web.review.scope import Scope, scope_of, shown_turns, turns_of
from loom_audit.web.shared.budget import Budget, Part, weight
from loom_audit.web.shared.changes import LISTS, Changes, around_of, fragment_of
from loom_audit.web.shared.dependencies import Query, Render, SignedIn, Workspace
from loom_audit.web.shared.listing import FILTERS, Listing, git_lines
from loom_audit.web.shared.pages import wants_fragment
from loom_audit.web.shared.strip import STANDS_OUT, strip_of
from loom_audit.web.shared.ticks import Ticks, calls_ticked, paths_ticked, taking_along
from loom_audit.web.shared.tree import FILES
from loom_audit.web.shared.urls import Fields, address, first, unquoted

router = APIRouter()

EVIDENCE = 5
HEADING = 3_000
"""What the rows of the strip, the ways between pages and the forms weigh together."""


@router.get("/w/{workspace}/s/{session}")
def review(
    request: Request,
    workspace: Workspace,
    session: str,
    query: Query,
    pages: Render,
    visitor: SignedIn,
) -> Response:
    """Show what a session was asked, said and changed, with what stands out in it."""
    id = unquoted(session)
    base = address("w", workspace.id, "s", id)
    if kept := listing_fields(query):
        return RedirectResponse(address("w", workspace.id, "s", id, "calls", query=kept), 307)
    reviewed = reviews_of(request).of(workspace, id)
    turns = turns_of(reviews_of(request), workspace, id)
    scope = scope_of(turns, query)
    budget = Budget(query, LISTS, fragment=wants_fragment(request))
    quotes = (
        {} if budget.wanted and wants_fragment(request) else quotes_of(workspace, reviewed, scope)
    )
    budget.remaining -= HEADING + sum(
        one.weight for one in quotes.values() if isinstance(one, Quote)
    )
    net, changes = None, None
    if reviewed.whole:
        path, context = first(query, "diff"), around_of(query).compared
        net = net_of(reviews_of(request), workspace, reviewed, scope, path, context=context)
        later = later_changes(reviews_of(request), workspace, net)
        marking = marking_of(workspace, visitor, net, scope, base, query)
        content = workspace.timeline.content
        where = taking_along(scope.of(base), query)
        changes = show_net(net, content, query, budget, where, later, marking)
    if changes and not workspace.root.startswith("import:"):
        changes = replace(changes, ticking=True)
    if changes and (answer := fragment_of(request, pages, changes, budget)):
        return answer
    return pages.page(
        request,
        "review.html",
        **heading(workspace, reviewed, scope),
        **quotes,
        strip=strip_of(
            counts_of(reviewed, scope),
            {"outside": MOST_OUTSIDE},
            lambda name: scope.of(f"{base}/only/{name}"),
        ),
        open_calls=[one for one in reviewed.calls if one.seq is None and scope.has(one.requested)],
        evidence=(evidence := [e for e in reviewed.evidence if scope.has(e.call.requested)])[
            :EVIDENCE
        ],
        more_evidence=max(0, len(evidence) - EVIDENCE),
        touched=0 if scope.fields else len({one.change.path for one in reviewed.changes}),
        changes=changes,
        ticks=_files_ticked(query, changes) if changes else None,
        calls_of_files=sorted({n for file in net.files for n in file.calls}) if net else (),
        net=net,
        turns=shown_turns(turns, scope.turn),
        last_turn=turns[-1].number,
        first_of=lambda number: turns[number].seq,
        base=base,
        head=workspace.log.head(),
        tab="",
    )


def _files_ticked(query: Fields, changes: Changes) -> Ticks:
    files, diffs = changes.files, changes.diffs
    return paths_ticked(
        query,
        changes.base,
        [
            ("More files", files.fields if files.remaining else ()),
            ("All files", (("of", FILES),) if first(query, "of") or first(query, "diff") else ()),
            ("More differences", diffs.fields if diffs.remaining else ()),
        ],
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
    rows: Sequence[Call | OutsideChange] = _from_outside(reviewed)
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
    rows = [
        call
        for call in reversed(reviewed.calls)
        if call.undone_by or call.undone_in_part_by or call.reverts
    ]
    title = "Taken back, and what took back"
    return _listed(
        request, workspace, reviewed, pages, query, rows, title, ("taken-back",), "taken-back"
    )


def listing_fields(query: Fields) -> list[tuple[str, str]]:
    """The fields by which this address listed calls before there was a review."""
    names = (*FILTERS, "before", "after", "reads", "more")
    return [(name, value) for name in names for value in query.get(name, ()) if value]


def heading(workspace: AuditedWorkspace, reviewed: SessionReview, scope: Scope) -> dict[str, Any]:
    """What the heading of a session's pages needs."""
    session = reviewed.session
    return {
        "session": session,
        "reviewed": reviewed,
        "scope": scope,
        "duration": duration_of(workspace, session),
        "held": workspace.timeline.hold(session.id),
        "running": dict(still_running(workspace)) if session.ended is None else {},
        "section": "overview",
    }


def duration_of(workspace: AuditedWorkspace, session: Session) -> int | None:
    """How long a session that has ended took, in microseconds; None where nobody measured it.

    Of an imported one only its client's clock tells.
    """
    began, ended = session.started_at, session.ended_at
    if workspace.timeline.imported and session.ended is not None:
        told = workspace.timeline.told_at
        began, ended = told(session.started) or began, told(session.ended)
    return None if ended is None else int((ended - began).total_seconds() * 1_000_000)


def quotes_of(workspace: AuditedWorkspace, reviewed: SessionReview, scope: Scope) -> dict[str, Any]:
    """What a session, or its agent in one turn, was asked first and last, and said last."""
    asked, last, words = reviewed.asked, reviewed.last, reviewed.words
    if (turn := scope.turn) is not None:
        talk = conversation_of(workspace)
        asked = last = talk.at(turn.seq) if turn.number else None
        said = reviewed.said_in(turn.session, "assistant", after=turn.seq, before=turn.until + 1)
        words = talk.one(turn.session, said[-1:])
    return {
        "asked": quote(asked),
        "again": quote(last if last != asked else None),
        "words": quote(words, 900),
    }


def counts_of(reviewed: SessionReview, scope: Scope) -> dict[str, int]:
    """How much stands out in a session, or in a part of it, by what."""
    counts = {name: sum(map(scope.has, found)) for name, found in reviewed.flagged.items()}
    return {**counts, "outside": sum(scope.has(one.seq) for one in _from_outside(reviewed))}


def _from_outside(reviewed: SessionReview) -> list[OutsideChange]:
    return [one for one in reviewed.outside if one.actor == OUTSIDE]


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
    scope = scope_of(turns_of(reviews_of(request), workspace, reviewed.session.id), query)
    rows = [row for row in rows if scope.has(_begin(row))]
    evidence: Sequence[Evidence] = reviewed.evidence if tab == "commands" else ()
    evidence = [one for one in evidence if scope.has(one.call.requested)]
    tests = budget.part("evidence", evidence, _evidence, most=8_000)
    part: Part[Call | OutsideChange] = budget.part("rows", rows, _row)
    calls = [row for row in part.items if isinstance(row, Call)]
    listing, listed = Listing(calls, None, None), {call.requested for call in calls}
    base = address("w", workspace.id, "s", reviewed.session.id, *place)
    values: dict[str, Any] = {
        "rows": part,
        "counted": listing.counted,
        "decided": reviewed.decided,
        "git": git_lines({one: facts for one, facts in reviewed.git.items() if one in listed}),
        "base": scope.of(base),
        "ticks": calls_ticked(
            query,
            scope.of(base),
            [
                ("More of them", part.fields if part.remaining else ()),
                ("First of them", (("of", part.name),) if part.start else ()),
            ],
        ),
    }
    if wants_fragment(request) and budget.wanted:
        return pages.fragment(request, "session_calls.html", "rows", **values)
    return pages.page(
        request,
        "session_calls.html",
        **heading(workspace, reviewed, scope),
        **values,
        evidence=tests.items,
        more_evidence=tests.remaining,
        title=title,
        tab=tab,
        first=first(query, "from"),
    )


def _begin(row: Call | OutsideChange) -> int:
    return row.seq if isinstance(row, OutsideChange) else row.requested


def _row(row: Call | OutsideChange) -> tuple[Call | OutsideChange, int]:
    if isinstance(row, OutsideChange):
        return row, weight(13, *row.paths, *row.paths)
    return row, weight(17, row.summary, row.error[:100], *row.paths)


def _evidence(one: Evidence) -> tuple[Evidence, int]:
    return one, weight(12, one.call.summary[:120])
