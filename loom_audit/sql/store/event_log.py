"""The log in a store: one durable transaction for each append, whoever appends."""

import os
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import partial

from msgspec import Struct

from loom_audit.errors import AuditUnavailable, Conflict, Corrupt
from loom_audit.model.events import (
    CallFinished,
    CallRequested,
    Draft,
    Event,
    FilesChanged,
    TreeHead,
    WorkspaceForgotten,
)
from loom_audit.model.stored.codec import encode, id_of, read_envelope, seq_of
from loom_audit.model.stored.merkle import Frontier, Node, root_at
from loom_audit.model.stored.payloads import SALT_BYTES
from loom_audit.ports import Clock, EventFilter, Wanted
from loom_audit.sql.contents import blob_rows
from loom_audit.sql.contents.blob_rows import StoredBlob
from loom_audit.sql.contents.blobs import SqlBlobStore
from loom_audit.sql.events import event_rows
from loom_audit.sql.events.event_reader import READ_EVENTS, EventReader, remaining_window
from loom_audit.sql.events.event_rows import HEAD, KIND
from loom_audit.sql.events.merkle_tree import insert_nodes, leaf_hashes, load_frontier, stored_nodes
from loom_audit.sql.events.stretches import ProvenHashes, prove_blocks, read_stretch
from loom_audit.sql.ground.clock import to_micros
from loom_audit.sql.ground.conditions import in_values
from loom_audit.sql.ground.connection import Connection
from loom_audit.sql.ground.connections import Connections
from loom_audit.sql.ground.packing import pack_id
from loom_audit.sql.ground.statements import prepare
from loom_audit.sql.projections import calls
from loom_audit.sql.projections.fold import fold
from loom_audit.sql.projections.rows import followed
from loom_audit.sql.store.ballast import Ballast

_LAST = prepare("SELECT seq, leaf, leaf_hash FROM event WHERE log = :log ORDER BY seq DESC LIMIT 1")
# the last condition word for word, or the index is not used
_BY_ID = prepare("SELECT seq FROM event WHERE log = :log AND id = :id AND id <> x''")
_HASH = prepare("SELECT leaf_hash FROM event WHERE log = :log AND seq = :seq AND id = x''")
_NEWEST = (
    "SELECT max(seq), max(CASE WHEN seq > :after AND kind IN ({kinds}) THEN seq END) FROM event "
    "WHERE log = :log AND seq >= :after AND seq <= 9223372036854775807"
)
_KEYFRAME_BEFORE = prepare("SELECT max(seq) FROM keyframe WHERE log = :log AND latest <= :latest")


class _LogEnd(Struct, frozen=True):
    """Where the log ends: what appending needs.

    It is as it was read with the connections of that `generation`; others have to read it anew.
    """

    generation: int
    frontier: Frontier
    prev: bytes | None

    @property
    def head(self) -> int:
        return self.frontier.size


