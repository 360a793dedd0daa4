"""Rows read as structs: the type of a field says what its column holds."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from types import MappingProxyType, NoneType
from typing import Any, Generic, TypeVar, get_args

from loom_audit.sql.ground.clock import from_micros
from loom_audit.sql.ground.connection import Row

T = TypeVar("T")


class RowReading(Generic[T]):
    """How rows of a table are read as structs of one type.

    Each field is in the column of its name, unless an expression says where. Times are
    microseconds; `packed` are the fields that a function unpacks; those `apart` are in no column.
    """

    def __init__(
        self,
        made: type[T],
        table: str,
        *,
        packed: Mapping[str, Callable[[Any], Any]] = MappingProxyType({}),
        apart: Iterable[str] = (),
        **expressions: str,
    ) -> None:
        fields = {name: hint for name, hint in made.__annotations__.items() if name not in apart}
        unpacked = {**{name: _time for name, hint in fields.items() if hint in _TIMES}, **packed}
        self._made = made
        self.names = tuple(fields)
        self._types = tuple(
            object if name in packed else _stored_as(hint) for name, hint in fields.items()
        )
        self._unpacked = [(n, unpacked[name]) for n, name in enumerate(fields) if name in unpacked]
        self.columns = ", ".join(expressions.get(name, f"{table}.{name}") for name in fields)
        """SQL for what a row begins with."""

    def read(self, row: Row, **apart: Any) -> T:
        """The struct of a row, with the fields that no column holds. TypeError for another type."""
        values = [*row[: len(self.names)]]
        if not all(map(isinstance, values, self._types)):
            for value, kind in zip(values, self._types, strict=True):
                if not isinstance(value, kind):
                    is_text = str in (kind, *get_args(kind))
                    raise TypeError(f"{value!a} is not a {'text' if is_text else 'number'}")
        for n, unpack in self._unpacked:
            values[n] = unpack(values[n])
        return self._made(**dict(zip(self.names, values, strict=True)), **apart)


_TIMES = (datetime, datetime | None)


def _time(micros: int | None) -> datetime | None:
    return None if micros is None else from_micros(micros)


def _stored_as(hint: Any) -> Any:
    """What `isinstance` takes for the values of a column: numbers, or texts such as literals."""
    kinds = get_args(hint) if NoneType in get_args(hint) else (hint,)
    number = int in kinds or datetime in kinds
    kind = int if number else str
    return kind | None if NoneType in kinds else kind
