"""Finding calls by the words in their arguments, results and paths.

The index is filled in batches, off the write path: what was recorded since the last batch is
not found yet. A row's id is the log's number and the event's seq, so the newest come first
without sorting. SQLite's alone; elsewhere another module takes its place.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from loom_audit.model.events import CallFinished, CallRequested, FilesChanged
from loom_audit.ports import EventFilter
from loom_audit.sql.connection import Connection
from loom_audit.sql.connections import Connections
from loom_audit.sql.event_log import SqlEventLog
from loom_audit.sql.projections.summaries import plain_text
from loom_audit.sql.statements import prepare

INDEXED_AT_ONCE = 500
MAX_WORDS = 32 * 1024
"""Characters of one event that are indexed."""

_SEQ_BITS = 40
_KINDS = (CallRequested.kind, CallFinished.kind, FilesChanged.kind)
_WORD = re.compile(r"\w+")

_DONE = prepare("SELECT seq FROM searched WHERE log = :log")
_SET_DONE = prepare(
    "INSERT INTO searched (log, seq) VALUES (:log, :seq) "
    "ON CONFLICT (log) DO UPDATE SET seq = excluded.seq"
)
_INDEX = prepare("INSERT INTO search (rowid, words) VALUES (:place, :words)")
_FIND = prepare(
    "SELECT rowid FROM search WHERE search MATCH :wanted AND rowid > :first AND rowid < :last "
    "ORDER BY rowid DESC LIMIT :many"
)
_CALL_BY_END = prepare(
    "SELECT requested FROM call WHERE log = :log AND requested = :seq "
    "UNION SELECT requested FROM call WHERE log = :log AND finished = :seq "
    "UNION SELECT requested FROM change_set WHERE log = :log AND seq = :seq "
    "AND requested IS NOT NULL"
)


def index_events(connections: Connections, events: SqlEventLog, log: int) -> int:
    """Index what was recorded since the last time, a batch per transaction; how many events."""
    done = 0
    while True:
        with connections.reading() as connection:
            start = _DONE.value(connection, log=log) or 0
        batch = list(islice(events.read(EventFilter(after=start, kinds=_KINDS)), INDEXED_AT_ONCE))
        if not batch:
            return done
        rows = [{"place": _rowid(log, e.seq), "words": _words(e.fact)} for e in batch]
        with connections.writing() as connection:
            # somebody else may have indexed the same meanwhile
            if (_DONE.value(connection, log=log) or 0) == start:
                _INDEX.run_many(connection, rows)
                _SET_DONE.run(connection, log=log, seq=batch[-1].seq)
                done += len(batch)


def find_calls(
    connection: Connection, log: int, text: str, *, before: int | None, limit: int
) -> Sequence[int]:
    """Requests of the calls that say all the words of the text, in any of their events.

    Newest first; the last word may be a beginning. `before` is a seq.
    """
    words = _WORD.findall(text)
    if not words:
        return []
    wanted = " ".join(f'"{word}"' for word in words) + "*"
    found: dict[int, None] = {}
    last = _rowid(log, before if before is not None else (1 << _SEQ_BITS) - 1)
    while len(found) < limit:
        many = 2 * limit
        places = _FIND.rows(connection, wanted=wanted, first=_rowid(log, 0), last=last, many=many)
        for (place,) in places:
            seq = place & ((1 << _SEQ_BITS) - 1)
            found.update((row[0], None) for row in _CALL_BY_END.rows(connection, log=log, seq=seq))
        if len(places) < many:
            break
        last = places[-1][0]
    return list(found)[:limit]


def _rowid(log: int, seq: int) -> int:
    return log << _SEQ_BITS | seq


def _words(fact: Any) -> str:
    parts: Iterator[str]
    match fact:
        case CallRequested():
            parts = iter([fact.tool, *_texts(fact.arguments)])
        case CallFinished():
            parts = _texts(fact.result)
        case FilesChanged():
            parts = (change.path for change in fact.changes)
        case _:
            parts = iter(())
    taken: list[str] = []
    size = 0
    for part in parts:
        taken.append(part[: MAX_WORDS - size])
        size += len(taken[-1])
        if size >= MAX_WORDS:
            break
    return plain_text(" ".join(taken))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _texts(item)
    elif value is not None and not isinstance(value, bool):
        yield str(value)
