"""What people note of a log while they read it, in tables that no rebuild touches."""

import secrets
from collections.abc import Collection, Mapping, Sequence

from loom_audit.ports import Clock, UnreadSession
from loom_audit.sql.ground.clock import to_micros
from loom_audit.sql.ground.conditions import chunks, in_values
from loom_audit.sql.ground.connection import Connection
from loom_audit.sql.ground.connections import Connections
from loom_audit.sql.ground.statements import prepare
from loom_audit.sql.projections.sessions import can_be_stored

KEY_BYTES = 32
LOOKED_AT = 500
"""The number of the newest sessions with changed files that are looked at for unread changes."""

_BEGIN = prepare("INSERT INTO marks (log, key, since) VALUES (:log, :key, 0)")
_KEY = prepare("SELECT key FROM marks WHERE log = :log")
_AMONG = "SELECT part FROM viewed WHERE log = :log AND person = :person AND part IN ({listed})"
_SOME = prepare("SELECT part FROM viewed WHERE log = :log AND person = :person LIMIT :limit")
_VIEW = prepare(
    "INSERT INTO viewed (log, person, part, at) VALUES (:log, :person, :part, :at) "
    "ON CONFLICT (log, person, part) DO NOTHING"
)
_UNVIEW = prepare("DELETE FROM viewed WHERE log = :log AND person = :person AND part = :part")
_READ_TO = "SELECT session, seq FROM read_to WHERE log = :log AND person = :person AND session IN "
_READ = prepare(
    "INSERT INTO read_to (log, person, session, seq, at) VALUES (:log, :person, :session, :seq, "
    ":at) ON CONFLICT (log, person, session) DO UPDATE SET seq = excluded.seq, at = excluded.at"
)
_UNREAD_AGAIN = prepare(
    "DELETE FROM read_to WHERE log = :log AND person = :person AND session = :session"
)
_UNREAD = prepare(
    "SELECT s.id, s.parent, s.after FROM (SELECT s.number, s.id, s.parent, s.started, s.last, "
    "CASE WHEN r.seq > m.since THEN r.seq ELSE m.since END AS after "
    "FROM session s JOIN marks m ON m.log = s.log "
    "LEFT JOIN read_to r ON r.log = s.log AND r.person = :person AND r.session = s.id "
    "WHERE s.log = :log AND s.files > 0 AND s.actor <> :person "
    "ORDER BY s.started DESC LIMIT :looked) s "
    # one lower bound: of two SQLite takes the first, and would read all that came before a session
    "WHERE s.last > s.after AND EXISTS (SELECT 1 FROM change_set c WHERE c.log = :log AND c.seq "
    "BETWEEN CASE WHEN s.after < s.started THEN s.started ELSE s.after + 1 END AND s.last "
    "AND c.session = s.number AND c.requested IS NOT NULL) ORDER BY s.started DESC LIMIT :limit"
)


def begin_marks(connection: Connection, log: int) -> None:
    """Give a new log the key by which its parts are named."""
    _BEGIN.run(connection, log=log, key=secrets.token_bytes(KEY_BYTES))


class SqlMarks:
    """The marks of one log in an open store."""

    def __init__(self, connections: Connections, number: int, clock: Clock) -> None:
        self._connections = connections
        self._number = number
        self._clock = clock

    def key(self) -> bytes:
        """The store's random key by which parts of this log are named; b"" where it is gone."""
        with self._connections.reading() as connection:
            key = _KEY.value(connection, log=self._number)
        return key if isinstance(key, bytes) else b""

    def viewed(self, person: str, names: Collection[str]) -> frozenset[str]:
        """The names, of these, in hex, of parts that a person has viewed."""
        wanted = {bytes.fromhex(name) for name in names}
        found: set[str] = set()
        with self._connections.reading() as connection:
            # most often a person has fewer marks than a review has parts
            most = len(wanted)
            marked = _SOME.rows(connection, log=self._number, person=person, limit=most + 1)
            if len(marked) <= most:
                return frozenset(one.hex() for (one,) in marked if one in wanted)
            for some in chunks(sorted(wanted)):
                listed, values = in_values("p", some)
                query = prepare(_AMONG.format(listed=listed))
                rows = query.rows(connection, log=self._number, person=person, **values)
                found.update(part.hex() for (part,) in rows)
        return frozenset(found)

    def view(self, person: str, names: Collection[str], *, viewed: bool = True) -> None:
        """Note that a person has viewed parts, or take that back; again changes nothing."""
        statement, at = _VIEW if viewed else _UNVIEW, to_micros(self._clock.now())
        rows = [
            {"log": self._number, "person": person, "part": bytes.fromhex(name), "at": at}
            for name in dict.fromkeys(names)
        ]
        with self._connections.writing() as connection:
            statement.run_many(connection, rows)

    def read_to(self, person: str, sessions: Collection[str]) -> Mapping[str, int]:
        """The seq up to which a person has read each of these sessions, of those marked so."""
        found: dict[str, int] = {}
        with self._connections.reading() as connection:
            for some in chunks([one for one in sessions if can_be_stored(one)]):
                listed, values = in_values("s", some)
                query = prepare(f"{_READ_TO}({listed})")
                found.update(query.rows(connection, log=self._number, person=person, **values))
        return {session: seq for session, seq in found.items() if isinstance(seq, int)}

    def read(self, person: str, sessions: Mapping[str, int | None]) -> None:
        """Note up to which seq a person has read sessions; None takes the note back."""
        at = to_micros(self._clock.now())
        with self._connections.writing() as connection:
            for session, seq in sessions.items():
                row = {"log": self._number, "person": person, "session": session}
                if seq is None:
                    _UNREAD_AGAIN.run(connection, **row)
                else:
                    _READ.run(connection, **row, seq=seq, at=at)

    def unread(self, person: str, limit: int) -> Sequence[UnreadSession]:
        """The sessions of others with changes that a person has not read, newest first."""
        with self._connections.reading() as connection:
            rows = _UNREAD.rows(
                connection, log=self._number, person=person, looked=LOOKED_AT, limit=limit
            )
        # a note that somebody made something else of counts as none
        return [UnreadSession(*row) for row in rows if isinstance(row[2], int)]
