"""Calls that wait for an answer: what they would do, and the answer."""

import json
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from loom_audit.api.control.approvals import check_arguments, read_arguments
from loom_audit.api.face import ApprovalRequest, AuditedWorkspace
from loom_audit.errors import ApprovalDenied, AuditError, Conflict, InvalidArguments
from loom_audit.model.text.display import visible
from loom_audit.model.text.textdiff import marked_lines
from loom_audit.web.overview.needs import subject_and_others
from loom_audit.web.shared.admission import Visitor
from loom_audit.web.shared.dependencies import Form, Query, Render, SignedIn, Workspace
from loom_audit.web.shared.pages import STATUS, Pages, redirect
from loom_audit.web.shared.texts import as_text
from loom_audit.web.shared.urls import address, first

router = APIRouter()
LISTS = ("needs", "")
"""Pages that list questions, and show the next one after an answer; "" is the overview."""
MAX_TYPED = 200_000
"""Characters of arguments that are offered to be changed: a form holds 1 MiB."""


@router.get("/w/{workspace}/approvals")
def waiting(workspace: Workspace) -> Response:
    """Lead to the queue, in which the calls that wait for an answer are."""
    return RedirectResponse(address("w", workspace.id, "needs"), 308)


@router.get("/w/{workspace}/approvals/{number}")
def one(
    request: Request,
    workspace: Workspace,
    number: int,
    query: Query,
    pages: Render,
    visitor: SignedIn,
) -> Response:
    """Show one call that waits: tool, arguments, reason, what would change."""
    return _show(request, workspace, pages, visitor, workspace.questions.find(str(number)))


@router.post("/w/{workspace}/approvals/{number}")
def decide(
    request: Request,
    workspace: Workspace,
    number: int,
    form: Form,
    pages: Render,
    visitor: SignedIn,
) -> Response:
    """Answer the question that was shown; another one is shown again instead.

    InvalidArguments for a decision or arguments that are none are shown on the page.
    """
    question = workspace.questions.find(str(number))
    typed = first(form, "arguments").replace("\r\n", "\n")
    if first(form, "question") != str(question.seq):
        stale = Conflict(
            "Nothing was answered: it has been asked again since this was shown.",
            hint="This is the question as it is now.",
        )
        return _show(request, workspace, pages, visitor, question, problem=stale)
    decision = first(form, "decision")
    try:
        if decision not in ("allowed", "denied"):
            raise InvalidArguments(f"{decision!r} is not allowed or denied")
        arguments = changed(question, typed) if decision == "allowed" else None
        if arguments is not None:
            check_arguments(workspace, question, arguments)
        answered = workspace.questions.answer(
            question,
            "allowed" if decision == "allowed" else "denied",
            actor=visitor.actor,
            label=visitor.label,
            reason=first(form, "reason").strip(),
            arguments=arguments,
            lasting=bool(first(form, "lasting")),
        )
    except (InvalidArguments, ApprovalDenied) as problem:
        return _show(request, workspace, pages, visitor, question, typed=typed, problem=problem)
    where = address("w", workspace.id, "c", question.requested)
    # waited for, so that the page does not say that it is open
    followed = workspace.questions.outcome(question, answered)
    if decision == "allowed" and isinstance(followed, ApprovalRequest):
        return redirect(request, address("w", workspace.id, "approvals", question.requested))
    if form.get("next") and (back := first(form, "next")) in LISTS:
        where = address("w", workspace.id, *([back] if back else []), path=None if back else "")
    return redirect(request, where)


def changed(question: ApprovalRequest, typed: str) -> Any:
    """The arguments that were typed; None when they are those that were asked about."""
    if not typed.strip():
        return None
    arguments = read_arguments(typed, hint="Nothing was answered yet.")
    return None if arguments == question.arguments else arguments


def to_type(arguments: Any) -> str | None:
    """Arguments as JSON that comes back from a form as it went there; None when too long."""
    text = json.dumps(arguments, ensure_ascii=False, indent=2)
    if len(text) > MAX_TYPED:
        return None
    return "".join(c if visible(c, multiline=True) == c else json.dumps(c)[1:-1] for c in text)


def _show(
    request: Request,
    workspace: AuditedWorkspace,
    pages: Pages,
    visitor: Visitor,
    question: ApprovalRequest,
    *,
    typed: str | None = None,
    problem: AuditError | None = None,
) -> Response:
    subject, others = subject_and_others(question.arguments)
    lines = question.preview.removesuffix("\n").split("\n") if question.preview else []
    return pages.page(
        request,
        "approval.html",
        STATUS.get(problem.code, 500) if problem else 200,
        question=question,
        subject=as_text(subject or None),
        others=as_text(others or None),
        typed=typed if typed is not None else to_type(question.arguments),
        lines=marked_lines(lines),
        person=visitor.shown,
        problem=problem,
        section="needs",
    )
