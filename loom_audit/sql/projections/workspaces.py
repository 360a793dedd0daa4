"""The workspace behind each log: where it is, its scope, when its first listing was complete."""

from loom_audit.model.events import BaselineFinished, ScopeAccepted, WorkspaceAttached
from loom_audit.model.scope import Scope
from loom_audit.model.text.summaries import plain_text
from loom_audit.sql.ground.connections import Connections
from loom_audit.sql.ground.packing import check_numbers, check_texts, corrupt_on_mismatch, pack_path
from loom_audit.sql.ground.statements import prepare
from loom_audit.sql.projections.rows import FollowedEvent, Rows

TABLES = ("workspace",)
FACTS = (WorkspaceAttached, BaselineFinished, ScopeAccepted)

_ATTACHED = prepare(
    "INSERT INTO workspace (log, root, ignore, max_file_bytes, attached, attached_at) "
    "VALUES (:log, :root, :ignore, :max_file_bytes, :seq, :at) ON CONFLICT (log) DO NOTHING"
)
# one statement for all that changes the row, so that later events overrule earlier ones
_TOLD = prepare(
    "UPDATE workspace SET root = coalesce(:root, root), ignore = coalesce(:ignore, ignore), "
    "max_file_bytes = coalesce(:max_file_bytes, max_file_bytes), "
    "baseline = coalesce(:baseline, baseline) WHERE log = :log AND attached <= :seq"
)
STATEMENTS = (_ATTACHED, _TOLD)

_SCOPE = prepare("SELECT ignore, max_file_bytes FROM workspace WHERE log = :log")


def apply(event: FollowedEvent, rows: Rows) -> None:
    """Follow what an event says of the workspace; nothing before it is attached."""
    seq = event.seq
    match event.fact:
        case WorkspaceAttached(root=root, ignore=ignore, max_file_bytes=limit):
            said = {
                "root": pack_path(root),
                "ignore": plain_text(ignore),
                "max_file_bytes": limit,
            }
            rows.add(_ATTACHED, seq=seq, at=event.at, **said)
            rows.add(_TOLD, seq=seq, baseline=None, **said)
        case BaselineFinished():
            rows.add(_TOLD, seq=seq, root=None, ignore=None, max_file_bytes=None, baseline=seq)
        case ScopeAccepted(ignore=ignore):
            ignore = plain_text(ignore)
            rows.add(_TOLD, seq=seq, root=None, ignore=ignore, max_file_bytes=None, baseline=None)


def scope(connections: Connections, log: int) -> Scope:
    """The scope as last accepted; the usual one before the workspace is attached."""
    rows = connections.rows(_SCOPE, log=log)
    with corrupt_on_mismatch():
        for ignore, limit in rows:
            check_texts(ignore)
            check_numbers(limit)
    return Scope(*rows[0]) if rows else Scope()
