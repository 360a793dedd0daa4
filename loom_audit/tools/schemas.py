"""JSON Schemas of pydantic models, and the short check of simple ones."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel


def parameters_of(
    model: type[BaseModel], mode: Literal["validation", "serialization"] = "validation"
) -> dict[str, Any]:
    """The model's JSON Schema without titles; extra fields are refused unless it allows them."""
    schema: dict[str, Any] = model.model_json_schema(by_alias=True, mode=mode)
    _drop_titles(schema)
    schema.pop("description", None)
    if mode == "validation":
        schema.setdefault("additionalProperties", False)
    return schema


def _drop_titles(schema: Any) -> None:
    """Remove the titles pydantic makes up; a property that is named `title` stays."""
    if isinstance(schema, list):
        for item in schema:
            _drop_titles(item)
    elif isinstance(schema, dict):
        if isinstance(schema.get("title"), str):
            del schema["title"]
        for key, item in schema.items():
            if key in ("properties", "$defs"):
                for inner in item.values():
                    _drop_titles(inner)
            elif key not in ("default", "const", "enum", "examples"):
                _drop_titles(item)


_PLAIN_TYPES = {"string": str, "integer": int, "boolean": bool}
_PLAIN_WORDS = frozenset({"type", "description", "default", "minLength", "enum"})
_OBJECT_WORDS = frozenset({"type", "properties", "required", "additionalProperties"})


def plainly_fits(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> bool:
    """Whether arguments certainly are as a simple schema says: spares most calls the long check.

    False says nothing.
    """
    if schema.keys() - _OBJECT_WORDS or schema.get("additionalProperties") is not False:
        return False
    properties = schema.get("properties", {})
    for name, value in arguments.items():
        said, kind = properties.get(name), type(value)
        if not isinstance(said, dict) or said.keys() - _PLAIN_WORDS:
            return False
        if kind is not _PLAIN_TYPES.get(str(said.get("type"))):
            return False
        if kind is str and len(value) < said.get("minLength", 0):
            return False
        if "enum" in said and (kind is not str or value not in said["enum"]):
            return False
    return all(name in arguments for name in schema.get("required", ()))
