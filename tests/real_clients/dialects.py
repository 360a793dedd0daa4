"""The four ways in which clients talk to a model: what a request tells, what an answer looks like.

Each dialect is a pair of functions. `told` gives the results in a request, in their order; an
answer is a sequence of server-sent events, or one object where the client asked for no stream.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.real_clients.script import Call, Step, Told

Event = tuple[str, Mapping[str, Any] | str]
"""The name of a server-sent event, "" for one without, and its data."""


@dataclass(frozen=True)
class Dialect:
    name: str
    told: Callable[[Mapping[str, Any]], Iterator[Told]]
    tools: Callable[[Mapping[str, Any]], Sequence[str]]
    stream: Callable[[Step], Iterator[Event]]
    whole: Callable[[Step], Mapping[str, Any]]


def text_of(content: Any) -> str:
    """The text in what a protocol allows as a string, or as a list of parts."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(text_of(part) for part in content)
    if isinstance(content, Mapping):
        for name in ("text", "output", "error", "content"):
            if name in content:
                return text_of(content[name])
        return json.dumps(content)
    return "" if content is None else str(content)


# Anthropic messages


def _anthropic_told(request: Mapping[str, Any]) -> Iterator[Told]:
    for message in request.get("messages", ()):
        content = message.get("content")
        for block in content if isinstance(content, list) else ():
            if block.get("type") == "tool_result":
                failed = bool(block.get("is_error"))
                yield Told(block["tool_use_id"], text_of(block.get("content")), failed)


def _anthropic_blocks(step: Step) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    if step.text:
        blocks.append({"type": "text", "text": step.text})
    for call in step.calls:
        blocks.append(
            {"type": "tool_use", "id": call.id, "name": call.tool, "input": dict(call.arguments)}
        )
    return blocks


def _anthropic_whole(step: Step) -> dict[str, Any]:
    return {
        "id": f"msg_{step.name}",
        "type": "message",
        "role": "assistant",
        "model": "scripted",
        "content": _anthropic_blocks(step),
        "stop_reason": "tool_use" if step.calls else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 10, "output_tokens": 10},
    }


def _anthropic_stream(step: Step) -> Iterator[Event]:
    whole = _anthropic_whole(step)
    opened = whole | {"content": [], "stop_reason": None}
    yield "message_start", {"type": "message_start", "message": opened}
    for index, block in enumerate(whole["content"]):
        if block["type"] == "text":
            empty: dict[str, Any] = {"type": "text", "text": ""}
            delta = {"type": "text_delta", "text": block["text"]}
        else:
            empty = block | {"input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        at = {"index": index}
        start = {"type": "content_block_start", "content_block": empty} | at
        yield "content_block_start", start
        yield "content_block_delta", {"type": "content_block_delta", "delta": delta} | at
        yield "content_block_stop", {"type": "content_block_stop"} | at
    ended = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    yield (
        "message_delta",
        {"type": "message_delta", "delta": ended, "usage": {"output_tokens": 10}},
    )
    yield "message_stop", {"type": "message_stop"}


# OpenAI Responses


def _responses_told(request: Mapping[str, Any]) -> Iterator[Told]:
    for item in request.get("input", ()):
        if item.get("type") in ("function_call_output", "custom_tool_call_output"):
            yield Told(item["call_id"], text_of(item.get("output")))


def _responses_item(call: Call) -> dict[str, Any]:
    if call.custom is not None:
        return {
            "type": "custom_tool_call",
            "id": f"item_{call.id}",
            "call_id": call.id,
            "name": call.tool,
            "input": call.custom,
        }
    return {
        "type": "function_call",
        "id": f"item_{call.id}",
        "call_id": call.id,
        "name": call.tool,
        "arguments": json.dumps(dict(call.arguments)),
    }


def _responses_whole(step: Step) -> dict[str, Any]:
    output = [_responses_item(call) for call in step.calls]
    if step.text:
        content = [{"type": "output_text", "text": step.text, "annotations": []}]
        message = {"type": "message", "id": f"item_{step.name}", "role": "assistant"}
        output.insert(0, message | {"status": "completed", "content": content})
    usage = {"input_tokens": 10, "output_tokens": 10, "total_tokens": 20}
    return {
        "id": f"resp_{step.name}",
        "object": "response",
        "created_at": 0,
        "model": "scripted",
        "status": "completed",
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "output": output,
        "usage": usage
        | {
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
        },
    }


def _responses_stream(step: Step) -> Iterator[Event]:
    whole = _responses_whole(step)
    opened = whole | {"output": [], "status": "in_progress"}
    yield "response.created", {"type": "response.created", "response": opened}
    for index, item in enumerate(whole["output"]):
        done = {"type": "response.output_item.done", "output_index": index, "item": item}
        yield "response.output_item.done", done
    yield "response.completed", {"type": "response.completed", "response": whole}


# OpenAI chat completions


def _chat_told(request: Mapping[str, Any]) -> Iterator[Told]:
    for message in request.get("messages", ()):
        if message.get("role") == "tool":
            yield Told(message["tool_call_id"], text_of(message.get("content")))


def _chat_calls(step: Step) -> list[dict[str, Any]]:
    return [
        {
            "index": index,
            "id": call.id,
            "type": "function",
            "function": {"name": call.tool, "arguments": json.dumps(dict(call.arguments))},
        }
        for index, call in enumerate(step.calls)
    ]


def _chat_whole(step: Step) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": step.text or None}
    if step.calls:
        message["tool_calls"] = _chat_calls(step)
    finish = "tool_calls" if step.calls else "stop"
    return {
        "id": f"chat_{step.name}",
        "object": "chat.completion",
        "created": 0,
        "model": "scripted",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20},
    }


