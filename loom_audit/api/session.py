"""One agent run, recorded: tool calls, blocks of code, decorated functions."""

import functools
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, overload

from msgspec import Struct
from msgspec.structs import replace

from loom_audit.api.ground.functions import recorded_function
from loom_audit.api.ground.gates import default_settings
from loom_audit.api.ground.session_record import SessionRecord
from loom_audit.errors import (
    AuditUnavailable,
    Conflict,
    ExecutionFailed,
    InvalidArguments,
    NoWorkspace,
)
from loom_audit.history.check.disk_check import clear_index_if_wrong
from loom_audit.history.ground.attachment import FUNCTION, check_effect, check_tool_name
from loom_audit.history.ground.writer import Writer, check_unused, new_id
from loom_audit.history.record.backgrounds import end_backgrounds, keep_backgrounds
from loom_audit.history.record.call import OpenCall
from loom_audit.history.record.hold import deny
from loom_audit.history.record.watching import why_everything
from loom_audit.model.coverage import Coverage, Effect
from loom_audit.model.events import Event
from loom_audit.model.records import SessionHold
from loom_audit.model.results import result_record
from loom_audit.model.values import as_json, nearest_json
from loom_audit.ports import Command, CommandResult, Confinement, Limits
from loom_audit.tools.calls.gate import AllowAll, ApprovalGate, UnlessHeld
from loom_audit.tools.calls.result import ToolResult

if TYPE_CHECKING:
    from loom_audit.api.registry import ToolRegistry
    from loom_audit.api.workspace import AuditedWorkspace
    from loom_audit.tools.calls.batch import PostToolsHook, ToolBatch
    from loom_audit.tools.calls.messages import ToolCall

P = ParamSpec("P")
R = TypeVar("R")


class CommandRun(Struct, frozen=True):
    """A command that has ended: the event of its finish, how it ended, and what it changed.

    `git_changed` says it of git, in git's words.
    """

    event: Event
    result: CommandResult
    files_changed: tuple[str, ...]
    coverage: Coverage
    git_changed: tuple[str, ...] = ()


