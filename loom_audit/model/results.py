"""What a call gave, as the log keeps it."""

from collections.abc import Mapping, Sequence
from typing import Any

from loom_audit.errors import ApprovalDenied, AuditError, ExecutionFailed, ToolTimeout
from loom_audit.model.coverage import Status
from loom_audit.model.text.cutting import cut
from loom_audit.model.values import nearest_json

MAX_KEPT = 1024 * 1024
"""Bytes of a result's output in the log, as UTF-8."""


def result_record(
    success: bool,
    output: str = "",
    data: Any = None,
    files_changed: Sequence[str] = (),
    error: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The one form of a result. `data` is a JSON value, `error` has at least `code`, `message`."""
    return {
        "success": success,
        "output": output,
        "data": data,
        "files_changed": [*files_changed],
        "error": error,
    }


def told_result(status: Status, told: Mapping[str, Any]) -> dict[str, Any]:
    """What a client told of a call's end: its `output`, a text, and `data`, an object."""
    output, data = told.get("output"), told.get("data")
    text = output if isinstance(output, str) else ""
    error = told_error(status, text)
    kept = nearest_json(dict(data)) if data else None
    failed = error.to_dict() if error else None
    return result_record(error is None, cut(text, MAX_KEPT), kept, error=failed)


def told_error(status: Status, output: str) -> AuditError | None:
    """Why a call failed, by the first line that is told; None for one that did not fail."""
    if status in ("ok", "running", "unknown"):
        return None
    message = next(iter(output.splitlines()), "")[:500] or f"the client reported {status}"
    if status == "denied":
        return ApprovalDenied(message)
    return ToolTimeout(message) if status == "timeout" else ExecutionFailed(message)
