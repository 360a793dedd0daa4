"""Files outside of workspaces: the system's errors as ours, a filesystem's kind, hooks' spool."""

from loom_audit.disk.access.paths import audit_errors
from loom_audit.disk.machine.shared_filesystems import check_own_filesystem
from loom_audit.disk.machine.spool import Spool

__all__ = [
    "Spool",
    "audit_errors",
    "check_own_filesystem",
]
