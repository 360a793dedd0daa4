"""JSON with comments (JSONC) changed as text: what is not changed keeps every byte.

Read are JSON (RFC 8259), `//` and `/* */` comments, and a comma after the last item, which is what
the settings of coding agents may hold. Positions are indexes into the text.
"""

import json
import re
from typing import Any

from msgspec import Struct

from loom_audit.errors import InvalidArguments

_SPACE = re.compile(r"(?:[ \t\r\n\ufeff]+|//[^\r\n]*|/\*.*?\*/)*", re.DOTALL)
_BETWEEN = re.compile(r"//[^\r\n]*|/\*.*?\*/|.", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_PLAIN = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null")
_INDENT = re.compile(r"\n([ \t]+)\S")
_DEEPEST = 200


class JsonNode(Struct, frozen=True):
    """A value and where it stands; of an object its names and values, of an array its items."""

    start: int
    end: int
    names: tuple[str, ...] = ()
    starts: tuple[int, ...] = ()
    items: tuple["JsonNode", ...] = ()

    def member(self, name: str) -> "JsonNode | None":
        """The value of that name; the last one, as JSON readers take it."""
        found = [item for known, item in zip(self.names, self.items, strict=False) if known == name]
        return found[-1] if found else None


def read(text: str) -> JsonNode:
    """The value that a text holds. InvalidArguments names line and column of what is wrong."""
    node = _value(text, _skip(text, 0), 0)
    if (end := _skip(text, node.end)) != len(text):
        raise _wrong(text, end, "something follows the value")
    return node


def value(text: str, node: JsonNode) -> Any:
    """What a node means in Python."""
    first = text[node.start]
    if first == "{":
        pairs = zip(node.names, node.items, strict=True)
        return {name: value(text, item) for name, item in pairs}
    if first == "[":
        return [value(text, item) for item in node.items]
    return json.loads(text[node.start : node.end])


def with_member(text: str, node: JsonNode, name: str, added: Any) -> str:
    """The text with one more member at the end of an object."""
    return _with_more(text, node, f"{json.dumps(name)}: ", added)


def with_item(text: str, node: JsonNode, added: Any) -> str:
    """The text with one more item at the end of an array."""
    return _with_more(text, node, "", added)


def without(text: str, node: JsonNode, index: int) -> str:
    """The text without a member or an item, its comma and the blanks before it."""
    start = node.starts[index] if node.starts else node.items[index].start
    end = node.items[index].end
    after = _skip(text, end)
    if text[after] == ",":
        text = text[:after] + text[after + 1 :]
    elif index:
        before = node.items[index - 1].end
        comma = _skip(text, before)
        text = text[:comma] + text[comma + 1 :]
        start, end = start - 1, end - 1
    before = node.items[index - 1].end if index else node.start + 1
    blank = len(text[:start].rstrip(" \t\r\n"))
    between = _BETWEEN.findall(text, before, blank)
    if between and between[-1].startswith("//"):
        blank = start  # a comment to the end of its line needs that end
    return text[:blank] + text[end:]


def _with_more(text: str, node: JsonNode, name: str, added: Any) -> str:
    line = "\r\n" if "\r\n" in text else "\n"
    found = _INDENT.search(text)
    step = found[1] if found else "  "
    outer = re.search(r"[ \t]*", text[text.rfind("\n", 0, node.start) + 1 :])
    indent = (outer[0] if outer else "") + step
    shown = json.dumps(added, indent=step, ensure_ascii=False).replace("\n", line + indent)
    if not node.items:
        inside = text[node.start + 1 : node.end - 1].rstrip(" \t\r\n")
        filled = f"{inside}{line}{indent}{name}{shown}{line}{indent[: -len(step)]}"
        return text[: node.start + 1] + filled + text[node.end - 1 :]
    last = node.items[-1].end
    comma = _skip(text, last)
    if text[comma] == ",":
        return f"{text[: comma + 1]}{line}{indent}{name}{shown},{text[comma + 1 :]}"
    return f"{text[:last]},{line}{indent}{name}{shown}{text[last:]}"


def _value(text: str, at: int, depth: int) -> JsonNode:
    if depth > _DEEPEST:
        raise _wrong(text, at, f"over {_DEEPEST} objects and arrays are nested")
    first = text[at : at + 1]
    if first in ("{", "["):
        return _container(text, at, depth, "}" if first == "{" else "]")
    found = (_STRING if first == '"' else _PLAIN).match(text, at)
    if found is None:
        raise _wrong(text, at, "a value is missing")
    try:
        json.loads(found[0])
    except ValueError:
        raise _wrong(text, at, "a text is not written as JSON") from None
    return JsonNode(at, found.end())


def _container(text: str, start: int, depth: int, closing: str) -> JsonNode:
    names, starts, items = list[str](), list[int](), list[JsonNode]()
    at = _skip(text, start + 1)
    while text[at : at + 1] != closing:
        if closing == "}":
            name = _STRING.match(text, at)
            if name is None:
                raise _wrong(text, at, "a name in quotation marks is missing")
            starts.append(at)
            names.append(json.loads(text[at : _value(text, at, depth).end]))
            at = _skip(text, name.end())
            if text[at : at + 1] != ":":
                raise _wrong(text, at, "a colon is missing")
            at = _skip(text, at + 1)
        items.append(_value(text, at, depth + 1))
        at = _skip(text, items[-1].end)
        if text[at : at + 1] == ",":
            at = _skip(text, at + 1)
        elif text[at : at + 1] != closing:
            raise _wrong(text, at, f"a comma or {closing} is missing")
    return JsonNode(start, at + 1, tuple(names), tuple(starts), tuple(items))


def _skip(text: str, at: int) -> int:
    """Where the next thing that is not a blank or a comment stands."""
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _wrong(text: str, at: int, what: str) -> InvalidArguments:
    line = text.count("\n", 0, at) + 1
    column = at - text.rfind("\n", 0, at)
    return InvalidArguments(
        f"line {line}, column {column}: {what}",
        details={"line": line, "column": column},
    )
