"""Reading events of one log within the caller's transaction."""

from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from loom_audit.errors import Corrupt
from loom_audit.model.events import (
    CallReported,
    Event,
    ScopeAccepted,
    WorkspaceAttached,
    WorkspaceForgotten,
)
from loom_audit.model.git.record import GitChanged
from loom_audit.model.stored.codec import intention_in
from loom_audit.ports import BlobStore, EventFilter
from loom_audit.sql.events import event_rows
from loom_audit.sql.ground.conditions import Where, chunks
from loom_audit.sql.ground.connection import Connection
from loom_audit.sql.ground.packing import pack_id
from loom_audit.sql.ground.statements import prepare

READ_EVENTS = 200
"""Events read in one go, so that no reader holds an old state of the store for long."""

_LEAVES = "SELECT seq, leaf, leaf_hash FROM event WHERE"
_INDEXED = {
    frozenset({ScopeAccepted.kind, WorkspaceAttached.kind}): (
        "kind IN ('scope.accepted', 'workspace.attached')"
    ),
    frozenset({GitChanged.kind}): "kind = 'git.changed'",
}
"""Kinds whose few events have an index, which is taken where they are said as it says them."""
_SPAN_OF_SESSION = prepare("SELECT started, last FROM session WHERE log = :log AND id = :session")
_SPAN_OF_CALL = prepare(
    "SELECT min(c.requested), max(c.finished), count(*) - count(c.finished), max(s.last) "
    "FROM call c LEFT JOIN session s ON s.log = c.log AND s.number = c.session "
    "WHERE c.log = :log AND c.call_id = :call_id"
)
_LAST_KIND = prepare("SELECT kind FROM event WHERE log = :log ORDER BY seq DESC LIMIT 1")
_LAST_REPORTED = prepare(
    "SELECT max(seq) FROM event WHERE log = :log AND seq > :finished AND seq <= :last "
    "AND kind = :kind"
)


def remaining_window(window: EventFilter, last: int) -> EventFilter:
    """The window of a filter without the events up to `last`, which was the last one read."""
    if window.newest_first:
        return replace(window, before=last)
    return replace(window, after=last)


