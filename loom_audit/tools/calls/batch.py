"""The tool calls of one model answer, run together."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from itertools import groupby
from typing import Any, Literal, Protocol

import anyio
from msgspec import Struct
from msgspec.structs import replace

from loom_audit.errors import ExecutionFailed, InvalidArguments, StorageFailed, ToolTimeout
from loom_audit.history.ground.writer import new_id
from loom_audit.model.coverage import Effect
from loom_audit.tools.calls.messages import MessageDialect, ToolCall, tool_messages
from loom_audit.tools.calls.result import ToolResult

CallStatus = Literal["pending", "running", "done"]
Execute = Callable[[ToolCall], Awaitable[ToolResult]]

MAX_HOOK_SECONDS = 120

_log = logging.getLogger(__name__)


class HookOutcome(Struct, frozen=True):
    """What a hook answered after a batch; `text` of one that failed (`ok` is False) says why."""

    name: str
    ok: bool
    text: str = ""


class BatchOutcome(Struct, frozen=True):
    """A finished batch: results in the order of the calls.

    `mutated`: at least one call whose tool writes or executes got as far as doing so, or is
    not known not to have.
    """

    calls: tuple[ToolCall, ...]
    results: tuple[ToolResult, ...]
    mutated: bool
    hooks: tuple[HookOutcome, ...] = ()

    def messages(
        self, dialect: MessageDialect = "openai", *, images: bool = False
    ) -> list[dict[str, Any]]:
        """Return the results as messages for the model, in the form `tool_messages` describes."""
        return tool_messages(self.calls, self.results, dialect, images=images)


class Caller(Protocol):
    """Makes the recorded calls of a hook."""

    async def __call__(self, tool: str, arguments: dict[str, Any]) -> ToolResult: ...


class PostToolsHook(Protocol):
    """Acts once after each batch of which a call changed something."""

    @property
    def name(self) -> str:
        """The name under which an outcome and a warning name the hook."""
        ...

    async def __call__(self, outcome: BatchOutcome, call: Caller) -> str:
        """Act on a finished batch and say what was done.

        A batch reports an exception and does not fail.
        """
        ...


class ToolBatch:
    """Runs calls: those that only read or fetch side by side, each other one by itself.

    Calls keep the order they were asked for: a write sees all that was before it, and what
    comes after sees the write. One failure stops none of the others. Hooks run once at the end
    when the batch mutated, in order, and fail nothing.
    """

    def __init__(
        self,
        calls: Sequence[ToolCall],
        execute: Execute,
        effect: Callable[[str], Effect | None],
        hooks: Sequence[PostToolsHook] = (),
    ) -> None:
        ids = [call.id for call in calls]
        if len({*ids}) < len(ids):
            raise InvalidArguments(
                "two calls of the batch have one id", hint="Give each call an id of its own."
            )
        self.calls = tuple(calls)
        self._execute = execute
        self._effect = effect
        self._hooks = hooks
        self._status: dict[str, CallStatus] = dict.fromkeys(ids, "pending")
        self._results: dict[str, ToolResult] = {}

    @property
    def status(self) -> dict[str, CallStatus]:
        """The state of each call by its id, in the order of the calls."""
        return dict(self._status)

    async def run(self) -> BatchOutcome:
        """Run all calls. A cancellation passes through once the calls under way are finished."""
        for alone, group in groupby(self.calls, self._mutates):
            if alone:
                for call in group:
                    await self._run_one(call)
                continue
            async with anyio.create_task_group() as tasks:
                for call in group:
                    tasks.start_soon(self._run_one, call)
        results = tuple(self._results[call.id] for call in self.calls)
        mutated = any(
            self._mutates(call) and _may_have_mutated(result)
            for call, result in zip(self.calls, results, strict=True)
        )
        outcome = BatchOutcome(self.calls, results, mutated)
        outcomes = [await self._run_hook(hook, outcome) for hook in self._hooks if mutated]
        return replace(outcome, hooks=tuple(outcomes))

    def _mutates(self, call: ToolCall) -> bool:
        return self._effect(call.name) in ("write", "execute")

    async def _run_one(self, call: ToolCall) -> None:
        self._status[call.id] = "running"
        try:
            self._results[call.id] = await self._execute(call)
        except Exception as error:  # noqa: BLE001 - one failure must not stop the others
            _log.exception("call %s: %s failed", call.id, call.name)
            text = f"{call.name} failed: {type(error).__name__}: {error}"
            self._results[call.id] = ToolResult.failure(ExecutionFailed(text))
        self._status[call.id] = "done"

    async def _run_hook(self, hook: PostToolsHook, outcome: BatchOutcome) -> HookOutcome:
        name = getattr(hook, "__name__", type(hook).__name__)
        try:
            if not isinstance(getattr(hook, "name", None), str):
                raise TypeError("a hook has a `name`, which is a text; this one was not run")
            name = hook.name
            with anyio.fail_after(MAX_HOOK_SECONDS):
                return HookOutcome(name, True, await hook(outcome, self._call))
        except TimeoutError:
            return HookOutcome(name, False, f"stopped after {MAX_HOOK_SECONDS} seconds")
        except Exception as error:  # noqa: BLE001 - a hook never fails the batch
            _log.warning("the hook %s failed", name, exc_info=True)
            return HookOutcome(name, False, f"{type(error).__name__}: {error}")

    async def _call(self, tool: str, arguments: dict[str, Any]) -> ToolResult:
        return await self._execute(ToolCall(new_id(), tool, arguments))


def _may_have_mutated(result: ToolResult) -> bool:
    """Whether a call that may have changed something did, or may have."""
    if result.success or result.files_changed or result.error is None:
        return True
    return result.error.code in (ExecutionFailed.code, ToolTimeout.code, StorageFailed.code)
