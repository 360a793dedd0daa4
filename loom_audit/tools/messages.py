"""Tool calls as model APIs write them, and the messages their results go back in.

Read are the messages of OpenAI's chat completions (`tool_calls`), the items of its responses
(`function_call`), and the content blocks of Anthropic's messages (`tool_use`).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from loom_audit.errors import InvalidArguments
from loom_audit.tools.tool import ToolResult


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call as a model asked for it.

    `arguments` is a text where the model's JSON could not be read: calling it records that
    text and fails with INVALID_ARGUMENTS.
    """

    id: str
    name: str
    arguments: Any


def tool_calls_of(answer: Any) -> list[ToolCall]:
    """The calls in a model's answer, in its order; none when it has none.

    The answer is a message, a list of calls, items or content blocks, or one of these; objects
    of the vendors' packages are taken by their `model_dump`. InvalidArguments when it is none.
    """
    plain = _plain(answer)
    if isinstance(plain, Mapping):
        for key in ("tool_calls", "output", "content"):
            if isinstance(plain.get(key), list):
                return tool_calls_of(plain[key])
        if plain.get("role") is not None:
            return []
        plain = [plain]
    if not isinstance(plain, list):
        raise InvalidArguments(
            f"{type(answer).__name__} is no answer of a model",
            hint="Pass its message, or the list of its tool calls.",
        )
    return [call for part in plain if (call := _call(_plain(part))) is not None]


def tool_messages(calls: Sequence[ToolCall], results: Sequence[ToolResult]) -> list[dict[str, str]]:
    """One `{"role": "tool", "tool_call_id", "content"}` for each call, in order.

    The content is the output, which of a failure is `Error: MESSAGE` and what to do about it.
    """
    return [
        {"role": "tool", "tool_call_id": call.id, "content": result.output}
        for call, result in zip(calls, results, strict=True)
    ]


def _plain(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    return dump() if callable(dump) else value


def _call(part: Any) -> ToolCall | None:
    """The call a part is; None for a text and the like."""
    if isinstance(part, ToolCall):
        return part
    if not isinstance(part, Mapping):
        raise InvalidArguments(f"{part!r:.80} is no tool call", hint="Pass objects.")
    kind = part.get("type", "function")
    if kind == "tool_use":
        return _made(part.get("id"), part.get("name"), part.get("input"))
    if kind == "function_call":
        return _made(part.get("call_id"), part.get("name"), _parsed(part.get("arguments")))
    if kind != "function":
        return None
    inner = part.get("function", part)
    if not isinstance(inner, Mapping):
        raise InvalidArguments(
            f"{inner!r:.80} is no function call", hint="Pass name and arguments."
        )
    return _made(part.get("id"), inner.get("name"), _parsed(inner.get("arguments")))


def _made(id: Any, name: Any, arguments: Any) -> ToolCall:
    if not isinstance(name, str):
        raise InvalidArguments("a tool call names no tool", details={"name": repr(name)[:80]})
    return ToolCall(id if isinstance(id, str) and id else uuid4().hex, name, arguments)


def _parsed(text: Any) -> Any:
    """What the text of JSON says; the text itself when it is none. Nothing is no arguments."""
    if text is None or text == "":
        return {}
    if not isinstance(text, str):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
