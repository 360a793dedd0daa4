"""Finding calls by the words in their commands, arguments, outputs and paths.

The index is filled in batches, off the write path. A row's id is the log's number and a seq: of
the request, with its words, and of the finish, with those of the whole call. SQLite's alone;
elsewhere another module takes its place.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any
from unicodedata import combining, normalize

from loom_audit.model.events import CallFinished, CallRequested, Event
from loom_audit.ports import EventFilter, EventLog
from loom_audit.sql.ground.conditions import Where
from loom_audit.sql.ground.connection import Connection
from loom_audit.sql.ground.connections import Connections
from loom_audit.sql.ground.statements import prepare

INDEXED_AT_ONCE = 500
MAX_WORDS = 32 * 1024
"""Characters of one row that are indexed."""

MAX_SOUGHT = 64
"""Words of one question; further ones are ignored."""

_SEQ_BITS = 40
_KINDS = (CallRequested.kind, CallFinished.kind)
_WORD = re.compile(r"\w+")

_DONE = prepare("SELECT seq FROM searched WHERE log = :log")
_SET_DONE = prepare(
    "INSERT INTO searched (log, seq) VALUES (:log, :seq) "
    "ON CONFLICT (log) DO UPDATE SET seq = excluded.seq"
)
_INDEX = prepare("INSERT INTO search (rowid, words) VALUES (:place, :words)")
_REQUEST_OF = prepare("SELECT requested FROM call WHERE log = :log AND finished = :seq")
_PATHS_OF = prepare(
    "SELECT DISTINCT p.path FROM change_set x "
    "JOIN file_change f ON f.log = x.log AND f.seq = x.seq "
    "JOIN path p ON p.number = f.path WHERE x.log = :log AND x.requested = :requested LIMIT 1000"
)
_MATCHES = (
    f"SELECT rowid & {(1 << _SEQ_BITS) - 1} FROM search "
    "WHERE search MATCH :sought AND rowid > :search_first AND rowid < :search_end"
)


def index_calls(connections: Connections, events: EventLog, log: int) -> int:
    """Index what was recorded since the last time, a batch per transaction; how many events.

    AuditUnavailable when there is something to index and the store cannot be written.
    """
    done = 0
    while True:
        with connections.reading() as connection:
            start = _DONE.value(connection, log=log) or 0
        batch = list(islice(events.read(EventFilter(after=start, kinds=_KINDS)), INDEXED_AT_ONCE))
        if not batch:
            return done
        with connections.reading() as connection:
            rows = list(_rows(connection, events, log, batch))
        with connections.writing() as connection:
            # somebody else may have indexed the same meanwhile
            if (_DONE.value(connection, log=log) or 0) == start:
                _INDEX.run_many(connection, rows)
                _SET_DONE.run(connection, log=log, seq=batch[-1].seq)
                done += len(batch)


def saying(where: Where, log: int, text: str) -> Where:
    """The conditions on calls `c`, and that each call says all words of the text.

    The last word may be the beginning of one. What is not a letter, a digit or an underscore
    separates words.
    """
    words = list(dict.fromkeys(_split(text)))[:MAX_SOUGHT]
    if not words:
        return where.also("1 = 0")
    sought = " ".join(f'"{word}"' for word in words) + "*"
    span = {"search_first": _rowid(log, 0), "search_end": _rowid(log + 1, 0)}
    either = f"c.requested IN ({_MATCHES}) OR c.finished IN ({_MATCHES})"
    return where.also(either, sought=sought, **span)


def _rowid(log: int, seq: int) -> int:
    return log << _SEQ_BITS | seq


def _rows(
    connection: Connection, events: EventLog, log: int, batch: Iterable[Event]
) -> Iterator[dict[str, Any]]:
    asked: dict[int, str] = {}
    for event in batch:
        match event.fact:
            case CallRequested() as fact:
                words = asked[event.seq] = _words([fact.tool, *_texts(fact.arguments)])
            case CallFinished(result=result):
                request = _REQUEST_OF.value(connection, log=log, seq=event.seq) or 0
                paths = _PATHS_OF.rows(connection, log=log, requested=request)
                before = asked.pop(request, None) or _request_words(events, request)
                names = (path.decode("utf-8", "replace") for (path,) in paths)
                words = _words([before, *names, *_texts(result)])
            case _:
                continue
        yield {"place": _rowid(log, event.seq), "words": words}


def _request_words(events: EventLog, seq: int) -> str:
    for event in events.read(EventFilter.only(seq)):
        if isinstance(event.fact, CallRequested):
            return _words([event.fact.tool, *_texts(event.fact.arguments)])
    return ""


def _words(texts: Iterable[str]) -> str:
    taken: list[str] = []
    size = 0
    for text in texts:
        taken.append(text[: MAX_WORDS - size])
        size += len(taken[-1])
        if size >= MAX_WORDS:
            break
    return " ".join(_split(" ".join(taken)))


def _split(text: str) -> list[str]:
    """The words of a text, without case and accents: letters, digits and underscores.

    The index divides only at ASCII characters that are none of these, so it takes them as they are.
    """
    if not text.isascii():
        parts = normalize("NFKD", text.casefold())
        text = "".join(part for part in parts if not combining(part))
    return _WORD.findall(text.lower())


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
