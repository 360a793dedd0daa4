"""What statements run on: a driver's connection, within a transaction that somebody else ends."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

Dialect = Literal["sqlite", "postgresql"]
Row = tuple[Any, ...]

LARGEST = 2**63 - 1
"""The largest number that a column holds; no seq comes after it."""


class Connection:
    """A driver's connection (PEP 249); its errors are the driver's (`Connections` translates them).

    `dialect` says in which words its statements are.
    """

    __slots__ = ("dialect", "raw")

    def __init__(self, raw: Any, dialect: Dialect = "sqlite") -> None:
        self.raw = raw
        self.dialect = dialect

    def execute(self, sql: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> Any:
        """Run a text as the driver takes it, and give the cursor of the driver."""
        return self.raw.execute(sql, values)

    def execute_many(self, sql: str, rows: Sequence[Any]) -> int:
        """Run a text for each row of values, and give how many rows that changed."""
        changed: int = self.raw.cursor().executemany(sql, rows).rowcount
        return changed
