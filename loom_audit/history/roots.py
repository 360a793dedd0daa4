"""Where a workspace is, as its log says."""

from loom_audit.errors import Corrupt
from loom_audit.model.events import WorkspaceAttached
from loom_audit.ports import EventFilter, EventLog


def is_attached_to(log: EventLog, root: str) -> bool:
    """Whether a log says that it is of this folder. Corrupt where it cannot be read."""
    return root == first_root(log) or root == last_root(log)


def first_root(log: EventLog) -> str | None:
    """The folder that a log was first attached to; None where it does not begin so. Corrupt."""
    return _root(log, EventFilter.only(1))


def last_root(log: EventLog) -> str | None:
    """The folder that a log was last attached to, looked for in all of it. Corrupt."""
    return _root(log, EventFilter(kinds=(WorkspaceAttached.kind,), newest_first=True, limit=1))


def _root(log: EventLog, wanted: EventFilter) -> str | None:
    for event in log.read(wanted):
        return event.fact.root if isinstance(event.fact, WorkspaceAttached) else None
    return None


def not_named(log: str, root: str) -> Corrupt:
    """The error about a workspace that the store's table does not name, or names otherwise."""
    return Corrupt(
        f"the table of workspaces does not say what log {log} says, which is of {root}",
        hint="Somebody altered the store. `loom-audit db rebuild` makes the table anew from the"
        " log; then run `loom-audit verify`.",
        details={"log": log, "root": root},
    )
