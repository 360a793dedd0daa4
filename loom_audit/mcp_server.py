"""The tools of a workspace for any client of the Model Context Protocol, over its standard streams.

Revisions with and without `initialize` are served. A session on record begins with the first call,
under the client's own name. Nothing is written to standard output but the protocol.
"""

import base64
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from contextvars import ContextVar
from functools import partial
from threading import Lock
from typing import Any
from urllib.parse import unquote_to_bytes

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

from loom_audit import __version__
from loom_audit.api.clients import session_of_client
from loom_audit.api.face import ApprovalRequest, AuditedWorkspace, Session
from loom_audit.api.holding import settle
from loom_audit.errors import AuditError, InvalidArguments, NotFound
from loom_audit.model.display import count_text, one_line
from loom_audit.model.textdiff import unified
from loom_audit.tools.calls.result import ToolResult
from loom_audit.tools.calls.thread import in_thread
from loom_audit.tools.calls.values import nearest_json

Context = ServerRequestContext[Any, Any]
SCHEME = "loom-audit:///"
PAGE = 100
MAX_DIFF_FILES = 200
_NOT_FOUND = -32002
"""The protocol's code for a resource that is not there."""

_CALL_IDS = ("callId", "claudecode/toolUseId")
_SESSION_IDS = ("threadId", "sessionId")
"""What Codex and Claude Code tell beside a request: their own ids of the call and the session."""

_CLIENT_INFO = "io.modelcontextprotocol/clientInfo"

_asked = ContextVar[Context | None]("asked", default=None)
_YES = {"type": "object", "properties": {"allow": {"type": "boolean"}}, "required": ["allow"]}
_TIMELINE = types.Resource(
    uri=f"{SCHEME}timeline",
    name="timeline",
    description="The newest calls on record, newest first",
    mime_type="application/json",
)
_TEMPLATES = (
    ("event/{seq}", "One call whole, by the number of any of its events", "application/json"),
    ("diff/{from}/{to}", "What differs between two points, as a unified diff", "text/plain"),
    ("file/{point}/{+path}", "A file as it was at a point", "application/octet-stream"),
)
_BACK: Sequence[tuple[str, str, dict[str, Any]]] = (
    ("undo", "Take back the newest call that has not been taken back", {}),
    ("rollback", "Bring the whole workspace back to a point", {"point": {"type": "string"}}),
    ("history", "List every change of one path, newest first", {"path": {"type": "string"}}),
)


