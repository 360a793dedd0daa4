"""Changes of files: which event changed which path, from what to what, and for which call."""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

from loom_audit.model.events import FilesChanged, Origin, RecordedChange
from loom_audit.model.files import FileChange
from loom_audit.sql.blob_rows import INSERT_ABSENT
from loom_audit.sql.clock import from_micros
from loom_audit.sql.conditions import MANY, Where, chunks, in_list
from loom_audit.sql.connection import Connection, Row
from loom_audit.sql.connections import Connections
from loom_audit.sql.packing import (
    check_numbers,
    check_texts,
    corrupt_on_mismatch,
    pack_id,
    unpack_id,
)
from loom_audit.sql.projections import sessions, states
from loom_audit.sql.projections.rows import FollowedEvent, Rows, json_list
from loom_audit.sql.statements import prepare

TABLES = ("change_set", "file_change", "call_change")
FACTS = (FilesChanged,)

LISTED_PATHS = 20
READ_CHANGES = 1000
FEW = 2_000
"""Up to so many, what touched a path is looked up by it; past that the newest are near at hand."""

_LAST = 2**63 - 1

PATH_NUMBER = "(SELECT number FROM path WHERE log = :log AND path = :path)"
BLOB_NUMBER = "(SELECT number FROM blob WHERE sha256 = :{})"

_CHANGE_SET = prepare(
    "INSERT INTO change_set (log, seq, at, session, actor, origin, call, causes) "
    f"VALUES (:log, :seq, :at, {sessions.NUMBER}, :actor, :origin, :call, :causes)"
)
_PATH = prepare(
    "INSERT INTO path (log, path) VALUES (:log, :path) ON CONFLICT (log, path) DO NOTHING"
)
_FILE_CHANGE = prepare(
    "INSERT INTO file_change (log, seq, n, path, old_mode, old_size, old_blob, new_mode, "
    f"new_size, new_blob) VALUES (:log, :seq, :n, {PATH_NUMBER}, :old_mode, :old_size, "
    f"{BLOB_NUMBER.format('old_blob')}, :new_mode, :new_size, {BLOB_NUMBER.format('new_blob')})"
)
_CALL_CHANGE = prepare(
    "INSERT INTO call_change (log, requested, seq, own) SELECT :log, requested, :seq, :own "
    "FROM call WHERE log = :log AND call_id = :call_id AND requested < :seq ORDER BY "
    f"CASE WHEN session IS NOT DISTINCT FROM {sessions.NUMBER} THEN 0 ELSE 1 END, "
    "requested DESC LIMIT 1 ON CONFLICT DO NOTHING"
)
_CALL_COUNT = prepare(
    "UPDATE call SET changed = changed + (SELECT count(DISTINCT f.path) FROM file_change f "
    "WHERE f.log = :log AND f.seq = :seq AND NOT EXISTS (SELECT 1 FROM call_change c "
    "JOIN file_change g ON g.log = c.log AND g.seq = c.seq AND g.path = f.path "
    "WHERE c.log = :log AND c.requested = call.requested AND c.seq < :seq AND c.own = 1)) "
    "WHERE log = :log AND requested = "
    "(SELECT requested FROM call_change WHERE log = :log AND seq = :seq AND own = 1)"
)
_SESSION_COUNT = prepare(
    "UPDATE session SET files = files + (SELECT count(DISTINCT f.path) FROM file_change f "
    "WHERE f.log = :log AND f.seq = :seq AND NOT EXISTS (SELECT 1 FROM file_change g "
    "JOIN change_set s ON s.log = g.log AND s.seq = g.seq WHERE g.log = f.log "
    "AND g.path = f.path AND g.seq < :seq AND g.seq >= session.started "
    "AND s.session = session.number AND s.call IS NOT NULL)) WHERE log = :log AND id = :session"
)
STATEMENTS = (
    _CHANGE_SET, INSERT_ABSENT, _PATH, _FILE_CHANGE, _CALL_CHANGE, _CALL_COUNT, _SESSION_COUNT,
)  # fmt: skip

