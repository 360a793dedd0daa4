"""Where words stand in a log: the newest places first, as far back as is asked for."""

from collections.abc import Iterator, Mapping, Sequence

from loom_audit.model.conversation import MessageReceived, PromptSubmitted
from loom_audit.model.coverage import FAILED, NOT_FAILED
from loom_audit.model.events import CallFinished, CallRequested, FilesChanged
from loom_audit.model.records import FoundKind, FoundPlace, FoundPlaces
from loom_audit.ports import WordsFilter
from loom_audit.sql.events.event_reader import EventReader
from loom_audit.sql.ground.connection import Connection, Row
from loom_audit.sql.ground.statements import prepare
from loom_audit.sql.projections import outcomes
from loom_audit.sql.projections.searching import search

AT_ONCE = 1_000
MOST = 20_000
"""The number of rows of the index that are looked at for one answer; another answer goes on."""

_KINDS: Mapping[str, FoundKind] = {
    CallRequested.kind: "call",
    CallFinished.kind: "call",
    PromptSubmitted.kind: "prompt",
    MessageReceived.kind: "message",
    FilesChanged.kind: "outside",
}
_ROWS = prepare(
    "SELECT m.seq, e.kind, c.requested, c.finished, c.tool, "
    f"CASE WHEN c.finished IS NULL THEN 'open' ELSE {outcomes.STATUS} END, "
    "coalesce(c.actor, s.actor, ''), coalesce(s.id, '') FROM "
    f"(SELECT {search.SEQ} AS seq FROM search WHERE {search.MATCHING} "
    "ORDER BY rowid DESC LIMIT :limit) m "
    "JOIN event e ON e.log = :log AND e.seq = m.seq "
    "LEFT JOIN call c ON c.log = :log AND c.requested = coalesce("
    "(SELECT f.requested FROM call f WHERE f.log = :log AND f.finished = m.seq), m.seq) "
    f"LEFT JOIN session s ON s.number = c.session {outcomes.JOINED}"
)


def places(
    connection: Connection, reader: EventReader, log: int, wanted: WordsFilter
) -> FoundPlaces:
    """The places that the filter wants, newest first, at most its limit."""
    found: list[FoundPlace] = []
    before, looked = wanted.before, 0
    while looked < MOST:
        matching = search.matches(log, wanted.words, before)
        if matching is None:
            return FoundPlaces((), None)
        rows = _ROWS.rows(connection, log=log, limit=AT_ONCE, **matching)
        for one in _wanted_of(connection, reader, rows, wanted):
            if len(found) == wanted.limit:
                return FoundPlaces(tuple(found), found[-1].seq)
            found.append(one)
        if len(rows) < AT_ONCE:
            return FoundPlaces(tuple(found), None)
        before = rows[-1][0]
        looked += len(rows)
    return FoundPlaces(tuple(found), before)


def _wanted_of(
    connection: Connection, reader: EventReader, rows: Sequence[Row], wanted: WordsFilter
) -> Iterator[FoundPlace]:
    told = [seq for seq, kind, *_ in rows if _KINDS.get(kind) in ("prompt", "message")]
    needed = told if wanted.kind in (None, "prompt", "message") else []
    whose = reader.whose(connection, needed) if needed else {}
    for row in rows:
        one = _place(row, whose)
        if one is not None and _is_wanted(one, wanted):
            yield one


def _place(row: Row, whose: Mapping[int, tuple[str, str]]) -> FoundPlace | None:
    seq, kind, requested, finished, tool, status, actor, session = row
    if kind not in _KINDS or (kind == CallRequested.kind and finished is not None):
        return None  # the call is found by its finish
    if _KINDS[kind] != "call":
        session, actor = whose.get(seq, ("", "outside"))
        return FoundPlace(seq, _KINDS[kind], session, actor)
    if requested is None:
        return None
    return FoundPlace(seq, "call", session, actor, requested, tool, status)


def _is_wanted(one: FoundPlace, wanted: WordsFilter) -> bool:
    failed = one.status not in ("", "open", *NOT_FAILED)
    return (
        wanted.kind in (None, one.kind)
        and wanted.tool in (None, one.tool)
        and (wanted.status in (None, one.status) or (wanted.status == FAILED and failed))
        and wanted.actor in (None, one.actor)
        and wanted.session in (None, one.session)
    )
