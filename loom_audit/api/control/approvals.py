"""The calls that wait for an answer, and answering them from whatever process."""

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from loom_audit.api.workspace import AuditedWorkspace
from loom_audit.config import APPROVALS
from loom_audit.errors import ApprovalDenied, InvalidArguments
from loom_audit.history.ground.questions import is_waiting as is_waiting_in
from loom_audit.history.ground.questions import last_decisions
from loom_audit.history.record import approvals
from loom_audit.history.record.approvals import Answer, ApprovalRequest
from loom_audit.model.events import CallDecided, Event
from loom_audit.model.records import Call

__all__ = [
    "Answer",
    "ApprovalRequest",
    "answer",
    "check_arguments",
    "decisions",
    "find",
    "has_rules",
    "is_waiting",
    "outcome",
    "pending",
    "read_arguments",
]


def has_rules(workspace: AuditedWorkspace) -> bool:
    """Whether there is a file of rules, valid or not; without one nothing is asked."""
    return os.path.lexists(workspace.adapters.settings.configuration / APPROVALS)


def pending(workspace: AuditedWorkspace) -> Sequence[ApprovalRequest]:
    """The questions that wait for an answer, oldest first."""
    return approvals.pending(workspace.attachment)


def is_waiting(workspace: AuditedWorkspace, call: Call) -> bool:
    """Whether a call waits for an answer: it has not begun to do anything."""
    return call.seq is None and is_waiting_in(workspace.log, call)


def decisions(workspace: AuditedWorkspace, calls: Sequence[Call]) -> Mapping[int, CallDecided]:
    """By its request, the last answer about each of these calls that has one."""
    return last_decisions(workspace.log, calls)


def find(workspace: AuditedWorkspace, name: str) -> ApprovalRequest:
    """The pending question about a call, by the number of its request or of the question, or
    by the start of its id. NotFound, and Conflict when that fits several.
    """
    return approvals.find(workspace.attachment, name)


def answer(
    workspace: AuditedWorkspace,
    request: ApprovalRequest,
    decision: Answer,
    *,
    actor: str | None = None,
    label: str = "",
    reason: str = "",
    arguments: Any = None,
    lasting: bool = False,
) -> Event:
    """Answer a question. Conflict, naming by whom and how, when it was answered already, when
    it was asked anew meanwhile, or when nobody waits for the answer any more.

    `arguments` replace the caller's; a `lasting` answer, which cannot, holds for the session.
    `label` is a name beside the actor's, in who it says decided.
    """
    return approvals.answer(
        workspace.attachment,
        request,
        decision,
        actor or workspace.actor,
        label=label,
        reason=reason,
        arguments=arguments,
        lasting=lasting,
    )


def outcome(
    workspace: AuditedWorkspace, request: ApprovalRequest, answered: Event
) -> ApprovalRequest | Call:
    """What came of an answer within two seconds: the next question, or the call as it stands.

    The process that asked decides; a call that is open still runs, or has not begun yet.
    """
    return approvals.wait_after_answer(workspace.attachment, request, answered)


def check_arguments(
    workspace: AuditedWorkspace, request: ApprovalRequest, arguments: dict[str, Any]
) -> None:
    """Refuse arguments that a bundled tool or a rule refuses. InvalidArguments, ApprovalDenied.

    What other tools take, and what is on disk by then, the process that asked alone can tell.
    """
    from loom_audit.tools.approvals.asking_gate import AskingGate
    from loom_audit.tools.approvals.decision import ruling
    from loom_audit.tools.approvals.policy import subject_of
    from loom_audit.tools.bundled.builtin import BUNDLED, bundled_tool

    if request.tool not in BUNDLED:
        return
    tool = bundled_tool(request.tool)
    tool.parse(arguments)
    gate = workspace.default_gate()
    if not isinstance(gate, AskingGate):
        return
    files = workspace.attachment.workspace
    subject = subject_of(tool.name, tool.effect, request.actor, arguments, files)
    ruled = ruling(gate.policy, subject)
    if ruled.rule and ruled.action == "deny":
        raise ApprovalDenied(
            f"{request.tool} with these arguments is denied: {ruled.why}",
            hint="Nothing was answered; the call still waits.",
            details={"by": ruled.by},
        )


def read_arguments(text: str, *, hint: str) -> dict[str, Any]:
    """A JSON object as a person typed it. InvalidArguments."""
    try:
        found = json.loads(text, parse_constant=_no_json)
    except (ValueError, RecursionError) as error:
        raise InvalidArguments(f"the arguments are not JSON: {error}", hint=hint) from None
    if not isinstance(found, dict):
        raise InvalidArguments("the arguments must be a JSON object", hint=hint)
    return found


def _no_json(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")
