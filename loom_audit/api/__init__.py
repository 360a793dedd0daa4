"""The Python face: open a store, attach a directory, record sessions, look and take back."""

from loom_audit.api.connections import Connections
from loom_audit.api.session import Session
from loom_audit.api.store import AuditStore, open_store
from loom_audit.api.workspace import AuditedWorkspace, Status, person
from loom_audit.tools.bundled.builtin import builtin_registry

__all__ = [
    "AuditStore",
    "AuditedWorkspace",
    "Connections",
    "Session",
    "Status",
    "builtin_registry",
    "open_store",
    "person",
]
