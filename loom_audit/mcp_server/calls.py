"""A call of a client: it may take several requests, and says now and then that it goes on.

Since revision 2026-07-28 a server asks a client's user in the answer to a request, which the client
then makes again with what the user said. The call goes on meanwhile: on record there is one.
"""

import json
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from secrets import token_hex
from typing import Any

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError

from loom_audit.api.face import ApprovalRequest
from loom_audit.model.text.display import one_line

Context = ServerRequestContext[Any, Any]
Said = types.CallToolResult | types.InputRequiredResult

SECONDS = 1.0
"""Between two notices of progress."""

_YES = {"type": "object", "properties": {"allow": {"type": "boolean"}}, "required": ["allow"]}
_asking = ContextVar["ClientCall | None"]("asking", default=None)


class ClientCall:
    """A client's call takes its requests one after another, all in the server's event loop.

    A client repeats `state`, and the name and arguments that it began with.
    """

    def __init__(self, params: types.CallToolRequestParams) -> None:
        self.state = token_hex(16)
        self._context: Context | None = None
        self._asked_for = params.name, params.arguments
        self._scope = anyio.CancelScope()
        self._said, self._next = anyio.create_memory_object_stream[Said](10)
        self._questions = 0
        self._answered = anyio.Event()
        self._answer: types.ElicitResult | None = None

    async def run(self, work: Callable[[], Awaitable[types.CallToolResult]]) -> None:
        """Make the call, in a task of its own; `next` gives what came of it."""
        _asking.set(self)
        with self._scope:
            await self._said.send(await work())

    async def next(self, context: Context) -> Said:
        """Wait for the call's next answer; a request that is cancelled cancels the call."""
        self._context = context
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(_tell_progress, context)
                said = await self._next.receive()
                group.cancel_scope.cancel()
        except anyio.get_cancelled_exc_class():
            self._scope.cancel()
            raise
        return said

    def go_on(self, params: types.CallToolRequestParams) -> bool:
        """Take what the user said to the newest question; False where another call was meant."""
        if (params.name, params.arguments) != self._asked_for:
            return False
        answer = (params.input_responses or {}).get(self._question)
        if isinstance(answer, types.ElicitResult):
            self._answer = answer
        self._answered.set()
        return True

    async def ask(self, message: str) -> types.ElicitResult | None:
        """Ask the client's user; None where the client can ask nobody, or did not."""
        assert self._context is not None, "a request waits"
        session = self._context.session
        wanted = types.ClientCapabilities(elicitation=types.ElicitationCapability())
        if not session.check_client_capability(wanted):
            return None
        if session.can_send_request:
            try:
                return await session.elicit_form(message, _YES, self._context.request_id)
            except MCPError:
                return None
        self._questions += 1
        self._answer, self._answered = None, anyio.Event()
        form = types.ElicitRequestFormParams(message=message, requested_schema=_YES)
        questions: types.InputRequests = {self._question: types.ElicitRequest(params=form)}
        await self._said.send(
            types.InputRequiredResult(input_requests=questions, request_state=self.state)
        )
        await self._answered.wait()
        return self._answer

    @property
    def _question(self) -> str:
        return f"approval-{self._questions}"


async def ask_client(request: ApprovalRequest) -> bool | None:
    """Ask the user of the client whose call this is; None leaves it to others."""
    call = _asking.get()
    if call is None:
        return None
    what = one_line(json.dumps(request.arguments, ensure_ascii=False), 1_000)
    told = await call.ask(f"Allow {request.tool}? {request.reason}\n{what}")
    if told is None or told.action != "accept":
        return False if told is not None and told.action == "decline" else None
    return bool((told.content or {}).get("allow"))


async def _tell_progress(context: Context) -> None:
    """Say each second for how many the call goes on, to a client that wants to know."""
    seconds = 0.0
    while True:
        await anyio.sleep(SECONDS)
        seconds += SECONDS
        await context.session.report_progress(seconds, None, f"running for {seconds:g} s")
