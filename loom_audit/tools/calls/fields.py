"""Structs of msgspec as what a tool takes and gives: a process that calls it needs no pydantic."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct, ValidationError


class Fields(Struct, kw_only=True, forbid_unknown_fields=True, dict=True):
    """A tool's input: named fields, nothing else allowed."""

    def given(self) -> Mapping[str, Any]:
        """The arguments as the caller gave them, by the names of the schema."""
        kept: Mapping[str, Any] | None = self.__dict__.get("_given")
        return msgspec.to_builtins(self) if kept is None else kept


class Output(Struct, kw_only=True):
    """The `data` of a tool's success."""


def fit_struct(
    struct: type[Struct], value: Any, *, strict: bool = True
) -> tuple[Struct | None, list[str]]:
    """The value as a struct, and what does not fit. A whole float is an int unless `strict`."""
    try:
        made = msgspec.convert(value, struct, strict=strict)
    except ValidationError as error:
        return None, [str(error.__cause__ or error)]
    if isinstance(made, Fields):
        made.__dict__["_given"] = value
    return made, []


def struct_schema(struct: type[Struct]) -> dict[str, Any]:
    """The JSON Schema of a struct without titles."""
    _, named = msgspec.json.schema_components([struct], ref_template="#/$defs/{name}")
    for schema in named.values():
        schema.pop("title", None)
        schema.pop("description", None)
    whole: dict[str, Any] = named.pop(struct.__name__)
    return {**whole, "$defs": named} if named else whole