class EventReader:
    """Reads rows of one log as events, each checked; `leaves` has those that were read before."""

    def __init__(self, log: str, number: int, blobs: BlobStore) -> None:
        self._log = log
        self._number = number
        self._blobs = blobs
        self.leaves = event_rows.CheckedLeaves(log)

    def narrow(self, connection: Connection, filter: EventFilter) -> EventFilter:
        """A filter whose bounds are those of its session and call in the projections."""
        first, last = filter.after + 1, filter.before
        spans: list[tuple[int, int]] = []
        if filter.session:
            span = _SPAN_OF_SESSION.first(connection, log=self._number, session=filter.session)
            spans.append((span[0], span[1]) if span else (0, 0))
        if filter.call_id is not None:
            [(low, high, still_open, end)] = _SPAN_OF_CALL.rows(
                connection, log=self._number, call_id=pack_id(filter.call_id)
            )
            if low is not None and not still_open:
                spans.append((low, self._last_of_call(connection, filter, high, end or high)))
        for low, high in spans:
            first = max(first, low)
            last = high + 1 if last is None else min(last, high + 1)
        return replace(filter, after=first - 1, before=last)

    def _last_of_call(
        self, connection: Connection, filter: EventFilter, finished: int, last: int
    ) -> int:
        """The last event of a call: reports follow its finish, until the `last` of its session."""
        kind = CallReported.kind
        if filter.before is not None:
            last = min(last, filter.before - 1)
        if last <= finished or (filter.kinds and kind not in filter.kinds):
            return finished
        row = _LAST_REPORTED.first(
            connection, log=self._number, finished=finished, last=last, kind=kind
        )
        return finished if row is None or row[0] is None else int(row[0])

    def read_batch(
        self, connection: Connection, window: EventFilter, count: int
    ) -> tuple[Sequence[int], Sequence[Event]]:
        """The seqs of the next `count` events in the window, and the events that match."""
        wanted = (
            Where().also("log = :log", log=self._number).also("seq > :after", after=window.after)
        )
        if window.before is not None:
            wanted = wanted.also("seq < :before", before=window.before)
        if window.kinds:
            wanted = wanted.among("kind", "kind", window.kinds)
        for kinds, said in _INDEXED.items():
            if window.kinds and kinds.issuperset(window.kinds):
                wanted = wanted.also(said)
        order = "seq DESC" if window.newest_first else "seq"
        query = prepare(f"{_LEAVES} {wanted} ORDER BY {order} LIMIT :count")
        rows = query.rows(connection, **wanted.values, count=count)
        kept = []
        for seq, packed, hashed in rows:
            leaf = event_rows.check_leaf(seq, packed, hashed)
            if event_rows.belongs_to(leaf.envelope, window.session, window.call_id):
                kept.append(leaf)
        return [row[0] for row in rows], self.decode(connection, kept)

    def read_all(self, connection: Connection) -> Iterator[Event]:
        """All events of the log in order, within the caller's transaction."""
        window = EventFilter()
        while True:
            seqs, events = self.read_batch(connection, window, READ_EVENTS)
            yield from events
            if len(seqs) < READ_EVENTS:
                return
            window = remaining_window(window, seqs[-1])

    def load(self, connection: Connection, seqs: Sequence[int]) -> Sequence[Event]:
        """The events of these seqs, in their order. Corrupt names the event."""
        return self.decode(connection, self._leaves(connection, seqs))

    def whose(self, connection: Connection, seqs: Sequence[int]) -> Mapping[int, tuple[str, str]]:
        """The session and the actor of each of these events, as their leaves say. Corrupt."""
        return {
            leaf.seq: (leaf.envelope.get("session", ""), leaf.envelope.get("actor", ""))
            for leaf in self._leaves(connection, seqs)
        }

    def _leaves(self, connection: Connection, seqs: Sequence[int]) -> list[event_rows.CheckedLeaf]:
        leaves = []
        for some in chunks(seqs):
            wanted = Where().also("log = :log", log=self._number).among("seq", "seq", some)
            rows = prepare(f"{_LEAVES} {wanted}").rows(connection, **wanted.values)
            leaves += [self.leaves.read(row, keep=True) for row in rows]
        return leaves

    def decode(
        self, connection: Connection, leaves: Sequence[event_rows.CheckedLeaf]
    ) -> Sequence[Event]:
        """The events of these leaves, in their order; payloads and intentions are checked.

        Corrupt names the event, or says that the workspace is forgotten.
        """
        if not leaves:
            return []
        intended = {leaf.seq: intention_in(leaf.envelope) for leaf in leaves}
        more = {seq for seq in intended.values() if seq is not None} - intended.keys()
        read = [*leaves, *self._leaves(connection, sorted(more))]
        payloads = event_rows.load_payloads(connection, self._number, [leaf.seq for leaf in read])
        stored = {
            leaf.seq: event_rows.StoredEvent(
                self._log, leaf, payloads.get(leaf.seq, ()), self._blobs
            )
            for leaf in read
        }
        try:
            return [self._decoded(stored, leaf.seq, intended[leaf.seq]) for leaf in leaves]
        except Corrupt as error:
            if _LAST_KIND.value(connection, log=self._number) != WorkspaceForgotten.kind:
                raise
            raise Corrupt(
                "The workspace is forgotten: what its events said is erased",
                hint="`loom-audit workspaces` says when and why.",
                details=error.details,
            ) from error

    def _decoded(
        self, stored: Mapping[int, event_rows.StoredEvent], seq: int, intention: int | None
    ) -> Event:
        if intention is None:
            return stored[seq].decoded()
        if intention not in stored:
            raise event_rows.damage_error(seq, f"event {intention}, which it names, is not there")
        return stored[seq].decoded(stored[intention])
