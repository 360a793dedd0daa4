"""What can be known of an answer before it is given, by a process other than the one that asked."""

import json
from typing import Any

from loom_audit.api.workspace import AuditedWorkspace
from loom_audit.errors import ApprovalDenied, InvalidArguments
from loom_audit.history.approvals import ApprovalRequest
from loom_audit.tools.approvals.asking import AskingGate, denying
from loom_audit.tools.bundled.builtin import builtin_tools


def check_arguments(
    workspace: AuditedWorkspace, request: ApprovalRequest, arguments: dict[str, Any]
) -> None:
    """Refuse arguments that a bundled tool or a rule refuses. InvalidArguments, ApprovalDenied.

    What other tools take, and what is on disk by then, the process that asked alone can tell.
    """
    tool = next((one for one in builtin_tools() if one.name == request.tool), None)
    if tool is None:
        return
    tool.parse(arguments)
    gate = workspace.default_gate()
    if not isinstance(gate, AskingGate):
        return
    rule = denying(gate.policy, tool, arguments, workspace.at.workspace, request.actor)
    if rule is not None:
        raise ApprovalDenied(
            f"{request.tool} with these arguments is denied: {rule.why}",
            hint="Nothing was answered; the call still waits.",
            details={"by": rule.name},
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
    raise ValueError(f"{name} is no number of JSON")
