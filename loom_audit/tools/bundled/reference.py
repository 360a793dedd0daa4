"""What a tool says of itself in words: its arguments, the fields of its result, its limits."""

import ast
import inspect
import json
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from loom_audit.tools.calls.tool import Tool

_LIMITS = {
    "minimum": "≥ {}",
    "exclusiveMinimum": "> {}",
    "maximum": "≤ {}",
    "minLength": "length ≥ {}",
    "maxLength": "length ≤ {}",
    "minItems": "items ≥ {}",
    "maxItems": "items ≤ {}",
}


class Argument(Struct, frozen=True):
    """One argument of a tool: its type in words, its default in JSON, and its limits."""

    name: str
    kind: str
    needed: bool
    default: str
    limits: tuple[str, ...]
    description: str


def arguments_of(tool: Tool) -> list[Argument]:
    """Return the arguments of a tool, in the order of its schema."""
    return [_argument(name, given, tool) for name, given in _properties(tool.parameters)]


def fields_of(tool: Tool) -> list[tuple[str, str]]:
    """Return the fields of a tool's result by path (`entries[].name`), with their types."""
    schema = tool.output_schema
    return [] if schema is None else [*_fields(schema, schema)]


def facts_of(tool: Tool) -> list[tuple[str, str]]:
    """Return the effect, the limit, when the tool asks and how it is confined: name and fact."""
    limit = f"{tool.timeout_seconds:g} s"
    if "timeout" in tool.parameters.get("properties", {}):
        limit += " or `timeout`"
    facts = [("effect", tool.effect), ("", limit), ("", asks(tool))]
    if tool.effect == "execute":
        facts.append(("confinement", tool.confinement))
    if not tool.needs_workspace:
        facts.append(("", "needs no workspace"))
    return facts


def asks(tool: Tool) -> str:
    """Return in words when the tool asks first, by the reasons its code gives."""
    own = tool.requires_approval
    if isinstance(own, bool):
        return "asks always" if own else "does not ask"
    try:
        source = textwrap.dedent(inspect.getsource(own))
        reasons = [*_reasons(ast.parse(source))]
    except (OSError, TypeError, SyntaxError):
        reasons = []  # of another package, which need not have its source here
    named = " or ".join(f"*{reason}*" for reason in reasons)
    return f"asks when it {named}" if named else "may ask"


def _reasons(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Return) and node.value is not None:
            yield from _texts(node.value)


def _texts(value: ast.AST) -> Iterator[str]:
    """The texts a value may be, with `…` for what is filled in."""
    if isinstance(value, ast.JoinedStr):
        yield "".join(
            str(part.value) if isinstance(part, ast.Constant) else "…" for part in value.values
        )
    elif isinstance(value, ast.Constant) and isinstance(value.value, str):
        yield value.value
    elif isinstance(value, ast.BoolOp):
        yield from _texts(value.values[-1])
    elif isinstance(value, ast.IfExp):
        yield from _texts(value.body)
        yield from _texts(value.orelse)


def _properties(schema: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    return [*schema.get("properties", {}).items()]


def _argument(name: str, given: Mapping[str, Any], tool: Tool) -> Argument:
    value = given.get("default")
    return Argument(
        name,
        _kind(given, tool.parameters),
        needed=name in tool.parameters.get("required", ()),
        default="" if value is None else json.dumps(value),
        limits=tuple(_limits(given)),
        description=str(given.get("description", "")),
    )


def _limits(given: Mapping[str, Any]) -> Iterator[str]:
    for choice in [given, *given.get("anyOf", ())]:
        for key, text in _LIMITS.items():
            if key in choice:
                yield text.format(choice[key])


def _kind(given: Mapping[str, Any], root: Mapping[str, Any]) -> str:
    """The type in words: `list of int`, `"GET"` or `"POST"`, an object's fields."""
    given = _resolved(given, root)
    choices = given.get("anyOf")
    if choices:
        kinds = [_kind(choice, root) for choice in choices if choice.get("type") != "null"]
        return " or ".join(kinds)
    if "enum" in given or "const" in given:
        return " or ".join(f'"{value}"' for value in given.get("enum", [given.get("const")]))
    kind = str(given.get("type", "anything"))
    if kind == "array":
        return f"list of {_kind(given.get('items', {}), root)}"
    if kind == "object":
        named = [name for name, _ in _properties(given)]
        return "object of " + ", ".join(named) if named else "object of texts"
    return {"string": "text", "integer": "number", "boolean": "bool"}.get(kind, kind)


def _resolved(given: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    name = str(given.get("$ref", "")).rpartition("/")[2]
    found: Mapping[str, Any] = root.get("$defs", {}).get(name, given)
    return found


def _fields(
    given: Mapping[str, Any], root: Mapping[str, Any], above: str = ""
) -> Iterator[tuple[str, str]]:
    """The fields of a result by path; those of a list's items as `entries[].name`."""
    for name, field in _properties(given):
        path = above + name
        choices = [_resolved(choice, root) for choice in field.get("anyOf", [field])]
        nullable = any(choice.get("type") == "null" for choice in choices)
        (field, *_) = [choice for choice in choices if choice.get("type") != "null"]
        inner = _resolved(field.get("items", field), root)
        if _properties(inner):
            yield from _fields(inner, root, path + ("[]." if "items" in field else "."))
        else:
            yield path, _kind(field, root) + (" or null" if nullable else "")
