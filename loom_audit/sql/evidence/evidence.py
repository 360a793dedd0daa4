"""What a log's tables hold, row by row, for verification: nothing cached, nothing trusted."""

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain
from operator import methodcaller
from typing import Any

from loom_audit.errors import Corrupt, NotFound, StorageFailed
from loom_audit.model.events import Event, Fact, WorkspaceAttached, WorkspaceForgotten
from loom_audit.model.files import BlobId, FileState
from loom_audit.model.stored.codec import MALFORMED, decode, parse_time
from loom_audit.model.stored.intentions import Intentions
from loom_audit.model.stored.merkle import Node
from loom_audit.model.text.display import count_text
from loom_audit.model.text.summaries import plain_text
from loom_audit.ports import EventRow, OnProgress, PayloadRow, Progress, ReferencedBlob
from loom_audit.ports.evidence import CheckedEvent
from loom_audit.sql.contents.blobs import SqlBlobStore, base_version
from loom_audit.sql.contents.large_objects import LargeObjects
from loom_audit.sql.events.merkle_tree import TILE
from loom_audit.sql.evidence.comparison import RebuiltProjections
from loom_audit.sql.evidence.evidence_rows import (
    read_hash,
    read_id,
    read_leaf,
    read_payloads,
    read_seq,
)
from loom_audit.sql.evidence.quick_check import QuickCheck
from loom_audit.sql.ground.clock import to_micros
from loom_audit.sql.ground.connection import Connection
from loom_audit.sql.ground.connections import Connections
from loom_audit.sql.ground.driver import connect, driver, read_error
from loom_audit.sql.ground.packing import DICTIONARIES, pack_path
from loom_audit.sql.projections import keyframes, tree
from loom_audit.sql.projections.rows import FollowedEvent, followed
from loom_audit.sql.schema import REVISION
from loom_audit.sql.store.database import Database
from loom_audit.sql.store.places import OF_LOG, PAYLOADS

_BATCH = 64
"""Rows at a time; more of them live long enough to make garbage collection dear."""
_FIRST = -(2**63)

_EVENTS = "SELECT seq, id, kind, leaf, leaf_hash FROM event WHERE log = ? AND seq >= ?"
_PAYLOADS = (
    "SELECT p.seq, p.role, p.n, p.salt, p.content, b.sha256, b.size "
    "FROM payload p LEFT JOIN blob b ON b.number = p.blob WHERE p.log = ? AND p.seq >= ?"
)
_NODES = "SELECT level, position, hash FROM tree_node WHERE log = ? ORDER BY level, position"

_IN_TWO_PLACES = (
    "SELECT seq, role FROM payload WHERE log = ? AND content IS NOT NULL AND blob IS NOT NULL"
)
_ODD_BLOBS = (
    "SELECT b.number, hex(b.sha256) FROM blob b LEFT JOIN blob_content c ON c.blob = b.number "
    "WHERE length(b.sha256) <> 32 OR typeof(b.sha256) <> 'blob' OR typeof(b.size) <> 'integer' "
    "OR b.large NOT IN (0, 1) OR typeof(b.version) <> 'integer' "
    "OR (b.encoding = 'absent' AND (b.stored <> 0 OR b.large <> 0 OR c.blob IS NOT NULL)) "
    "OR (b.large = 0 AND b.stored <> coalesce(length(c.content), 0)) "
    "OR (b.large = 1 AND (b.encoding <> 'zstd' OR c.blob IS NOT NULL)) "
    "OR b.encoding NOT IN ('raw', 'zstd', 'zstd-delta', 'absent') "
    "OR (b.encoding = 'zstd-delta') <> (b.base IS NOT NULL)"
)
_OF_NO_ROW = "SELECT blob FROM blob_content WHERE blob NOT IN (SELECT number FROM blob)"
_REVISIONS = "SELECT version_num FROM alembic_version"
_VERSIONS = (
    "SELECT b.number, hex(b.sha256), b.version, base.version FROM blob b "
    "LEFT JOIN blob base ON base.number = b.base "
    "WHERE typeof(b.version) = 'integer' AND (b.version <> 0 OR b.base IS NOT NULL)"
)


_LARGE = "SELECT sha256, stored FROM blob WHERE large = 1 AND typeof(sha256) = 'blob'"


