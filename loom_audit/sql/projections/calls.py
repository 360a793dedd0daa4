"""Calls: what was asked of each, and what became of it."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from loom_audit.errors import NotFound
from loom_audit.model.calls import ASKED, ENDED, asked, ended, in_part_by
from loom_audit.model.coverage import FULL, NOT_FAILED, Coverage
from loom_audit.model.events import CallFinished, CallRequested
from loom_audit.model.records import Call
from loom_audit.ports import CallFilter
from loom_audit.sql.ground.clock import to_micros
from loom_audit.sql.ground.conditions import Where, chunks
from loom_audit.sql.ground.connection import LARGEST, Connection, Row
from loom_audit.sql.ground.packing import (
    check_numbers,
    corrupt_on_mismatch,
    pack_id,
    unpack_id,
)
from loom_audit.sql.ground.reading import RowReading
from loom_audit.sql.ground.statements import insert_into, prepare
from loom_audit.sql.projections import (
    changes,
    coverage,
    outcomes,
    reverts,
    sessions,
)
from loom_audit.sql.projections.rows import FollowedEvent, ReadBack, Rows, json_array
from loom_audit.sql.projections.searching import named, search

LOOKED_AT = 250
"""The number of calls that are looked through at once for those that say common words."""

TABLES = ("call",)
FACTS = (CallRequested, CallFinished)


def _asked(fact: CallRequested) -> dict[str, Any]:
    """What a request says, as columns hold it."""
    columns = asked(fact)
    columns["call_id"] = pack_id(fact.call_id)
    return columns


def _ended(fact: CallFinished) -> dict[str, Any]:
    """What a finish says, as columns hold it."""
    columns, coverage = ended(fact), fact.coverage
    columns["coverage"] = None if coverage.level == "full" else coverage.level
    columns["reasons"] = json_array(coverage.reasons)
    columns["reverts"] = json_array(columns["reverts"])
    return columns


_ENDED = (*ENDED, "reasons")
"""The columns that are filled by what a finish says."""

_UNFINISHED = {"status": "'open'", "error": "''", "duration": "0", "sandbox": "''"}
"""What the columns of a finish hold until then, where it is not null."""

_REQUESTED = insert_into(
    "call",
    ("requested", "session", "at", "actor", *ASKED),
    session=sessions.NUMBER,
    actor="nullif(:actor, (SELECT actor FROM session WHERE log = :log AND id = :session))",
    changed="0",
    **_UNFINISHED,
)
# `+`: not by the index of open calls, of which a transcript may have thousands
_FINISHED = prepare(
    f"UPDATE call SET finished = :finished, {', '.join(f'{name} = :{name}' for name in _ENDED)} "
    "WHERE log = :log AND call_id = :call_id "
    f"AND session IS NOT DISTINCT FROM {sessions.NUMBER} "
    "AND +finished IS NULL AND requested < :finished"
)
STATEMENTS = (_REQUESTED, _FINISHED)

# an actor that is written out though it is the session's is none that we wrote
_WITH_SESSION = "FROM call LEFT JOIN session s ON s.number = call.session AND s.log = call.log"
_OF_SESSION = {
    "session": "coalesce(s.id, call.session, '')",
    "actor": "CASE WHEN call.actor = s.actor THEN NULL ELSE coalesce(call.actor, s.actor) END",
}
READ_BACK = (
    ReadBack(
        _REQUESTED,
        "call",
        _OF_SESSION,
        f"{_WITH_SESSION} WHERE call.log = ? ORDER BY call.requested",
    ),
    ReadBack(
        _FINISHED,
        "call",
        _OF_SESSION,
        f"{_WITH_SESSION} WHERE call.log = ? AND call.finished IS NOT NULL ORDER BY call.finished",
    ),
)

_AS_OPEN = " AND ".join(f"{name} IS {_UNFINISHED.get(name, 'NULL')}" for name in _ENDED)
_ODD = prepare(
    f"SELECT 1 FROM call WHERE log = :log AND finished IS NULL AND NOT ({_AS_OPEN}) LIMIT 1"
)
_ACTOR = "coalesce(c.actor, s.actor, '')"
_FROM = "FROM call c LEFT JOIN session s ON s.number = c.session"
_READ = RowReading(
    Call,
    "c",
    packed={"call_id": unpack_id},
    apart=("coverage", "reverts", "paths", "undone_by", "undone_in_part_by"),
    seq="c.finished",
    actor=_ACTOR,
    session="coalesce(s.id, '')",
    status=outcomes.STATUS,
    error=outcomes.ERROR,
)
_CALLS = f"SELECT {_READ.columns}, c.coverage, c.reasons, c.reverts {_FROM} {outcomes.JOINED}"
_FAILED = f"{outcomes.STATUS} NOT IN ({', '.join(map(repr, NOT_FAILED))})"
# by the session's id: one that has no events yet has no number, as if it were none
_STATE = prepare(
    f"SELECT c.finished {_FROM} "
    "WHERE c.log = :log AND c.call_id = :call_id AND coalesce(s.id, '') = :session"
)
_BY_ID = prepare(
    f"{_CALLS} WHERE c.log = :log AND c.call_id = :call_id AND coalesce(s.id, '') = :session"
)
_BY_END = prepare(
    f"{_CALLS} WHERE c.log = :log AND (c.finished = :seq OR c.requested = :seq) LIMIT 1"
)
_OPEN = prepare(f"{_CALLS} WHERE c.log = :log AND c.finished IS NULL ORDER BY c.requested")


def apply(event: FollowedEvent, rows: Rows) -> None:
    """Add a row for each request, which the finish fills in."""
    match event.fact:
        case CallRequested() as request:
            rows.add(
                _REQUESTED,
                requested=event.seq,
                session=event.session,
                at=event.at,
                actor=event.actor,
                **_asked(request),
            )
        case CallFinished() as finish:
            rows.add(
                _FINISHED,
                session=event.session,
                call_id=pack_id(finish.call_id),
                finished=event.seq,
                **_ended(finish),
            )


def agrees(store: Connection, log: int) -> bool:
    """Whether open calls have none of the values that only a finish sets."""
    return not _ODD.rows(store, log=log)


def is_finished(connection: Connection, log: int, session: str, call_id: str) -> bool | None:
    """Whether a call is finished; None when it was never requested."""
    row = _STATE.first(connection, log=log, session=session, call_id=pack_id(call_id))
    return None if row is None else row[0] is not None


def matching(connection: Connection, log: int, filter: CallFilter) -> Sequence[Call]:
    """The calls that match, in order of their requests, at most `limit`."""
    if not all(map(sessions.can_be_stored, (filter.tool or "", filter.actor or ""))):
        return []
    where = Where().also("c.log = :log", log=log).also("c.requested > :after", after=filter.after)
    if filter.before is not None:
        where = where.also("c.requested < :before", before=filter.before)
    if filter.session == "":
        where = where.also("c.session IS NULL")
    elif filter.session is not None:
        number, *span = sessions.span(connection, log, filter.session) or (0, 0, 0)
        within = "c.session = :session AND c.requested BETWEEN :first AND :last"
        where = where.also(within, session=number, first=span[0], last=span[1])
    if filter.tool is not None:
        where = where.also("c.tool = :tool", tool=filter.tool)
    if filter.actor is not None:
        where = where.also(f"{_ACTOR} = :actor", actor=filter.actor)
    if filter.status is not None:
        where = where.also(f"{outcomes.STATUS} = :status", status=filter.status)
        if filter.status != "ok":
            # word for word the condition of the partial index, or it is not used; what was
            # inferred is never ok
            where = where.also("c.status <> 'ok'")
    if filter.failed_only:
        where = where.also(f"c.finished IS NOT NULL AND c.status <> 'ok' AND {_FAILED}")
    if filter.since is not None:
        where = where.also("c.at >= :since", since=to_micros(filter.since))
    if filter.until is not None:
        where = where.also("c.at <= :until", until=to_micros(filter.until))
    if filter.ended_after is not None:
        where = where.also("c.finished > :ended_after", ended_after=filter.ended_after)
    if filter.partial_only:
        where = where.also(coverage.PARTIAL)
    if filter.changed_only:
        where = where.also("c.changed > 0")
    common = None
    if filter.words is not None:
        narrowed = search.saying(connection, where, log, filter.words)
        where, common = narrowed or where, filter.words if narrowed is None else None
    if filter.path is not None:
        where = changes.touched(connection, log, filter.path, where)
    parts: Iterable[Where] = (where,)
    if (seqs := _listed(connection, log, filter)) is not None:
        parts = (where.among("c.requested", "one", some) for some in chunks(seqs))
    return _to_calls(connection, log, _rows_of(connection, log, parts, filter, common))


def _listed(connection: Connection, log: int, filter: CallFilter) -> list[int] | None:
    """The requests that a filter lists or finds by what a person typed, in the order of the answer;
    None where it does neither.
    """
    each: list[Iterable[int]] = []
    if filter.only is not None:
        each.append(filter.only)
    if filter.numbers is not None:
        each.append(_ended_by(connection, log, filter.numbers))
    if filter.typed is not None:
        each.append(named.requests(connection, log, filter.typed, filter.after, filter.before))
    if not each:
        return None
    return sorted(set[int].intersection(*map(set, each)), reverse=filter.newest_first)


def _ended_by(connection: Connection, log: int, numbers: Collection[int]) -> list[int]:
    """The requests of the calls with these numbers."""
    found: list[int] = []
    for some in chunks(sorted({*numbers})):
        where = Where().also("log = :log", log=log).among("finished", "number", some)
        sql = f"SELECT requested FROM call WHERE {where}"
        found += (row[0] for row in prepare(sql).rows(connection, **where.values))
    with corrupt_on_mismatch():
        check_numbers(*found)
    return found


def _rows_of(
    connection: Connection,
    log: int,
    conditions: Iterable[Where],
    filter: CallFilter,
    common: str | None,
) -> list[Row]:
    """The rows of these conditions, in order, at most as many as the filter wants.

    `common` are words that they must say, and thousands do.
    """
    order = "DESC" if filter.newest_first else "ASC"
    limit = LARGEST if filter.limit is None else filter.limit
    rows: list[Row] = []
    for part in conditions:
        if common is not None:
            rows += islice(_saying(connection, log, part, filter, common), limit - len(rows))
        else:
            sql = f"{_CALLS} WHERE {part} ORDER BY c.requested {order} LIMIT :limit"
            rows += prepare(sql).rows(connection, limit=limit - len(rows), **part.values)
        if len(rows) >= limit:
            break
    return rows


def _saying(
    connection: Connection, log: int, where: Where, filter: CallFilter, words: str
) -> Iterator[Row]:
    """The rows that say words which thousands of calls say: a stretch of calls at a time."""
    seq, requested = map(_READ.names.index, ("seq", "requested"))
    order, than = ("DESC", "<") if filter.newest_first else ("ASC", ">")
    part = where
    while True:
        sql = f"{_CALLS} WHERE {part} ORDER BY c.requested {order} LIMIT :limit"
        rows = prepare(sql).rows(connection, limit=LOOKED_AT, **part.values)
        seqs = {row[n] for row in rows for n in (seq, requested) if row[n] is not None}
        say = search.seqs_saying(connection, log, words, seqs)
        yield from (row for row in rows if row[requested] in say or row[seq] in say)
        if len(rows) < LOOKED_AT:
            return
        part = where.also(f"c.requested {than} :edge", edge=rows[-1][requested])


def by_id(connection: Connection, log: int, session: str, call_id: str) -> Call:
    """The call of this session and call id. NotFound when there is none."""
    rows = _BY_ID.rows(connection, log=log, session=session, call_id=pack_id(call_id))
    if not rows:
        raise NotFound(
            f"There is no call {call_id} in session {session}",
            hint="Run `loom-audit log` to list the calls.",
        )
    return _to_calls(connection, log, rows[:1])[0]


def by_end(connection: Connection, log: int, seq: int) -> Call | None:
    """The call that was requested or finished by this event; None when there is none."""
    found = _to_calls(connection, log, _BY_END.rows(connection, log=log, seq=seq))
    return found[0] if found else None


def actors(connection: Connection, log: int, numbers: Collection[int]) -> Mapping[int, str]:
    """Who made the calls of these numbers, by number."""
    found: dict[int, str] = {}
    for some in chunks(sorted({*numbers})):
        where = Where().also("c.log = :log", log=log).among("c.finished", "number", some)
        sql = f"SELECT c.finished, {_ACTOR} {_FROM} WHERE {where}"
        found |= dict(prepare(sql).rows(connection, **where.values))
    return found


def not_finished(connection: Connection, log: int) -> Sequence[Call]:
    """The calls that are not finished, oldest first."""
    return _to_calls(connection, log, _OPEN.rows(connection, log=log))


def _to_calls(connection: Connection, log: int, rows: Sequence[Row]) -> list[Call]:
    """The rows as calls, with their paths and what became of them."""
    if not rows:
        return []
    with corrupt_on_mismatch():
        seq, requested, changed = map(_READ.names.index, ("seq", "requested", "changed"))
        ended = [row[seq] for row in rows if row[seq] is not None]
        back = reverts.taken_back(connection, log, ended)
        later = coverage.lowered(connection, log, ended) if ended else {}
        changing = [row[requested] for row in rows if row[changed]]
        paths = changes.listed_paths(connection, log, changing)
        by_path = back.by_path(ended)
        asked = [row[requested] for row in rows if row[seq] in by_path]
        touched = changes.all_paths(connection, log, asked)
        undone = [back.of(row[seq] or 0, touched.get(row[requested], ())) for row in rows]
        return [
            _READ.read(
                row,
                coverage=_coverage(*row[-3:-1]).lowered_by(later.get(row[seq], ())),
                reverts=tuple(json.loads(row[-1])) if row[-1] else (),
                paths=paths.get(row[requested], ()),
                undone_by=by.whole,
                undone_in_part_by=in_part_by(by),
            )
            for row, by in zip(rows, undone, strict=True)
        ]


def _coverage(level: Any, reasons: str | None) -> Coverage:
    if level is None and reasons is None:
        return FULL
    return Coverage(level or "full", tuple(json.loads(reasons)) if reasons else ())
