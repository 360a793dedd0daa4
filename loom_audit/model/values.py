"""JSON values: what can be put on record, and what is kept of a value that cannot."""

import math
from typing import Any

from loom_audit.errors import NotSerializable

MAX_DEPTH = 64
MAX_VALUES = 2_000_000
MAX_NEAREST = 10_000
_SHOWN = 500


def as_json(value: Any, where: str = "value") -> Any:
    """Return a copy of None, bool, int, float, str, list and str-keyed dict; tuples become lists.

    NotSerializable names the place of anything else, of NaN and infinities, of values nested deeper
    than 64, and is raised for more than two million values (an object that holds itself many times
    over has no end).
    """
    return _copy(value, [where], [MAX_VALUES])


def _copy(value: Any, trail: list[str | int], remaining: list[int]) -> Any:
    """The copy; `trail` leads to the value, `remaining` counts how many more there may be."""
    remaining[0] -= 1
    if remaining[0] < 0:
        raise NotSerializable(
            f"more than {MAX_VALUES} values", hint="Write them to a file and pass its path."
        )
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if math.isfinite(value):
            return float(value)
        raise NotSerializable(
            f"{value} at {_path_text(trail)} is not a JSON number",
            hint="Pass null or a text for it.",
        )
    if len(trail) > MAX_DEPTH:
        raise NotSerializable(
            f"nested deeper than {MAX_DEPTH} at {_path_text(trail)}",
            hint="Pass it flatter, or as a text.",
        )
    if isinstance(value, (list, tuple)):
        return [_inner(item, n, trail, remaining) for n, item in enumerate(value)]
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise NotSerializable(
                    f"the key {_text(key):.100} at {_path_text(trail)} is not a text"
                )
        return {str(key): _inner(item, key, trail, remaining) for key, item in value.items()}
    raise NotSerializable(f"{type(value).__name__} at {_path_text(trail)} is not a JSON value")


def _inner(value: Any, step: str | int, trail: list[str | int], remaining: list[int]) -> Any:
    trail.append(step)
    copy = _copy(value, trail, remaining)
    trail.pop()
    return copy


def _path_text(trail: list[str | int]) -> str:
    steps = [f"[{step}]" if isinstance(step, int) else f".{step:.50}" for step in trail]
    return "".join(steps)[1:200]


def nearest_json(value: Any) -> Any:
    """Return the JSON nearest to any value; a short text stands for what has no place in JSON."""
    return _nearest(value, 0, [MAX_NEAREST])


def _nearest(value: Any, depth: int, remaining: list[int]) -> Any:
    remaining[0] -= 1
    if depth > MAX_DEPTH or remaining[0] < 0:
        return "<left out>"
    if isinstance(value, (list, tuple)):
        return [_nearest(item, depth + 1, remaining) for item in value[: max(0, remaining[0]) + 1]]
    if isinstance(value, dict):
        named: dict[str, Any] = {}
        for key, item in value.items():
            if remaining[0] < 0:
                named["<more>"] = "<left out>"
                break
            name = key if isinstance(key, str) else _text(key)
            named[name] = _nearest(item, depth + 1, remaining)
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
