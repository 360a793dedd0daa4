"""Whether what was read has the types that its fields say: who forges a log need not heed them.

A text that is one of a few is any text here: a later minor version may know more of them.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin

from msgspec import Struct
from msgspec.structs import astuple, fields


class _Allowed(NamedTuple):
    """The types that a value may have, and what must be so of the items of a tuple."""

    types: Collection[type[Any]]
    items: Callable[[Any], bool] | None = None


def check_types(value: Struct) -> None:
    """Raise TypeError when a field of a struct has a value of another type.

    Structs in the struct are not looked into, where they lie in tuples.
    """
    for allowed, stored in zip(_fields(type(value)), astuple(value), strict=True):
        types, items = allowed
        kind = type(stored)
        if types and (
            kind not in types or (stored and kind is tuple and items and not items(stored))
        ):
            raise TypeError(f"a field cannot be {stored!a:.80}")


def check_texts_of(values: Mapping[str, Any], names: Sequence[str]) -> None:
    """Raise TypeError when one of these values is there and is not a text."""
    for name in names:
        if type(values.get(name, "")) is not str:
            raise TypeError(f"its {name} cannot be {values[name]!a:.80}")


@cache
def _fields(of: type[Any]) -> Sequence[_Allowed]:
    return [_allowed(item.type) for item in fields(of)]


def _allowed(said: Any) -> _Allowed:
    """What a type allows; where that is anything, no types."""
    origin, given = get_origin(said), get_args(said)
    if origin is Literal:
        return _Allowed((str,))
    if origin in (Union, UnionType):
        some = [_allowed(one) for one in given]
        items = next((one.items for one in some if one.items), None)
        return _Allowed(tuple(t for one in some for t in one.types), items)
    if origin is tuple:
        return _Allowed((tuple,), _of_items(given))
    if said in (str, int, bool, NoneType) or (isinstance(said, type) and issubclass(said, Struct)):
        return _Allowed((said,))
    return _Allowed(())


def _of_items(given: tuple[Any, ...]) -> Callable[[Any], bool] | None:
    """What must be so of the items of a tuple."""
    if given[-1] is not Ellipsis:
        parts = [_allowed(one) for one in given]
        return lambda value: len(value) == len(parts) and all(map(_has, parts, value))
    each = _allowed(given[0])
    return lambda value: all(_has(each, one) for one in value)


def _has(allowed: _Allowed, value: Any) -> bool:
    types, items = allowed
    return type(value) in types and (items is None or type(value) is not tuple or items(value))
