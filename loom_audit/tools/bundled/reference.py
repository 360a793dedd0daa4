"""The reference of all bundled tools as Markdown, made from the tools themselves.

`python -m loom_audit.tools.bundled.reference docs/tools-reference.md` brings the file up to date.
"""

import ast
import inspect
import json
import sys
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from loom_audit.tools.bundled.builtin import builtin_tools
from loom_audit.tools.calls.tool import Tool

MARK = "<!-- made from the tools by loom_audit.tools.bundled.reference; do not edit below -->"

_LIMITS = {
    "minimum": "≥ {}",
    "exclusiveMinimum": "> {}",
    "maximum": "≤ {}",
    "minLength": "length ≥ {}",
    "maxLength": "length ≤ {}",
    "minItems": "items ≥ {}",
    "maxItems": "items ≤ {}",
}


def reference() -> str:
    """The generated part of docs/tools-reference.md."""
    return "\n\n".join([MARK, *(section(tool) for tool in builtin_tools())]) + "\n"


def section(tool: Tool) -> str:
    """What there is to know about a tool: what it is, its arguments, the fields of its result."""
    parts = [f"## `{tool.name}`", tool.description, _facts(tool)]
    arguments = [_argument(name, given, tool) for name, given in _properties(tool.parameters)]
    if arguments:
        head = "| argument | type | default | limits | |\n|---|---|---|---|---|"
        parts.append("\n".join([head, *arguments]))
    if tool.output_schema is not None:
        fields = [
            f"| `{path}` | {kind} |"
            for path, kind in _fields(tool.output_schema, tool.output_schema)
        ]
        parts.append("\n".join(["| result | type |\n|---|---|", *fields]))
    return "\n\n".join(parts)


def _facts(tool: Tool) -> str:
    limit = f"{tool.timeout_seconds:g} s"
    if "timeout" in tool.parameters.get("properties", {}):
        limit += " or `timeout`"
    facts = [f"effect `{tool.effect}`", limit, _asks(tool)]
    if tool.effect == "execute":
        facts.append(f"confinement `{tool.confinement}`")
    if not tool.needs_workspace:
        facts.append("needs no workspace")
    return " · ".join(facts)


def _asks(tool: Tool) -> str:
    """When the tool asks first, by the reasons it gives."""
    own = tool.requires_approval
    if isinstance(own, bool):
        return "asks always" if own else "does not ask"
    reasons = _reasons(ast.parse(textwrap.dedent(inspect.getsource(own))))
    return "asks when it " + " or ".join(f"*{reason}*" for reason in reasons)


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


def _argument(name: str, given: Mapping[str, Any], tool: Tool) -> str:
    if name in tool.parameters.get("required", ()):
        default = "needed"
    else:
        value = given.get("default")
        default = "" if value is None else f"`{json.dumps(value)}`"
    cells = [
        f"`{name}`",
        _kind(given, tool.parameters),
        default,
        ", ".join(_limits(given)),
        str(given.get("description", "")),
    ]
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


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


def rewrite(mark: str, text: str) -> None:
    """Put the text in place of what begins at the mark in the file named on the command line."""
    file = Path(sys.argv[1])
    written = file.read_text("utf-8").partition(mark)[0] if file.exists() else ""
    file.write_text(written + text, "utf-8")


if __name__ == "__main__":
    rewrite(MARK, reference())
