"""Changes of files: which event changed which path, from what to what, and for which call."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, cast

from loom_audit.model.calls import LOOKED_AT, first_paths
from loom_audit.model.coverage import Origin
from loom_audit.model.events import FilesChanged
from loom_audit.model.files import FileChange
from loom_audit.model.records import RecordedChange
from loom_audit.sql.ground import packing
from loom_audit.sql.ground.clock import from_micros
from loom_audit.sql.ground.conditions import MANY, Where, chunks, in_values
from loom_audit.sql.ground.connection import LARGEST, Connection, Row
from loom_audit.sql.ground.connections import Connections
from loom_audit.sql.ground.packing import (
    check_numbers,
    check_texts,
    corrupt_on_mismatch,
    pack_id,
    pack_path,
    unpack_id,
    unpack_path,
)
from loom_audit.sql.ground.statements import insert_into, prepare
from loom_audit.sql.projections import sessions
from loom_audit.sql.projections.paths import numbers, states
from loom_audit.sql.projections.rows import FollowedEvent, ReadBack, Rows, json_array

TABLES = ("change_set", "file_change", "candidate")
FACTS = (FilesChanged,)
READ_CHANGES = 1000
FEW = 2_000
"""Up to so many, what touched a path is looked up by it; past that the newest are near at hand."""

# the call of this id in the event's session, requested before the event
_CHANGE_SET = prepare(
    "INSERT INTO change_set (log, seq, at, session, actor, origin, requested, call, causes) "
    "SELECT :log, :seq, :at, s.number, nullif(:actor, s.actor), :origin, c.requested, "
    "CASE WHEN c.requested IS NULL THEN :call END, :causes FROM (SELECT 1) one "
    "LEFT JOIN session s ON s.log = :log AND s.id = :session "
    "LEFT JOIN call c ON c.log = :log AND c.requested = (SELECT max(d.requested) FROM call d "
    "WHERE d.log = :log AND d.call_id = :call AND d.requested < :seq "
    "AND d.session IS NOT DISTINCT FROM s.number)"
)
_FILE_CHANGE = insert_into(
    "file_change",
    ("seq", "n", "path", "old_mode", "old_size", "old_blob", "new_mode", "new_size", "new_blob"),
    path=numbers.PATH,
    old_blob=numbers.BLOB.format("old_blob"),
    new_blob=numbers.BLOB.format("new_blob"),
)
_MEANT = (
    "SELECT :log, requested, :seq FROM call "
    "WHERE log = :log AND call_id = :call_id AND requested < :seq ORDER BY "
    f"CASE WHEN session IS NOT DISTINCT FROM {sessions.NUMBER} THEN 0 ELSE 1 END, "
    "requested DESC LIMIT 1"
)
"""The call that an id means in an event: of its session, or else the newest before it."""

_NAMED = (
    "SELECT :log, requested, :seq FROM call WHERE log = :log AND requested = :cause "
    "AND requested < :seq AND requested IS DISTINCT FROM "
    "(SELECT requested FROM change_set WHERE log = :log AND seq = :seq)"
)
"""The call of a request that is named in an event, unless it is the event's own."""

_CANDIDATE = "INSERT INTO candidate (log, requested, seq) {} ON CONFLICT DO NOTHING"
_MEANT_CANDIDATE = prepare(_CANDIDATE.format(_MEANT))
_NAMED_CANDIDATE = prepare(_CANDIDATE.format(_NAMED))
_CALL_COUNT = prepare(
    "UPDATE call SET changed = changed + (SELECT count(DISTINCT f.path) FROM file_change f "
    "WHERE f.log = :log AND f.seq = :seq AND NOT EXISTS (SELECT 1 FROM change_set x "
    "JOIN file_change g ON g.log = x.log AND g.seq = x.seq AND g.path = f.path "
    "WHERE x.log = :log AND x.requested = call.requested AND x.seq < :seq)) "
    "WHERE log = :log AND requested = "
    "(SELECT requested FROM change_set WHERE log = :log AND seq = :seq)"
)
_SESSION_COUNT = prepare(
    "UPDATE session SET files = files + (SELECT count(DISTINCT f.path) FROM file_change f "
    "WHERE f.log = :log AND f.seq = :seq AND NOT EXISTS (SELECT 1 FROM file_change g "
    "JOIN change_set x ON x.log = g.log AND x.seq = g.seq WHERE g.log = f.log "
    "AND g.path = f.path AND g.seq < :seq AND g.seq >= session.started "
    "AND x.session = session.number AND (x.requested IS NOT NULL OR x.call IS NOT NULL))) "
    "WHERE log = :log AND id = :session"
)
_CANDIDATES_MADE = (_MEANT_CANDIDATE, _NAMED_CANDIDATE)
STATEMENTS = (_CHANGE_SET, _FILE_CHANGE, *_CANDIDATES_MADE, _CALL_COUNT, _SESSION_COUNT)

