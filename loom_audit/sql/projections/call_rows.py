"""Calls as the projections hold them: which rows to take, and what they say."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from sqlalchemy import Select, func, or_, select, text
from sqlalchemy.sql.elements import ColumnElement

from loom_audit.model.events import FULL, Call, Coverage, Effect, Level
from loom_audit.ports import CallFilter
from loom_audit.sql.clock import from_micros, to_micros
from loom_audit.sql.connection import Connection
from loom_audit.sql.packing import check_numbers, check_texts, corrupt_on_mismatch, unpack_id
from loom_audit.sql.statements import prepare
from loom_audit.sql.tables import CALL, CALL_CHANGE, FILE_CHANGE, PATH, SESSION

LISTED_PATHS = 20
FEW = 2_000
"""Up to so many, what touched a path is looked up by it; past that the newest are near at hand."""

_PATHS = prepare(
    "SELECT p.path FROM call_change c "
    "JOIN file_change f ON f.log = c.log AND f.seq = c.seq JOIN path p ON p.number = f.path "
    "WHERE c.log = :log AND c.requested = :requested AND c.own = 1 "
    "ORDER BY f.seq, f.n LIMIT :limit"
)
_REVERTS = prepare("SELECT number, target FROM revert WHERE log = :log ORDER BY number DESC")

_COLUMNS = (
    CALL.c.requested,
    CALL.c.finished,
    CALL.c.call_id,
    CALL.c.at,
    func.coalesce(CALL.c.actor, SESSION.c.actor, "").label("actor"),
    func.coalesce(SESSION.c.id, "").label("session"),
    CALL.c.tool,
    CALL.c.effect,
    CALL.c.status,
    CALL.c.coverage,
    CALL.c.reasons,
    CALL.c.summary,
    CALL.c.error,
    CALL.c.changed,
    CALL.c.reverts,
    CALL.c.duration,
    CALL.c.sandbox,
)


def select_calls(log: int) -> Select[Any]:
    """All columns that a Call is made of, for the calls of a log."""
    joined = CALL.outerjoin(SESSION, SESSION.c.number == CALL.c.session)
    return select(*_COLUMNS).select_from(joined).where(CALL.c.log == log)


def select_matching(connection: Connection, log: int, filter: CallFilter) -> Select[Any]:
    """The calls that match, in order, at most `limit`."""
    found = select_calls(log).where(CALL.c.requested > filter.after)
    if filter.before is not None:
        found = found.where(CALL.c.requested < filter.before)
    if filter.session is not None:
        number = select(SESSION.c.number).where(
            SESSION.c.log == log, SESSION.c.id == filter.session
        )
        mine = CALL.c.session == number.scalar_subquery()
        found = found.where(CALL.c.session.is_(None) if filter.session == "" else mine)
    if filter.tool is not None:
        found = found.where(CALL.c.tool == filter.tool)
    if filter.actor is not None:
        found = found.where(func.coalesce(CALL.c.actor, SESSION.c.actor, "") == filter.actor)
    if filter.status is not None:
        found = found.where(CALL.c.status == filter.status)
        if filter.status != "ok":
            # word for word the condition of the partial index, or it is not used
            found = found.where(text("call.status <> 'ok'"))
    if filter.since is not None:
        found = found.where(CALL.c.at >= to_micros(filter.since))
    if filter.until is not None:
        found = found.where(CALL.c.at <= to_micros(filter.until))
    if filter.ended_after is not None:
        found = found.where(CALL.c.finished > filter.ended_after)
    if filter.partial_only:
        found = found.where(CALL.c.coverage.is_not(None))
    if filter.changed_only:
        found = found.where(CALL.c.changed > 0)
    if filter.path is not None:
        found = found.where(_touches(connection, log, filter.path))
    order = CALL.c.requested.desc() if filter.newest_first else CALL.c.requested
    return found.order_by(order).limit(filter.limit)


def paths_at_or_below(path: str, *, below: bool) -> ColumnElement[bool]:
    """The condition on `path.path`; the root ("") has everything below it."""
    raw = path.encode("utf-8", "surrogateescape")
    if below and not raw:
        return PATH.c.path == PATH.c.path
    here = PATH.c.path == raw
    # "0" follows "/", so the range holds exactly what begins with the folder's name and a slash
    inside = (PATH.c.path > raw + b"/") & (PATH.c.path < raw + b"0")
    return or_(here, inside) if below else here


def _touches(connection: Connection, log: int, path: str) -> ColumnElement[bool]:
    """Whether a call changed the path or something below it."""
    there = (
        select(CALL_CHANGE.c.requested)
        .join_from(
            PATH,
            FILE_CHANGE,
            (FILE_CHANGE.c.log == PATH.c.log) & (FILE_CHANGE.c.path == PATH.c.number),
        )
        .join(
            CALL_CHANGE,
            (CALL_CHANGE.c.log == FILE_CHANGE.c.log) & (CALL_CHANGE.c.seq == FILE_CHANGE.c.seq),
        )
        .where(PATH.c.log == log, paths_at_or_below(path, below=True), CALL_CHANGE.c.own == 1)
    )
    few = [row[0] for row in connection.execute(there.distinct().limit(FEW + 1))]
    if len(few) <= FEW:
        return CALL.c.requested.in_(few)
    return there.where(CALL_CHANGE.c.requested == CALL.c.requested).correlate(CALL).exists()


def to_calls(connection: Connection, log: int, rows: Sequence[Any]) -> list[Call]:
    """The rows of `select_calls` as calls, with their paths and what became of them."""
    paths = _paths(connection, log, [row.requested for row in rows if row.changed])
    undone = reverted_by(connection, log) if rows else {}
    with corrupt_on_mismatch():
        return [_to_call(row, paths.get(row.requested, ()), undone) for row in rows]


def _to_call(row: Any, paths: tuple[str, ...], undone: Mapping[int, int]) -> Call:
    check_texts(row.session, row.actor, row.tool, row.effect, row.status, row.coverage)
    check_texts(row.summary, row.error, row.sandbox)
    check_numbers(row.requested, row.finished, row.changed, row.duration)
    return Call(
        call_id=unpack_id(row.call_id),
        seq=row.finished,
        requested=row.requested,
        at=from_micros(row.at),
        session=row.session,
        actor=row.actor,
        tool=row.tool,
        effect=cast(Effect, row.effect),
        status=row.status,
        coverage=_coverage(row.coverage, row.reasons),
        summary=row.summary,
        error=row.error,
        paths=paths,
        changed=row.changed,
        reverts=tuple(json.loads(row.reverts)) if row.reverts else (),
        duration=row.duration,
        sandbox=row.sandbox,
        undone_by=undone.get(row.finished),
    )


def reverted_by(connection: Connection, log: int) -> Mapping[int, int]:
    """Number of what was taken back → number of the call that did, while that one stands.

    The newest calls are looked at first: whether one stands depends on later ones only.
    """
    found: dict[int, int] = {}
    for number, target in _REVERTS.rows(connection, log=log):
        if number not in found:
            found.setdefault(target, number)
    return found


def _paths(
    connection: Connection, log: int, requested: Sequence[int]
) -> Mapping[int, tuple[str, ...]]:
    """The first paths each call changed, in the order in which they stand in the log."""
    found: dict[int, tuple[str, ...]] = {}
    for one in requested:
        rows = _PATHS.rows(connection, log=log, requested=one, limit=4 * LISTED_PATHS)
        names = list(dict.fromkeys(row[0] for row in rows))[:LISTED_PATHS]
        with corrupt_on_mismatch():
            found[one] = tuple(name.decode("utf-8", "surrogateescape") for name in names)
    return found


def _coverage(level: str | None, reasons: str | None) -> Coverage:
    if level is None and reasons is None:
        return FULL
    return Coverage(cast(Level, level or "full"), tuple(json.loads(reasons)) if reasons else ())