_OTHERS = (
    "SELECT l.number, l.id, w.root, e.seq, e.leaf FROM log l LEFT JOIN event e ON e.log = l.number "
    "AND e.seq = CASE WHEN EXISTS (SELECT 1 FROM event f WHERE f.log = l.number AND f.seq = 1) "
    "THEN coalesce((SELECT max(seq) FROM event a WHERE a.log = l.number "
    "AND a.kind IN ('scope.accepted', 'workspace.attached') AND a.kind = 'workspace.attached'), 1) "
    "END "
    "LEFT JOIN workspace w ON w.log = l.number WHERE l.number <> ? "
    "AND coalesce((SELECT z.kind FROM event z WHERE z.log = l.number ORDER BY z.seq DESC LIMIT 1), "
    f"'') <> '{WorkspaceForgotten.kind}' "
    "AND EXISTS (SELECT 1 FROM event o WHERE o.log = l.number)"
)
_LAST = "SELECT seq, kind FROM event WHERE log = ? ORDER BY seq DESC LIMIT 1"
_EMPTY = (
    "SELECT id FROM log l WHERE number <> ? "
    "AND NOT EXISTS (SELECT 1 FROM event o WHERE o.log = l.number)"
)
_TABLES_OF_LOGS = (
    "SELECT m.name FROM sqlite_master m JOIN pragma_table_info(m.name) c "
    "WHERE m.type = 'table' AND c.name = 'log' ORDER BY m.name"
)
# one step of an index for each log, however many rows it has
_LOGS_WITHOUT_NAME = (
    "WITH RECURSIVE found (log) AS (SELECT min(log) FROM {table} UNION ALL "
    "SELECT (SELECT min(log) FROM {table} WHERE log > found.log) FROM found "
    "WHERE found.log IS NOT NULL) "
    "SELECT log FROM found WHERE log IS NOT NULL AND log NOT IN (SELECT number FROM log)"
)