READ_BACK = (
    ReadBack(
        _CHANGE_SET,
        "change_set",
        {
            "session": "coalesce(s.id, change_set.session, '')",
            "actor": "CASE WHEN change_set.actor = s.actor THEN NULL "
            "ELSE coalesce(change_set.actor, s.actor) END",
            "call": "CASE WHEN c.requested < change_set.seq "
            "AND c.session IS change_set.session THEN c.call_id ELSE change_set.requested END",
        },
        "FROM change_set "
        "LEFT JOIN session s ON s.number = change_set.session AND s.log = change_set.log "
        "LEFT JOIN call c ON c.log = change_set.log AND c.requested = change_set.requested "
        "WHERE change_set.log = ? ORDER BY change_set.seq",
    ),
    # a number that leads nowhere is shown as it is: it equals no path and no hash
    ReadBack(
        _FILE_CHANGE,
        "file_change",
        {
            "path": "p.path",
            "old_blob": "coalesce(a.sha256, file_change.old_blob)",
            "new_blob": "coalesce(b.sha256, file_change.new_blob)",
        },
        "FROM file_change "
        "LEFT JOIN path p ON p.number = file_change.path AND p.log = file_change.log "
        "LEFT JOIN blob a ON a.number = file_change.old_blob "
        "LEFT JOIN blob b ON b.number = file_change.new_blob "
        "WHERE file_change.log = ? ORDER BY file_change.seq, file_change.n",
    ),
)

_ODD = (
    # a call that is not on record: whether it ever was, only a rebuild can tell
    prepare("SELECT 1 FROM change_set WHERE log = :log AND call IS NOT NULL LIMIT 1"),
    prepare(
        "WITH counted AS (SELECT x.requested, count(DISTINCT f.path) n FROM change_set x "
        "JOIN file_change f ON f.log = x.log AND f.seq = x.seq "
        "WHERE x.log = :log AND x.requested IS NOT NULL GROUP BY x.requested) "
        "SELECT 1 FROM call c LEFT JOIN counted d ON d.requested = c.requested "
        "WHERE c.log = :log AND c.changed IS NOT coalesce(d.n, 0) LIMIT 1"
    ),
    prepare(
        "WITH counted AS (SELECT x.session, count(DISTINCT f.path) n FROM change_set x "
        "JOIN file_change f ON f.log = x.log AND f.seq = x.seq "
        "WHERE x.log = :log AND x.requested IS NOT NULL GROUP BY x.session) "
        "SELECT 1 FROM session s LEFT JOIN counted d ON d.session = s.number "
        "WHERE s.log = :log AND s.files IS NOT coalesce(d.n, 0) LIMIT 1"
    ),
)
_CAUSES = prepare(
    "SELECT x.seq, coalesce(s.id, ''), x.causes, c.call_id FROM change_set x "
    "LEFT JOIN session s ON s.number = x.session "
    "LEFT JOIN call c ON c.log = x.log AND c.requested = x.requested "
    "WHERE x.log = :log AND x.causes IS NOT NULL"
)
_CANDIDATES = prepare("SELECT seq, requested FROM candidate WHERE log = :log")