class SqlEventLog:
    """The log of one workspace in a store's database."""

    def __init__(
        self,
        connections: Connections,
        blobs: SqlBlobStore,
        *,
        id: str,
        number: int,
        clock: Clock,
        ballast: Ballast,
        salts: Callable[[], bytes] = partial(os.urandom, SALT_BYTES),
    ) -> None:
        self._connections = connections
        self._blobs = blobs
        self._id = id
        self._number = number
        self._clock = clock
        self._ballast = ballast
        self._salts = salts
        self.reader = EventReader(id, number, blobs)
        self._proven = ProvenHashes(number)
        self._last: _LogEnd | None = None

    @property
    def id(self) -> str:
        """The log's id, which is also the workspace's."""
        return self._id

    # --- appending ------------------------------------------------------------------------

    def append(self, drafts: Sequence[Draft]) -> Sequence[Event]:
        """Store the drafts and all staged contents as one durable transaction.

        Conflict for a draft that cannot follow, AuditUnavailable when the store cannot be written;
        on a full disk the outcome of a running call takes the space of the ballast.
        """
        if not drafts:
            return []
        try:
            return self._append(drafts)
        except AuditUnavailable as error:
            full = error.details.get("cause") == "full"
            if not (full and _is_outcome(drafts) and self._ballast.give_up()):
                raise
            return self._append(drafts)

    def _append(self, drafts: Sequence[Draft]) -> Sequence[Event]:
        with self._connections.lock.uninterrupted():
            with self._connections.writing() as connection:
                spot = self._log_end(connection)
                if spot is not self._last:  # which was checked, and nobody has appended since
                    self._check_not_forgotten(connection, spot.head)
                known = self._find_recorded(connection, drafts)
                if known:
                    return known
                self._check_calls(connection, drafts)
                events, after, staged = self._store(connection, spot, drafts)
            ends = any(isinstance(draft.fact, WorkspaceForgotten) for draft in drafts)
            self._last = None if ends else after
            self._blobs.forget_staged(staged)
            return events

    def _check_not_forgotten(self, connection: Connection, head: int) -> None:
        kind = KIND.value(connection, log=self._number, seq=head)
        if kind == WorkspaceForgotten.kind:
            raise AuditUnavailable(
                "The workspace is forgotten: nothing more goes on record in its log",
                hint="`loom-audit init` puts the folder under audit again, with a new log.",
                details={"cause": "forgotten"},
            )

    def _store(
        self, connection: Connection, spot: _LogEnd, drafts: Sequence[Draft]
    ) -> tuple[list[Event], _LogEnd, Sequence[StoredBlob]]:
        now = self._clock.now()
        frontier = Frontier(spot.head, list(spot.frontier.hashes))
        prev = spot.prev
        events: list[Event] = []
        rows = []
        parts = []
        nodes: list[Node] = []
        for draft in drafts:
            seq = frontier.size + 1
            encoded = encode(draft, log=self._id, seq=seq, at=now, prev=prev, salts=self._salts)
            prev = encoded.leaf_hash
            nodes += frontier.append(prev)
            rows.append(event_rows.event_row(self._number, seq, draft.id, encoded))
            parts += [
                event_rows.payload_row(self._number, seq, payload, self._blobs)
                for payload in encoded.payloads
            ]
            events.append(_as_event(draft, self._id, seq, now, prev))
        staged = self._blobs.staged()
        blob_rows.insert(connection, staged)
        event_rows.insert(connection, rows, parts)
        insert_nodes(connection, self._number, nodes)
        fold(connection, self._number, [followed(event) for event in events])
        return events, _LogEnd(spot.generation, frontier, prev), staged

    def _log_end(self, connection: Connection) -> _LogEnd:
        """Where the log ends now: what we know of it, checked and brought up to date."""
        generation = self._connections.generation
        head = HEAD.value(connection, log=self._number) or 0
        # A writer that is new has perhaps come after an error of the disk: what was known before it
        # is not relied on. Other processes may have appended: their leaf hashes are added.
        last = self._last
        if last is not None and last.generation == generation and last.head <= head:
            if last.head == head:
                return last
            frontier = Frontier(last.head, list(last.frontier.hashes))
            try:
                for hashed in leaf_hashes(connection, self._number, last.head, head):
                    frontier.append(hashed)
            except Corrupt as error:
                raise _untrusted_error(error) from error
            return _LogEnd(generation, frontier, hashed)
        return self._verify_log_end(connection, generation)

    def _verify_log_end(self, connection: Connection, generation: int) -> _LogEnd:
        """The end of the log as a new connection finds it, its last event checked."""
        row = _LAST.first(connection, log=self._number)
        if row is None:
            return _LogEnd(generation, Frontier(), None)
        seq, packed, hashed = row
        try:
            envelope = read_envelope(event_rows.read_leaf(seq, packed, hashed))
            if (envelope.get("log"), envelope.get("seq")) != (self._id, seq):
                raise event_rows.damage_error(seq, "its leaf belongs elsewhere")
            frontier = load_frontier(connection, self._number, seq)
        except Corrupt as error:
            raise _untrusted_error(error) from error
        return _LogEnd(generation, frontier, hashed)

    def _find_recorded(self, connection: Connection, drafts: Sequence[Draft]) -> Sequence[Event]:
        given = [draft.id for draft in drafts if draft.id is not None]
        if not given:
            return []
        if len(set(given)) != len(given):
            raise Conflict("Two drafts of one append have the same id")
        seqs = [seq for id in given if (seq := self._find_id(connection, id))]
        if not seqs:
            return []
        if len(seqs) != len(drafts):
            raise Conflict(
                "Some drafts of one append are on record already, and some are not",
                hint="Append the new ones alone.",
                details={"known": seqs},
            )
        found = {event.seq: event for event in self.reader.load(connection, seqs)}
        return [found[seq] for seq in seqs]

    def _find_id(self, connection: Connection, id: str) -> int | None:
        """The seq of the event with this id, which may be one that was not given."""
        found: int | None = _BY_ID.value(connection, log=self._number, id=pack_id(id))
        if found is None and (seq := seq_of(id)) is not None:
            hashed = _HASH.value(connection, log=self._number, seq=seq)
            found = seq if hashed and id_of(seq, hashed) == id else None
        return found

    def _check_calls(self, connection: Connection, drafts: Sequence[Draft]) -> None:
        """Each call is requested once and finished at most once."""
        batch: dict[tuple[str, str], bool] = {}
        for draft in drafts:
            fact = draft.fact
            if not isinstance(fact, (CallRequested, CallFinished)):
                continue
            key = draft.session, fact.call_id
            finished = batch.get(key)
            if finished is None:
                finished = calls.is_finished(connection, self._number, *key)
            if isinstance(fact, CallRequested):
                if finished is not None:
                    raise _call_conflict(fact.call_id, "was requested before")
                batch[key] = False
            else:
                if finished is None:
                    raise _call_conflict(fact.call_id, "was never requested")
                if finished:
                    raise _call_conflict(fact.call_id, "is finished already")
                batch[key] = True

    # --- reading --------------------------------------------------------------------------

    def read(self, filter: EventFilter = EventFilter()) -> Iterator[Event]:
        """The events that match, a few hundred at a time, each batch of one moment."""
        left = filter.limit
        with self._connections.reading() as connection:
            window = self.reader.narrow(connection, filter)
        while left is None or left > 0:
            count = READ_EVENTS if left is None else min(READ_EVENTS, left)
            with self._connections.reading() as connection:
                seqs, events = self.reader.read_batch(connection, window, count)
            yield from events
            if len(seqs) < count:
                return
            if left is not None:
                left -= len(events)
            window = remaining_window(window, seqs[-1])

    def picked(self, seqs: Sequence[int]) -> Sequence[Event]:
        """The events of these seqs, of one moment."""
        with self._connections.reading() as connection:
            return self.reader.load(connection, sorted(set(seqs)))

    def stretch(self, after: int, until: int, wanted: Wanted) -> Iterator[Event]:
        """The wanted events of a stretch of which every leaf is checked."""
        return read_stretch(self._connections, self.reader, self._number, (after, until), wanted)

    def prove(self, after: int, until: int, head: TreeHead) -> None:
        """Raise Corrupt unless these events are among those of the head."""
        with self._connections.reading() as connection:
            self._proven.prove(connection, after, until, head)

    def blocks(self, first: int, until: int, head: TreeHead) -> Sequence[bytes]:
        """The Merkle hashes of whole blocks. Corrupt unless they are among those of the head."""
        with self._connections.reading() as connection:
            return prove_blocks(connection, self._number, first, until, head)

    def head(self) -> int:
        """The seq of the last event, 0 for an empty log."""
        return self._connections.rows(HEAD, log=self._number)[0][0] or 0

    def newest(self, kinds: Sequence[str], after: int) -> tuple[int, int]:
        """The seqs of the last event and of the last of these kinds behind `after`; 0 for none."""
        named, values = in_values("kind", kinds)
        query = prepare(_NEWEST.format(kinds=named))
        [(head, found)] = self._connections.rows(query, log=self._number, after=after, **values)
        return head or 0, found or 0

    def tree_head(self) -> TreeHead:
        """The Merkle root over all events."""
        with self._connections.reading() as connection:
            head = HEAD.value(connection, log=self._number) or 0
            return TreeHead(self._id, head, root_at(head, stored_nodes(connection, self._number)))

    def listed_before(self, at: datetime) -> int:
        """The seq of the last keyframe of which no event is later than a time; 0 for none."""
        with self._connections.reading() as connection:
            found = _KEYFRAME_BEFORE.value(connection, log=self._number, latest=to_micros(at))
        return int(found or 0)