_CHANGES = (
    "SELECT f.seq, f.n, x.at, s.id, x.actor, x.origin, x.call, x.causes, c.finished, p.path, "
    "f.old_mode, f.old_size, old.sha256, f.new_mode, f.new_size, new.sha256 FROM file_change f "
    "JOIN change_set x ON x.log = f.log AND x.seq = f.seq JOIN path p ON p.number = f.path "
    "LEFT JOIN session s ON s.number = x.session "
    "LEFT JOIN call c ON c.log = x.log AND c.call_id = x.call "
    "AND coalesce(c.session, 0) = coalesce(x.session, 0) "
    "LEFT JOIN blob old ON old.number = f.old_blob LEFT JOIN blob new ON new.number = f.new_blob"
)
_FIRST_PATHS = prepare(
    "SELECT p.path FROM call_change c "
    "JOIN file_change f ON f.log = c.log AND f.seq = c.seq JOIN path p ON p.number = f.path "
    "WHERE c.log = :log AND c.requested = :requested AND c.own = 1 "
    "ORDER BY f.seq, f.n LIMIT :limit"
)
_ANY = prepare("SELECT seq FROM file_change WHERE log = :log AND seq > :after LIMIT 1")
_TOUCHING = (
    "FROM path p JOIN file_change f ON f.log = p.log AND f.path = p.number "
    "JOIN call_change x ON x.log = f.log AND x.seq = f.seq WHERE p.log = :log AND ({}) "
    "AND x.own = 1"
)


def apply(event: FollowedEvent, rows: Rows) -> None:
    """The changes of one event, with the calls that made them or may have."""
    fact = event.fact
    if not isinstance(fact, FilesChanged):
        return
    key: dict[str, Any] = {"seq": event.seq, "session": event.session}
    rows.add(
        _CHANGE_SET,
        **key,
        at=event.at,
        actor=event.actor,
        origin=fact.origin,
        call=pack_id(fact.call_id) if fact.call_id else None,
        causes=json_list(fact.causes),
    )
    for n, change in enumerate(fact.changes):
        _apply_one(rows, event.seq, n, change)
    for call_id in dict.fromkeys((*([fact.call_id] if fact.call_id else ()), *fact.causes)):
        own = int(call_id == fact.call_id)
        rows.add(_CALL_CHANGE, **key, call_id=pack_id(call_id), own=own)
    if fact.call_id:
        rows.add(_CALL_COUNT, seq=event.seq)
        if event.session:
            rows.add(_SESSION_COUNT, **key)


def _apply_one(rows: Rows, seq: int, n: int, change: FileChange) -> None:
    path = change.path.encode("utf-8", "surrogateescape")
    old_mode, old_size, old_blob = states.columns(change.before)
    new_mode, new_size, new_blob = states.columns(change.after)
    for digest, size in ((old_blob, old_size), (new_blob, new_size)):
        if digest is not None and rows.kept(INSERT_ABSENT, digest) is None:
            rows.keep(INSERT_ABSENT, digest, sha256=digest, size=size)
    rows.keep(_PATH, path, path=path)
    rows.add(
        _FILE_CHANGE,
        seq=seq,
        n=n,
        path=path,
        old_mode=old_mode,
        old_size=old_size,
        old_blob=old_blob,
        new_mode=new_mode,
        new_size=new_size,
        new_blob=new_blob,
    )


# --- reading ------------------------------------------------------------------------------


def changes(
    connections: Connections,
    log: int,
    *,
    after: int,
    until: int | None,
    paths: Iterable[str] | None,
    call_ids: Iterable[str] | None,
) -> Iterator[RecordedChange]:
    """Changes in log order, a thousand at a time; `call_ids` are causes or candidates."""
    if not connections.rows(_ANY, log=log, after=after):
        return  # mostly nothing has changed, and that is told quickly
    until = _LAST if until is None else until
    span = {"after": after, "until": until}
    where = Where().also("f.log = :log AND f.seq > :after AND f.seq <= :until", log=log, **span)
    names = None if paths is None else {p.encode("utf-8", "surrogateescape") for p in paths}
    if names is not None and len(names) <= MANY:
        listed, values = in_list("path", [*names])
        numbers = f"SELECT number FROM path WHERE log = :log AND path IN ({listed})"
        where, names = where.also(f"f.path IN ({numbers})", **values), None
    if call_ids is None:
        parts: Iterable[Where] = (where,)
    else:
        seqs = _seqs_of(connections, log, [pack_id(id) for id in call_ids], span)
        parts = (where.among("f.seq", "s", some) for some in chunks(seqs))
    for part in parts:
        for row in _pages(connections, part):
            if names is None or row[9] in names:
                yield _to_change(row)


