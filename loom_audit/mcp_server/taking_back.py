"""Undo, rollback and the history of a path, as tools."""

from collections.abc import Sequence
from typing import Any

import mcp_types as types

from loom_audit.api.control.holding import record_ended_calls
from loom_audit.api.face import AuditedWorkspace
from loom_audit.model.text.display import count_text, first_few, visible_path
from loom_audit.tools.calls.result import ToolResult

BACK: Sequence[tuple[str, str, dict[str, Any]]] = (
    ("undo", "Take back the newest call that has not been taken back", {}),
    ("rollback", "Bring the whole workspace back to a point", {"point": {"type": "string"}}),
    ("history", "List every change of one path, newest first", {"path": {"type": "string"}}),
)


def took_back(
    workspace: AuditedWorkspace, actor: str, name: str, arguments: dict[str, Any]
) -> ToolResult:
    """Undo, roll back, or list a path's history, and tell what came of it."""
    if name == "history":
        path = str(arguments.get("path", "")).strip("/")
        rows = workspace.timeline.history(path)
        lines = [f"#{row.seq} {row.at.isoformat()} {row.actor} {row.change.path}" for row in rows]
        return ToolResult(True, "\n".join(lines) or f"{path} was never changed")
    record_ended_calls(workspace)
    if name == "undo":
        plan = workspace.plan_undo()
    else:
        plan = workspace.plan_rollback(str(arguments.get("point", "")))
    if plan.blocked:
        reasons = "; ".join(f"{note.path}: {note.reason}" for note in plan.blocked[:20])
        return ToolResult(False, f"Nothing was changed, this needs a person's choice: {reasons}")
    done = workspace.carry_out(plan, actor=actor)
    paths = [change.path for change in plan.changes]
    number = done.call.seq or done.call.requested
    changed = count_text(len(paths), "path")
    told = f"Call {number} changed {changed}"
    if plan.passed_over:
        left = first_few(plan.passed_over, 5, lambda note: visible_path(note.path))
        told += f"; passed over, because later calls only may have changed it: {left}"
    return ToolResult(True, told, files_changed=paths)


def back_tools() -> list[types.Tool]:
    """Describe undo, rollback and history as tools of the protocol."""
    return [
        types.Tool(
            name=name,
            description=what,
            input_schema={
                "type": "object",
                "properties": properties,
                "required": list(properties),
                "additionalProperties": False,
            },
            annotations=types.ToolAnnotations(
                read_only_hint=name == "history",
                destructive_hint=name != "history",
                open_world_hint=False,
            ),
        )
        for name, what, properties in BACK
    ]
