"""Reading the tables that follow the log, and making them anew from it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import delete, or_, select, tuple_

from loom_audit.errors import NotFound
from loom_audit.model.events import Call, Checkpoint, Event, RecordedChange, Session
from loom_audit.model.files import FileState
from loom_audit.model.scope import Scope
from loom_audit.ports import CallFilter, EventFilter
from loom_audit.sql.clock import from_micros
from loom_audit.sql.connection import Connection
from loom_audit.sql.connections import Connections
from loom_audit.sql.event_log import SqlEventLog
from loom_audit.sql.event_rows import HEAD
from loom_audit.sql.packing import check_numbers, check_texts, corrupt_on_mismatch, pack_id
from loom_audit.sql.projections import call_rows, search, tree_rows
from loom_audit.sql.projections.fold import fold
from loom_audit.sql.statements import prepare
from loom_audit.sql.tables import (
    CALL,
    CALL_CHANGE,
    CHECKPOINT,
    FILE_CHANGE,
    PATH,
    PROJECTIONS,
    SESSION,
)

READ_CHANGES = 1000
_REBUILT_AT_ONCE = 1000

_SCOPE = prepare("SELECT ignore, max_file_bytes FROM workspace WHERE log = :log")
_ANY_CHANGE = prepare("SELECT seq FROM file_change WHERE log = :log AND seq > :after LIMIT 1")
_ANY_OF_CALL = prepare(
    "SELECT x.seq FROM call c JOIN call_change x ON x.log = c.log AND x.requested = c.requested "
    "WHERE c.log = :log AND c.call_id = :call_id AND x.seq > :after LIMIT 1"
)


class SqlProjections:
    """The projections of one log. Every method reads one state of the store."""

    def __init__(self, connections: Connections, events: SqlEventLog, *, number: int) -> None:
        self._connections = connections
        self._events = events
        self._number = number

    # --- sessions and calls ---------------------------------------------------------------

    def sessions(self, *, before: int | None = None, limit: int = 100) -> Sequence[Session]:
        """Newest first, by the seq of their start."""
        wanted = select(SESSION).where(SESSION.c.log == self._number)
        if before is not None:
            wanted = wanted.where(SESSION.c.started < before)
        with self._connections.reading() as connection:
            rows = connection.execute(wanted.order_by(SESSION.c.started.desc()).limit(limit)).all()
        return [_to_session(row) for row in rows]

    def session(self, id: str) -> Session:
        """NotFound when there is none."""
        wanted = select(SESSION).where(SESSION.c.log == self._number, SESSION.c.id == id)
        with self._connections.reading() as connection:
            row = connection.execute(wanted).first()
        if row is None:
            raise NotFound(
                f"There is no session {id}", hint="Run `loom-audit session` to list them."
            )
        return _to_session(row)

    def open_sessions(self) -> Sequence[Session]:
        """Sessions that have not ended, oldest first."""
        wanted = select(SESSION).where(SESSION.c.log == self._number, SESSION.c.ended.is_(None))
        with self._connections.reading() as connection:
            rows = connection.execute(wanted.order_by(SESSION.c.started)).all()
        return [_to_session(row) for row in rows]

    def scope(self) -> Scope:
        """The scope as last accepted; the usual one before the workspace is attached."""
        rows = self._connections.rows(_SCOPE, log=self._number)
        with corrupt_on_mismatch():
            for ignore, limit in rows:
                check_texts(ignore)
                check_numbers(limit)
        return Scope(*rows[0]) if rows else Scope()

    def calls(self, filter: CallFilter = CallFilter()) -> Sequence[Call]:
        """The calls that match, ordered by their request."""
        with self._connections.reading() as connection:
            wanted = call_rows.select_matching(connection, self._number, filter)
            rows = connection.execute(wanted).all()
            return call_rows.to_calls(connection, self._number, rows)

    def call(self, session: str, call_id: str) -> Call:
        """NotFound when there is none."""
        wanted = call_rows.select_calls(self._number).where(CALL.c.call_id == pack_id(call_id))
        mine = SESSION.c.id == session if session else CALL.c.session.is_(None)
        return self._one(wanted.where(mine), f"There is no call {call_id} in session {session}")

    def call_at(self, seq: int) -> Call:
        """The call that the event of this seq belongs to. NotFound when it belongs to none."""
        missing = f"Event {seq} belongs to no call"
        by_ends = call_rows.select_calls(self._number).where(
            or_(CALL.c.finished == seq, CALL.c.requested == seq)
        )
        with self._connections.reading() as connection:
            if connection.execute(by_ends).first() is not None:
                return self._one(by_ends, missing)
        found = list(self._events.read(EventFilter(after=seq - 1, before=seq + 1)))
        call_id = getattr(found[0].fact, "call_id", None) if found else None
        if call_id is None:
            raise NotFound(missing, hint="Run `loom-audit log` to list the calls.")
        return self.call(found[0].session, call_id)

    def open_calls(self) -> Sequence[Call]:
        """Calls requested and not finished, oldest first."""
        wanted = call_rows.select_calls(self._number).where(CALL.c.finished.is_(None))
        with self._connections.reading() as connection:
            rows = connection.execute(wanted.order_by(CALL.c.requested)).all()
            return call_rows.to_calls(connection, self._number, rows)

    def reverted(self) -> Mapping[int, int]:
        """Call number → number of the call that took it back, for those still taken back."""
        with self._connections.reading() as connection:
            return call_rows.reverted_by(connection, self._number)

    def _one(self, wanted: Any, missing: str) -> Call:
        with self._connections.reading() as connection:
            rows = connection.execute(wanted.limit(1)).all()
            if not rows:
                raise NotFound(missing, hint="Run `loom-audit log` to list the calls.")
            return call_rows.to_calls(connection, self._number, rows)[0]

    # --- changes and trees ----------------------------------------------------------------

    def changes(
        self,
        *,
        after: int = 0,
        until: int | None = None,
        paths: Iterable[str] | None = None,
        call_ids: Iterable[str] | None = None,
    ) -> Iterator[RecordedChange]:
        """Changes in log order, a thousand at a time; `call_ids` are causes or candidates."""
        ids = None if call_ids is None else [pack_id(call_id) for call_id in call_ids]
        if not self._any_change(after, ids):
            return
        wanted = tree_rows.select_changes(self._number).where(FILE_CHANGE.c.seq > after)
        if until is not None:
            wanted = wanted.where(FILE_CHANGE.c.seq <= until)
        if paths is not None:
            names = [path.encode("utf-8", "surrogateescape") for path in paths]
            numbers = select(PATH.c.number).where(PATH.c.log == self._number)
            wanted = wanted.where(FILE_CHANGE.c.path.in_(numbers.where(PATH.c.path.in_(names))))
        if ids is not None:
            seqs = (
                select(CALL_CHANGE.c.seq)
                .join(
                    CALL,
                    (CALL.c.log == CALL_CHANGE.c.log)
                    & (CALL.c.requested == CALL_CHANGE.c.requested),
                )
                .where(CALL.c.log == self._number, CALL.c.call_id.in_(ids))
            )
            wanted = wanted.where(FILE_CHANGE.c.seq.in_(seqs))
        wanted = wanted.order_by(FILE_CHANGE.c.seq, FILE_CHANGE.c.n).limit(READ_CHANGES)
        page = wanted
        while True:
            with self._connections.reading() as connection:
                rows = connection.execute(page).all()
            yield from tree_rows.to_changes(rows)
            if len(rows) < READ_CHANGES:
                return
            place = tuple_(FILE_CHANGE.c.seq, FILE_CHANGE.c.n)
            page = wanted.where(place > tuple_(rows[-1].seq, rows[-1].n))

    def _any_change(self, after: int, ids: Sequence[bytes] | None) -> bool:
        """Whether it is worth asking: mostly nothing has changed, and that is told quickly."""
        key = {"log": self._number, "after": after}
        look = self._connections.rows
        if ids is None:
            return bool(look(_ANY_CHANGE, **key))
        return any(look(_ANY_OF_CALL, call_id=id, **key) for id in ids)

    def history(
        self, path: str, *, below: bool = False, before: int | None = None, limit: int = 100
    ) -> Sequence[RecordedChange]:
        """Changes of one path, newest first; with `below` of all paths inside it too."""
        wanted = tree_rows.select_changes(self._number)
        if before is not None:
            wanted = wanted.where(FILE_CHANGE.c.seq < before)
        numbers = select(PATH.c.number).where(
            PATH.c.log == self._number, call_rows.paths_at_or_below(path, below=below)
        )
        order = (FILE_CHANGE.c.seq.desc(), FILE_CHANGE.c.n.desc())
        with self._connections.reading() as connection:
            few = (
                select(FILE_CHANGE.c.seq)
                .where(FILE_CHANGE.c.log == self._number, FILE_CHANGE.c.path.in_(numbers))
                .limit(call_rows.FEW + 1)
            )
            column = FILE_CHANGE.c.path.expression
            if len(connection.execute(few).all()) > call_rows.FEW:
                column = column + 0  # not by the index, but from the newest change on
            wanted = wanted.where(column.in_(numbers))
            rows = connection.execute(wanted.order_by(*order).limit(limit)).all()
        return list(tree_rows.to_changes(rows))

    def tree(self, at: int | None = None) -> dict[str, FileState]:
        """The tree after event `at`, by default the head's."""
        with self._connections.reading() as connection:
            self._check_point(connection, at)
            return tree_rows.tree(connection, self._number, at)

    def state(self, path: str, at: int | None = None) -> FileState | None:
        """One path of that tree."""
        if at is not None:
            with self._connections.reading() as connection:
                self._check_point(connection, at)
        return tree_rows.state(self._connections, self._number, path, at)

    def _check_point(self, connection: Connection, at: int | None) -> None:
        if at is None:
            return
        head = HEAD.value(connection, log=self._number) or 0
        if not 0 <= at <= head:
            raise NotFound(f"There is no event {at}: the log ends at {head}")

    def checkpoints(self) -> Sequence[Checkpoint]:
        """Newest first; a name marked again appears once, with its newest point."""
        wanted = select(CHECKPOINT).where(CHECKPOINT.c.log == self._number)
        with self._connections.reading() as connection:
            rows = connection.execute(wanted.order_by(CHECKPOINT.c.seq.desc())).all()
        newest: dict[str, Checkpoint] = {}
        with corrupt_on_mismatch():
            for row in rows:
                check_texts(row.name, row.note)
                check_numbers(row.point)
                if row.name not in newest:
                    newest[row.name] = Checkpoint(
                        row.name, row.point, row.seq, from_micros(row.at), row.note
                    )
        return list(newest.values())

    # --- words ----------------------------------------------------------------------------

    def index_search(self) -> int:
        """Make what was recorded since the last time findable; how many events that were."""
        return search.index_events(self._connections, self._events, self._number)

    def search(self, text: str, *, before: int | None = None, limit: int = 50) -> Sequence[Call]:
        """Calls of which one event says all the words, newest first, as far as indexed."""
        with self._connections.reading() as connection:
            found = search.find_calls(connection, self._number, text, before=before, limit=limit)
            wanted = call_rows.select_calls(self._number).where(CALL.c.requested.in_(found))
            rows = connection.execute(wanted.order_by(CALL.c.requested.desc())).all()
            return call_rows.to_calls(connection, self._number, rows)

    # --- making them anew -----------------------------------------------------------------

    def rebuild(self) -> int:
        """Drop all rows of the log and make them from its events, as one transaction.

        The number of events. Writers wait meanwhile.
        """
        with self._connections.writing() as connection:
            for table in PROJECTIONS:
                connection.execute(delete(table).where(table.c.log == self._number))
            batch: list[Event] = []
            done = 0
            for event in self._events.read_in(connection):
                batch.append(event)
                done += 1
                if len(batch) == _REBUILT_AT_ONCE:
                    fold(connection, self._number, batch)
                    batch = []
            if batch:
                fold(connection, self._number, batch)
        return done


def _to_session(row: Any) -> Session:
    with corrupt_on_mismatch():
        return _session(row)


def _session(row: Any) -> Session:
    check_texts(row.id, row.agent, row.actor, row.title, row.status)
    check_numbers(row.started, row.ended, row.calls, row.errors, row.files)
    return Session(
        id=row.id,
        agent=row.agent,
        actor=row.actor,
        title=row.title,
        started=row.started,
        started_at=from_micros(row.started_at),
        ended=row.ended,
        ended_at=None if row.ended_at is None else from_micros(row.ended_at),
        status=row.status,
        calls=row.calls,
        errors=row.errors,
        files=row.files,
    )