class McpServer:
    """One client's tools and resources. `back` lets it undo, roll back and look at histories."""

    def __init__(self, workspace: AuditedWorkspace, *, back: bool = False) -> None:
        self._workspace = workspace
        self._back = back
        self._held = ExitStack()
        self._session: Session | None = None
        self._lock = Lock()

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
            await server.run(requests, answers, server.create_initialization_options())

    @asynccontextmanager
    async def _lifespan(self, _: "Server[Any]") -> AsyncIterator[dict[str, Any]]:
        try:
            yield {}
        finally:
            await in_thread(self._held.close, shielded=True)

    # --- tools ----------------------------------------------------------------------------

    async def _list_tools(
        self, _: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        from loom_audit.api.registry import builtin_registry

        schemas = await in_thread(lambda: builtin_registry().all_schemas("mcp"))
        tools = [types.Tool.model_validate(schema) for schema in schemas]
        return types.ListToolsResult(tools=tools + (_back_tools() if self._back else []))

    async def _call_tool(
        self, context: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        if self._back and params.name in {name for name, _, _ in _BACK}:
            return await self._take_back(_agent(context), params.name, params.arguments or {})
        _asked.set(context)
        try:
            session = await in_thread(partial(self._begun, context))
        except AuditError as error:
            return _answer(ToolResult.failure(error))
        result = await session.call(params.name, params.arguments or {}, call_id=_call_id(context))
        return _answer(result)

    def _begun(self, context: Context) -> Session:
        """The session, which begins with the first call, within the one that hooks tell of."""
        with self._lock:
            if self._session is None:
                gate = self._workspace.default_gate(ask=_ask_client)
                told = [(context.meta or {}).get(name) for name in _SESSION_IDS]
                parent = session_of_client(self._workspace, told)
                session = self._workspace.session(_agent(context), gate=gate, parent=parent)
                self._session = self._held.enter_context(session)
            return self._session

    async def _take_back(
        self, agent: str, name: str, arguments: dict[str, Any]
    ) -> types.CallToolResult:
        work = partial(_took_back, self._workspace, f"agent:{agent}", name, arguments)
        try:
            return _answer(await in_thread(work))
        except AuditError as error:
            return _answer(ToolResult.failure(error))

    # --- resources ------------------------------------------------------------------------

    async def _list_resources(
        self, _: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        return types.ListResourcesResult(resources=[_TIMELINE])

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
                for form, what, kind in _TEMPLATES
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


def read_resource(
    workspace: AuditedWorkspace, uri: str
) -> types.TextResourceContents | types.BlobResourceContents:
    """What a URI of ours names. NotFound, InvalidArguments, Corrupt."""
    if not uri.startswith(SCHEME):
        raise InvalidArguments(f"not a resource of this server: {one_line(uri, 100)}")
    kind, *rest = uri.removeprefix(SCHEME).split("/")
    names = [unquote_to_bytes(one).decode("utf-8", "surrogateescape") for one in rest]
    timeline = workspace.timeline
    match kind, names:
        case "timeline", []:
            calls = [_shown(call) for call in timeline.calls()[:PAGE]]
            return _text(uri, json.dumps(calls), "application/json")
        case "event", [seq] if seq.isascii() and seq.isdigit() and len(seq) < 19:
            detail = timeline.call(int(seq))
            told = _shown(detail.call) | {"arguments": detail.arguments, "result": detail.result}
            return _text(uri, json.dumps(nearest_json(told)), "application/json")
        case "diff", [old, new]:
            return _text(uri, _difference(workspace, old, new), "text/plain")
        case "file", [point, *path] if path:
            return _file(workspace, uri, point, "/".join(path))
    raise InvalidArguments(
        f"not a resource of this server: {one_line(uri, 100)}",
        hint="There are: timeline, " + ", ".join(form for form, _, _ in _TEMPLATES) + ".",
    )


def _file(
    workspace: AuditedWorkspace, uri: str, point: str, path: str
) -> types.TextResourceContents | types.BlobResourceContents:
    timeline = workspace.timeline
    state = timeline.state(path, timeline.point(point))
    if state is None or state.kind == "directory":
        raise NotFound(f"{path} was not a file at {point}")
    content = timeline.content(state)
    try:
        return _text(uri, content.decode(), "text/plain")
    except UnicodeDecodeError:
        encoded = base64.b64encode(content).decode("ascii")
        return types.BlobResourceContents(
            uri=uri, blob=encoded, mime_type="application/octet-stream"
        )


def _difference(workspace: AuditedWorkspace, old: str, new: str) -> str:
    timeline = workspace.timeline
    changes = timeline.diff(timeline.point(old), timeline.point(new))
    parts = []
    for change in changes[:MAX_DIFF_FILES]:
        before, after = (
            timeline.content(state) if state is not None and state.blob else None
            for state in (change.before, change.after)
        )
        told = unified(
            change.path,
            change.path,
            before,
            after,
            state_old=change.before,
            state_new=change.after,
        )
        parts.append(told.decode("utf-8", "replace"))
    if len(changes) > MAX_DIFF_FILES:
        parts.append(f"and {len(changes) - MAX_DIFF_FILES} more files\n")
    return "".join(parts)


def _shown(call: Any) -> dict[str, Any]:
    return {
        "number": call.seq or call.requested,
        "at": call.at.isoformat(),
        "session": call.session,
        "actor": call.actor,
        "tool": call.tool,
        "status": call.status,
        "summary": call.summary,
        "changed": call.changed,
        "paths": list(call.paths),
        "undone_by": call.undone_by,
    }


def _text(uri: str, text: str, kind: str) -> types.TextResourceContents:
    harmless = text.encode("utf-8", "backslashreplace").decode()
    return types.TextResourceContents(uri=uri, text=harmless, mime_type=kind)


def _took_back(
    workspace: AuditedWorkspace, actor: str, name: str, arguments: dict[str, Any]
) -> ToolResult:
    """What an undo, a rollback or a look at a path's history gave."""
    if name == "history":
        path = str(arguments.get("path", "")).strip("/")
        rows = workspace.timeline.history(path)
        lines = [f"#{row.seq} {row.at.isoformat()} {row.actor} {row.change.path}" for row in rows]
        return ToolResult(True, "\n".join(lines) or f"{path} was never changed")
    settle(workspace)
    if name == "undo":
        plan = workspace.plan_undo()
    else:
        plan = workspace.plan_rollback(str(arguments.get("point", "")))
    if plan.blocked:
        reasons = "; ".join(f"{note.path}: {note.reason}" for note in plan.blocked[:20])
        return ToolResult(False, f"Nothing was changed, this needs a person's choice: {reasons}")
    done = workspace.carry_out(plan, actor=actor)
    paths = [change.path for change in plan.changes]
    number = done.call.seq or done.call.requested
    changed = count_text(len(paths), "path")
    return ToolResult(True, f"Call {number} changed {changed}", files_changed=paths)


def _back_tools() -> list[types.Tool]:
    return [
        types.Tool(
            name=name,
            description=what,
            input_schema={
                "type": "object",
                "properties": properties,
                "required": list(properties),
                "additionalProperties": False,
            },
            annotations=types.ToolAnnotations(
                read_only_hint=name == "history",
                destructive_hint=name != "history",
                open_world_hint=False,
            ),
        )
        for name, what, properties in _BACK
    ]


def _answer(result: ToolResult) -> types.CallToolResult:
    """A result as the protocol has it: an error with its code, message and hint."""
    text = result.output.encode("utf-8", "backslashreplace").decode()
    told: dict[str, Any] = {"error": result.error.to_dict()} if result.error else {}
    structured = nearest_json(result.data) if result.success and result.data is not None else None
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)],
        structured_content=structured if structured is not None else (told or None),
        is_error=not result.success,
    )


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


async def _ask_client(request: ApprovalRequest) -> bool | None:
    """Ask the client's user, where the client can; None leaves it to others."""
    context = _asked.get()
    if context is None or not context.session.can_send_request:
        return None
    wanted = types.ClientCapabilities(elicitation=types.ElicitationCapability())
    if not context.session.check_client_capability(wanted):
        return None
    what = one_line(json.dumps(request.arguments, ensure_ascii=False), 1_000)
    message = f"Allow {request.tool}? {request.reason}\n{what}"
    try:
        told = await context.session.elicit_form(message, _YES, context.request_id)
    except MCPError:
        return None
    if told.action != "accept":
        return False if told.action == "decline" else None
    return bool((told.content or {}).get("allow"))