_CHANGES = (
    "SELECT f.seq, f.n, x.at, coalesce(s.id, ''), coalesce(x.actor, s.actor), x.origin, "
    "coalesce(c.call_id, x.call), x.causes, c.finished, p.path, "
    "x.requested, f.old_mode, f.old_size, old.sha256, f.new_mode, f.new_size, new.sha256 "
    "FROM file_change f "
    "JOIN change_set x ON x.log = f.log AND x.seq = f.seq JOIN path p ON p.number = f.path "
    "LEFT JOIN session s ON s.number = x.session "
    "LEFT JOIN call c ON c.log = x.log AND c.requested = x.requested "
    "LEFT JOIN blob old ON old.number = f.old_blob LEFT JOIN blob new ON new.number = f.new_blob"
)
_FIRST_PATHS = (
    "SELECT x.requested, p.path FROM change_set x JOIN file_change f ON f.log = x.log "
    "AND f.seq = x.seq AND f.n < :limit JOIN path p ON p.number = f.path "
    "WHERE x.log = :log AND x.requested IN ({calls}) ORDER BY x.requested, f.seq, f.n"
)
_ALL_PATHS = (
    "SELECT DISTINCT x.requested, p.path FROM change_set x JOIN file_change f ON f.log = x.log "
    "AND f.seq = x.seq JOIN path p ON p.number = f.path "
    "WHERE x.log = :log AND x.requested IN ({calls})"
)
_END = (
    "(SELECT {}(f.seq) FROM file_change f WHERE f.log = p.log AND f.path = p.number "
    "AND f.seq > :after)"
)
_ENDS = (
    f"SELECT p.path, {_END.format('min')}, {_END.format('max')} FROM path p "
    "WHERE p.log = :log AND p.path IN ({paths})"
)
_ANY = prepare("SELECT seq FROM file_change WHERE log = :log AND seq > :after LIMIT 1")
_TOUCHING = (
    "FROM path p JOIN file_change f ON f.log = p.log AND f.path = p.number "
    "JOIN change_set x ON x.log = f.log AND x.seq = f.seq WHERE p.log = :log AND ({}) "
    "AND x.requested IS NOT NULL"
)


def apply(event: FollowedEvent, rows: Rows) -> None:
    """Add the changes of one event, with the calls that made them or may have."""
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
        causes=json_array(fact.causes),
    )
    for n, change in enumerate(fact.changes):
        _apply_one(rows, event.seq, n, change)
    for cause in dict.fromkeys(fact.causes):
        if isinstance(cause, int):
            rows.add(_NAMED_CANDIDATE, seq=event.seq, cause=cause)
        elif cause != fact.call_id:
            rows.add(_MEANT_CANDIDATE, **key, call_id=pack_id(cause))
    if fact.call_id:
        rows.add(_CALL_COUNT, seq=event.seq)
        if event.session:
            rows.add(_SESSION_COUNT, **key)


def _apply_one(rows: Rows, seq: int, n: int, change: FileChange) -> None:
    path = pack_path(change.path)
    old_mode, old_size, old_blob = states.columns(change.before)
    new_mode, new_size, new_blob = states.columns(change.after)
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


def agrees(store: Connection, log: int) -> bool:
    """Whether counts and candidates are those that the other rows of this subject make."""
    if any(odd.rows(store, log=log) for odd in _ODD):
        return False
    meant, named = prepare(_MEANT), prepare(_NAMED)
    expected: set[tuple[int, int]] = set()
    for seq, session, causes, own in _CAUSES.rows(store, log=log):
        key = {"log": log, "seq": seq}
        for cause in json.loads(causes):
            found: Sequence[Row] = ()
            if isinstance(cause, int):
                found = named.rows(store, **key, cause=cause)
            elif (call_id := pack_id(cause)) != own:
                found = meant.rows(store, **key, session=session, call_id=call_id)
            expected.update((row[2], row[1]) for row in found)
    stored = _CANDIDATES.rows(store, log=log)
    return len(stored) == len(expected) and set(stored) == expected


# --- reading ------------------------------------------------------------------------------


def changes(
    connections: Connections,
    log: int,
    *,
    after: int,
    until: int | None,
    paths: Iterable[str] | None,
    calls: Iterable[int] | None,
) -> Iterator[RecordedChange]:
    """The changes in log order, a thousand at a time; `calls` as in `ports.log`."""
    if not connections.rows(_ANY, log=log, after=after):
        return  # mostly nothing has changed, and that is told quickly
    until = LARGEST if until is None else until
    span = {"after": after, "until": until}
    where = Where().also("f.log = :log AND f.seq > :after AND f.seq <= :until", log=log, **span)
    names = None if paths is None else {pack_path(p) for p in paths}
    if names is not None and len(names) <= MANY:
        listed, values = in_values("path", [*names])
        numbers = f"SELECT number FROM path WHERE log = :log AND path IN ({listed})"
        where, names = where.also(f"f.path IN ({numbers})", **values), None
    if calls is None:
        parts: Iterable[Where] = (where,)
    else:
        seqs = _seqs_of(connections, log, [*calls], span)
        parts = (where.among("f.seq", "s", some) for some in chunks(seqs))
    for part in parts:
        for page in _pages(connections, part):
            rows = [row for row in page if names is None or row[9] in names]
            yield from _to_changes(connections.rows, log, rows)


