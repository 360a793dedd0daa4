"""Projections made again from the log, in a temporary database, and compared row by row.

The temporary database is a private file that SQLite deletes; memory stays bounded. Numbers of
paths and blobs are taken over from the store, so that rows can be compared as they are: a
number that means something else in the store shows up as a row that differs.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain
from types import TracebackType
from typing import Any

from loom_audit.ports import ReferencedBlob
from loom_audit.sql.ground.connection import Connection
from loom_audit.sql.ground.driver import driver
from loom_audit.sql.projections.fold import empty, fold
from loom_audit.sql.projections.rows import FollowedEvent
from loom_audit.sql.projections.subjects import PROJECTIONS
from loom_audit.sql.schema import create_all, structure, structure_differences

_REMEMBERED = 50_000
"""Contents noted lately, which need not be written down again."""

_COMPARED_AT_ONCE = 256

_SEQ_COLUMNS = ("seq", "requested", "number", "attached", "started")
"""Which column of a projection names the event that a row is about, the first that it has."""

_NOTED = (
    "SELECT n.digest, n.seq, n.size, b.number IS NOT NULL, "
    "coalesce(b.encoding <> 'absent', 0) FROM noted n "
    "LEFT JOIN blob b ON b.sha256 = n.digest ORDER BY b.number"
)

# Only bytes are taken over: rows that lean on anything else differ from what the log makes.
_BLOBS = (
    "SELECT number, sha256, CASE encoding WHEN 'absent' THEN 'absent' ELSE 'raw' END FROM blob "
    "WHERE typeof(sha256) = 'blob'"
)
_PATHS = "SELECT number, log, path FROM path WHERE log = ? AND typeof(path) = 'blob'"


class RebuiltProjections:
    """A temporary database with projections made anew from one log. A context manager."""

    def __init__(self, store: Any, log: int) -> None:
        """`store` is a driver's connection, in a transaction."""
        self._store = store
        self._log = log
        self._resources = ExitStack()
        self._open: Connection | None = None
        self._recent: set[bytes] = set()
        self._numbered = False

    def __enter__(self) -> "RebuiltProjections":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self._resources.close()

    def add_references(self, contents: Mapping[bytes, tuple[int, int]]) -> None:
        """Remember contents by SHA-256 as (seq, size); the first of each counts."""
        new = [(digest, *contents[digest]) for digest in contents.keys() - self._recent]
        if new:
            self._connection().execute_many("INSERT OR IGNORE INTO noted VALUES (?, ?, ?)", new)
        if len(self._recent) > _REMEMBERED:
            self._recent.clear()
        self._recent |= contents.keys()

    def references(self) -> Iterator[ReferencedBlob]:
        """Each content referred to, in the order of the store's numbers, the unknown ones first."""
        for digest, seq, size, here, kept in self._connection().execute(_NOTED):
            yield ReferencedBlob(digest, seq, size, bool(here), bool(kept))

    def follow(self, events: Sequence[FollowedEvent]) -> None:
        """Fold the next events into this database. The driver's error when they do not fit."""
        if not self._numbered:
            self._numbered = True
            self._connection().raw.executemany(
                "INSERT INTO path (number, log, path) VALUES (?, ?, ?)",
                self._store.execute(_PATHS, (self._log,)),
            )
        fold(self._connection(), self._log, events)

    def scratch(self) -> Connection:
        """The temporary database, for rows that `start_over` deletes."""
        return self._connection()

    def start_over(self) -> None:
        """Delete all rows of projections."""
        empty(self._connection(), self._log)

    def differences(self) -> Iterator[tuple[int | None, str]]:
        """Where the store's projections are not what the events followed make, as (seq, text)."""
        # a number whose row is gone is given anew, and means the same there
        ours, theirs = (
            one.execute(f"{_PATHS} ORDER BY number", (self._log,))
            for one in (self._connection(), self._store)
        )
        yield from _compare("path", 1, None, ours, theirs)
        for table in PROJECTIONS:
            sql, keys, seq_at = listing_query(self._connection(), table)
            ours = self._connection().execute(sql, (self._log,))
            theirs = self._store.execute(sql, (self._log,))
            yield from _compare(table, keys, seq_at, ours, theirs)

    def alterations(self) -> Iterator[str]:
        """A sentence for each table, index or trigger of the store that is not as we make it."""
        return structure_differences(structure(self._store), structure(self._connection().raw))

    def _connection(self) -> Connection:
        if self._open is None:
            raw = _connect()
            self._resources.callback(raw.close)
            self._open = Connection(raw)
            self._fill(self._open)
        return self._open

    def _fill(self, scratch: Connection) -> None:
        create_all(scratch)
        scratch.execute("BEGIN")
        scratch.execute(
            "CREATE TEMP TABLE noted (digest BLOB PRIMARY KEY, seq INT, size INT) WITHOUT ROWID"
        )
        scratch.execute("INSERT INTO log SELECT ?, 'log'", (self._log,))
        scratch.raw.executemany(
            "INSERT INTO blob (number, sha256, size, stored, encoding, version, large) "
            "VALUES (?, ?, 0, 0, ?, 0, 0)",
            self._store.execute(_BLOBS),
        )


