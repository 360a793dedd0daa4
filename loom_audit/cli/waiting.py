"""Which open calls wait for an answer, and by which number each is answered."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from loom_audit.model.events import Call

if TYPE_CHECKING:
    from loom_audit.api import AuditedWorkspace
    from loom_audit.history.approvals import ApprovalRequest


def questions(at: "AuditedWorkspace") -> Mapping[tuple[str, str], "ApprovalRequest"]:
    """The questions that nobody has answered yet, by session and call id."""
    from loom_audit.history.approvals import pending

    return {(one.session, one.call_id): one for one in pending(at.attachment)}


def question_about(
    asked: Mapping[tuple[str, str], "ApprovalRequest"], call: Call
) -> "ApprovalRequest | None":
    """The question that a call waits for, if it does."""
    return asked.get((call.session, call.call_id)) if call.seq is None else None


def number(request: "ApprovalRequest") -> int:
    """What answers it: the call's number, and the question's own when it was asked again."""
    return request.seq if request.fact.number > 1 else request.requested


def how_to_answer(request: "ApprovalRequest") -> str:
    """The commands that answer it; the one that closes the call when nobody waits any more."""
    if not request.alive:
        return "its process is gone: `loom-audit recover` closes it"
    name = number(request)
    return f"`loom-audit approve {name}` or `loom-audit deny {name}`"
