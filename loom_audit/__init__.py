"""Flight recorder and time machine for AI-agent workspaces.

The names below are loaded when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from loom_audit.errors import AuditError
    from loom_audit.model.events import Call, Coverage, Event
    from loom_audit.model.files import FileChange, FileState
    from loom_audit.model.planning import Plan
    from loom_audit.session import (
        AuditedWorkspace,
        AuditStore,
        Session,
        builtin_registry,
        open_store,
    )
    from loom_audit.tools.function import tool
    from loom_audit.tools.registry import ToolRegistry
    from loom_audit.tools.tool import Tool, ToolResult

__version__ = "0.1.0"

_HOMES = {
    "AuditError": "errors",
    "AuditStore": "session",
    "AuditedWorkspace": "session",
    "Call": "model.events",
    "Coverage": "model.events",
    "Event": "model.events",
    "FileChange": "model.files",
    "FileState": "model.files",
    "Plan": "model.planning",
    "Session": "session",
    "Tool": "tools.tool",
    "ToolRegistry": "tools.registry",
    "ToolResult": "tools.tool",
    "builtin_registry": "session",
    "open_store": "session",
    "tool": "tools.function",
}

__all__ = [
    "AuditError",
    "AuditStore",
    "AuditedWorkspace",
    "Call",
    "Coverage",
    "Event",
    "FileChange",
    "FileState",
    "Plan",
    "Session",
    "Tool",
    "ToolRegistry",
    "ToolResult",
    "builtin_registry",
    "open_store",
    "tool",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
