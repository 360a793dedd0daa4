"""Which tools there are, and the shortest way to call one on record."""

import logging
import re
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from loom_audit.api.ground.connections import Connections
from loom_audit.errors import AuditError, Conflict, InvalidArguments
from loom_audit.history.ground.attachment import check_tool_name
from loom_audit.history.ground.writer import Writer
from loom_audit.model.coverage import Effect
from loom_audit.ports import Runner
from loom_audit.tools.bundled.builtin import BUNDLED, bundled_tool
from loom_audit.tools.calls.batch import PostToolsHook, ToolBatch
from loom_audit.tools.calls.call import call_tool
from loom_audit.tools.calls.gate import AllowAll, ApprovalGate
from loom_audit.tools.calls.messages import ToolCall, tool_calls_of, with_unique_ids
from loom_audit.tools.calls.result import ToolResult
from loom_audit.tools.calls.settings import ToolSettings
from loom_audit.tools.calls.subtask import choose_tools
from loom_audit.tools.calls.thread import in_thread
from loom_audit.tools.calls.tool import Dialect, Tool

TOOLS_GROUP = "loom_audit.tools"
"""Entry point group of other packages' tools: a Tool, its class, or a function giving tools."""

Connect = Callable[[Path], AbstractContextManager[Writer]]

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_log = logging.getLogger(__name__)


class ToolRegistry:
    """Tools by name. `connect` opens the writer of a workspace, by default `Connections`.

    Without a `gate` the one that `connect` has stands before calls, by default the one of
    `approvals.toml`. The bundled tools with the names `bundled` are there from the start,
    unchecked, as tests check them; each is loaded when it is first asked for. `offered` gives more
    tools when all, or one of another name, are asked for; one that has a taken name or is not a
    tool is logged and left out.
    """

    def __init__(
        self,
        connect: Connect | None = None,
        *,
        gate: ApprovalGate | None = None,
        runner: Runner | None = None,
        bundled: Iterable[str] = (),
        offered: Callable[[], Iterable[Tool]] | None = None,
    ) -> None:
        self._tools: dict[str, Tool | None] = dict.fromkeys(bundled)
        self._offered = offered
        self._taking = threading.RLock()
        self._connect = connect
        self._gate = gate
        self._runner = runner
        self._finding = threading.Lock()

    def register(self, tool: Tool) -> None:
        """Add a tool. Conflict when the name is taken, InvalidArguments for a bad tool."""
        self._take_offered()
        if not isinstance(tool, Tool):
            raise InvalidArguments(
                f"{tool!r:.200} is not a Tool",
                hint="Register an instance; `tool` makes one of a function.",
            )
        name = getattr(tool, "name", None)
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise InvalidArguments(
                f"{name!r:.100} is not a name for a tool",
                hint="Use 1 to 64 letters, digits, underscores and hyphens.",
            )
        description = getattr(tool, "description", None)
        if not isinstance(description, str) or not description.strip():
            raise InvalidArguments(
                f"the tool {name} has no description",
                hint="Say in a sentence what it does: a function in its docstring.",
            )
        if type(tool) is not type(bundled_tool(name) if name in BUNDLED else None):
            check_tool_name(name, tool.effect)
        if name in self._tools:
            raise Conflict(
                f"a tool named {name} is registered already", hint="Name the tool otherwise."
            )
        tool.check_schemas()
        self._tools[name] = tool

    def _take_offered(self) -> None:
        """Register what is offered, once; a tool that is being loaded may register others."""
        with self._taking:
            offered, self._offered = self._offered, None
            for tool in offered() if offered else ():
                try:
                    self.register(tool)
                except AuditError as error:
                    _log.warning("a tool is left out: %s", error)

    def get(self, name: str) -> Tool | None:
        """The tool of this name, loaded by now; None where there is none."""
        if name not in self._tools:
            self._take_offered()
        tool = self._tools.get(name)
        if tool is None and name in self._tools:
            tool = self._tools[name] = bundled_tool(name)
        return tool

    def list(self) -> Sequence[Tool]:
        """The tools in the order of their registration."""
        self._take_offered()
        return [tool for name in self._tools if (tool := self.get(name))]

    def usable(self, settings: ToolSettings) -> Sequence[Tool]:
        """The tools that can work with these settings, in the order of their registration."""
        return [tool for tool in self.list() if not tool.lacks(settings)]

    def all_schemas(self, dialect: Dialect = "openai") -> Sequence[dict[str, Any]]:
        """The schema of every tool, as models of this dialect take it.

        The description of one that cannot work here says what it lacks.
        """
        settings = self._settings()
        return [marked_schema(tool, dialect, settings) for tool in self.list()]

    def tools_for_subtask(
        self, subtask: Any, dialect: Dialect = "openai"
    ) -> Sequence[dict[str, Any]]:
        """The schemas of the tools a subtask needs: see `tools.calls.subtask.choose_tools`.

        Without those that cannot work here, unless it declares them.
        """
        settings, tools = self._settings(), self.list()
        lacking = [tool.name for tool in tools if tool.lacks(settings)]
        return [one.schema(dialect) for one in choose_tools(tools, subtask, left_out=lacking)]

    async def execute(
        self,
        name: str,
        arguments: Any,
        workspace: Path | str | None = None,
        *,
        call_id: str | None = None,
    ) -> ToolResult:
        """Call a tool in a workspace, on record. Every failure is a result.

        Without a workspace a tool that needs none runs, off the record; any other gives
        NO_WORKSPACE.
        """
        try:
            gate, settings = await in_thread(self._chosen)
            if workspace is None:
                return await call_tool(
                    self, gate, None, name, arguments, call_id=call_id, settings=settings
                )
            async with _connected(self._connection, Path(workspace)) as writer:
                past = getattr(self._connection(), "own_calls", None)
                return await call_tool(
                    self,
                    gate,
                    writer,
                    name,
                    arguments,
                    call_id=call_id,
                    runner=self._runner,
                    settings=settings,
                    past=past and partial(past, writer),
                )
        except AuditError as error:
            return ToolResult.failure(error)

    def batch(
        self,
        answer: Any,
        workspace: Path | str | None = None,
        *,
        hooks: Sequence[PostToolsHook] = (),
    ) -> ToolBatch:
        """The calls in a model's answer, to be run together. InvalidArguments for anything else."""

        async def execute(call: ToolCall) -> ToolResult:
            return await self.execute(call.name, call.arguments, workspace, call_id=call.id)

        calls = [*with_unique_ids(tool_calls_of(answer), {})]
        return ToolBatch(calls, execute, self.effect, hooks)

    def effect(self, name: str) -> Effect | None:
        """The effect of the tool of that name, None when there is none."""
        found = self.get(name)
        return None if found is None else found.effect

    def _chosen(self) -> tuple[ApprovalGate, ToolSettings]:
        """The gate given, else the one of where calls are recorded, and the settings there."""
        connection = self._connection()
        gate: ApprovalGate | None = self._gate or getattr(connection, "gate", None)
        return gate or AllowAll(), self._settings()

    def _settings(self) -> ToolSettings:
        return getattr(self._connection(), "settings", None) or ToolSettings()

    def _connection(self) -> Connect:
        with self._finding:
            if self._connect is None:
                self._connect = Connections()
            return self._connect


