"""The values with which statements of projections run, collected over events of one log."""

import json
import re
from collections.abc import Callable, Hashable, Mapping, Sequence, Set
from typing import Any

from msgspec import Struct

from loom_audit.model.events import Event, Fact
from loom_audit.model.text.summaries import plain_text
from loom_audit.sql.ground.clock import to_micros
from loom_audit.sql.ground.connection import Connection
from loom_audit.sql.ground.statements import Prepared


class FollowedEvent(Struct, frozen=True, gc=False):
    """An event as projections take it: `at` in microseconds, the actor as a column holds it.

    The fact may be None where no projection is made from it.
    """

    seq: int
    at: int
    session: str
    actor: str
    fact: Fact | None


def followed(event: Event) -> FollowedEvent:
    """The event as projections take it."""
    actor = plain_text(event.actor)
    return FollowedEvent(event.seq, to_micros(event.at), event.session, actor, event.fact)


def json_array(values: Sequence[Any]) -> str | None:
    """A list as a column holds it, in JSON; null for an empty one."""
    return json.dumps(list(values), separators=(",", ":")) if values else None


class ReadBack(Struct, frozen=True):
    """How the values that a statement was run with are read from the rows it made.

    Each is in the column of its name of the `table`, unless it is made by an expression. `source`
    is the rest of the query, from FROM on, with a `?` for the log's number, in the order of the
    events.
    """

    statement: Prepared
    table: str
    expressions: Mapping[str, str]
    source: str

    @property
    def names(self) -> Sequence[str]:
        """The values that are read, all that the statement takes."""
        return [name for name in self.statement.names if name != "log"]

    @property
    def query(self) -> str:
        """SQL for the values in the order of `names`."""
        read = (self.expressions.get(name, f"{self.table}.{name}") for name in self.names)
        return f"SELECT {', '.join(read)} {self.source}"

    @property
    def columns(self) -> Set[str]:
        """The columns of the table that are compared by it."""
        return {*re.findall(rf"\b{self.table}\.(\w+)", self.query)}


class Rows:
    """Rows of values by statement, in the order of the events; each has the log's number."""

    __slots__ = ("_added", "_kept", "log")

    def __init__(self, log: int) -> None:
        self.log = log
        self._added: dict[Prepared, list[dict[str, Any]]] = {}
        self._kept: dict[Prepared, dict[Hashable, dict[str, Any]]] = {}

    def add(self, statement: Prepared, /, **values: Any) -> None:
        """Run the statement with these values, after those added before."""
        values["log"] = self.log
        found = self._added.get(statement)
        if found is None:
            self._added[statement] = [values]
        else:
            found.append(values)

    def keep(self, statement: Prepared, key: Hashable, /, **values: Any) -> dict[str, Any]:
        """Run the statement once for a key, with the values that were kept for it last."""
        values["log"] = self.log
        self._kept.setdefault(statement, {})[key] = values
        return values

    def kept(self, statement: Prepared, key: Hashable) -> dict[str, Any] | None:
        """The values kept for a key, None where there are none; a change of them is kept."""
        found = self._kept.get(statement)
        return None if found is None else found.get(key)

    def drop(self, statement: Prepared, key: Hashable) -> None:
        """Take back what was kept for a key."""
        self._kept.get(statement, {}).pop(key, None)

    def drop_all(self, statement: Prepared, unwanted: Callable[[Any], bool]) -> None:
        """Take back what was kept for the keys that are unwanted."""
        kept = self._kept.get(statement, {})
        for key in [key for key in kept if unwanted(key)]:
            del kept[key]

    def added(self, statement: Prepared) -> Sequence[Mapping[str, Any]]:
        """The values added for a statement, in order."""
        return self._added.get(statement, ())

    def run(self, connection: Connection, statements: Sequence[Prepared]) -> None:
        """Run these statements, in this order, each with all its rows."""
        for statement in statements:
            added = self._added.get(statement) or [*self._kept.get(statement, {}).values()]
            if added:
                statement.run_many(connection, added)
