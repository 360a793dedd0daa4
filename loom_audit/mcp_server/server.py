"""The tools of a workspace for any client of the Model Context Protocol, over its standard streams.

Revisions with and without `initialize` are served. A session on record begins with the first call,
under the client's own name. Nothing is written to standard output but the protocol.
"""

from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from threading import Lock
from typing import Any

import anyio
import mcp_types as types
from anyio.abc import TaskGroup
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

from loom_audit import __version__
from loom_audit.api.agents.heard import session_of_client
from loom_audit.api.face import AuditedWorkspace, Session
from loom_audit.errors import AuditError, Conflict, ExecutionFailed, NotFound
from loom_audit.mcp_server.calls import ClientCall, Context, Said, ask_client
from loom_audit.mcp_server.resources import SCHEME, TEMPLATES, TIMELINE, read_resource
from loom_audit.mcp_server.taking_back import ROLLBACK, roll_back, rollback_tool
from loom_audit.mcp_server.unreadable import AnsweredRequests
from loom_audit.model.text.display import one_line
from loom_audit.tools.calls.result import ToolResult
from loom_audit.tools.calls.thread import in_thread
from loom_audit.tools.calls.tool import Tool

_NOT_FOUND = -32002
"""The protocol's code for a resource that is not there."""

MAX_STRUCTURED = 64 * 1024
"""Bytes of what a result gives structured, as ASCII JSON; some clients give it to models."""

_CALL_IDS = ("callId", "claudecode/toolUseId")
_SESSION_IDS = ("threadId", "sessionId")
"""What Codex and Claude Code tell beside a request: their own ids of the call and the session."""

_CLIENT_INFO = "io.modelcontextprotocol/clientInfo"
_NOBODY_WAITS = Conflict(
    "No call waits for this answer", hint="Make the call again, without the state of another."
)


