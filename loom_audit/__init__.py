"""Flight recorder and time machine for AI-agent workspaces.

The names below are loaded when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from loom_audit.api import (
        AuditedWorkspace,
        AuditStore,
        Session,
        Status,
        builtin_registry,
        open_store,
    )
    from loom_audit.api.registry import ToolRegistry
    from loom_audit.errors import (
        ApprovalDenied,
        AuditError,
        AuditUnavailable,
        BlockedCommand,
        Conflict,
        Corrupt,
        ExecutionFailed,
        FileNotFound,
        InvalidArguments,
        InvalidPath,
        NotFound,
        NotSerializable,
        NoWorkspace,
        PermissionDenied,
        StorageFailed,
        TooLarge,
        ToolTimeout,
        UnknownTool,
    )
    from loom_audit.history.approvals import ApprovalRequest
    from loom_audit.history.undo import UndoResult
    from loom_audit.history.verification import Verification
    from loom_audit.model.events import Call, Checkpoint, Coverage, Event, TreeHead
    from loom_audit.model.files import FileChange, FileState
    from loom_audit.model.planning import Plan
    from loom_audit.tools.approvals.asking import AskingGate
    from loom_audit.tools.bundled.git.commit_hook import AutoCommit
    from loom_audit.tools.calls.batch import BatchOutcome, PostToolsHook, ToolBatch
    from loom_audit.tools.calls.context import ToolContext
    from loom_audit.tools.calls.function import tool
    from loom_audit.tools.calls.gate import AllowAll, ApprovalGate, Decision, DenyAll
    from loom_audit.tools.calls.messages import ToolCall
    from loom_audit.tools.calls.result import ToolResult
    from loom_audit.tools.calls.settings import ToolSettings
    from loom_audit.tools.calls.tool import Tool

__version__ = "0.1.0"

_HOMES = {
    "AllowAll": "tools.calls.gate",
    "ApprovalDenied": "errors",
    "ApprovalGate": "tools.calls.gate",
    "ApprovalRequest": "history.approvals",
    "AskingGate": "tools.approvals.asking",
    "AuditedWorkspace": "api",
    "AuditError": "errors",
    "AuditStore": "api",
    "AuditUnavailable": "errors",
    "AutoCommit": "tools.bundled.git.commit_hook",
    "BatchOutcome": "tools.calls.batch",
    "BlockedCommand": "errors",
    "builtin_registry": "api",
    "Call": "model.events",
    "Checkpoint": "model.events",
    "Conflict": "errors",
    "Corrupt": "errors",
    "Coverage": "model.events",
    "Decision": "tools.calls.gate",
    "DenyAll": "tools.calls.gate",
    "Event": "model.events",
    "ExecutionFailed": "errors",
    "FileChange": "model.files",
    "FileNotFound": "errors",
    "FileState": "model.files",
    "InvalidArguments": "errors",
    "InvalidPath": "errors",
    "NotFound": "errors",
    "NotSerializable": "errors",
    "NoWorkspace": "errors",
    "open_store": "api",
    "PermissionDenied": "errors",
    "Plan": "model.planning",
    "PostToolsHook": "tools.calls.batch",
    "Session": "api",
    "Status": "api",
    "StorageFailed": "errors",
    "Tool": "tools.calls.tool",
    "tool": "tools.calls.function",
    "TooLarge": "errors",
    "ToolBatch": "tools.calls.batch",
    "ToolCall": "tools.calls.messages",
    "ToolContext": "tools.calls.context",
    "ToolRegistry": "api.registry",
    "ToolResult": "tools.calls.result",
    "ToolSettings": "tools.calls.settings",
    "ToolTimeout": "errors",
    "TreeHead": "model.events",
    "UndoResult": "history.undo",
    "UnknownTool": "errors",
    "Verification": "history.verification",
}

__all__ = [
    "AllowAll",
    "ApprovalDenied",
    "ApprovalGate",
    "ApprovalRequest",
    "AskingGate",
    "AuditError",
    "AuditStore",
    "AuditUnavailable",
    "AuditedWorkspace",
    "AutoCommit",
    "BatchOutcome",
    "BlockedCommand",
    "Call",
    "Checkpoint",
    "Conflict",
    "Corrupt",
    "Coverage",
    "Decision",
    "DenyAll",
    "Event",
    "ExecutionFailed",
    "FileChange",
    "FileNotFound",
    "FileState",
    "InvalidArguments",
    "InvalidPath",
    "NoWorkspace",
    "NotFound",
    "NotSerializable",
    "PermissionDenied",
    "Plan",
    "PostToolsHook",
    "Session",
    "Status",
    "StorageFailed",
    "TooLarge",
    "Tool",
    "ToolBatch",
    "ToolCall",
    "ToolContext",
    "ToolRegistry",
    "ToolResult",
    "ToolSettings",
    "ToolTimeout",
    "TreeHead",
    "UndoResult",
    "UnknownTool",
    "Verification",
    "builtin_registry",
    "open_store",
    "tool",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