def _seqs_of(
    connections: Connections, log: int, calls: Sequence[int], span: dict[str, int]
) -> list[int]:
    """Events with changes of these calls, or that may be theirs, in order."""
    found: set[int] = set()
    for some in chunks(calls):
        listed, values = in_values("call", some)
        where = f"log = :log AND requested IN ({listed}) AND seq > :after AND seq <= :until"
        of_calls = f"SELECT seq FROM change_set WHERE {where}"
        query = prepare(f"{of_calls} UNION SELECT seq FROM candidate WHERE {where}")
        found.update(row[0] for row in connections.rows(query, log=log, **span, **values))
    return sorted(found)


def _pages(connections: Connections, where: Where) -> Iterator[Sequence[Row]]:
    """The rows in order, some at a time, each time of one state of the store."""
    rest = where
    while True:
        sql = f"{_CHANGES} WHERE {rest} ORDER BY f.seq, f.n LIMIT {READ_CHANGES}"
        rows = connections.rows(prepare(sql), **rest.values)
        yield rows
        if len(rows) < READ_CHANGES:
            return
        seq, n = rows[-1][:2]
        rest = where.also("(f.seq, f.n) > (:last_seq, :last_n)", last_seq=seq, last_n=n)


def history(
    connection: Connection, log: int, path: str, *, below: bool, before: int | None, limit: int
) -> Sequence[RecordedChange]:
    """The changes of one path, newest first; with `below` of all paths inside it too."""
    place, values = at_path(path, below=below)
    numbers = f"SELECT number FROM path WHERE log = :log AND ({place.format('path')})"
    few = f"SELECT seq FROM file_change WHERE log = :log AND path IN ({numbers}) LIMIT {FEW + 1}"
    # past so many not by the index, but from the newest change on
    column = "f.path"
    if len(prepare(few).rows(connection, log=log, **values)) > FEW:
        column = "f.path + 0"
    before = LARGEST if before is None else before
    where = Where().also("f.log = :log AND f.seq < :before", log=log, before=before)
    where = where.also(f"{column} IN ({numbers})", **values)
    sql = f"{_CHANGES} WHERE {where} ORDER BY f.seq DESC, f.n DESC LIMIT :limit"
    rows = prepare(sql).rows(connection, limit=limit, **where.values)
    return _to_changes(_asking(connection), log, rows)


def ends(
    connection: Connection, log: int, paths: Sequence[str], after: int
) -> dict[str, tuple[RecordedChange, RecordedChange]]:
    """The first and the last change of each of these paths after an event, where there is one."""
    found: dict[str, tuple[RecordedChange, RecordedChange]] = {}
    for some in chunks([pack_path(path) for path in paths]):
        listed, values = in_values("path", some)
        sought = prepare(_ENDS.format(paths=listed))
        rows = sought.rows(connection, log=log, after=after, **values)
        seqs = sorted({seq for row in rows for seq in row[1:] if seq is not None})
        changed: dict[tuple[int, str], RecordedChange] = {}
        for few in chunks(seqs):
            where = Where().also("f.log = :log", log=log).among("f.seq", "s", few)
            where = where.also(f"p.path IN ({listed})", **values)
            of_these = prepare(f"{_CHANGES} WHERE {where}").rows(connection, **where.values)
            for one in _to_changes(_asking(connection), log, of_these):
                changed[one.seq, one.change.path] = one
        with corrupt_on_mismatch():
            for raw, first, last in rows:
                if first is not None:
                    path = unpack_path(raw)
                    found[path] = changed[first, path], changed[last, path]
    return found


