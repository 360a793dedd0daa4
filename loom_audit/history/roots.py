"""Where a workspace is and what is recorded of it, as its log says."""

from loom_audit.errors import Corrupt
from loom_audit.model.events import ScopeAccepted, WorkspaceAttached
from loom_audit.model.scope import Scope
from loom_audit.model.summaries import plain_text
from loom_audit.ports import EventFilter, EventLog, Projections


def is_attached_to(log: EventLog, root: str) -> bool:
    """Whether a log says that it is of this folder. Corrupt where it cannot be read."""
    return root == first_root(log) or root == last_root(log)


def first_root(log: EventLog) -> str | None:
    """The folder that a log was first attached to; None where it does not begin so. Corrupt."""
    return _root(log, EventFilter.only(1))


def last_root(log: EventLog) -> str | None:
    """The folder that a log was last attached to, looked for in all of it. Corrupt."""
    return _root(log, EventFilter(kinds=(WorkspaceAttached.kind,), newest_first=True, limit=1))


def accepted_scope(log: EventLog, projections: Projections, known: Scope | None) -> Scope:
    """What is recorded of a workspace, as the tables say; unless `known`, the log is asked too.

    Corrupt where that says otherwise.
    """
    listed = projections.scope()
    if listed == known:
        return listed
    recorded = _recorded_scope(log)
    # another process may have accepted one in between
    if recorded not in (listed, projections.scope()):
        raise Corrupt(
            "What the tables say is recorded of this workspace is not what its log says",
            hint="Somebody altered the store. `loom-audit db rebuild` makes the tables anew from"
            " the log; then run `loom-audit verify`.",
        )
    return recorded


def _recorded_scope(log: EventLog) -> Scope:
    ignore: str | None = None
    kinds = (ScopeAccepted.kind, WorkspaceAttached.kind)
    for event in log.read(EventFilter(kinds=kinds, newest_first=True)):
        if isinstance(event.fact, ScopeAccepted) and ignore is None:
            ignore = event.fact.ignore
        if isinstance(event.fact, WorkspaceAttached):
            told = event.fact.ignore if ignore is None else ignore
            return Scope(plain_text(told), event.fact.max_file_bytes)
    return Scope()


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
