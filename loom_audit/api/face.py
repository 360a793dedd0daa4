"""What commands and pages see of the store, each of which imports from where it is what it runs.

Who imports this loads all of it.
"""

from loom_audit.api.foreign import ForeignSession
from loom_audit.api.ground.status import Status
from loom_audit.api.session import CommandRun, Session
from loom_audit.api.store import AuditStore, check_root, lost_store_hint, open_store, person
from loom_audit.api.workspace import AuditedWorkspace
from loom_audit.history.check.log_check import Finding
from loom_audit.history.check.verification import Verification
from loom_audit.history.ground.questions import ApprovalRequest
from loom_audit.history.read.call_detail import CallDetail
from loom_audit.history.read.finding import Findings, Hit, find, prepare_search
from loom_audit.history.read.timeline import Timeline
from loom_audit.history.record.call import OpenCall
from loom_audit.history.record.recovery import RecoveredCall
from loom_audit.history.undo.undo import UndoResult
from loom_audit.wiring.adapters import WorkspaceEntry

__all__ = [
    "ApprovalRequest",
    "AuditStore",
    "AuditedWorkspace",
    "CallDetail",
    "CommandRun",
    "Finding",
    "Findings",
    "ForeignSession",
    "Hit",
    "OpenCall",
    "RecoveredCall",
    "Session",
    "Status",
    "Timeline",
    "UndoResult",
    "Verification",
    "WorkspaceEntry",
    "check_root",
    "find",
    "lost_store_hint",
    "open_store",
    "person",
    "prepare_search",
]