class Session:
    """One agent run. While it is open its process holds an OS lock that says so.

    It is open within its `with` block, once. Outside of it nothing runs or is put on record.
    """

    def __init__(
        self,
        workspace: "AuditedWorkspace",
        agent: str,
        actor: str,
        title: str,
        registry: "ToolRegistry | None",
        gate: ApprovalGate | None,
        *,
        cwd: str = "",
        environment: Mapping[str, str] | None = None,
        parent: str | None = None,
        background: bool = True,
    ) -> None:
        record = SessionRecord(
            workspace.adapters, workspace.attachment, agent, actor, title, parent=parent
        )
        self.id = record.writer.session
        self.agent = agent
        self.title = title
        self.workspace = workspace
        self._registry = registry
        self.gate: ApprovalGate = gate or AllowAll()
        self.cwd = cwd
        self.environment = dict(environment or {})
        self.settings = default_settings(workspace.adapters.settings, workspace.root)
        self._record = record
        self._state: Literal["new", "open", "ended"] = "new"
        self._call_ids: dict[str, int] = {}
        self._calls = 0
        self._background = background

    @property
    def writer(self) -> Writer:
        """The writer of the session's events, with its scratch directory once it has begun."""
        return self._record.writer

    @property
    def looked_at_everything(self) -> str:
        """Why the workspace was looked at as a whole after the last command.

        "" when only that was looked at of which the kernel said that something happened.
        """
        return why_everything(self.workspace.attachment.process)

    @functools.cached_property
    def registry(self) -> "ToolRegistry":
        """The tools that can be called, by default every bundled one."""
        from loom_audit.api.registry import builtin_registry

        return self._registry or builtin_registry()

    def __enter__(self) -> "Session":
        if self._state != "new":
            raise self._not_open("can be entered only once")
        self._record.__enter__()
        if self._background:
            keep_backgrounds(self.writer)
        self._state = "open"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._state = "ended"
        try:
            end_backgrounds(self.writer)
        finally:
            self._record.__exit__(kind, error, trace)

    def _check_open(self) -> None:
        if self._state == "new":
            raise self._not_open("has not begun")
        if self._state == "ended":
            raise self._not_open("has ended")

    def _begin_call(self) -> None:
        """Before each call, or batch of them: the session is open, and what holds is on record.

        Before the second, what the change index says is tried on some files.
        """
        self._check_open()
        self._record.note_rules()
        self._calls += 1
        if self._calls == 2:
            with suppress(NoWorkspace):  # which the call itself puts on record
                clear_index_if_wrong(self.workspace.attachment)

    def _held(self) -> SessionHold | None:
        return self.workspace.attachment.hold(self.id)

    def _gate(self) -> ApprovalGate:
        """The session's gate; one that denies while the session is held."""
        if type(self.gate) is AllowAll and self._held() is None:
            return self.gate
        return UnlessHeld(self.gate, self._held)

    def _not_open(self, why: str) -> Conflict:
        return Conflict(
            f"session {self.id} {why}",
            hint="Open a new session: `with workspace.session(...) as session:`.",
        )

    async def call(self, tool: str, arguments: Any, *, call_id: str | None = None) -> ToolResult:
        """Call a tool. Every failure is a result, and on record.

        CONFLICT, and nothing ran or is on record, when the session is not open.
        """
        from loom_audit.tools.calls.call import call_tool

        try:
            self._begin_call()
            gate = self._gate()
        except (AuditUnavailable, Conflict) as error:
            return ToolResult.failure(error)
        if isinstance(call_id, str):
            self._call_ids.setdefault(call_id, 1)
        return await call_tool(
            self.registry,
            gate,
            self.writer,
            tool,
            arguments,
            call_id=call_id,
            cwd=self.cwd,
            environment=self.environment,
            runner=self.workspace.attachment.on_disk.runner,
            settings=self.settings,
            past=functools.partial(self.workspace.own_calls, self.writer),
        )

    def tools(self, framework: str) -> list[Any]:
        """The session's tools as an agent framework takes them: "pydantic-ai", "openai-agents" or
        "langchain", without those that cannot work here. Each call is on record under the model's
        id.

        InvalidArguments for another name, NotFound for a framework that is not installed.
        """
        from loom_audit.api.frameworks.known import Offered, framework_tools

        async def call(name: str, arguments: Any, call_id: str | None) -> ToolResult:
            return await self.call(name, arguments, call_id=call_id or None)

        offered = [
            Offered(
                tool.name, tool.description, tool.parameters, functools.partial(call, tool.name)
            )
            for tool in self.registry.usable(self.settings)
        ]
        return framework_tools(framework, offered)

    def batch(self, answer: Any, *, hooks: Sequence["PostToolsHook"] = ()) -> "ToolBatch":
        """The calls in a model's answer, to be `run` together, each recorded under its own id.

        An id that the session has used before gets a number on record, as `call_0#2`; the
        message answers to the model's.
        With `auto_commit` in the settings, what they changed is committed first of all hooks.
        InvalidArguments for what is not such an answer; Conflict when the session is not open.
        """
        from loom_audit.tools.bundled.git.commit_hook import AutoCommit
        from loom_audit.tools.calls.batch import ToolBatch
        from loom_audit.tools.calls.messages import tool_calls_of, with_unique_ids

        self._begin_call()
        if self.settings.auto_commit and not any(isinstance(h, AutoCommit) for h in hooks):
            hooks = [AutoCommit(self.workspace.head, self.workspace.root), *hooks]

        async def execute(call: "ToolCall") -> ToolResult:
            return await self.call(call.name, call.arguments, call_id=call.id)

        calls = [*with_unique_ids(tool_calls_of(answer), self._call_ids)]
        return ToolBatch(calls, execute, self.registry.effect, hooks)

    def run(
        self,
        argv: Sequence[str],
        *,
        typed: Sequence[str] | None = None,
        cwd: str | None = None,
        confinement: Confinement = "off",
        keep: bool = False,
        started: Callable[[], object] = lambda: None,
    ) -> CommandRun:
        """Run a command with the terminal passed through, recorded as one call of `run`.

        `typed` is the command as a person typed it, where that is another than is started: lists
        show it. `cwd` is a directory of the workspace, by default the session's. With `keep` what
        it leaves running is not killed. `started` is called just before it starts. A command that
        ends with another code than 0 raises nothing. ExecutionFailed, whose details have a shell's
        `exit_code` for it, when it cannot be run; AuditUnavailable where no command can. Conflict
        when the session is not open. InvalidArguments to `keep` what a confined command starts.
        """
        self._begin_call()
        if keep and confinement != "off":
            raise InvalidArguments(
                "what a confined command starts ends with it, and cannot be kept",
                hint="Keep what a command starts that is not confined.",
            )
        runner = self.workspace.attachment.on_disk.runner
        if runner is None:
            raise AuditUnavailable("no commands can be run here")
        where = self.cwd if cwd is None else cwd
        shown = argv if typed is None else typed
        arguments = {"command": shlex.join(shown), "argv": list(argv), "cwd": where}
        command = Command(
            tuple(argv),
            cwd=where,
            timeout=None,
            stdio="inherit",
            variables=self.environment,
            confinement=confinement,
            network=self.settings.network,
            readable=self.settings.readable,
            limits=Limits() if confinement == "off" else self.settings.limits,
            keep=keep,
        )
        with self._open_call("run", as_json(arguments), "execute") as call:
            self._deny_if_held(call)
            completed = call.run(runner, command, started=started, final=True)
            event = call.finish(*_run_result(call, completed))
        files, git = tuple(call.files_changed), tuple(call.record.git_changed)
        return CommandRun(event, completed, files, call.coverage, git)

    @contextmanager
    def recording(
        self,
        name: str,
        arguments: Any = None,
        *,
        effect: Effect = "execute",
        call_id: str | None = None,
    ) -> Iterator[OpenCall]:
        """Record the block as one call, with every file change made during it.

        With effect read or network the workspace is not compared before and after. Conflict
        when the session is not open, or has a call of this `call_id`; InvalidArguments for what
        is not an effect: then the block is not entered.
        """
        self._begin_call()
        with self._open_call(name, nearest_json(arguments or {}), effect, call_id) as call:
            self._deny_if_held(call)
            if effect in ("read", "network"):
                call.announce()
                yield call
                return
            with call.capture(final=True):
                yield call

    def _open_call(
        self, name: str, arguments: Any, effect: Effect, call_id: str | None = None
    ) -> OpenCall:
        if call_id is not None:
            check_unused(self.writer, call_id)
        check_tool_name(name, effect)
        writer = replace(self.writer, source=FUNCTION) if effect == "write" else self.writer
        return OpenCall(writer, name, arguments, effect, call_id=call_id or new_id())

    def _deny_if_held(self, call: OpenCall) -> None:
        """ApprovalDenied, which ends the call, when the session is held."""
        if held := self._held():
            deny(call, held)

    @overload
    def tool(
        self, function: Callable[P, R], /, *, effect: Effect = ..., call_id: str | None = ...
    ) -> Callable[P, R]: ...

    @overload
    def tool(
        self, /, *, effect: Effect = ..., call_id: str | None = ...
    ) -> Callable[[Callable[P, R]], Callable[P, R]]: ...

    def tool(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        effect: Effect = "execute",
        call_id: str | None = None,
    ) -> Callable[..., Any]:
        """Record every call of a Python function: arguments, file changes and return value.

        Used as `@session.tool`, as `@session.tool(effect="read")`, or for one call with a
        model's id for it: `session.tool(function, call_id=…)(…)`. `recording` says what the
        effects mean. A call of a coroutine function lasts until it is done, that of a generator
        from its first step to its last. What is not JSON is kept as the JSON nearest to it.
        InvalidArguments for what is not an effect.
        """
        check_effect(effect)

        def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
            recording = functools.partial(self.recording, effect=effect, call_id=call_id)
            return recorded_function(function, recording)

        return decorate if function is None else decorate(function)


def _run_result(
    call: OpenCall, completed: CommandResult
) -> tuple[Literal["ok", "error"], dict[str, Any]]:
    code = completed.exit_code
    failure = ExecutionFailed(f"exit code {code}").to_dict() if code else None
    data = {"exit_code": code, "survivors": list(completed.survivors)}
    if completed.kept:
        data["kept"] = list(completed.kept)
    files = call.files_changed
    return "error" if code else "ok", result_record(code == 0, "", data, files, failure)
