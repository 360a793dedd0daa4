"""Structs of msgspec as what a tool takes and gives: a process that calls it needs no pydantic."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct, ValidationError


class Fields(Struct, kw_only=True, forbid_unknown_fields=True, dict=True):
    """The input of a tool as a struct: named fields, no others allowed."""

    def given(self) -> Mapping[str, Any]:
        """Return the arguments as the caller gave them, by the names of the schema."""
        kept: Mapping[str, Any] | None = self.__dict__.get("_given")
        return msgspec.to_builtins(self) if kept is None else kept


class Output(Struct, kw_only=True):
    """The `data` of a tool's success as a struct."""


def fit_struct(
    struct: type[Struct], value: Any, *, strict: bool = True
) -> tuple[Struct | None, list[str]]:
    """Convert a value into a struct; return that, or None and every flaw.

    A whole float is an int unless `strict`.
    """
    try:
        made = msgspec.convert(value, struct, strict=strict)
    except ValidationError as error:
        return None, [str(error.__cause__ or error)]
    if isinstance(made, Fields):
        made.__dict__["_given"] = value
    return made, []


def struct_schema(struct: type[Struct]) -> dict[str, Any]:
    """Return the JSON Schema of a struct, without titles and descriptions of structs."""
    _, named = msgspec.json.schema_components([struct], ref_template="#/$defs/{name}")
    for schema in named.values():
        schema.pop("title", None)
        schema.pop("description", None)
    whole: dict[str, Any] = named.pop(struct.__name__)
    return {**whole, "$defs": named} if named else whole
