"""The page of one call: why it was made, by whom, what it did, and whether that still stands."""

from collections.abc import Sequence
from typing import Any, get_args

from fastapi import APIRouter, Request
from msgspec import Struct
from starlette.responses import Response

from loom_audit.api.control.holding import left_open_by
from loom_audit.api.face import AuditedWorkspace, CallDetail
from loom_audit.api.review.conversation import NearCall, Why, near_call
from loom_audit.api.review.later_changes import Aftermath, aftermath_of
from loom_audit.errors import NotFound
from loom_audit.model.conversation import MessageReceived, PromptSubmitted
from loom_audit.model.events import ApprovalRequested, FilesChanged
from loom_audit.model.git.words import push_words
from loom_audit.model.kinds import without_encoded
from loom_audit.model.plans.request import Verb
from loom_audit.ports import EventFilter
from loom_audit.web.review.net import reviews_of
from loom_audit.web.review.said import quote
from loom_audit.web.shared.budget import Budget, Part, row_weight, weight
from loom_audit.web.shared.changes import LISTS, fragment_of, show_changes
from loom_audit.web.shared.dependencies import Query, Render, Workspace
from loom_audit.web.shared.listing import words_shown
from loom_audit.web.shared.pages import wants_fragment
from loom_audit.web.shared.texts import TextPart, full_text, text_part
from loom_audit.web.shared.urls import address
from loom_audit.web.undo import CLEAN_FILES

router = APIRouter()
TEXTS = ("arguments", "output", "result")
TEXT = 3_500
"""What each of these may weigh beside the others."""
EVENTS = 2_000
AFTERMATH = 2_500
GIT = 20
"""The number of lines of what a call changed of git that are shown."""
TAKING_BACK = get_args(Verb)


class Aftermaths(Struct, frozen=True):
    """Of `looked` paths that a call changed, `stand` are as it left them; the others are listed."""

    looked: int
    stand: int
    others: Part[Aftermath]


@router.get("/w/{workspace}/c/{seq}")
def call(request: Request, workspace: Workspace, seq: int, query: Query, pages: Render) -> Response:
    """Show the call that an event belongs to, with its own diff, and how to take it back."""
    try:
        detail = workspace.timeline.call(seq)
    except NotFound as error:
        links = ways_to(workspace, seq)
        return pages.refusal(request, 404, error.code, error.message, error.hint, links=links)
    call = detail.call
    base = address("w", workspace.id, "c", call.seq or call.requested)
    lists = (*TEXTS, "events", "aftermath", *LISTS)
    budget = Budget(query, lists, fragment=wants_fragment(request))
    texts = texts_on_page(budget, detail)
    if budget.wanted in TEXTS and wants_fragment(request):
        text = texts.get(budget.wanted)
        return pages.fragment(request, "_text.html", "text", text=text, base=base)
    events = budget.part("events", detail.events, lambda one: (one, weight(9)), most=EVENTS)
    values: dict[str, Any] = {"detail": detail, "call": call, "events": events, "base": base}
    if wants_fragment(request) and budget.wanted == "events":
        return pages.fragment(request, "call.html", "events", **values)
    session = workspace.timeline.verified.session(call.session) if call.session else None
    near = near_call(workspace.timeline, call, session) if session else NearCall(Why(), None, None)
    git = [*words_shown(detail.git)]
    prompt, words = quote(near.why.prompt), quote(near.why.words)
    budget.remaining -= sum(weight(2, text) for text in git[:GIT])
    budget.remaining -= sum(one.weight for one in (prompt, words) if one)
    aftermaths = aftermaths_on_page(budget, _aftermath(request, workspace, detail))
    if wants_fragment(request) and budget.wanted == "aftermath":
        return pages.fragment(request, "call.html", "aftermath", aftermaths=aftermaths, **values)
    changes = show_changes(
        detail.changes,
        workspace.timeline.content,
        query,
        budget,
        base,
        moves=detail.moves,
        old=call.requested,
        new=call.seq or "head",
    )
    if answer := fragment_of(request, pages, changes, budget):
        return answer
    return pages.page(
        request,
        "call.html",
        clean_files=CLEAN_FILES,
        **values,
        prompt=prompt,
        words=words,
        aftermaths=aftermaths,
        **_of_git(detail, git),
        question=question_about(detail),
        agent=session.agent if session else "",
        changes=changes,
        texts=texts,
        held=workspace.timeline.hold(call.session),
        left_open=left_open_by(detail),
        kept=kept_by(detail),
        near=near,
        section="calls",
    )