def _connect() -> Any:
    module: Any = driver()
    connection = module.connect("", isolation_level=None, check_same_thread=False)
    for setting in ("journal_mode=MEMORY", "synchronous=OFF", "cache_size=-32000"):
        connection.execute(f"PRAGMA {setting}")
    return connection


def listing_query(
    connection: Connection, table: str, *, but: Sequence[str] = ()
) -> tuple[str, int, int | None]:
    """SQL for all rows of a log in a table, by key, sessions by their ids; without some columns.

    The result is (SQL, number of columns of the key, place of the column that says the seq).
    """
    columns = connection.execute("SELECT name, pk FROM pragma_table_info(?)", (table,)).fetchall()
    keys = [name for name, place in sorted(columns, key=lambda column: column[1]) if place]
    if table == "session":
        keys = ["id"]  # numbers of sessions are given anew in each database
    names = keys + [name for name, _ in columns if name not in (*keys, *but, "log")]
    if table == "session":
        names.remove("number")
    joined = table != "session" and "session" in names
    # a number that leads nowhere, or to another log's session, stays one and equals no id
    session = "coalesce(s.id, t.session)"
    shown = [session if joined and name == "session" else f"t.{name}" for name in names]
    join = " LEFT JOIN session s ON s.number = t.session AND s.log = t.log" if joined else ""
    order = ", ".join(f"t.{name}" for name in keys)
    sql = f"SELECT {', '.join(shown)} FROM {table} t{join} WHERE t.log = ? ORDER BY {order}"
    seq = next((name for name in _SEQ_COLUMNS if name in names), None)
    return sql, len(keys), None if seq is None else names.index(seq)


def _compare(
    table: str, keys: int, seq_at: int | None, ours: Any, theirs: Any
) -> Iterator[tuple[int | None, str]]:
    """The differences of two listings in the order of their keys, each event once."""
    mine, its = from_where_unlike(ours, theirs)
    last: int | None = None

    def told(row: Any, what: str) -> Iterator[tuple[int | None, str]]:
        nonlocal last
        seq = None if seq_at is None else row[seq_at]
        if seq is None or seq != last:
            last = seq
            yield seq, f"the projection {table} {what}"

    one: Any = next(mine, None)
    other: Any = next(its, None)
    while one is not None or other is not None:
        if one == other:
            one, other = next(mine, None), next(its, None)
        elif other is None or (one is not None and _sort_key(one, keys) < _sort_key(other, keys)):
            yield from told(one, f"lacks a row that the log makes: {one[:keys]}")
            one = next(mine, None)
        elif one is None or _sort_key(other, keys) < _sort_key(one, keys):
            yield from told(other, f"has a row that the log does not make: {other[:keys]}")
            other = next(its, None)
        else:
            yield from told(other, f"differs from what the log makes: {other[:keys]}")
            one, other = next(mine, None), next(its, None)


def from_where_unlike(ours: Any, theirs: Any) -> tuple[Iterator[Any], Iterator[Any]]:
    """Both listings from where they are no longer the same, which is told quickly."""
    while True:
        mine, its = ours.fetchmany(_COMPARED_AT_ONCE), theirs.fetchmany(_COMPARED_AT_ONCE)
        if mine != its or not mine:
            return chain(mine, ours), chain(its, theirs)


def _sort_key(row: Any, keys: int) -> list[tuple[int, Any]]:
    """A row's key in SQLite's order of types, which a damaged row may mix."""
    return [
        (0, 0)
        if value is None
        else (1 if isinstance(value, (int, float)) else 2 if isinstance(value, str) else 3, value)
        for value in row[:keys]
    ]
