"""Calls that wait for an answer, and what the rules say of arguments put in place by it."""

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from loom_audit.api.workspace import AuditedWorkspace
from loom_audit.config import APPROVALS
from loom_audit.errors import ApprovalDenied, InvalidArguments
from loom_audit.history.ground.questions import ApprovalRequest, last_decisions
from loom_audit.history.ground.questions import is_waiting as is_waiting_in
from loom_audit.model.events import CallDecided
from loom_audit.model.records import Call


def has_rules(workspace: AuditedWorkspace) -> bool:
    """Whether there is a file of rules, valid or not; without one nothing is asked."""
    return os.path.lexists(workspace.adapters.settings.configuration / APPROVALS)


def is_waiting(workspace: AuditedWorkspace, call: Call) -> bool:
    """Whether a call waits for an answer, so that it has not begun to do anything."""
    return call.seq is None and is_waiting_in(workspace.log, call)


def decisions(workspace: AuditedWorkspace, calls: Sequence[Call]) -> Mapping[int, CallDecided]:
    """The last answer about each of these calls that has one, by the seq of the call's request."""
    return last_decisions(workspace.log, calls)


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
    parsed = tool.parse(arguments)
    gate = workspace.default_gate()
    if not isinstance(gate, AskingGate):
        return
    files = workspace.attachment.on_disk.workspace
    effects = tool.effects(parsed)
    subject = subject_of(tool.name, tool.effect, request.actor, arguments, files, effects=effects)
    ruled = ruling(gate.policy, subject)
    if ruled.rule and ruled.action == "deny":
        raise ApprovalDenied(
            f"{request.tool} with these arguments is denied: {ruled.why}",
            hint="Nothing was answered; the call still waits.",
            details={"by": ruled.by},
        )


def read_arguments(text: str, *, hint: str) -> dict[str, Any]:
    """The JSON object that a person typed. InvalidArguments for another text."""
    try:
        found = json.loads(text, parse_constant=_no_json)
    except (ValueError, RecursionError) as error:
        raise InvalidArguments(f"the arguments are not JSON: {error}", hint=hint) from None
    if not isinstance(found, dict):
        raise InvalidArguments("the arguments must be a JSON object", hint=hint)
    return found


def _no_json(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")