class SqlEvidence:
    """The rows of one log as of one moment, in a transaction of its own. Used by one thread."""

    def __init__(self, connections: Connections, blob_folder: str, log: str) -> None:
        self._log = log
        self._path = connections.path
        self._resources = ExitStack()
        self._check: QuickCheck | None = None
        self._in_doubt = False
        self._blobs = SqlBlobStore(connections, blob_folder)
        self._large = LargeObjects(blob_folder)
        try:
            self._raw = self._open()
            found = self._rows("SELECT number FROM log WHERE id = ?", log)
            row = next(found, None)
            if row is None:
                raise NotFound(f"There is no log {log}", hint="`loom-audit workspaces` lists them.")
            self._number: int = row[0]
            self._rebuilt = self._resources.enter_context(
                RebuiltProjections(self._raw, self._number)
            )
        except BaseException:
            self._resources.close()
            raise

    def _open(self) -> Any:
        """A connection of our own, so that text that is not UTF-8 can be read as it lies."""
        with _storage_errors(self._path):
            raw = connect(self._path, "ro")
            self._resources.callback(raw.close)
            raw.text_factory = _decode_losslessly
            raw.execute("BEGIN")
        return raw

    @property
    def log(self) -> str:
        """The id of the log."""
        return self._log

    @property
    def blobs(self) -> SqlBlobStore:
        """The contents, read and checked through connections of the store."""
        return self._blobs

    @property
    def node_levels(self) -> int:
        """The height of a tile: nodes are stored at multiples of 8."""
        return TILE

    def events(self, after: int = 0, until: int | None = None) -> Iterator[Sequence[EventRow]]:
        """The rows of these events, some at a time; from the first on also what sorts before."""
        for batch in self._batches(*self._query_between(_EVENTS, after, until)):
            yield [
                EventRow(read_seq(seq), read_id(id), kind, read_leaf(leaf), read_hash(hashed))
                for seq, id, kind, leaf, hashed in batch
            ]

    def payloads(self, after: int = 0, until: int | None = None) -> Iterator[PayloadRow]:
        """The payloads of these events, in order of seq."""
        rows = self._batches(*self._query_between(_PAYLOADS, after, until))
        return chain.from_iterable(map(read_payloads, rows))

    def _query_between(self, sql: str, after: int, until: int | None) -> tuple[Any, ...]:
        """The query and its values; without an end it gives what sorts behind all numbers too."""
        first = after + 1 if after else _FIRST
        if until is None:
            return f"{sql} ORDER BY seq", self._number, first
        return f"{sql} AND seq <= ? ORDER BY seq", self._number, first, until

    def nodes(self) -> Iterator[Node]:
        """Every stored node, by level and position."""
        for level, position, hashed in self._rows(_NODES, self._number):
            yield Node(level, position, read_hash(hashed))

    def add_references(self, contents: Mapping[bytes, tuple[int, int]]) -> None:
        """Remember contents in a temporary table on disk."""
        with _storage_errors(self._path):
            self._rebuilt.add_references(contents)

    def references(self) -> Iterator[ReferencedBlob]:
        """Each content referred to, bases before the deltas against them."""
        with _storage_errors(self._path):
            yield from self._rebuilt.references()

    def add_checked(self, events: Sequence[CheckedEvent]) -> None:
        """Compare what these events make of the projections right away."""
        if self._in_doubt:
            return
        try:
            with self._strict_text():
                if self._check is None:
                    self._check = QuickCheck(self._raw, self._rebuilt.scratch(), self._number)
                self._check.follow([_followed(*event) for event in events])
        except (driver().Error, Corrupt, *MALFORMED):
            self._in_doubt = True  # reading the log once more finds out what it is

    @contextmanager
    def _strict_text(self) -> Iterator[None]:
        """SQLite's driver decodes text within the block, where damage is an error of its own."""
        self._raw.text_factory = str
        try:
            yield
        finally:
            self._raw.text_factory = _decode_losslessly

    def _check_agrees(self) -> bool:
        """Whether all events were given and every projection is as they make it."""
        if self._check is None or self._in_doubt:
            return False
        (last,) = self._raw.execute(
            "SELECT max(seq) FROM event WHERE log = ?", (self._number,)
        ).fetchone()
        try:
            return self._check.agrees(last or 0)
        except (driver().Error, Corrupt, *MALFORMED):
            return False

    def differences(self, progress: OnProgress | None = None) -> Iterator[tuple[int | None, str]]:
        """Rebuild the projections in a temporary database and compare row by row.

        Corrupt when an event cannot be read.
        """
        with _storage_errors(self._path):
            if self._check_agrees():
                return
            self._rebuilt.start_over()
            self._rebuild(progress or (lambda _: None))
            yield from self._rebuilt.differences()

    def _rebuild(self, progress: OnProgress) -> None:
        done = 0
        for events in self._decode_events():
            try:
                self._rebuilt.follow([followed(event) for event in events])
            except (driver().Error, *MALFORMED) as error:
                raise StorageFailed(
                    f"Events {done + 1} to {done + len(events)} do not fit together: {error}",
                    hint="What verification finds in these events explains it.",
                ) from error
            done += len(events)
            progress(Progress("projections", done, unit="events"))

    def _decode_events(self) -> Iterator[Sequence[Event]]:
        parts = self.payloads()
        part = next(parts, None)
        intentions = Intentions()
        for rows in self.events():
            events = []
            for row in rows:
                payloads: dict[tuple[str, int], bytes] = {}
                while part is not None and part.seq <= row.seq:
                    if part.seq == row.seq:
                        payloads[part.role, part.n] = self._bytes_of(part)
                    part = next(parts, None)
                if row.leaf is None:
                    raise Corrupt(f"Event {row.seq} cannot be unpacked")
                whole = intentions.complete(row.seq, row.kind, row.leaf, payloads)
                events.append(decode(row.leaf, whole))
            yield events

    def _bytes_of(self, part: PayloadRow) -> bytes:
        if part.content is not None:
            return part.content
        return self._blobs.get(BlobId((part.digest or b"").hex()))

    def tree(
        self, at: int, *, plain: bool = False
    ) -> tuple[Mapping[str, FileState], Collection[str]]:
        """The tree after event `at` as the projections have it, and what is untracked.

        The `plain` tree is folded from changes alone. Corrupt, StorageFailed.
        """
        with _storage_errors(self._path), self._strict_text():
            store = Connection(self._raw)
            fold = tree.of_changes if plain else keyframes.tree_at
            entries = fold(store, self._number, at)
            return tree.to_tree(store, entries), tree.to_untracked(store, entries)

    def damage(self) -> Iterator[str]:
        """A sentence for each thing that is wrong with the database.

        SQLite's own integrity_check, at most 100 lines; what was altered in the tables or added to
        them; what is filed wrongly besides this log; rows of contents that do not say how they are
        stored.
        """
        for (text,) in self._rows("PRAGMA integrity_check(100)"):
            if text != "ok":
                yield text
        with _storage_errors(self._path):
            yield from self._rebuilt.alterations()
        if dict(self._rows("SELECT number, words FROM dictionary")) != DICTIONARIES:
            yield "the dictionaries are not those that rows are packed with"
        if [*self._rows(_REVISIONS)] != [(REVISION,)]:
            yield f"the store does not say that it is at revision {REVISION}, and at no other"
        yield from self._find_misfiled_logs()
        yield from self._find_rows_of_no_log()
        for (number,) in self._rows(_OF_NO_ROW):
            yield f"the bytes of content {number} are stored, and it has no row"
        for seq, role in self._rows(_IN_TWO_PLACES, self._number):
            yield f"the payload {role} of event {seq} is in its row and elsewhere"
        odd = self._rows(_ODD_BLOBS)
        lines = (
            (number, digest)
            for number, digest, version, base in self._rows(_VERSIONS)
            if base is None or version < 1 or base_version(version) != base
        )
        for number, digest in chain(odd, lines):
            yield f"the row of content {number} ({digest.lower()}) does not say how it is stored"
        for digest, stored in self._rows(_LARGE):
            if _file_size(self._large.path(digest)) not in (stored, None):
                yield f"the file of content {digest.hex()} is not {stored} bytes long"

    def _find_misfiled_logs(self) -> Iterator[str]:
        """Other logs that are not listed under the directory they say: one can hide another."""
        for number, id, filed, seq, leaf in self._rows(_OTHERS, self._number):
            if leaf is None:
                yield f"log {id} has events, and its first is missing"
                continue
            rows = self._batches(f"{_PAYLOADS} AND seq <= ?", number, seq, seq)
            try:
                parts = chain.from_iterable(map(read_payloads, rows))
                payloads = {(part.role, part.n): self._bytes_of(part) for part in parts}
                fact = decode(read_leaf(leaf) or b"", payloads).fact
            except (Corrupt, NotFound) as error:
                yield f"log {id} cannot be read at event {seq}: {error}"
                continue
            if fact.kind == WorkspaceAttached.kind:
                said = pack_path(getattr(fact, "root", ""))
                if said != filed:
                    yield f"log {id}, of {said!a}, is filed under {filed!a}"

    def _find_rows_of_no_log(self) -> Iterator[str]:
        for (table,) in [*self._rows(_TABLES_OF_LOGS)]:
            name = '"' + table.replace('"', '""') + '"'
            for (log,) in self._rows(_LOGS_WITHOUT_NAME.format(table=name)):
                yield f"the table {table} has rows of a log {log!a}, which there is not"

    @property
    def is_forgotten(self) -> bool:
        """Whether the last row says that the log is forgotten."""
        return any(kind == WorkspaceForgotten.kind for _, kind in self._rows(_LAST, self._number))

    def remains(self) -> Iterator[str]:
        """A sentence for each table that holds of a forgotten log what was to be erased."""
        last = next((seq for seq, _ in self._rows(_LAST, self._number)), 0)
        for table in (PAYLOADS, *OF_LOG):
            before = " AND seq < ?" if table == PAYLOADS else ""
            values = (self._number, last) if before else (self._number,)
            query = f"SELECT count(*) FROM {table} WHERE log = ?{before}"
            for (count,) in self._rows(query, *values):
                if count:
                    yield f"{count_text(count, 'row')} of it in the table {table}"

    def empty_logs(self) -> Iterator[str]:
        """The ids of other logs that have no events."""
        for (id,) in self._rows(_EMPTY, self._number):
            yield id

    def close(self) -> None:
        """End the transaction and close the connection and the temporary database."""
        self._resources.close()

    def _rows(self, sql: str, *values: Any) -> Iterator[Any]:
        for batch in self._batches(sql, *values):
            yield from batch

    def _batches(self, sql: str, *values: Any) -> Iterator[list[Any]]:
        """The rows, some at a time. StorageFailed where the database cannot give them out."""
        with _storage_errors(self._path):
            cursor = self._raw.execute(sql, values)
            while batch := cursor.fetchmany(_BATCH):
                yield batch


_decode_losslessly = methodcaller("decode", "utf-8", "surrogateescape")
"""Text from a column, also where it is not UTF-8."""


def _followed(seq: int, envelope: Mapping[str, Any], fact: Fact | None) -> FollowedEvent:
    at, actor = to_micros(parse_time(envelope["at"])), plain_text(envelope["actor"])
    return FollowedEvent(seq, at, envelope.get("session", ""), actor, fact)


def _file_size(path: str) -> int | None:
    """The bytes of a file; None when it cannot be looked at, which reading it will tell."""
    try:
        return os.path.getsize(path)
    except OSError:
        return None


@contextmanager
def _storage_errors(path: str) -> Iterator[None]:
    """StorageFailed where the database cannot be read, Corrupt where it is damaged."""
    try:
        yield
    except (driver().Error, UnicodeDecodeError) as error:
        raise read_error(error, path) from error


def open_evidence(database: Database, log: str) -> SqlEvidence:
    """The evidence of one log of an open store. NotFound when there is no such log."""
    return SqlEvidence(database.connections, os.path.join(database.folder, "blobs"), log)