class McpServer:
    """Serve tools and resources to one client; with `rollback` it may bring all to a point."""

    def __init__(self, workspace: AuditedWorkspace, *, rollback: bool = False) -> None:
        self._workspace = workspace
        self._rollback = rollback
        self._opened = ExitStack()
        self._session: Session | None = None
        self._lock = Lock()
        self._tasks: TaskGroup | None = None
        self._waiting: dict[str, ClientCall] = {}

    async def serve(self) -> None:
        """Answer what comes on standard input until it ends."""
        server: Server[Any] = Server(
            "loom-audit",
            version=__version__,
            lifespan=self._lifespan,
            instructions="Every call is on record, with each file before and after.",
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read_resource,
        )
        async with stdio_server() as (requests, answers):
            readable = AnsweredRequests(requests, answers)
            await server.run(readable, answers, server.create_initialization_options())

    @asynccontextmanager
    async def _lifespan(self, _: "Server[Any]") -> AsyncIterator[dict[str, Any]]:
        try:
            async with anyio.create_task_group() as self._tasks:
                yield {}
                self._tasks.cancel_scope.cancel()
        finally:
            await in_thread(self._opened.close, shielded=True)

    # --- tools ----------------------------------------------------------------------------

    async def _list_tools(
        self, _: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        from loom_audit.api.registry import builtin_registry

        def usable() -> list[dict[str, Any]]:
            settings = self._workspace.tool_settings
            return [tool.schema("mcp") for tool in builtin_registry().usable(settings)]

        schemas = await in_thread(usable)
        tools = [types.Tool.model_validate(schema) for schema in schemas]
        return types.ListToolsResult(tools=tools + ([rollback_tool()] if self._rollback else []))

    async def _call_tool(self, context: Context, params: types.CallToolRequestParams) -> Said:
        if self._rollback and params.name == ROLLBACK:
            return await self._roll_back(_agent(context), params.arguments or {})
        call = self._waiting.pop(params.request_state or "", None)
        if params.request_state is None:
            assert self._tasks is not None, "the server runs"
            call = ClientCall(params)
            self._tasks.start_soon(call.run, partial(self._make_call, context, params))
        elif call is None or not call.go_on(params):
            return _answer(ToolResult.failure(_NOBODY_WAITS))
        said = await call.next(context)
        if isinstance(said, types.InputRequiredResult):
            self._waiting[call.state] = call
        return said

    async def _make_call(
        self, context: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        try:
            session = await in_thread(partial(self._begun, context))
        except AuditError as error:
            return _answer(ToolResult.failure(error))
        result = await session.call(params.name, params.arguments or {}, call_id=_call_id(context))
        return _answer(result, session.registry.get(params.name))

    def _begun(self, context: Context) -> Session:
        """The session, which begins with the first call, within the one that hooks tell of."""
        with self._lock:
            if self._session is None:
                gate = self._workspace.default_gate(ask=ask_client)
                told = [(context.meta or {}).get(name) for name in _SESSION_IDS]
                parent = session_of_client(self._workspace, told)
                session = self._workspace.session(_agent(context), gate=gate, parent=parent)
                self._session = self._opened.enter_context(session)
            return self._session

    async def _roll_back(self, agent: str, arguments: dict[str, Any]) -> types.CallToolResult:
        point = str(arguments.get("point", ""))
        work = partial(roll_back, self._workspace, f"agent:{agent}", point)
        try:
            return _answer(await in_thread(work))
        except AuditError as error:
            return _answer(ToolResult.failure(error))

    # --- resources ------------------------------------------------------------------------

    async def _list_resources(
        self, _: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        return types.ListResourcesResult(resources=[TIMELINE])

    async def _list_templates(
        self, _: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        return types.ListResourceTemplatesResult(
            resource_templates=[
                types.ResourceTemplate(
                    uri_template=SCHEME + form,
                    name=form.partition("/")[0],
                    description=what,
                    mime_type=kind,
                )
                for form, what, kind in TEMPLATES
            ]
        )

    async def _read_resource(
        self, _: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        uri = str(params.uri)
        try:
            found = await in_thread(partial(read_resource, self._workspace, uri))
        except AuditError as error:
            code = _NOT_FOUND if isinstance(error, NotFound) else types.INVALID_PARAMS
            raise MCPError(code, error.message, error.to_dict()) from error
        return types.ReadResourceResult(contents=[found])


def _answer(result: ToolResult, tool: Tool | None = None) -> types.CallToolResult:
    """A result as the protocol has it: an error with its code, message and hint.

    Some clients give models the data in place of the text, so that it is bounded too.
    """
    text = result.output.encode("utf-8", "backslashreplace").decode()
    told: dict[str, Any] = {"error": result.error.to_dict()} if result.error else {}
    structured = _shown_data(result, tool) if result.success else None
    content: list[types.ContentBlock] = [types.TextContent(type="text", text=text)]
    if (image := result.image) is not None:
        encoded = b64encode(image.content).decode("ascii")
        content.append(types.ImageContent(type="image", data=encoded, mime_type=image.media))
    return types.CallToolResult(
        content=content,
        structured_content=structured if structured is not None else (told or None),
        is_error=not result.success,
    )


def _shown_data(result: ToolResult, tool: Tool | None) -> dict[str, Any] | None:
    """The data that a model may be given; all of it where its schema takes no part of it."""
    shown = result.data_within(MAX_STRUCTURED)
    try:
        if tool is not None:
            tool.check_output(shown)
    except ExecutionFailed:
        return result.data
    return shown


def _agent(context: Context) -> str:
    """The client's own name, told once or with each request."""
    params = context.session.client_params
    told = (context.meta or {}).get(_CLIENT_INFO)
    name = params.client_info.name if params else told.get("name") if isinstance(told, dict) else ""
    return one_line(str(name or ""), 100) or "mcp"


def _call_id(context: Context) -> str | None:
    """The client's own id of the call, where it tells one beside the request."""
    for name in _CALL_IDS:
        found = (context.meta or {}).get(name)
        if isinstance(found, str) and 0 < len(found) <= 200:
            return found
    return None
