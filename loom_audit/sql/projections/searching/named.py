"""Finding calls and changes from outside by what somebody types of a path."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from loom_audit.model.calls import LISTED_PATHS
from loom_audit.model.records import OutsideChange
from loom_audit.model.text.naming import Typed, choose_reading, read_typed
from loom_audit.sql.ground.clock import from_micros
from loom_audit.sql.ground.conditions import Where, chunks
from loom_audit.sql.ground.connection import LARGEST, Connection, Row
from loom_audit.sql.ground.packing import (
    check_numbers,
    check_texts,
    corrupt_on_mismatch,
    unpack_path,
)
from loom_audit.sql.ground.statements import prepare
from loom_audit.sql.projections import changes

_PATHS = prepare("SELECT number, path FROM path WHERE log = :log")
_LINES = prepare(
    "SELECT requested, summary FROM call WHERE log = :log AND requested > :after "
    "AND requested < :before AND summary LIKE :like ESCAPE '\\'"
)
_CHANGED = "FROM file_change f JOIN change_set x ON x.log = f.log AND x.seq = f.seq"
_OUTSIDE = "x.log = :log AND x.session IS NULL AND x.origin = 'outside'"
_OUTSIDE_COUNT = (
    "SELECT x.seq, x.at, x.actor, "
    "(SELECT count(*) FROM file_change f WHERE f.log = x.log AND f.seq = x.seq) "
    f"FROM change_set x WHERE {_OUTSIDE} AND x.seq > :after AND x.seq < :before"
)
_PATHS_OF = prepare(
    "SELECT p.path FROM file_change f JOIN path p ON p.number = f.path "
    "WHERE f.log = :log AND f.seq = :seq ORDER BY f.n LIMIT :limit"
)
_MOST_PATHS = 10_000
"""The number of paths of one change that are looked through for those that were typed."""


class MeantPaths(Struct, frozen=True):
    """The reading of a text that was typed, and the numbers of the paths that it means."""

    typed: Typed
    paths: Sequence[int]


def read(connection: Connection, log: int, text: str) -> MeantPaths:
    """The paths that a text means. InvalidArguments for a text that is too long."""
    readings = read_typed(text)
    place, values = changes.at_path(readings[0].text, below=True)
    query = prepare(f"SELECT number FROM path WHERE log = :log AND ({place.format('path')})")
    if here := [row[0] for row in query.rows(connection, log=log, **values)]:
        return MeantPaths(readings[0], here)
    known = {number: unpack_path(path) for number, path in _PATHS.rows(connection, log=log)}
    typed = choose_reading(
        readings[1:],
        known.values(),
        lambda typed: next(_naming(connection, log, typed, 0, LARGEST), None) is not None,
    )
    return MeantPaths(typed, [number for number, path in known.items() if typed.finds(path)])


def requests(
    connection: Connection, log: int, text: str, after: int, before: int | None
) -> list[int]:
    """The seqs of the requests of calls that changed such a path or name it, in order."""
    found, before = read(connection, log, text), LARGEST if before is None else before
    seqs = set(_naming(connection, log, found.typed, after, before))
    for some in chunks(found.paths):
        where = Where().also("f.log = :log", log=log).among("f.path", "path", some)
        where = where.also(
            "x.requested > :after AND x.requested < :before", after=after, before=before
        )
        sql = f"SELECT DISTINCT x.requested {_CHANGED} WHERE {where}"
        seqs.update(row[0] for row in prepare(sql).rows(connection, **where.values))
    return sorted(seqs)


def outside(
    connection: Connection, log: int, text: str | None, after: int, before: int | None, limit: int
) -> list[OutsideChange]:
    """The changes without a call between two events, newest first, each with its paths."""
    span = {"log": log, "after": after, "before": LARGEST if before is None else before}
    if text is None:
        query = prepare(f"{_OUTSIDE_COUNT} ORDER BY x.seq DESC LIMIT :limit")
        return _with_paths(connection, log, query.rows(connection, limit=limit, **span), None)
    found, seqs = read(connection, log, text), set[int]()
    for some in chunks(found.paths):
        where = Where().among("f.path", "path", some)
        sql = (
            f"SELECT DISTINCT x.seq {_CHANGED} WHERE {_OUTSIDE} AND f.log = :log "
            f"AND x.seq > :after AND x.seq < :before AND {where}"
        )
        seqs.update(row[0] for row in prepare(sql).rows(connection, **span, **where.values))
    rows = []
    for some in chunks(sorted(seqs, reverse=True)[:limit]):
        where = Where().among("x.seq", "seq", some)
        rows += prepare(f"{_OUTSIDE_COUNT} AND {where}").rows(connection, **span, **where.values)
    return _with_paths(connection, log, sorted(rows, reverse=True), found.typed)


def _with_paths(
    connection: Connection, log: int, rows: Sequence[Row], typed: Typed | None
) -> list[OutsideChange]:
    found = []
    limit = LISTED_PATHS if typed is None else _MOST_PATHS
    with corrupt_on_mismatch():
        for seq, at, actor, count in rows:
            check_numbers(seq, count)
            check_texts(actor)
            listed = _PATHS_OF.rows(connection, log=log, seq=seq, limit=limit)
            paths = [unpack_path(path) for (path,) in listed]
            if typed is not None:
                paths.sort(key=lambda path: not typed.finds(path))
            first = tuple(paths[:LISTED_PATHS])
            found.append(OutsideChange(seq, from_micros(at), actor, first, count))
    return found


def _naming(
    connection: Connection, log: int, typed: Typed, after: int, before: int
) -> Iterator[int]:
    """The requests of the calls whose summary names such a path."""
    escaped = typed.longest.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    lines = _LINES.rows(connection, log=log, after=after, before=before, like=f"%{escaped}%")
    return (requested for requested, line in lines if typed.finds_in(line))
