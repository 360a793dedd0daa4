"""Answers to what a client sends that cannot be read as a message of the protocol."""

import json
from types import TracebackType
from typing import Any

import anyio
import mcp_types as types
from mcp.shared.message import SessionMessage

_Message = SessionMessage | Exception


class AnsweredRequests:
    """A client's messages, without the lines that cannot be read: these are answered here.

    What is not JSON is answered with -32700; what is not a message, or holds what cannot be told
    further, with -32600 and the id of the request, where it has one.
    """

    def __init__(self, requests: Any, answers: Any) -> None:
        self._requests = requests
        self._answers = answers

    @property
    def last_context(self) -> Any:
        """The context of the message that was received last."""
        return self._requests.last_context

    async def receive(self) -> _Message:
        """Return the next message; EndOfStream at the end."""
        while True:
            item: _Message = await self._requests.receive()
            answer = answer_to(item) if isinstance(item, Exception) else None
            if answer is None:
                return item
            await self._answers.send(answer)

    async def aclose(self) -> None:
        """Close the stream of messages."""
        await self._requests.aclose()

    def __aiter__(self) -> "AnsweredRequests":
        return self

    async def __anext__(self) -> _Message:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> "AnsweredRequests":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        await self.aclose()


def answer_to(error: Exception) -> SessionMessage | None:
    """Return the answer to a line that could not be read; None for another error."""
    flaws = getattr(error, "errors", None)
    if flaws is None:
        return None
    [first, *others] = flaws()
    given, why = first["input"], first["msg"]
    code = types.INVALID_REQUEST
    if first["type"] == "json_invalid":
        try:
            given = _read(given)
        except RecursionError:
            given = _without_depth(given)
        except ValueError:
            given, code = None, types.PARSE_ERROR
    else:
        why = "not a message of JSON-RPC 2.0"
        # a flaw of a field shows the field; that another kind of message lacks one shows the whole
        lacking = [one for one in (first, *others) if one["type"] == "missing"]
        given = next((one["input"] for one in lacking if len(one["loc"]) == 2), given)
    id = given.get("id") if isinstance(given, dict) else None
    known = id if isinstance(id, str | int) and not isinstance(id, bool) else None
    told = types.ErrorData(code=code, message=f"The message cannot be read: {why}")
    if isinstance(known, str) and not known.isprintable():
        known = None
    return SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=known, error=told))


def _read(line: str) -> Any:
    """A line of JSON, with None for numbers that are too long for Python. ValueError."""
    return json.loads(line, parse_int=lambda digits: int(digits) if len(digits) < 100 else None)


def _without_depth(line: str) -> Any:
    """A line of JSON without what is nested in its fields; None where the rest is not JSON."""
    kept: list[str] = []
    depth, quoted, escaped = 0, False, False
    for sign in line:
        opens, closes = not quoted and sign in "[{", not quoted and sign in "]}"
        depth -= closes
        if depth < 2 - opens - closes or (depth == 1 and not (opens or closes)):
            kept.append(sign)
        elif opens and depth == 1:
            kept.append("0")  # in the place of the whole field
        depth += opens
        if escaped:
            escaped = False
        elif sign == '"':
            quoted = not quoted
        else:
            escaped = quoted and sign == "\\"
    try:
        return _read("".join(kept))
    except (ValueError, RecursionError):
        return None
