"""JSON values: what can be put on record, and what is kept of a value that cannot."""

import math
from typing import Any

from loom_audit.errors import NotSerializable

MAX_DEPTH = 100
_SHOWN = 500


def as_json(value: Any, where: str = "", depth: int = 0) -> Any:
    """A copy made of None, bool, int, float, str, list and str-keyed dict; tuples become lists.

    NotSerializable names the place of anything else, of NaN and infinities, and of values
    nested deeper than 100.
    """
    if depth > MAX_DEPTH:
        raise NotSerializable(f"nested deeper than {MAX_DEPTH} at {_place(where)}")
    if value is None or isinstance(value, (bool, str)):
        return value if value is None or isinstance(value, bool) else str(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise NotSerializable(f"{value} at {_place(where)} is not a JSON number")
        return float(value)
    if isinstance(value, (list, tuple)):
        return [as_json(item, f"{where}[{n}]", depth + 1) for n, item in enumerate(value)]
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise NotSerializable(f"the key {key!r:.100} at {_place(where)} is not a string")
        return {
            str(key): as_json(item, f"{where}.{key}" if where else str(key), depth + 1)
            for key, item in value.items()
        }
    raise NotSerializable(
        f"{type(value).__name__} at {_place(where)} is not a JSON value",
        hint="Pass null, booleans, numbers, strings, lists and objects only.",
    )


def as_far_as_possible(value: Any, depth: int = 0) -> Any:
    """The JSON value nearest to any value: what has no place in JSON stands as a short text."""
    if depth <= MAX_DEPTH:
        if isinstance(value, (list, tuple)):
            return [as_far_as_possible(item, depth + 1) for item in value]
        if isinstance(value, dict):
            return {
                key if isinstance(key, str) else _text(key): as_far_as_possible(item, depth + 1)
                for key, item in value.items()
            }
        try:
            return as_json(value, depth=depth)
        except NotSerializable:
            pass
    return f"<{_text(value)}>" if depth <= MAX_DEPTH else "<nested too deep>"


def _text(value: Any) -> str:
    """A short text of a foreign object, whose own `__repr__` may be broken."""
    try:
        return f"{type(value).__name__}: {value!r:.{_SHOWN}}"
    except Exception:  # noqa: BLE001 - anything may happen in a foreign __repr__
        return type(value).__name__


def _place(where: str) -> str:
    return where if 0 < len(where) <= 200 else "the top" if not where else where[:200] + "…"
