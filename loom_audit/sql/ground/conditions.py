"""Conditions of a query that is put together when it is asked, and lists within them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from msgspec import Struct, field

T = TypeVar("T")

MANY = 500
"""Most values of a list in one statement; every SQLite takes 999 parameters."""


class Where(Struct, frozen=True):
    """Conditions that must all hold, as text with `:name` parameters, and the values of these.

    `f"SELECT … WHERE {where} ORDER BY …"` and `prepare(sql).rows(connection, **where.values)`;
    no conditions are always true.
    """

    conditions: tuple[str, ...] = ()
    values: Mapping[str, Any] = field(default_factory=dict)

    def also(self, condition: str, /, **values: Any) -> "Where":
        """These conditions and one more. ValueError for a parameter that has another value."""
        for name, value in values.items():
            if name in self.values and self.values[name] != value:
                raise ValueError(f"two values for the parameter :{name}")
        return Where((*self.conditions, condition), {**self.values, **values})

    def among(self, column: str, name: str, listed: Sequence[Any]) -> "Where":
        """These conditions, and one more: the column has one of these values, at most MANY."""
        text, values = in_values(name, listed)
        return self.also(f"{column} IN ({text})", **values)

    def __str__(self) -> str:
        return " AND ".join(f"({one})" for one in self.conditions) or "1 = 1"


def in_values(name: str, listed: Sequence[Any]) -> tuple[str, dict[str, Any]]:
    """The text between the parentheses of `IN (…)`, and its values by name.

    The last value is repeated up to a power of two, so that few statements serve every length.
    ValueError for more than MANY.
    """
    if len(listed) > MANY:
        raise ValueError(f"{len(listed)} values in a list of at most {MANY}: `chunks` cuts it")
    if not listed:
        return "NULL", {}
    count = min(MANY, 1 << (len(listed) - 1).bit_length())
    filled = [*listed, *[listed[-1]] * (count - len(listed))]
    values = {f"{name}{n}": value for n, value in enumerate(filled)}
    return ", ".join(f":{key}" for key in values), values


def chunks(values: Sequence[T], size: int = MANY) -> Iterator[Sequence[T]]:
    """The values in order, in runs as long as `in_values` takes."""
    for start in range(0, len(values), size):
        yield values[start : start + size]