def touched(connection: Connection, log: int, path: str, where: Where) -> Where:
    """The conditions on calls, and that the call `c` changed the path or something below it."""
    place, values = at_path(path, below=True)
    touching = _TOUCHING.format(place.format("p.path"))
    few = prepare(f"SELECT DISTINCT x.requested {touching} LIMIT {FEW + 1}")
    found = [row[0] for row in few.rows(connection, log=log, **values)]
    if len(found) <= MANY:
        return where.among("c.requested", "touching", found)
    if len(found) <= FEW:
        return where.also(f"c.requested IN (SELECT x.requested {touching})", **values)
    exists = f"EXISTS (SELECT 1 {touching} AND x.requested = c.requested)"
    return where.also(exists, **values)


def at_path(path: str, *, below: bool) -> tuple[str, dict[str, bytes]]:
    """The condition that a column, written `{0}`, is a path or below it, and its values."""
    here = pack_path(path)
    if below and not here:
        return "{0} = {0}", {}
    if not below:
        return "{0} = :here", {"here": here}
    inside, beyond = packing.below(here)
    text = "{0} = :here OR ({0} > :inside AND {0} < :beyond)"
    return text, {"here": here, "inside": inside, "beyond": beyond}


def listed_paths(
    connection: Connection, log: int, calls: Sequence[int]
) -> dict[int, tuple[str, ...]]:
    """The first paths that each of these calls changed, in log order, by their requests."""
    found: dict[int, tuple[str, ...]] = {}
    for some in chunks(calls):
        listed, values = in_values("call", some)
        query = prepare(_FIRST_PATHS.format(calls=listed))
        rows = query.rows(connection, log=log, limit=LOOKED_AT, **values)
        with corrupt_on_mismatch():
            for requested, own in groupby(rows, lambda row: row[0]):
                paths = (unpack_path(raw) for _, raw in own)
                found[requested] = first_paths(paths)
    return found


def all_paths(connection: Connection, log: int, calls: Sequence[int]) -> dict[int, set[str]]:
    """All paths that each of these calls changed, by their requests."""
    found: dict[int, set[str]] = {}
    for some in chunks(calls):
        listed, values = in_values("call", some)
        query = prepare(_ALL_PATHS.format(calls=listed))
        with corrupt_on_mismatch():
            for requested, raw in query.rows(connection, log=log, **values):
                found.setdefault(requested, set()).add(unpack_path(raw))
    return found


def _asking(connection: Connection) -> Callable[..., Sequence[Row]]:
    return lambda query, **values: query.rows(connection, **values)


def _to_changes(
    read: Callable[..., Sequence[Row]], log: int, rows: Sequence[Row]
) -> list[RecordedChange]:
    """The changes of these rows; `read` runs a statement with values."""
    # the causes of format 1 are ids: the candidates say which calls they mean
    named = sorted({row[0] for row in rows if '"' in str(row[7])})
    meant: dict[int, list[int]] = {}
    for some in chunks(named):
        listed, values = in_values("seq", some)
        where = f"log = :log AND seq IN ({listed})"
        sql = f"SELECT seq, requested FROM candidate WHERE {where} ORDER BY requested"
        for seq, requested in read(prepare(sql), log=log, **values):
            meant.setdefault(seq, []).append(requested)
    return [_to_change(row, meant) for row in rows]


def _causes(listed: Sequence[int | str], own: int | None, meant: Sequence[int]) -> tuple[int, ...]:
    """The requests that causes name, 0 for one that is not known."""
    if all(isinstance(cause, int) for cause in listed):
        return tuple(cast(Sequence[int], listed))
    known = (*meant,) if own is None else (own, *meant)
    return known + (0,) * (len(listed) - len(known))


def _to_change(row: Row, meant: Mapping[int, Sequence[int]]) -> RecordedChange:
    with corrupt_on_mismatch():
        seq, _, at, session, actor, origin, call, causes, finished, path, own, *states_ = row
        check_texts(session, actor, origin)
        check_numbers(seq, finished, own)
        before, after = states.to_state(*states_[:3]), states.to_state(*states_[3:])
        return RecordedChange(
            seq=seq,
            at=from_micros(at),
            session=session,
            actor=actor,
            origin=cast(Origin, origin),
            call_id=None if call is None else unpack_id(call),
            causes=_causes(json.loads(causes), own, meant.get(seq, ())) if causes else (),
            change=FileChange(unpack_path(path), before, after),
            number=finished,
            requested=own,
        )