def _chat_stream(step: Step) -> Iterator[Event]:
    whole = _chat_whole(step)
    choice = whole["choices"][0]
    about = {name: whole[name] for name in ("id", "created", "model")}
    about["object"] = "chat.completion.chunk"
    yield (
        "",
        about | {"choices": [{"index": 0, "delta": choice["message"], "finish_reason": None}]},
    )
    ended = {"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}
    yield "", about | {"choices": [ended], "usage": whole["usage"]}
    yield "", "[DONE]"


# Gemini


def _gemini_told(request: Mapping[str, Any]) -> Iterator[Told]:
    for content in request.get("contents", ()):
        for part in content.get("parts", ()):
            if "functionResponse" in part:
                response = part["functionResponse"]
                given = response.get("response") or {}
                yield Told(response.get("id") or "", text_of(given), "error" in given)


def _gemini_whole(step: Step) -> dict[str, Any]:
    parts: list[dict[str, Any]] = [{"text": step.text}] if step.text else []
    for call in step.calls:
        function = {"id": call.id, "name": call.tool, "args": dict(call.arguments)}
        parts.append({"functionCall": function})
    return {
        "candidates": [
            {"index": 0, "content": {"role": "model", "parts": parts}, "finishReason": "STOP"}
        ],
        "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 10},
        "modelVersion": "scripted",
    }


def _gemini_stream(step: Step) -> Iterator[Event]:
    yield "", _gemini_whole(step)


def _gemini_tools(request: Mapping[str, Any]) -> list[str]:
    found = [
        one for tool in request.get("tools", ()) for one in tool.get("functionDeclarations", ())
    ]
    return [one["name"] for one in found]


def _responses_tools(request: Mapping[str, Any]) -> list[str]:
    """Those of the request and of its input; none where it asks for a form, as for a title."""
    if (request.get("text") or {}).get("format", {}).get("type") == "json_schema":
        return []
    items = [item for item in request.get("input", ()) if item.get("type") == "additional_tools"]
    found = [tool for item in items for tool in item.get("tools", ())]
    inner = [one for tool in found for one in tool.get("tools", ())]
    return _named({"tools": [*(request.get("tools") or ()), *found, *inner]})


def _named(request: Mapping[str, Any]) -> list[str]:
    return [tool.get("name") or tool.get("type", "") for tool in request.get("tools") or ()]


def _chat_tools(request: Mapping[str, Any]) -> list[str]:
    return [tool["function"]["name"] for tool in request.get("tools") or ()]


ANTHROPIC = Dialect("anthropic", _anthropic_told, _named, _anthropic_stream, _anthropic_whole)
RESPONSES = Dialect(
    "responses", _responses_told, _responses_tools, _responses_stream, _responses_whole
)
CHAT = Dialect("chat", _chat_told, _chat_tools, _chat_stream, _chat_whole)
GEMINI = Dialect("gemini", _gemini_told, _gemini_tools, _gemini_stream, _gemini_whole)


def dialect_of(path: str) -> Dialect | None:
    """The dialect that is spoken at an address of the server."""
    place = path.partition("?")[0]
    if place.endswith("/messages"):
        return ANTHROPIC
    if place.endswith("/responses"):
        return RESPONSES
    if place.endswith("/chat/completions"):
        return CHAT
    if place.endswith((":generateContent", ":streamGenerateContent")):
        return GEMINI
    return None
