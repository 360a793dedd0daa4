"""Which folder a log is of, and which scope was accepted for it, as the log says."""

from loom_audit.errors import Corrupt
from loom_audit.model.events import ScopeAccepted, WorkspaceAttached
from loom_audit.model.scope import Scope
from loom_audit.model.text.summaries import plain_text
from loom_audit.ports import EventFilter, EventLog, Projections

_ATTACHING = (ScopeAccepted.kind, WorkspaceAttached.kind)
"""The kinds of the events that say it. SQLite's index of them is used only where both are named."""


def is_attached_to(log: EventLog, root: str) -> bool:
    """Whether a log says that it is of this folder now. Corrupt where the log cannot be read."""
    return root == root_of(log)


def root_of(log: EventLog) -> str | None:
    """The folder that a log was last attached or moved to, None where it names none. Corrupt where
    the log cannot be read.
    """
    for event in log.read(EventFilter(kinds=_ATTACHING, newest_first=True)):
        if isinstance(event.fact, WorkspaceAttached):
            return event.fact.root
    return None


def accepted_scope(log: EventLog, projections: Projections, known: Scope | None) -> Scope:
    """The scope that was accepted last, as the tables say.

    One that is not the `known` one is compared with the log: Corrupt where the log says otherwise.
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
    """The error for a log whose folder the store's table of workspaces does not name so."""
    return Corrupt(
        f"the table of workspaces does not say what log {log} says, which is of {root}",
        hint="Somebody altered the store. `loom-audit db rebuild` makes the table anew from the"
        " log; then run `loom-audit verify`.",
        details={"log": log, "root": root},
    )
