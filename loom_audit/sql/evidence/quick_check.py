"""The projections compared with the events while these are read, without a rebuild.

What each event has a row of its own for is read back and compared at once; what is made of
several events is worked out from those rows, by SQL. The few rows of all other subjects are made
anew in a temporary database. It only tells whether all rows are as they should be, never which are
not, and what it cannot decide counts as a difference: then a rebuild finds out.
"""

from collections.abc import Sequence
from itertools import chain
from operator import itemgetter
from typing import Any

from loom_audit.sql.evidence.comparison import from_where_unlike, listing_query
from loom_audit.sql.ground.connection import Connection
from loom_audit.sql.projections import keyframes
from loom_audit.sql.projections.fold import between_keyframes
from loom_audit.sql.projections.rows import FollowedEvent, Rows
from loom_audit.sql.projections.subjects import (
    AGREEMENTS,
    FOLLOWING,
    PROJECTIONS,
    READ_BACK,
    STATEMENTS,
    STREAMED,
)

_APPLIED = {
    fact: [one for one in subjects if one not in STREAMED or hasattr(one, "READ_BACK")]
    for fact, subjects in FOLLOWING.items()
}
_STATEMENTS = [
    one for one in STATEMENTS if not any(one in subject.STATEMENTS for subject in STREAMED)
]
_TABLES = [
    table for table in PROJECTIONS if not any(table in subject.TABLES for subject in STREAMED)
]
_WORKED_OUT = {
    "session": ("files",),
    "keyframe": ("listing",),
    "call": ("changed",),
    "change_set": ("call",),
    "candidate": ("requested", "seq"),
    "tree_entry": ("path", "mode", "size", "blob"),
}
"""Columns that are compared by what the rows of several events make: see `AGREEMENTS`."""


class QuickCheck:
    """Follows the events of one log in order; `agrees` tells whether all projections fit."""

    def __init__(self, store: Any, scratch: Connection, log: int) -> None:
        """`store` is a driver's connection, in a transaction."""
        self._store = Connection(store)
        self._scratch = scratch
        self._log = log
        self._good = True
        self._last = 0
        self._streams = [
            (one.statement, itemgetter(*one.names), store.execute(one.query, (log,)))
            for one in READ_BACK
        ]

    def follow(self, events: Sequence[FollowedEvent]) -> None:
        """Compare the rows that these events alone make, which follow those given before."""
        first = self._last + 1
        if [event.seq for event in events] != [*range(first, first + len(events))]:
            self._good = False
        if not self._good:
            return
        self._last += len(events)
        for group in between_keyframes(events):
            rows = Rows(self._log)
            for event in group:
                for subject in _APPLIED[type(event.fact)]:
                    subject.apply(event, rows)
            for statement, values, stored in self._streams:
                expected = [values(row) for row in rows.added(statement)]
                if expected and stored.fetchmany(len(expected)) != expected:
                    self._good = False
                    return
            rows.run(self._scratch, _STATEMENTS)
            keyframes.follow(self._scratch, self._log, group[-1])

    def agrees(self, size: int) -> bool:
        """Whether every projection of a log of `size` events is as it should be."""
        return (
            self._good
            and self._last == size
            and all(stored.fetchone() is None for _, _, stored in self._streams)
            and all(self._same(table) for table in _TABLES)
            and all(agree(self._store, self._log) for agree in AGREEMENTS)
            and not any(self._unread(table) for one in STREAMED for table in one.TABLES)
        )

    def _unread(self, table: str) -> set[str]:
        """The columns of a table that nothing here looks at: only a rebuild compares them."""
        names = self._store.execute("SELECT name FROM pragma_table_info(?)", (table,)).fetchall()
        read = {name for one in READ_BACK if one.table == table for name in one.columns}
        return {name for (name,) in names} - read - {"log", *_WORKED_OUT.get(table, ())}

    def _same(self, table: str) -> bool:
        sql = listing_query(self._scratch, table, but=_WORKED_OUT.get(table, ()))[0]
        ours, theirs = (one.execute(sql, (self._log,)) for one in (self._scratch, self._store))
        return next(chain(*from_where_unlike(ours, theirs)), None) is None
