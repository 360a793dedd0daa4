"""SQLAlchemy's expressions over a driver's connection, until every query is a text."""

from collections import namedtuple
from typing import Any

from sqlalchemy.dialects.sqlite import dialect

_SQLITE = dialect()


class Rows:
    """Rows with the names of their columns, where SQLAlchemy would give them."""

    def __init__(self, raw: Any, statement: Any) -> None:
        compiled = statement.compile(dialect=_SQLITE, compile_kwargs={"render_postcompile": True})
        values = [compiled.params[name] for name in compiled.positiontup or ()]
        cursor = raw.execute(str(compiled), values)
        columns = [one[0] for one in cursor.description or ()]
        make: Any = namedtuple
        row = make("row", columns, rename=True)
        self._rows = [row._make(one) for one in cursor.fetchall()]

    def __iter__(self) -> Any:
        return iter(self._rows)

    def all(self) -> Any:
        return self._rows

    def first(self) -> Any:
        return self._rows[0] if self._rows else None
