"""What does not fit a JSON Schema, and the short check of simple ones."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError


_WHOLE = re.compile(r"[0-9]{1,9}")
_NUMBERS = frozenset({"integer", "number"})
_PLAIN_TYPES = {"string": str, "integer": int, "boolean": bool}
_PLAIN_WORDS = frozenset({"type", "description", "default", "minLength", "enum"})
_OBJECT_WORDS = frozenset({"type", "properties", "required", "additionalProperties"})


def surely_fits(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> bool:
    """Return whether arguments certainly fit a simple schema: spares most calls the long check.

    False says nothing about the arguments.
    """
    if schema.keys() - _OBJECT_WORDS or schema.get("additionalProperties") is not False:
        return False
    properties = schema.get("properties", {})
    for name, value in arguments.items():
        said, kind = properties.get(name), type(value)
        if not isinstance(said, dict) or said.keys() - _PLAIN_WORDS:
            return False
        # by identity: to Python a bool is an int too, to JSON Schema it is not
        if kind is not _PLAIN_TYPES.get(str(said.get("type"))):
            return False
        if kind is str and len(value) < said.get("minLength", 0):
            return False
        if "enum" in said and (kind is not str or value not in said["enum"]):
            return False
    return all(name in arguments for name in schema.get("required", ()))


def lone_surrogate(value: Any, place: str = "") -> str:
    """Return the place of a text, or of a key, that holds a lone surrogate; empty where none does.

    Not those that stand for the bytes of names that are not UTF-8 (PEP 383).
    """
    if isinstance(value, str):
        if not value.isascii():
            try:
                value.encode("utf-8", "surrogateescape")
            except UnicodeEncodeError:
                return place or "a key"
        return ""
    inner: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, Mapping):
        inner = value.items()
        if found := next(filter(None, map(lone_surrogate, value)), ""):
            return found
    elif isinstance(value, list):
        inner = enumerate(value)
    steps = (
        lone_surrogate(item, f"{place}.{step}" if place else str(step)) for step, item in inner
    )
    return next(filter(None, steps), "")


def readable_arguments(
    schema: Mapping[str, Any], arguments: dict[str, Any], other_names: Mapping[str, str]
) -> dict[str, Any]:
    """Return the arguments by the names of the schema.

    A timeout, and what has other names too, may be a whole number that is a text. An argument that
    is given by its own name is not taken from another.
    """
    measures = {"timeout", *other_names.values()}
    properties = schema.get("properties", {})
    read = arguments
    for name, value in arguments.items():
        meant = name if name in properties else other_names.get(name, name)
        whole = isinstance(value, str) and _WHOLE.fullmatch(value) is not None
        number = whole and meant in measures and _is_number(properties.get(meant))
        if not number if meant == name else meant in read:
            continue
        read = {**read} if read is arguments else read
        del read[name]
        read[meant] = int(value) if number else value
    return read


def _is_number(schema: Any) -> bool:
    """Whether a schema takes numbers and no texts."""
    if not isinstance(schema, Mapping):
        return False
    kinds = [schema, *schema.get("anyOf", ())]
    said = {kind.get("type") for kind in kinds if isinstance(kind, Mapping)} - {None}
    return bool(said & _NUMBERS) and said <= {*_NUMBERS, "null"}


def schema_flaws(errors: Iterator["ValidationError"]) -> Iterator[str]:
    """Yield each flaw that a JSON Schema finds, with its place, ordered by place."""
    for error in map(_closest_error, sorted(errors, key=lambda e: [*map(str, e.absolute_path)])):
        place = ".".join(str(part) for part in error.absolute_path)
        text = error.message if len(error.message) <= 300 else error.message[:300] + "…"
        yield f"{place}: {text}" if place else text


def _closest_error(error: "ValidationError") -> "ValidationError":
    """Of a value that no alternative takes: its flaw in the one of its own type, else the first."""
    while error.context:
        meant = [one for one in error.context if one.validator != "type" or one.path]
        error = (meant or error.context)[0]
    return error


def why_not_object(arguments: Any) -> str:
    """Return why arguments are not a JSON object; of a model's broken JSON, where it breaks."""
    if isinstance(arguments, str):
        try:
            json.loads(arguments)
        except json.JSONDecodeError as error:
            return f"are not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        except (ValueError, RecursionError) as error:
            return f"are not JSON that can be read: {error}"
    return f"must be a JSON object, not {type(arguments).__name__}"


def signature(parameters: Mapping[str, Any]) -> str:
    """Return the arguments of a schema in a line, for a hint.

    `?` marks one that may be left out; where an argument is one of a few values, they stand in
    brackets.
    """
    required = parameters.get("required", [])
    names = []
    for name, schema in parameters.get("properties", {}).items():
        told = name if name in required else f"{name}?"
        values = schema.get("enum", ()) if isinstance(schema, Mapping) else ()
        names.append(f"{told} ({' or '.join(map(str, values))})" if values else told)
    return ", ".join(names) or "none"
