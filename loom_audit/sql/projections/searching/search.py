"""Finding by words: of calls their commands, arguments, outputs and paths, of prompts and messages
what they say, of changes from outside their paths.

The index is filled in batches, off the write path. A row's id is the log's number and a seq: of
the finish of a call, with the words of the whole call, of the request while the call is open, and
of the event of anything else. The row of seq 0 says that all of these are in it: an index of an
earlier release has calls alone. SQLite's alone; elsewhere another module takes its place.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from loom_audit.model.conversation import SAID_KINDS, MessageReceived, PromptSubmitted
from loom_audit.model.events import CallFinished, CallRequested, Event
from loom_audit.model.text.sought import sought_words, words_of
from loom_audit.ports import EventFilter, EventLog
from loom_audit.sql.events.event_rows import HEAD
from loom_audit.sql.ground.conditions import Where
from loom_audit.sql.ground.connection import LARGEST, Connection
from loom_audit.sql.ground.connections import Connections
from loom_audit.sql.ground.statements import prepare

INDEXED_AT_ONCE = 500
SPAN = 50_000
"""The number of events that are looked through at once for those that are indexed."""
UNNOTED = 1_000
"""The number of events, none of them indexed, from which on it is noted that they were read."""
MAX_WORDS = 32 * 1024
"""Characters of one row that are indexed."""
FEW = 2_000
"""Up to so many rows that say the words are listed for a query of calls."""
NEAR = 2_000

_SEQ_BITS = 40
SEQ = f"rowid & {(1 << _SEQ_BITS) - 1}"
"""The seq that a row of the index is about."""
_CALLS = (CallRequested.kind, CallFinished.kind)

_DONE = prepare("SELECT seq FROM searched WHERE log = :log")
_SET_DONE = prepare(
    "INSERT INTO searched (log, seq) VALUES (:log, :seq) "
    "ON CONFLICT (log) DO UPDATE SET seq = excluded.seq"
)
_IS_WHOLE = prepare("SELECT rowid FROM search WHERE rowid = :place")
_INDEX = prepare("INSERT INTO search (rowid, words) VALUES (:place, :words)")
_CALL_OF = prepare("SELECT requested FROM call WHERE log = :log AND finished = :seq")
_FINISH_OF = prepare("SELECT finished FROM call WHERE log = :log AND requested = :seq")
_PATHS_OF = prepare(
    "SELECT DISTINCT p.path FROM change_set x "
    "JOIN file_change f ON f.log = x.log AND f.seq = x.seq "
    "JOIN path p ON p.number = f.path WHERE x.log = :log AND x.requested = :requested LIMIT 1000"
)
_OUTSIDE = prepare(
    "SELECT x.seq, p.path FROM change_set x "
    "JOIN file_change f ON f.log = x.log AND f.seq = x.seq AND f.n < 1000 "
    "JOIN path p ON p.number = f.path WHERE x.log = :log AND x.session IS NULL "
    "AND x.origin = 'outside' AND x.seq > :after AND x.seq <= :until ORDER BY x.seq, f.n"
)
MATCHING = "search MATCH :sought AND rowid > :search_first AND rowid < :search_end"
"""The condition on rows of the index that they say the words."""
_MATCHES = f"SELECT {SEQ} FROM search WHERE {MATCHING}"
_SEQS = prepare(_MATCHES)
_MANY = prepare(f"SELECT count(*) FROM (SELECT 1 FROM search WHERE {MATCHING} LIMIT {FEW + 1})")


def index_words(
    connections: Connections, events: EventLog, log: int, most: int | None = None
) -> int:
    """Index what was recorded since the last time, a batch per transaction; how far it has come.

    That is the seq up to which all is indexed. With `most` it ends after about so many events.
    AuditUnavailable when there is something to index and the store cannot be written.
    """
    left = LARGEST if most is None else most
    while True:
        start, until = _index_some(connections, events, log)
        left -= until - start
        if until == start or left <= 0:
            return until


def _index_some(connections: Connections, events: EventLog, log: int) -> tuple[int, int]:
    """Index the next batch: the seq up to which all was indexed, and up to which it is now."""
    with connections.reading() as connection:
        start = _DONE.value(connection, log=log) or 0
        head = HEAD.value(connection, log=log) or 0
        is_whole = _IS_WHOLE.value(connection, place=_rowid(log, 0)) is not None
    if start and not is_whole:
        _add_told(connections, events, log, start)
    until = min(head, start + SPAN)
    if until <= start:
        return start, start
    span = EventFilter(after=start, before=until + 1, kinds=(*_CALLS, *SAID_KINDS))
    batch = list(islice(events.read(span), INDEXED_AT_ONCE))
    if len(batch) == INDEXED_AT_ONCE:
        until = batch[-1].seq
    with connections.reading() as connection:
        rows = [*_rows(connection, events, log, batch)]
        rows += _outside_rows(connection, log, start, until)
    if not rows and until - start < UNNOTED:
        return until, until
    with connections.writing() as connection:
        # somebody else may have indexed the same meanwhile
        if (_DONE.value(connection, log=log) or 0) == start:
            if not start:
                rows.append({"place": _rowid(log, 0), "words": ""})
            _INDEX.run_many(connection, rows)
            _SET_DONE.run(connection, log=log, seq=until)
    return start, until


def _add_told(connections: Connections, events: EventLog, log: int, until: int) -> None:
    """Complete an index that was made when calls alone were in it."""
    span = EventFilter(before=until + 1, kinds=SAID_KINDS)
    with connections.reading() as connection:
        rows = [{"place": _rowid(log, 0), "words": ""}]
        rows += _rows(connection, events, log, events.read(span))
        rows += _outside_rows(connection, log, 0, until)
    with connections.writing() as connection:
        if _IS_WHOLE.value(connection, place=_rowid(log, 0)) is None:
            _INDEX.run_many(connection, rows)


def saying(connection: Connection, where: Where, log: int, text: str) -> Where | None:
    """The conditions on calls `c`, and that each call says all words of the text; None where
    thousands do, of which `seqs_saying` tells.

    The last word may be the beginning of one. What is not a letter, a digit or an underscore
    separates words.
    """
    matching = matches(log, text)
    if matching is None:
        return where.also("1 = 0")
    if _MANY.value(connection, **matching) > FEW:
        return None
    return where.also(f"c.requested IN ({_MATCHES}) OR c.finished IN ({_MATCHES})", **matching)


def seqs_saying(connection: Connection, log: int, text: str, seqs: Iterable[int]) -> set[int]:
    """The seqs near these of which the rows of the index say all words of the text."""
    matching, listed = matches(log, text), sorted(seqs)
    found: set[int] = set()
    while listed and matching is not None:
        # those that lie near each other are asked about in one go
        count = next((n for n in range(1, len(listed)) if listed[n] - listed[n - 1] > NEAR), None)
        some, listed = listed[:count], listed[count:] if count else []
        span = {"search_first": _rowid(log, some[0] - 1), "search_end": _rowid(log, some[-1] + 1)}
        found.update(seq for (seq,) in _SEQS.rows(connection, **{**matching, **span}))
    return found


def matches(log: int, text: str, before: int | None = None) -> dict[str, Any] | None:
    """The values of MATCHING for the words of a text, in rows of events before a seq; None where
    it has no word.
    """
    words = sought_words(text)
    if not words:
        return None
    end = _rowid(log + 1, 0) if before is None else _rowid(log, before)
    sought = " ".join(f'"{word}"' for word in words) + "*"
    return {"sought": sought, "search_first": _rowid(log, 0), "search_end": end}


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
                if _FINISH_OF.value(connection, log=log, seq=event.seq) is not None:
                    continue  # its finish says all of it
            case CallFinished(result=result):
                request = _CALL_OF.value(connection, log=log, seq=event.seq) or 0
                paths = _PATHS_OF.rows(connection, log=log, requested=request)
                before = asked.pop(request, None) or _request_words(events, request)
                names = (path.decode("utf-8", "replace") for (path,) in paths)
                words = _words([before, *names, *_texts(result)])
            case PromptSubmitted(text=text) | MessageReceived(text=text):
                words = _words([text])
            case _:
                continue
        yield {"place": _rowid(log, event.seq), "words": words}


def _outside_rows(
    connection: Connection, log: int, after: int, until: int
) -> Iterator[dict[str, Any]]:
    paths: dict[int, list[str]] = {}
    for seq, path in _OUTSIDE.rows(connection, log=log, after=after, until=until):
        paths.setdefault(seq, []).append(path.decode("utf-8", "replace"))
    for seq, names in paths.items():
        yield {"place": _rowid(log, seq), "words": _words(names)}


def _request_words(events: EventLog, seq: int) -> str:
    for event in events.read(EventFilter.only(seq)):
        if isinstance(event.fact, CallRequested):
            return _words([event.fact.tool, *_texts(event.fact.arguments)])
    return ""


def _words(texts: Iterable[str]) -> str:
    """The words of the texts as they are indexed.

    The index divides only at ASCII characters that are not a letter, digit or underscore, so it
    takes them as they are.
    """
    taken: list[str] = []
    size = 0
    for text in texts:
        taken.append(text[: MAX_WORDS - size])
        size += len(taken[-1])
        if size >= MAX_WORDS:
            break
    return " ".join(words_of(" ".join(taken)))


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
