"""Tool calls as model APIs write them, and the messages their results go back in.

Read are the messages of OpenAI's chat completions (`tool_calls`), the items of its responses
(`function_call`), and the content blocks of Anthropic's messages (`tool_use`).
"""

import json
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from loom_audit.errors import InvalidArguments
from loom_audit.history.ground.writer import new_id
from loom_audit.tools.calls.result import Image, ToolResult

MessageDialect = Literal["openai", "openai-flat", "anthropic"]

NAMELESS = "(no name)"
"""What a call is recorded as that names no tool."""


class ToolCall(Struct, frozen=True):
    """A call that a model asked for.

    `arguments` is a text where the model's JSON could not be read: calling it records that text and
    fails with INVALID_ARGUMENTS. `answers` is the model's id where `id` is another.
    """

    id: str
    name: str
    arguments: Any
    answers: str = ""


def tool_calls_of(answer: Any) -> list[ToolCall]:
    """The calls in a model's answer, in its order; none when it has none.

    The answer is a message, a whole response of chat completions (of which the first choice is
    taken), a list of calls, items or content blocks, or one of these; objects of the vendors'
    packages are taken by their `model_dump`. A call that is malformed stays one,
    which fails when it is made. InvalidArguments when the whole is not an answer.
    """
    plain = _to_plain(answer)
    if isinstance(plain, Mapping):
        for key in ("tool_calls", "output", "content"):
            if isinstance(plain.get(key), list):
                return tool_calls_of(plain[key])
        if isinstance(choices := plain.get("choices"), list) and choices:
            first = _to_plain(choices[0])
            if isinstance(first, Mapping) and first.get("message") is not None:
                return tool_calls_of(first["message"])
        if plain.get("role") is not None:
            return []
        plain = [plain] if plain.keys() & {"type", "function", "name"} else None
    parts = [_to_plain(part) for part in plain] if isinstance(plain, list) else [None]
    if parts and not any(isinstance(part, Mapping | ToolCall) for part in parts):
        raise InvalidArguments(
            f"{type(answer).__name__} is not an answer of a model",
            hint="Pass its message, or the list of its tool calls.",
        )
    return [call for part in parts if (call := _call_in(part)) is not None]


def with_unique_ids(calls: Iterable[ToolCall], used: dict[str, int]) -> Iterator[ToolCall]:
    """The calls, each with an id that is not `used`, which then is: `ID#2` for the second ID.

    Some providers begin at `call_0` in every answer. The values count the calls of an id.
    """
    for call in calls:
        own = call.id
        while own in used:
            used[call.id] += 1
            own = f"{call.id}#{used[call.id]}"
        used[own] = 1
        yield call if own == call.id else replace(call, id=own, answers=call.id)


def tool_messages(
    calls: Sequence[ToolCall],
    results: Sequence[ToolResult],
    dialect: MessageDialect = "openai",
    *,
    images: bool = False,
) -> list[dict[str, Any]]:
    """The results under the model's ids, in order, as messages or items of a vendor's API.

    openai: a `tool` message for each; openai-flat: a `function_call_output` item for each;
    anthropic: one `user` message with a `tool_result` block for each, none without calls. The
    content is the output, which of a failure is `Error: MESSAGE` and what to do about it. With
    `images`, for a model that takes them, a picture is a part beside it; in openai, where tools'
    messages are text, of a `user` message behind them. InvalidArguments for another dialect.
    """
    given = [(call.answers or call.id, result) for call, result in zip(calls, results, strict=True)]
    if dialect == "openai":
        told = [{"role": "tool", "tool_call_id": id, "content": r.output} for id, r in given]
        # a message of a tool is text there: pictures follow as one of the user
        shown = [_openai_picture(id, r.image) for id, r in given if images and r.image]
        return [*told, *shown]
    if dialect == "openai-flat":
        return [
            {"type": "function_call_output", "call_id": id, "output": _flat_output(r, images)}
            for id, r in given
        ]
    if dialect != "anthropic":
        raise InvalidArguments(
            f"no messages in the dialect {dialect!r:.80}",
            hint="There are openai, openai-flat and anthropic.",
        )
    blocks = [
        {
            "type": "tool_result",
            "tool_use_id": id,
            "content": _anthropic_content(result, images),
            "is_error": not result.success,
        }
        for id, result in given
    ]
    return [{"role": "user", "content": blocks}] if blocks else []


def _encoded(image: Image) -> str:
    return b64encode(image.content).decode("ascii")


def _data_address(image: Image) -> str:
    return f"data:{image.media};base64,{_encoded(image)}"


def _openai_picture(id: str, image: Image) -> dict[str, Any]:
    said = {"type": "text", "text": f"The picture of call {id}:"}
    shown = {"type": "image_url", "image_url": {"url": _data_address(image)}}
    return {"role": "user", "content": [said, shown]}


def _flat_output(result: ToolResult, images: bool) -> Any:
    if not (images and result.image):
        return result.output
    shown = {"type": "input_image", "image_url": _data_address(result.image)}
    return [{"type": "input_text", "text": result.output}, shown]


def _anthropic_content(result: ToolResult, images: bool) -> Any:
    if not (images and result.image):
        return result.output
    source = {"type": "base64", "media_type": result.image.media, "data": _encoded(result.image)}
    return [{"type": "text", "text": result.output}, {"type": "image", "source": source}]


def _to_plain(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    return dump() if callable(dump) else value


def _call_in(part: Any) -> ToolCall | None:
    """The call a part is; None for a text and the like."""
    if isinstance(part, ToolCall):
        return part
    if not isinstance(part, Mapping):
        return _tool_call(None, None, part)
    kind = part.get("type") or "function"
    if kind == "tool_use":
        return _tool_call(part.get("id"), part.get("name"), part.get("input"))
    if kind == "function_call":
        return _tool_call(
            part.get("call_id"), part.get("name"), _parse_arguments(part.get("arguments"))
        )
    if kind != "function":
        return None
    inner = part.get("function", part)
    if not isinstance(inner, Mapping):
        return _tool_call(part.get("id"), None, inner)
    return _tool_call(part.get("id"), inner.get("name"), _parse_arguments(inner.get("arguments")))


def _tool_call(id: Any, name: Any, arguments: Any) -> ToolCall:
    named = name if isinstance(name, str) and name else NAMELESS
    return ToolCall(id if isinstance(id, str) and id else new_id(), named, arguments)


def _parse_arguments(text: Any) -> Any:
    """What the text says as JSON, else the text itself; empty arguments when there is none."""
    if text is None or text == "":
        return {}
    if not isinstance(text, str):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
