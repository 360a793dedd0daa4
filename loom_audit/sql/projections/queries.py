"""Reading the tables that follow the log, and making them anew from it."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Concatenate, ParamSpec, TypeVar

from loom_audit.errors import NotFound
from loom_audit.model.conversation import Role
from loom_audit.model.files import FileState
from loom_audit.model.plans.taking_back.taken_back import TakenBack
from loom_audit.model.records import (
    Call,
    Checkpoint,
    FoundPlaces,
    OutsideChange,
    RecordedChange,
    Session,
    Spoken,
    Tally,
)
from loom_audit.model.scope import Scope
from loom_audit.ports import CallFilter, EventFilter, EventLog, WordsFilter
from loom_audit.sql.events.event_reader import EventReader
from loom_audit.sql.events.event_rows import HEAD
from loom_audit.sql.ground.clock import to_micros
from loom_audit.sql.ground.connection import Connection
from loom_audit.sql.ground.connections import Connections
from loom_audit.sql.ground.statements import prepare
from loom_audit.sql.projections import (
    calls,
    changes,
    checkpoints,
    coverage,
    keyframes,
    reverts,
    sessions,
    spoken,
    tallies,
    tree,
    workspaces,
)
from loom_audit.sql.projections.fold import rebuild
from loom_audit.sql.projections.searching import found, named, search

P = ParamSpec("P")
T = TypeVar("T")

_NUMBERED = (
    ("change_set", "seq"),
    ("file_change", "seq"),
    ("tree_step", "seq"),
    ("relisted", "seq"),
    ("call", "requested"),
    ("call", "finished"),
    ("revert", "number"),
    ("revert_path", "number"),
    ("session", "started"),
    ("spoken", "seq"),
    ("keyframe", "seq"),
    ("checkpoint", "seq"),
)
"""Columns that name events, each the first of an index."""

_LATELY = (
    ("session", "last", "started"),
    ("outcome", "seq", "number"),
    ("lowered", "seq", "number"),
)
"""Columns that name events, without an index: of the rows that are last by another column."""

_FEW = 8
_NUMBERS = "9223372036854775807"
"""What is of another type than a number sorts behind it."""

_FOLLOWED = prepare(
    " UNION ALL ".join(
        [
            f"SELECT max({seq}) FROM {table} WHERE log = :log AND {seq} <= {_NUMBERS}"
            for table, seq in _NUMBERED
        ]
        + [
            f"SELECT max({seq}) FROM (SELECT {seq} FROM {table} WHERE log = :log "
            f"ORDER BY {last} DESC LIMIT {_FEW}) WHERE {seq} <= {_NUMBERS}"
            for table, seq, last in _LATELY
        ]
    )
)


class SqlProjections:
    """The projections of one log. Every method reads one state of the store."""

    def __init__(
        self, connections: Connections, events: EventLog, reader: EventReader, *, number: int
    ) -> None:
        self._connections = connections
        self._events = events
        self._reader = reader
        self._number = number

    def _ask(
        self,
        question: Callable[Concatenate[Connection, int, P], T],
        *args: P.args,
        **named: P.kwargs,
    ) -> T:
        """What a subject answers of this log, from one state of the store."""
        with self._connections.reading() as connection:
            return question(connection, self._number, *args, **named)

    # --- sessions and calls ---------------------------------------------------------------

    def sessions(
        self, *, before: int | None = None, limit: int = 100, outermost: bool = False
    ) -> Sequence[Session]:
        """The sessions, newest first, by the seq of their start; `outermost`: in no other one."""
        return self._ask(sessions.newest, before, limit, outermost=outermost)

    def session(self, id: str) -> Session:
        """The session of this id. NotFound when there is none."""
        return self._ask(sessions.by_id, id)

    def open_sessions(self) -> Sequence[Session]:
        """The sessions that have not ended, oldest first."""
        return self._ask(sessions.not_ended)

    def sessions_within(self, session: str) -> Sequence[Session]:
        """The sessions that are parts of a session, oldest first."""
        return self._ask(sessions.sessions_within, session)

    def spoken(
        self,
        session: str,
        *,
        roles: Sequence[Role] = (),
        after: int = 0,
        before: int | None = None,
        newest_first: bool = False,
        limit: int | None = None,
    ) -> Sequence[Spoken]:
        """The prompts and messages of a session with `after < seq < before`."""
        wanted: dict[str, Any] = {"roles": roles, "after": after, "before": before}
        return self._ask(
            spoken.of_session, session, newest_first=newest_first, limit=limit, **wanted
        )

    def scope(self) -> Scope:
        """The scope as last accepted; the usual one before the workspace is attached."""
        return workspaces.scope(self._connections, self._number)

    def calls(self, filter: CallFilter = CallFilter()) -> Sequence[Call]:
        """The calls that match, ordered by their request.

        For words, what was recorded since they were last asked for is indexed first.
        """
        if filter.words is not None:
            self.index_words()
        return self._ask(calls.matching, filter)

    def tally(self, after: int, since: datetime) -> Tally:
        """What is counted of the calls and changes behind an event, from a time on."""
        return self._ask(tallies.tally, after, to_micros(since))

    def index_words(self, most: int | None = None) -> int:
        """Bring the index of words up to date, or about `most` events further; up to which seq."""
        return search.index_words(self._connections, self._events, self._number, most)

    def places(self, wanted: WordsFilter) -> FoundPlaces:
        """Where the words stand, as far as they are in the index."""
        with self._connections.reading() as connection:
            return found.places(connection, self._reader, self._number, wanted)

    def call(self, session: str, call_id: str) -> Call:
        """The call of this session and call id. NotFound when there is none."""
        return self._ask(calls.by_id, session, call_id)

    def call_at(self, seq: int) -> Call:
        """The call that the event of this seq belongs to. NotFound when it belongs to none."""
        with self._connections.reading() as connection:
            found = calls.by_end(connection, self._number, seq)
        if found is not None:
            return found
        events = list(self._events.read(EventFilter.only(seq)))
        call_id = getattr(events[0].fact, "call_id", None) if events else None
        if call_id is None:
            raise NotFound(
                f"Event {seq} does not belong to a call" if events else f"There is no event {seq}",
                hint="Run `loom-audit log` to list the calls.",
            )
        return self.call(events[0].session, call_id)

    def open_calls(self) -> Sequence[Call]:
        """The calls that were requested and are not finished, oldest first."""
        return self._ask(calls.not_finished)

    def actors(self, numbers: Collection[int]) -> Mapping[int, str]:
        """Who made the calls of these numbers, by number."""
        return self._ask(calls.actors, numbers)

    def taken_back(self, of: Collection[int] | None = None) -> TakenBack:
        """What calls took back: all, or what says whether these calls and events are taken back."""
        return self._ask(reverts.taken_back, of)

    def lowered(self, number: int) -> Sequence[int]:
        """The seqs of the events that lowered the coverage of a call, in order."""
        return self._ask(coverage.lowered_at, number)

    # --- changes and trees ----------------------------------------------------------------

    def changes(
        self,
        *,
        after: int = 0,
        until: int | None = None,
        paths: Iterable[str] | None = None,
        calls: Iterable[int] | None = None,
    ) -> Iterator[RecordedChange]:
        """The changes in log order, a thousand at a time; `calls` as in `ports.log`."""
        return changes.changes(
            self._connections,
            self._number,
            after=after,
            until=until,
            paths=paths,
            calls=calls,
        )

    def history(
        self, path: str, *, below: bool = False, before: int | None = None, limit: int = 100
    ) -> Sequence[RecordedChange]:
        """The changes of one path, newest first; with `below` of all paths inside it too."""
        return self._ask(changes.history, path, below=below, before=before, limit=limit)

    def ends(
        self, paths: Sequence[str], after: int
    ) -> Mapping[str, tuple[RecordedChange, RecordedChange]]:
        """The first and last change of each of these paths after an event, where there is one."""
        return self._ask(changes.ends, paths, after)

    def outside(
        self,
        *,
        after: int = 0,
        before: int | None = None,
        typed: str | None = None,
        limit: int = 100,
    ) -> Sequence[OutsideChange]:
        """The changes without a call, newest first; with `typed` of paths that it means."""
        return self._ask(named.outside, typed, after, before, limit)

    def tree(self, at: int | None = None) -> dict[str, FileState]:
        """The tree after event `at`, by default the head's."""
        with self._connections.reading() as connection:
            if at is None:
                entries = tree.listed(connection, self._number)
            else:
                self._check_point(connection, at)
                entries = keyframes.tree_at(connection, self._number, at)
            return tree.to_tree(connection, entries)

    def state(self, path: str, at: int | None = None) -> FileState | None:
        """The state of one path after event `at`, by default at the head."""
        if at is not None:
            with self._connections.reading() as connection:
                self._check_point(connection, at)
        return tree.state(self._connections, self._number, path, at)

    def tree_since(self, point: int, paths: Collection[str]) -> dict[str, FileState | None]:
        """The states of these paths at the head, and of those that are not as a point lists them.

        None for a path that the tree does not have. At point 0 nothing is listed.
        """
        with self._connections.reading() as connection:
            listed = keyframes.listed_at(connection, self._number, point) if point else ()
            return tree.since(connection, self._number, listed, paths)

    def followed(self) -> int:
        """The seq of the last event that any of the tables tells of; 0 for none."""
        rows = self._connections.rows(_FOLLOWED, log=self._number)
        return max((int(value) for (value,) in rows if isinstance(value, int | float)), default=0)

    def untracked(self, at: int | None = None) -> set[str]:
        """The paths that have left the tree and may be there, each with all below it."""
        with self._connections.reading() as connection:
            if at is None:
                return tree.to_untracked(connection, tree.marked(connection, self._number))
            self._check_point(connection, at)
            return tree.to_untracked(connection, keyframes.tree_at(connection, self._number, at))

    def keyframes(self, at: int) -> Sequence[int]:
        """The points up to `at` of which the tree is listed whole, newest first."""
        return self._ask(keyframes.points, at)

    def keyframe(self, point: int) -> tuple[dict[str, FileState], set[str]]:
        """The tree that is listed at a point, and what is untracked then. NotFound."""
        with self._connections.reading() as connection:
            entries = keyframes.listed_at(connection, self._number, point)
            untracked = tree.to_untracked(connection, entries)
            return tree.to_tree(connection, entries), untracked

    def _check_point(self, connection: Connection, at: int) -> None:
        head = HEAD.value(connection, log=self._number) or 0
        if not 0 <= at <= head:
            raise NotFound(f"There is no event {at}: the log ends at {head}")

    def checkpoints(self) -> Sequence[Checkpoint]:
        """The checkpoints, newest first; a name marked again stands once."""
        return self._ask(checkpoints.checkpoints)

    # --- making them anew -----------------------------------------------------------------

    def rebuild(self) -> int:
        """Drop all rows of the log and make them from its events, as one transaction.

        The number of events. Writers wait meanwhile.
        """
        with self._connections.writing() as connection:
            return rebuild(connection, self._number, self._reader.read_all(connection))
