"""A JSON value made small: of what is too long, what comes first is kept."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from loom_audit.model.text.cutting import cut

_LEAST = 100
"""Bytes below which a value is left out rather than cut: a cut text says how much is missing."""


def bounded(value: Any, most: int) -> Any:
    """Return a JSON value of at most `most` bytes of ASCII JSON, which has at least some hundred.

    A long text keeps its head and tail, a list its first items, and an object its short fields
    whole, while the long ones share what room there is. ValueError for NaN, TypeError for what is
    no JSON value.
    """
    if json_size(value) <= most:
        return value
    if isinstance(value, Mapping):
        return _fields(value, most)
    if isinstance(value, (list, tuple)):
        return _items(value, most)
    return _text(value if isinstance(value, str) else str(value), most)


def json_size(value: Any) -> int:
    """Return the bytes of a value as ASCII JSON."""
    return len(json.dumps(value, allow_nan=False))


def _text(text: str, most: int) -> str:
    """The head and tail of a text; signs that JSON escapes take more room than their bytes."""
    shown, limit = text, most
    while json_size(shown) > most:
        if limit < _LEAST:
            return ""
        shown, limit = cut(text, limit), limit * 3 // 4
    return shown


def _items(items: Sequence[Any], most: int) -> list[Any]:
    """The first items, and of the first one a part when it is too long by itself."""
    kept: list[Any] = []
    space = most - 2
    for item in items:
        size = json_size(item) + 2
        if size > space:
            break
        kept.append(item)
        space -= size
    if not kept and space > _LEAST:
        kept.append(bounded(items[0], space - 2))
    return kept


def _fields(fields: Mapping[str, Any], most: int) -> dict[str, Any]:
    """The fields in their order; the room is divided among them, from the shortest on."""
    space, kept = most - 2, dict[str, Any]()
    sizes = {name: json_size(value) for name, value in fields.items()}
    for n, name in enumerate(sorted(sizes, key=lambda name: sizes[name])):
        share = space // (len(sizes) - n)
        own = json_size(name) + 4
        if sizes[name] + own > share and share - own < _LEAST:
            continue
        kept[name] = bounded(fields[name], share - own)
        space -= json_size(kept[name]) + own
    return {name: kept[name] for name in fields if name in kept}
