"""SQL written once and kept as compiled text, for the paths that must be quick.

Statements go to the driver as they are, within the transaction of the connection they are
given: SQLAlchemy's own way costs more than most of them do. So only columns of integers, text
and bytes fit, and errors are the driver's (`Connections` translates both kinds).
"""

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from sqlalchemy import Connection, Dialect, text

from loom_audit.errors import AuditUnavailable

Values = Mapping[str, Any]
Row = tuple[Any, ...]
_Binder = Callable[[Values], Any]


class Prepared:
    """A statement with named parameters, compiled once for each dialect it runs on."""

    __slots__ = ("_compiled", "_sql")

    def __init__(self, sql: str) -> None:
        self._sql = sql
        self._compiled: dict[str, tuple[str, _Binder]] = {}

    def run(self, connection: Connection, /, **values: Any) -> None:
        """Execute it."""
        self._execute(connection, values)

    def run_many(self, connection: Connection, rows: Sequence[Values]) -> int:
        """Execute it for each of the rows (no rows, no statement); how many rows it changed."""
        if not rows:
            return 0
        sql, bind = self._compiled.get(connection.dialect.name) or self.on(connection.dialect)
        raw: Any = connection.connection.dbapi_connection
        changed: int = raw.executemany(sql, [bind(row) for row in rows]).rowcount
        return changed

    def insert(self, connection: Connection, rows: Sequence[Values]) -> None:
        """As `run_many`; AuditUnavailable when fewer rows are kept than were given.

        A trigger that somebody put into the database can drop a row without an error.
        """
        kept = self.run_many(connection, rows)
        if kept != len(rows):
            raise AuditUnavailable(
                f"The store kept {kept} of {len(rows)} rows: something in it drops the others",
                hint="Run `loom-audit doctor`: it names triggers that are not the store's own.",
            )

    def rows(self, connection: Connection, /, **values: Any) -> list[Row]:
        """All rows it finds."""
        found: list[Row] = self._execute(connection, values).fetchall()
        return found

    def first(self, connection: Connection, /, **values: Any) -> Row | None:
        """The first row, if there is one; the statement should find no more than that."""
        found = self.rows(connection, **values)
        return found[0] if found else None

    def value(self, connection: Connection, /, **values: Any) -> Any:
        """The first column of the first row, or None."""
        found = self.rows(connection, **values)
        return found[0][0] if found else None

    def _execute(self, connection: Connection, values: Values) -> Any:
        sql, bind = self._compiled.get(connection.dialect.name) or self.on(connection.dialect)
        raw: Any = connection.connection.dbapi_connection
        return raw.execute(sql, bind(values))

    def on(self, dialect: Dialect) -> tuple[str, _Binder]:
        """Its text for a driver, and what makes a driver's parameters of values by name."""
        found = self._compiled.get(dialect.name)
        if found is None:
            compiled: Any = text(self._sql).compile(dialect=dialect)
            found = str(compiled), _binder(compiled.positiontup)
            self._compiled[dialect.name] = found
        return found


def _binder(names: Sequence[str] | None) -> _Binder:
    """How a driver wants its parameters: by position where it has names for them, else by name."""
    if names is None:
        return dict
    if len(names) < 2:
        return lambda row: tuple([row[name] for name in names])
    return itemgetter(*names)


def prepare(sql: str) -> Prepared:
    """SQL text with `:name` parameters, in words that SQLite and PostgreSQL share."""
    return Prepared(sql)