def marked_schema(tool: Tool, dialect: Dialect, settings: ToolSettings) -> dict[str, Any]:
    """The schema of a tool, whose description says what it lacks with these settings."""
    schema = tool.schema(dialect)
    if lacks := tool.lacks(settings):
        named = schema.get("function", schema)
        named["description"] += f" Cannot work here: {lacks}."
    return schema


@asynccontextmanager
async def _connected(connection: Callable[[], Connect], root: Path) -> AsyncIterator[Writer]:
    """The connection entered in a worker thread, and left however the block ends."""
    held: list[AbstractContextManager[Writer]] = []

    def enter() -> Writer:
        manager = connection()(root)
        writer = manager.__enter__()
        held.append(manager)
        return writer

    try:
        yield await in_thread(enter)
    finally:
        for manager in held:
            await in_thread(partial(manager.__exit__, None, None, None), shielded=True)


def builtin_registry(
    connect: Connect | None = None,
    *,
    gate: ApprovalGate | None = None,
    runner: Runner | None = None,
) -> ToolRegistry:
    """A registry of every bundled tool, and of those other installed packages offer."""
    return ToolRegistry(connect, gate=gate, runner=runner, bundled=BUNDLED, offered=installed_tools)


def installed_tools() -> list[Tool]:
    """The tools other packages offer; one that cannot be loaded is logged and left out."""
    from importlib.metadata import entry_points

    tools: list[Tool] = []
    for point in entry_points(group=TOOLS_GROUP):
        try:
            offered = point.load()
            if not isinstance(offered, Tool) and callable(offered):
                offered = offered()
            tools += [offered] if isinstance(offered, Tool) else [*offered]
        except Exception:  # noqa: BLE001 - another package may raise anything
            _log.warning("the tools of %s cannot be loaded", point.value, exc_info=True)
    return tools
