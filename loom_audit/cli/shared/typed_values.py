"""`NAME=VALUE` as the arguments of a tool, by its JSON Schema."""

import json
from collections.abc import Iterable, Mapping
from typing import Any


def typed_values(pairs: Iterable[tuple[str, str]], schema: Mapping[str, Any]) -> dict[str, Any]:
    """The values by name, each of the type that the schema names where it can be read as such.

    A list takes one item of each pair of its name, or all from one JSON list. What cannot be read
    stays text, which the tool refuses. Of any other name that is given twice, the last holds.
    """
    values: dict[str, Any] = {}
    for name, text in pairs:
        types = _types(schema.get("properties", {}).get(name, {}), schema)
        if "array" not in types:
            values[name] = _value(text, types)
        elif isinstance(listed := _value(text, types), list):
            values[name] = listed
        else:
            items = _types(types["array"].get("items", {}), schema)
            values[name] = [*values.get(name, []), _value(text, items)]
    return values


def _types(part: Mapping[str, Any], root: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The types that a part of the schema allows, each with the part that says so."""
    if "$ref" in part:
        part = root.get("$defs", {}).get(str(part["$ref"]).rpartition("/")[2], {})
    found: dict[str, Mapping[str, Any]] = {}
    for one in part.get("anyOf", ()):
        found |= _types(one, root)
    named = part.get("type", ())
    for kind in [named] if isinstance(named, str) else named:
        found[kind] = part
    return found


def _value(text: str, types: Mapping[str, Any]) -> Any:
    if "string" in types or not types:
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
