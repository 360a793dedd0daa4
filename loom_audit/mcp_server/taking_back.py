"""Rollback as a tool, for a client whose user allows that."""

import mcp_types as types

from loom_audit.api.control.holding import record_ended_calls
from loom_audit.api.face import AuditedWorkspace
from loom_audit.model.text.display import count_text
from loom_audit.tools.calls.result import ToolResult

ROLLBACK = "rollback"


def roll_back(workspace: AuditedWorkspace, actor: str, point: str) -> ToolResult:
    """Bring the whole workspace to a point, whoever changed it since, and tell what came of it.

    NotFound, InvalidArguments for the point; Conflict.
    """
    record_ended_calls(workspace)
    plan = workspace.plan_rollback(point)
    if plan.blocked:
        reasons = "; ".join(f"{note.path}: {note.reason}" for note in plan.blocked[:20])
        return ToolResult(False, f"Nothing was changed, this needs a person's choice: {reasons}")
    done = workspace.carry_out(plan, actor=actor)
    paths = [change.path for change in plan.changes]
    number = done.call.seq or done.call.requested
    told = f"Call {number} changed {count_text(len(paths), 'path')}"
    return ToolResult(True, told, files_changed=paths)


def rollback_tool() -> types.Tool:
    """Describe the rollback as a tool of the protocol."""
    return types.Tool(
        name=ROLLBACK,
        description="Bring the whole workspace back to a point, whoever changed it since",
        input_schema={
            "type": "object",
            "properties": {"point": {"type": "string"}},
            "required": ["point"],
            "additionalProperties": False,
        },
        annotations=types.ToolAnnotations(
            read_only_hint=False, destructive_hint=True, open_world_hint=False
        ),
    )
