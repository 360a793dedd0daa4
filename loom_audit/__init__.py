"""Flight recorder and time machine for AI-agent workspaces.

The names below are loaded when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
    from loom_audit.history.integrity import Verification
    from loom_audit.history.undo import UndoResult
    from loom_audit.model.events import Call, Checkpoint, Coverage, Event, TreeHead
    from loom_audit.model.files import FileChange, FileState
    from loom_audit.model.planning import Plan
    from loom_audit.session import (
        AuditedWorkspace,
        AuditStore,
        Session,
        Status,
        builtin_registry,
        open_store,
    )
    from loom_audit.tools.approval import AllowAll, ApprovalGate, Decision, DenyAll
    from loom_audit.tools.asking import AskingGate
    from loom_audit.tools.batch import BatchOutcome, PostToolsHook, ToolBatch
    from loom_audit.tools.commit_hook import AutoCommit
    from loom_audit.tools.context import ToolContext
    from loom_audit.tools.function import tool
    from loom_audit.tools.messages import ToolCall
    from loom_audit.tools.registry import ToolRegistry
    from loom_audit.tools.result import ToolResult
    from loom_audit.tools.settings import ToolSettings
    from loom_audit.tools.tool import Tool

__version__ = "0.1.0"

_HOMES = {
    "AllowAll": "tools.approval",
    "ApprovalDenied": "errors",
    "ApprovalGate": "tools.approval",
    "ApprovalRequest": "history.approvals",
    "AskingGate": "tools.asking",
    "AuditedWorkspace": "session",
    "AuditError": "errors",
    "AuditStore": "session",
    "AuditUnavailable": "errors",
    "AutoCommit": "tools.commit_hook",
    "BatchOutcome": "tools.batch",
    "BlockedCommand": "errors",
    "builtin_registry": "session",
    "Call": "model.events",
    "Checkpoint": "model.events",
    "Conflict": "errors",
    "Corrupt": "errors",
    "Coverage": "model.events",
    "Decision": "tools.approval",
    "DenyAll": "tools.approval",
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
    "open_store": "session",
    "PermissionDenied": "errors",
    "Plan": "model.planning",
    "PostToolsHook": "tools.batch",
    "Session": "session",
    "Status": "session",
    "StorageFailed": "errors",
    "Tool": "tools.tool",
    "tool": "tools.function",
    "TooLarge": "errors",
    "ToolBatch": "tools.batch",
    "ToolCall": "tools.messages",
    "ToolContext": "tools.context",
    "ToolRegistry": "tools.registry",
    "ToolResult": "tools.result",
    "ToolSettings": "tools.settings",
    "ToolTimeout": "errors",
    "TreeHead": "model.events",
    "UndoResult": "history.undo",
    "UnknownTool": "errors",
    "Verification": "history.integrity",
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
