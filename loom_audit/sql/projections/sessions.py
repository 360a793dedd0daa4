"""Sessions: from the first event of each to its last, whatever these say."""

from collections.abc import Sequence

from loom_audit.errors import NotFound
from loom_audit.model.coverage import NOT_FAILED
from loom_audit.model.events import (
    CallFinished,
    CallReported,
    CallRequested,
    SessionEnded,
    SessionStarted,
)
from loom_audit.model.records import Session
from loom_audit.model.text.summaries import plain_text
from loom_audit.sql.ground.connection import LARGEST, Connection, Row
from loom_audit.sql.ground.packing import corrupt_on_mismatch
from loom_audit.sql.ground.reading import RowReading
from loom_audit.sql.ground.statements import prepare
from loom_audit.sql.projections.rows import FollowedEvent, Rows

TABLES = ("session",)
FACTS = ()

NUMBER = "(SELECT number FROM session WHERE log = :log AND id = :session)"
"""The number of the session `:session`; null when it is ""."""

# The actor is that of the first event and stays: rows of calls and changes lean on it.
_SEEN = prepare(
    "INSERT INTO session (log, id, agent, actor, title, started, started_at, last, status, "
    "calls, errors, files) VALUES (:log, :id, '', :actor, '', :started, :started_at, :last, "
    "'open', :calls, :errors, 0) ON CONFLICT (log, id) DO UPDATE SET last = excluded.last, "
    "calls = session.calls + excluded.calls, errors = session.errors + excluded.errors"
)
# one statement for both, so that a session that is opened again after its end is open
_STARTED_OR_ENDED = prepare(
    "UPDATE session SET agent = coalesce(:agent, agent), title = coalesce(:title, title), "
    "parent = CASE WHEN :agent IS NULL THEN parent ELSE :parent END, ended = :ended, "
    "ended_at = :ended_at, status = :status WHERE log = :log AND id = :id"
)
STATEMENTS = (_SEEN, _STARTED_OR_ENDED)

_READ = RowReading(Session, "session")
_NEWEST_FIRST = prepare(
    f"SELECT {_READ.columns} FROM session WHERE log = :log AND started < :before "
    "ORDER BY started DESC LIMIT :limit"
)
_OUTERMOST = prepare(
    f"SELECT {_READ.columns} FROM session WHERE log = :log AND started < :before "
    "AND NOT EXISTS (SELECT 1 FROM session AS around WHERE around.log = :log "
    "AND around.id = session.parent AND around.started < session.started) "
    "ORDER BY started DESC LIMIT :limit"
)
_ONE = prepare(f"SELECT {_READ.columns} FROM session WHERE log = :log AND id = :id")
_OPEN = prepare(
    f"SELECT {_READ.columns} FROM session WHERE log = :log AND ended IS NULL ORDER BY started"
)
# a part begins after what contains it
_WITHIN = prepare(
    f"SELECT {_READ.columns} FROM session WHERE log = :log AND started > :first "
    "AND parent = :id ORDER BY started"
)
_SPAN = prepare("SELECT number, started, last FROM session WHERE log = :log AND id = :id")


def apply(event: FollowedEvent, rows: Rows) -> None:
    """Follow the span and counts of a session, and how it began and ended."""
    id = event.session
    if not id:
        return
    seen = rows.kept(_SEEN, id)
    if seen is None:
        seen = rows.keep(
            _SEEN,
            id,
            id=id,
            actor=event.actor,
            started=event.seq,
            started_at=event.at,
            last=event.seq,
            calls=0,
            errors=0,
        )
    else:
        seen["last"] = event.seq
    match event.fact:
        case CallRequested():
            seen["calls"] += 1
        case CallFinished(status=status):
            seen["errors"] += status not in NOT_FAILED
        case CallReported(replaces=int(), inferred=inferred, status=status):
            seen["errors"] += (status not in NOT_FAILED) - (inferred not in NOT_FAILED)
        case SessionStarted(agent=agent, title=title, parent=parent):
            agent, title = plain_text(agent), plain_text(title)
            begun = {"agent": agent, "title": title, "parent": parent}
            rows.add(_STARTED_OR_ENDED, id=id, ended=None, ended_at=None, status="open", **begun)
        case SessionEnded(status=outcome):
            end = {"ended": event.seq, "ended_at": event.at, "status": outcome}
            rows.add(_STARTED_OR_ENDED, id=id, agent=None, title=None, parent=None, **end)


def newest(
    connection: Connection, log: int, before: int | None, limit: int, *, outermost: bool
) -> Sequence[Session]:
    """The sessions that began before a seq, newest first, at most `limit`; with `outermost` those
    alone that are in no other session on record.
    """
    before = LARGEST if before is None else before
    rows = (_OUTERMOST if outermost else _NEWEST_FIRST).rows(
        connection, log=log, before=before, limit=limit
    )
    return _to_sessions(rows)


def by_id(connection: Connection, log: int, id: str) -> Session:
    """The session of this id. NotFound when there is none."""
    row = _ONE.first(connection, log=log, id=id) if can_be_stored(id) else None
    if row is None:
        raise NotFound(f"There is no session {id}", hint="Run `loom-audit session` to list them.")
    return _to_sessions([row])[0]


def span(connection: Connection, log: int, id: str) -> tuple[int, int, int] | None:
    """The number of a session, and the seqs of its first and last event; None when unknown."""
    row = _SPAN.first(connection, log=log, id=id) if can_be_stored(id) else None
    return None if row is None else (row[0], row[1], row[2])


def sessions_within(connection: Connection, log: int, id: str) -> Sequence[Session]:
    """The sessions that are parts of a session, oldest first."""
    found = span(connection, log, id)
    if found is None:
        return []
    return _to_sessions(_WITHIN.rows(connection, log=log, first=found[1], id=id))


def can_be_stored(id: str) -> bool:
    """Whether a text, as somebody typed it, can be that of a row: it has no lone surrogate."""
    try:
        id.encode()
    except UnicodeEncodeError:
        return False
    return True


def not_ended(connection: Connection, log: int) -> Sequence[Session]:
    """The sessions that have not ended, oldest first."""
    return _to_sessions(_OPEN.rows(connection, log=log))


def _to_sessions(rows: Sequence[Row]) -> list[Session]:
    with corrupt_on_mismatch():
        return [_READ.read(row) for row in rows]
