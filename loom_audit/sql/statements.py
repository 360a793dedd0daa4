"""SQL written once with SQLAlchemy and kept as compiled text, for the paths that must be quick.

Values go to the driver as they are, so only columns of integers, text and bytes fit.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, CursorResult, text
from sqlalchemy.sql.elements import CompilerElement

Values = Mapping[str, Any]
_Binder = Callable[[Values], Any]


class Prepared:
    """A statement with named parameters, compiled once for each dialect it runs on."""

    __slots__ = ("_compiled", "_statement")

    def __init__(self, statement: CompilerElement) -> None:
        self._statement = statement
        self._compiled: dict[str, tuple[str, _Binder]] = {}

    def run(
        self, connection: Connection, /, **values: Any
    ) -> CursorResult[*tuple[Any, ...]]:
        """Execute it with these values."""
        sql, bind = self._on(connection)
        return connection.exec_driver_sql(sql, bind(values))

    def run_many(self, connection: Connection, rows: Sequence[Values]) -> None:
        """Execute it for each of the rows; no rows, no statement."""
        if rows:
            sql, bind = self._on(connection)
            connection.exec_driver_sql(sql, [bind(row) for row in rows])

    def _on(self, connection: Connection) -> tuple[str, _Binder]:
        found = self._compiled.get(connection.dialect.name)
        if found is None:
            compiled: Any = self._statement.compile(dialect=connection.dialect)
            fixed = {k: v for k, v in compiled.params.items() if v is not None}
            found = str(compiled), _binder(compiled.positiontup, fixed)
            self._compiled[connection.dialect.name] = found
        return found


def _binder(names: Sequence[str] | None, fixed: Values) -> _Binder:
    if names is None:
        return lambda row: {**fixed, **row}
    if fixed:
        return lambda row: tuple(fixed[n] if n in fixed else row[n] for n in names)
    return lambda row: tuple(map(row.__getitem__, names))


def prepare(sql: str) -> Prepared:
    """SQL text with `:name` parameters, in words that SQLite and PostgreSQL share."""
    return Prepared(text(sql))
