"""Where a workspace is and what is recorded of it, as its log says."""

from loom_audit.errors import Corrupt
from loom_audit.model.events import ScopeAccepted, WorkspaceAttached
from loom_audit.model.scope import Scope
from loom_audit.model.text.summaries import plain_text
from loom_audit.ports import EventFilter, EventLog, Projections

_ATTACHING = (ScopeAccepted.kind, WorkspaceAttached.kind)
"""The kinds by which these events are found, as the index of them has them."""


def is_attached_to(log: EventLog, root: str) -> bool:
    """Whether a log says that it is of this folder now. Corrupt where it cannot be read."""
    return root == root_of(log)


def root_of(log: EventLog) -> str | None:
    """The folder that a log was last attached or moved to; None where it names none. Corrupt."""
    for event in log.read(EventFilter(kinds=_ATTACHING, newest_first=True)):
        if isinstance(event.fact, WorkspaceAttached):
            return event.fact.root
    return None


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
    for event in log.read(EventFilter(kinds=_ATTACHING, newest_first=True)):
        if isinstance(event.fact, ScopeAccepted) and ignore is None:
            ignore = event.fact.ignore
        if isinstance(event.fact, WorkspaceAttached):
            told = event.fact.ignore if ignore is None else ignore
            return Scope(plain_text(told), event.fact.max_file_bytes)
    return Scope()


def not_named(log: str, root: str) -> Corrupt:
    """The error about a workspace that the store's table does not name, or names otherwise."""
    return Corrupt(
        f"the table of workspaces does not say what log {log} says, which is of {root}",
        hint="Somebody altered the store. `loom-audit db rebuild` makes the table anew from the"
        " log; then run `loom-audit verify`.",
        details={"log": log, "root": root},
    )