def _as_event(draft: Draft, log: str, seq: int, at: datetime, hashed: bytes) -> Event:
    return Event(
        log=log,
        seq=seq,
        id=draft.id or id_of(seq, hashed),
        at=at,
        session=draft.session,
        actor=draft.actor,
        fact=draft.fact,
        leaf_hash=hashed,
        occurred_at=draft.occurred_at,
        source=draft.source,
        parent=draft.parent,
    )


def _is_outcome(drafts: Sequence[Draft]) -> bool:
    """Whether an outcome is among these of a call that an earlier append put on record.

    For such an outcome alone the ballast is given up: the call has run, and has to be recorded.
    """
    begun = {draft.fact.call_id for draft in drafts if isinstance(draft.fact, CallRequested)}
    return any(
        isinstance(draft.fact, (CallFinished, FilesChanged)) and draft.fact.call_id not in begun
        for draft in drafts
    )


def _call_conflict(call_id: str, why: str) -> Conflict:
    return Conflict(
        f"Call {call_id} {why}",
        hint="A call is requested once and finished once in its session.",
        details={"call_id": call_id},
    )


def _untrusted_error(error: Corrupt) -> AuditUnavailable:
    return AuditUnavailable(
        f"The end of the log cannot be trusted: {error.message}",
        hint="Run `loom-audit verify`; `loom-audit salvage --to DIR` saves what is readable.",
        details={"cause": "damaged", **error.details},
    )