def _seqs_of(
    connections: Connections, log: int, ids: Sequence[bytes], span: dict[str, int]
) -> list[int]:
    """Events with changes of these calls, or that may be theirs, in order."""
    found: set[int] = set()
    for some in chunks(ids):
        listed, values = in_list("id", some)
        sql = (
            "SELECT x.seq FROM call c "
            "JOIN call_change x ON x.log = c.log AND x.requested = c.requested "
            f"WHERE c.log = :log AND c.call_id IN ({listed}) AND x.seq > :after AND x.seq <= :until"
        )
        found.update(row[0] for row in connections.rows(prepare(sql), log=log, **span, **values))
    return sorted(found)


def _pages(connections: Connections, where: Where) -> Iterator[Row]:
    """The rows in order, some at a time, each time of one state of the store."""
    rest = where
    while True:
        sql = f"{_CHANGES} WHERE {rest} ORDER BY f.seq, f.n LIMIT {READ_CHANGES}"
        rows = connections.rows(prepare(sql), **rest.values)
        yield from rows
        if len(rows) < READ_CHANGES:
            return
        seq, n = rows[-1][:2]
        rest = where.also("(f.seq, f.n) > (:last_seq, :last_n)", last_seq=seq, last_n=n)


def history(
    connection: Connection, log: int, path: str, *, below: bool, before: int | None, limit: int
) -> Sequence[RecordedChange]:
    """Changes of one path, newest first; with `below` of all paths inside it too."""
    place, values = _place(path, below=below)
    numbers = f"SELECT number FROM path WHERE log = :log AND ({place.format('path')})"
    few = f"SELECT seq FROM file_change WHERE log = :log AND path IN ({numbers}) LIMIT {FEW + 1}"
    # past so many not by the index, but from the newest change on
    column = "f.path"
    if len(prepare(few).rows(connection, log=log, **values)) > FEW:
        column = "f.path + 0"
    before = _LAST if before is None else before
    where = Where().also("f.log = :log AND f.seq < :before", log=log, before=before)
    where = where.also(f"{column} IN ({numbers})", **values)
    sql = f"{_CHANGES} WHERE {where} ORDER BY f.seq DESC, f.n DESC LIMIT :limit"
    rows = prepare(sql).rows(connection, limit=limit, **where.values)
    return [_to_change(row) for row in rows]


def touched(connection: Connection, log: int, path: str, where: Where) -> Where:
    """The conditions on calls, and that the call `c` changed the path or something below it."""
    place, values = _place(path, below=True)
    touching = _TOUCHING.format(place.format("p.path"))
    few = prepare(f"SELECT DISTINCT x.requested {touching} LIMIT {FEW + 1}")
    found = [row[0] for row in few.rows(connection, log=log, **values)]
    if len(found) <= MANY:
        return where.among("c.requested", "touching", found)
    if len(found) <= FEW:
        return where.also(f"c.requested IN (SELECT x.requested {touching})", **values)
    exists = f"EXISTS (SELECT 1 {touching} AND x.requested = c.requested)"
    return where.also(exists, **values)


def _place(path: str, *, below: bool) -> tuple[str, dict[str, bytes]]:
    """The condition on a column, written `{0}`, and its values; the root has all below it."""
    here = path.encode("utf-8", "surrogateescape")
    if below and not here:
        return "{0} = {0}", {}
    if not below:
        return "{0} = :here", {"here": here}
    # "0" follows "/", so the range holds exactly what begins with the folder's name and a slash
    text = "{0} = :here OR ({0} > :inside AND {0} < :beyond)"
    return text, {"here": here, "inside": here + b"/", "beyond": here + b"0"}


def first_paths(connection: Connection, log: int, requested: int) -> tuple[str, ...]:
    """The first paths a call changed, in the order in which they stand in the log."""
    limit = 4 * LISTED_PATHS
    rows = _FIRST_PATHS.rows(connection, log=log, requested=requested, limit=limit)
    names = list(dict.fromkeys(row[0] for row in rows))[:LISTED_PATHS]
    with corrupt_on_mismatch():
        return tuple(name.decode("utf-8", "surrogateescape") for name in names)


def _to_change(row: Row) -> RecordedChange:
    with corrupt_on_mismatch():
        seq, _, at, session, actor, origin, call, causes, finished, path, *states_ = row
        check_texts(session, actor, origin)
        check_numbers(seq, finished)
        before, after = states.to_state(*states_[:3]), states.to_state(*states_[3:])
        return RecordedChange(
            seq=seq,
            at=from_micros(at),
            session=session or "",
            actor=actor,
            origin=cast(Origin, origin),
            call_id=None if call is None else unpack_id(call),
            causes=tuple(json.loads(causes)) if causes else (),
            change=FileChange(path.decode("utf-8", "surrogateescape"), before, after),
            number=finished,
        )
