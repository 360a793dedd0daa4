"""Which events tell what a session was asked and said; the texts stay in the events."""

from collections.abc import Sequence
from typing import cast

from loom_audit.model.conversation import MessageReceived, PromptSubmitted, Role
from loom_audit.model.records import Spoken
from loom_audit.sql.ground.conditions import Where
from loom_audit.sql.ground.connection import LARGEST, Connection
from loom_audit.sql.ground.packing import check_numbers, check_texts, corrupt_on_mismatch
from loom_audit.sql.ground.statements import insert_into, prepare
from loom_audit.sql.projections import sessions
from loom_audit.sql.projections.rows import FollowedEvent, ReadBack, Rows

TABLES = ("spoken",)
FACTS = (PromptSubmitted, MessageReceived)

_SPOKEN = insert_into("spoken", ("seq", "session", "role"), session=sessions.NUMBER)
STATEMENTS = (_SPOKEN,)

READ_BACK = (
    ReadBack(
        _SPOKEN,
        "spoken",
        {"session": "coalesce(s.id, spoken.session, '')"},
        "FROM spoken LEFT JOIN session s ON s.number = spoken.session AND s.log = spoken.log "
        "WHERE spoken.log = ? ORDER BY spoken.seq",
    ),
)


def apply(event: FollowedEvent, rows: Rows) -> None:
    """Add a row for each prompt and each message."""
    match event.fact:
        case PromptSubmitted():
            rows.add(_SPOKEN, seq=event.seq, session=event.session, role="prompt")
        case MessageReceived(role=role):
            rows.add(_SPOKEN, seq=event.seq, session=event.session, role=role)


def of_session(
    connection: Connection,
    log: int,
    session: str,
    *,
    roles: Sequence[Role],
    after: int,
    before: int | None,
    newest_first: bool,
    limit: int | None,
) -> Sequence[Spoken]:
    """The prompts and messages of a session with `after < seq < before`, as many as asked for."""
    span = sessions.span(connection, log, session)
    if span is None:
        return []
    where = Where().also("log = :log AND session = :session", log=log, session=span[0])
    until = LARGEST if before is None else before
    where = where.also("seq > :after AND seq < :until", after=after, until=until)
    if roles:
        where = where.among("role", "role", roles)
    order = "DESC" if newest_first else "ASC"
    query = prepare(f"SELECT seq, role FROM spoken WHERE {where} ORDER BY seq {order} LIMIT :limit")
    rows = query.rows(connection, limit=LARGEST if limit is None else limit, **where.values)
    with corrupt_on_mismatch():
        for seq, role in rows:
            check_numbers(seq)
            check_texts(role)
        return [Spoken(seq, cast(Role, role)) for seq, role in rows]
