"""SQL written once, with `:name` parameters, and kept as the text that a driver takes.

Columns hold integers, text and bytes only, so rows are what the driver gives.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any

from loom_audit.errors import AuditUnavailable
from loom_audit.sql.ground.connection import Connection, Dialect, Row

Values = Mapping[str, Any]
_Binder = Callable[[Values], Any]

_KEPT = 512
"""Statements that `prepare` remembers; those with lists of parameters come in many lengths."""

_TOKENS = re.compile(
    r"""
    '(?:[^']|'')*' | "(?:[^"]|"")*"     # a literal, a quoted name
    | --[^\n]* | /\*.*?\*/              # comments
    | ::                                # a cast of PostgreSQL
    | :(?P<name>[A-Za-z_]\w*)
    | %
    """,
    re.VERBOSE | re.DOTALL,
)


def translate(sql: str, dialect: Dialect) -> tuple[str, tuple[str, ...]]:
    """The text with `:name` parameters as a driver takes it, and the names in order of use.

    SQLite: `?` for each use, so the values go by position. PostgreSQL: `%(name)s` (pyformat of
    PEP 249), and every other `%` twice.
    """
    names: list[str] = []

    def replaced(part: re.Match[str]) -> str:
        name = part["name"]
        if name is None:
            return part[0] if dialect == "sqlite" else part[0].replace("%", "%%")
        names.append(name)
        return "?" if dialect == "sqlite" else f"%({name})s"

    return _TOKENS.sub(replaced, sql), tuple(names)


class Prepared:
    """A statement with named parameters, translated once for each dialect it runs on."""

    __slots__ = ("_sql", "_translated")

    def __init__(self, sql: str) -> None:
        self._sql = sql
        self._translated: dict[Dialect, tuple[str, _Binder]] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its parameters, each once, in the order of their first use."""
        return tuple(dict.fromkeys(translate(self._sql, "sqlite")[1]))

    def run(self, connection: Connection, /, **values: Any) -> None:
        """Execute the statement, whatever it gives."""
        self._execute(connection, values)

    def run_many(self, connection: Connection, rows: Sequence[Values]) -> int:
        """Execute the statement for each row, and give how many rows that changed."""
        if not rows:
            return 0
        sql, bind = self.on(connection.dialect)
        return connection.execute_many(sql, [bind(row) for row in rows])

    def insert(self, connection: Connection, rows: Sequence[Values]) -> None:
        """Insert rows; AuditUnavailable when fewer rows are kept than were given.

        A trigger that somebody put into the database can drop a row without an error.
        """
        kept = self.run_many(connection, rows)
        if kept != len(rows):
            raise AuditUnavailable(
                f"The store kept {kept} of {len(rows)} rows: something in it drops the others",
                hint="Run `loom-audit doctor`: it names triggers that are not the store's own.",
            )

    def rows(self, connection: Connection, /, **values: Any) -> list[Row]:
        """All rows that the statement finds."""
        found: list[Row] = self._execute(connection, values).fetchall()
        return found

    def each(self, connection: Connection, /, **values: Any) -> Iterator[Row]:
        """The rows that the statement finds, one by one."""
        return iter(self._execute(connection, values))

    def first(self, connection: Connection, /, **values: Any) -> Row | None:
        """The first row, if there is one; the statement should find no more than that."""
        found = self.rows(connection, **values)
        return found[0] if found else None

    def value(self, connection: Connection, /, **values: Any) -> Any:
        """The first column of the first row; None where there is no row."""
        found = self.rows(connection, **values)
        return found[0][0] if found else None

    def _execute(self, connection: Connection, values: Values) -> Any:
        sql, bind = self.on(connection.dialect)
        return connection.raw.execute(sql, bind(values))

    def on(self, dialect: Dialect) -> tuple[str, _Binder]:
        """The text for a driver, and a function that makes its parameters of named values."""
        found = self._translated.get(dialect)
        if found is None:
            sql, names = translate(self._sql, dialect)
            found = self._translated[dialect] = sql, _binder(names, dialect)
        return found


def _binder(names: Sequence[str], dialect: Dialect) -> _Binder:
    """How a driver wants its parameters: by position, or by name."""
    if dialect != "sqlite":
        return lambda values: {name: values[name] for name in names}
    if len(names) < 2:
        return lambda values: tuple([values[name] for name in names])
    return itemgetter(*names)


def insert_into(
    table: str, columns: Iterable[str], conflict: str = "", /, **expressions: str
) -> Prepared:
    """An INSERT of one row of a log, whose columns hold the values of the same names.

    Those with an expression hold what it makes of values; `conflict` is its ON CONFLICT clause.
    """
    values = {name: f":{name}" for name in ("log", *columns)} | expressions
    columns, made = ", ".join(values), ", ".join(values.values())
    return prepare(f"INSERT INTO {table} ({columns}) VALUES ({made}) {conflict}")


@lru_cache(maxsize=_KEPT)
def prepare(sql: str) -> Prepared:
    """SQL text with `:name` parameters, in words that SQLite and PostgreSQL share.

    The same text is the same statement, also when a query puts it together anew each time.
    """
    return Prepared(sql)
