"""What waits for a person, in one queue, each with the button that does it."""

import json
from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Request
from msgspec import Struct
from starlette.responses import Response

from loom_audit.api.control.approvals import has_rules
from loom_audit.api.control.needs import Needs, needs_of
from loom_audit.api.face import ApprovalRequest, AuditedWorkspace
from loom_audit.api.review.marks import unread_sessions
from loom_audit.tools.approvals.policy import call_subject
from loom_audit.web.overview.later import drift_of
from loom_audit.web.shared.admission import Visitor
from loom_audit.web.shared.dependencies import Render, SignedIn, Workspace
from loom_audit.web.shared.pages import Place, wants_fragment

router = APIRouter()
PLACES = (Place("needs", "Needs you", ("needs",)),)
MOST_QUESTIONS = 20
MOST_OTHERS = 20
FIRST_UNREAD = 5
"""Sessions with unread changes that the first page shows."""
WHOLE = 2_000
"""Characters of a call that a list shows; a longer one is answered on its own page."""
PREVIEW = 4_000


class Question(Struct, frozen=True):
    """A question as lists show it: the command or paths first, then the other arguments.

    It is answered in the list only where all of it is shown.
    """

    request: ApprovalRequest
    first: str
    others: str
    preview: str
    whole: bool


@router.get("/w/{workspace}/needs")
def page(request: Request, workspace: Workspace, pages: Render, visitor: SignedIn) -> Response:
    """Show all that waits for a person, and how the disk differs from the log, looked at now.

    A fragment has the calls that wait alone, for which the disk is not looked at.
    """
    if wants_fragment(request):
        questions = questions_of(pending := workspace.questions.pending())
        more = len(pending) - len(questions)
        return pages.fragment(request, "needs.html", "waiting", questions=questions, more=more)
    head = workspace.log.head()
    needs = needs_of(workspace)
    drift, looked = drift_of(workspace)
    return pages.page(
        request,
        "needs.html",
        section="needs",
        questions=(questions := questions_of(needs.questions)),
        more=len(needs.questions) - len(questions),
        asking=has_rules(workspace),
        needs=needs,
        unread=unread_sessions(workspace, most=MOST_OTHERS + 1, actor=visitor.actor),
        most=MOST_OTHERS,
        drift=drift,
        looked=looked,
        head=head,
    )


def shown_needs(workspace: AuditedWorkspace, visitor: Visitor) -> dict[str, Any]:
    """What a page says of the queue, without a look at the disk."""
    needs: Needs = needs_of(workspace)
    return {
        "needs": needs,
        "questions": questions_of(needs.questions),
        "unread": unread_sessions(workspace, most=FIRST_UNREAD + 1, actor=visitor.actor),
        "most": FIRST_UNREAD,
    }


def questions_of(requests: Sequence[ApprovalRequest]) -> list[Question]:
    """The questions as lists show them, the oldest first."""
    return [question_of(one) for one in requests[:MOST_QUESTIONS]]


def question_of(request: ApprovalRequest) -> Question:
    """A question as lists show it."""
    subject, others = subject_and_others(request.arguments)
    text = "" if not others else json.dumps(others, indent=2, ensure_ascii=False)
    first = subject or text
    rest = text if subject else ""
    return Question(
        request=request,
        first=first[:WHOLE],
        others=rest[:WHOLE],
        preview=request.preview[:PREVIEW] if len(first) + len(rest) <= WHOLE else "",
        whole=len(first) <= WHOLE and len(rest) <= WHOLE,
    )


def subject_and_others(arguments: Any) -> tuple[str, Any]:
    """The command or the paths of a call, "" for none, and the arguments that say more than it."""
    subject = call_subject(arguments)
    if isinstance(arguments, dict) and subject:
        own = next((name for name, value in arguments.items() if value == subject), None)
        return subject, {name: value for name, value in arguments.items() if name != own}
    return subject, arguments
