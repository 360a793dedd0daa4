"""JSON values: what can be put on record, and what is kept of a value that cannot."""

import math
from typing import Any

from loom_audit.errors import NotSerializable

MAX_DEPTH = 100
MAX_VALUES = 1_000_000
MAX_NEAREST = 10_000
_SHOWN = 500


def as_json(value: Any, where: str = "value") -> Any:
    """A copy made of None, bool, int, float, str, list and str-keyed dict; tuples become lists.

    NotSerializable names the place of anything else, of NaN and infinities, of values nested
    deeper than 100, and is raised for more than a million values (an object that holds itself
    many times over has no end).
    """
    return _copy(value, where, 0, [MAX_VALUES])


def _copy(value: Any, where: str, depth: int, left: list[int]) -> Any:
    left[0] -= 1
    if left[0] < 0:
        raise NotSerializable(f"more than {MAX_VALUES} values")
    if depth > MAX_DEPTH:
        raise NotSerializable(f"nested deeper than {MAX_DEPTH} at {where:.200}")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise NotSerializable(f"{value} at {where:.200} is not a JSON number")
        return float(value)
    if isinstance(value, (list, tuple)):
        return [_copy(item, f"{where}[{n}]", depth + 1, left) for n, item in enumerate(value)]
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise NotSerializable(f"the key {_text(key):.100} at {where:.200} is not a text")
        return {
            str(key): _copy(item, f"{where}.{key}", depth + 1, left) for key, item in value.items()
        }
    raise NotSerializable(
        f"{type(value).__name__} at {where:.200} is not a JSON value",
        hint="Pass null, booleans, numbers, texts, lists and objects only.",
    )


def as_far_as_possible(value: Any) -> Any:
    """The JSON value nearest to any value: what has no place in JSON stands as a short text."""
    return _nearest(value, 0, [MAX_NEAREST])


def _nearest(value: Any, depth: int, left: list[int]) -> Any:
    left[0] -= 1
    if depth > MAX_DEPTH or left[0] < 0:
        return "<left out>"
    if isinstance(value, (list, tuple)):
        return [_nearest(item, depth + 1, left) for item in value[: max(0, left[0]) + 1]]
    if isinstance(value, dict):
        named: dict[str, Any] = {}
        for key, item in value.items():
            if left[0] < 0:
                named["<more>"] = "<left out>"
                break
            name = key if isinstance(key, str) else _text(key)
            named[name] = _nearest(item, depth + 1, left)
        return named
    try:
        return as_json(value)
    except NotSerializable:
        return f"<{_text(value)}>"


def _text(value: Any) -> str:
    """A short text of a foreign object, whose own `__repr__` may be broken."""
    try:
        return f"{type(value).__name__}: {value!r:.{_SHOWN}}"
    except Exception:  # noqa: BLE001 - anything may happen in a foreign __repr__
        return type(value).__name__