def _aftermath(
    request: Request, workspace: AuditedWorkspace, detail: CallDetail
) -> Sequence[Aftermath]:
    """What became of what a call changed, which is kept until something is recorded. Corrupt."""
    if not detail.call.seq:
        return ()
    name = "aftermath", detail.call.requested
    return reviews_of(request).once(workspace, name, lambda: aftermath_of(workspace, detail))


def _of_git(detail: CallDetail, words: Sequence[str]) -> dict[str, Any]:
    return {
        "git": words[:GIT],
        "more_git": len(words[GIT:]),
        "pushed": [text for fact in detail.git for text in push_words(fact)][:GIT],
    }


def ways_to(workspace: AuditedWorkspace, seq: int) -> tuple[tuple[str, str], ...]:
    """What there is to see of an event that is not a call's, and all calls."""
    event = next(iter(workspace.timeline.events(EventFilter.only(seq))), None)
    ways = [("All calls", address("w", workspace.id, "calls"))]
    if event and event.session:
        ways.insert(0, ("Its session", address("w", workspace.id, "s", event.session)))
    if event and isinstance(event.fact, PromptSubmitted | MessageReceived):
        ways.insert(0, ("What was said", address("w", workspace.id, "said", seq)))
    if event and isinstance(event.fact, FilesChanged):
        where = address("w", workspace.id, "compare", f"{seq - 1}..{seq}")
        ways.insert(0, ("What changed", where))
    return (*ways,)


def question_about(detail: CallDetail) -> ApprovalRequested | None:
    """What was asked last about a call, before it ran; None where nothing was asked."""
    facts = (event.fact for event in reversed(detail.events))
    return next((fact for fact in facts if isinstance(fact, ApprovalRequested)), None)


def aftermaths_on_page(budget: Budget, listed: Sequence[Aftermath]) -> Aftermaths:
    """How many paths are as their call left them, and those that are not, within the budget."""
    others = [one for one in listed if not one.stands]
    part = budget.part(
        "aftermath", others, lambda one: (one, row_weight(7, one.path)), most=AFTERMATH
    )
    return Aftermaths(len(listed), len(listed) - len(others), part)


def kept_by(detail: CallDetail) -> list[tuple[str, str]]:
    """The paths, with the reasons, that an undo kept when it was finished after an interruption."""
    result, call = without_encoded(detail.result), detail.call
    found = result.get("data") if isinstance(result, dict) else None
    listed = found.get("kept") if isinstance(found, dict) else None
    if call.tool not in TAKING_BACK or call.effect != "write" or not isinstance(listed, list):
        return []
    return [(path, reason) for path, reason in listed]


def texts_on_page(budget: Budget, detail: CallDetail) -> dict[str, TextPart]:
    """The texts of a call by name, of each as much as fits beside the others."""
    found = texts_of(detail)
    return {name: text_part(budget, name, text, most=TEXT) for name, text in found.items()}


def texts_of(detail: CallDetail) -> dict[str, str]:
    """A call's arguments, output and result as texts by name; those that are empty are left out."""
    result = without_encoded(detail.result)
    output = result.get("output") if isinstance(result, dict) else None
    found = {
        "arguments": None
        if detail.arguments is None
        else full_text(without_encoded(detail.arguments)),
        "output": output if isinstance(output, str) else None,
        "result": None if result is None else full_text(result),
    }
    return {name: text for name, text in found.items() if text}
