"""One tool call, top to bottom: every request on record gets exactly one finish on record."""

import difflib
import logging
import threading
import traceback
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, Protocol

import anyio
from msgspec import Struct
from msgspec.structs import replace as struct_replace

from loom_audit.errors import (
    ApprovalDenied,
    AuditError,
    AuditUnavailable,
    Conflict,
    ExecutionFailed,
    InvalidArguments,
    NotSerializable,
    ToolTimeout,
    UnknownTool,
)
from loom_audit.history.ground.attachment import TOOL
from loom_audit.history.ground.writer import Writer, check_unused, new_id
from loom_audit.history.record.call import OpenCall
from loom_audit.model.actors import is_person
from loom_audit.model.calls import takes_back
from loom_audit.model.coverage import Effect, Status, status_of
from loom_audit.model.results import MAX_KEPT
from loom_audit.model.text.cutting import cut
from loom_audit.model.text.display import count_text, first_few, one_line
from loom_audit.model.values import as_json, nearest_json
from loom_audit.ports import Runner
from loom_audit.tools.calls.context import ToolContext
from loom_audit.tools.calls.gate import AllowAll, ApprovalGate, Decision, approval_reason
from loom_audit.tools.calls.past import Past, PlannedOnce
from loom_audit.tools.calls.places.area import no_workspace_error
from loom_audit.tools.calls.places.kept_output import with_rest_kept
from loom_audit.tools.calls.result import ToolResult
from loom_audit.tools.calls.settings import ToolSettings
from loom_audit.tools.calls.thread import in_thread, run_to_end
from loom_audit.tools.calls.tool import Tool, runs_in_one_thread

_log = logging.getLogger("loom_audit.tools.call")  # the name people set levels for

_MAX_NAME = 200


class Tools(Protocol):
    """Where tools are looked up."""

    def get(self, name: str) -> Tool | None:
        """The tool of this name; None where there is none."""

    def list(self) -> Sequence[Tool]:
        """Every tool, in the order of their registration."""


class _Request(Struct, frozen=True):
    """What was asked for, as far as it can be put on record, and what is wrong with it."""

    call_id: str
    tool: Tool | None
    name: str
    arguments: Any
    flaw: AuditError | None

    @property
    def effect(self) -> Effect:
        return self.tool.effect if self.tool else "read"


class _Outcome(Struct, frozen=True):
    """How a call ended; `recorded` when it is on record already, with the result as it is there."""

    status: Status
    result: ToolResult
    recorded: bool = False


async def call_tool(
    registry: Tools,
    gate: ApprovalGate,
    writer: Writer | None,
    name: str,
    arguments: Any,
    *,
    call_id: str | None = None,
    cwd: str = "",
    environment: Mapping[str, str] | None = None,
    runner: Runner | None = None,
    settings: ToolSettings | None = None,
    past: Callable[[], Past] | None = None,
) -> ToolResult:
    """Look up, validate, ask the gate, execute within the tool's limit, put on record.

    Whatever goes wrong is a result with an error; only cancellation passes through, after its
    finish is on record. AUDIT_UNAVAILABLE: the log could not be written; nothing with an
    effect has run unless the result lists `files_changed`. Without a writer nothing is on
    record, and a tool that needs a workspace gives NO_WORKSPACE.
    """
    request = _request(registry, name, arguments, call_id)
    if writer is not None and call_id is not None:
        try:
            await in_thread(partial(check_unused, writer, request.call_id))
        except AuditError as error:
            return ToolResult.failure(error)
    async with _open(writer, request) as opened:
        ctx = _context(request, writer, opened, cwd, environment, runner, settings, past)
        started = monotonic()
        _log.debug("call %s: %s begins", request.call_id, request.name)
        outcome = await _attempt(registry, gate, request, ctx)
        result = await _finish(opened, outcome)
    _log.debug(
        "call %s: %s ends %s after %.3f s",
        request.call_id,
        request.name,
        result.error.code if result.error else outcome.status,
        monotonic() - started,
    )
    return result


@asynccontextmanager
async def _open(writer: Writer | None, request: _Request) -> AsyncIterator[OpenCall | None]:
    """The call while it is open; the finish of one that is cancelled is recorded in a thread."""
    if writer is None:
        yield None
        return
    name, effect = request.name, request.effect
    if takes_back(name, effect):
        writer = struct_replace(writer, source=TOOL)
    opened = OpenCall(writer, name, request.arguments, effect, call_id=request.call_id)
    try:
        yield opened
    except BaseException as error:
        await in_thread(partial(_leave, opened, error), shielded=True)
        raise


def _leave(opened: OpenCall, raised: BaseException) -> None:
    try:
        opened.__exit__(type(raised), raised, raised.__traceback__)
    except AuditError as error:
        _log.error("call %s: its finish cannot be recorded: %s", opened.call_id, error)


def _context(
    request: _Request,
    writer: Writer | None,
    opened: OpenCall | None,
    cwd: str,
    environment: Mapping[str, str] | None,
    runner: Runner | None,
    settings: ToolSettings | None,
    past: Callable[[], Past] | None,
) -> ToolContext:
    scratch = writer.scratch if writer else None
    return ToolContext(
        workspace=Path(writer.workspace.root) if writer else None,
        cwd=cwd,
        scratch_dir=Path(scratch.root) if scratch else None,
        session=writer.session if writer else "",
        call_id=request.call_id,
        effect=request.effect,
        environment={**({"SCRATCH_DIR": scratch.root} if scratch else {}), **(environment or {})},
        settings=settings or ToolSettings(),
        confinement=request.tool.confinement if request.tool else "off",
        writer=writer,
        call=opened,
        runner=runner or (writer.attachment.on_disk.runner if writer else None),
        past=PlannedOnce(past) if past else None,
    )


def _request(registry: Tools, name: Any, arguments: Any, call_id: Any) -> _Request:
    flaw: AuditError | None = None
    try:
        recorded = as_json(arguments, "arguments")
    except NotSerializable as error:
        recorded, flaw = nearest_json(arguments), error
    if call_id is not None and not (isinstance(call_id, str) and 0 < _size(call_id) <= _MAX_NAME):
        flaw = InvalidArguments(
            f"call_id must be a text of 1 to {_MAX_NAME} bytes",
            hint="Leave it out to be given one.",
        )
        call_id = None
    call_id = call_id or new_id()
    if not isinstance(name, str):
        shown = str(nearest_json(name))[:50]
        return _Request(call_id, None, shown, recorded, flaw)
    tool = registry.get(name)
    shown = name if 0 < _size(name) <= _MAX_NAME else name[:40] + "…"
    return _Request(call_id, tool, shown, recorded, flaw)


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


async def _attempt(
    registry: Tools, gate: ApprovalGate, request: _Request, ctx: ToolContext
) -> _Outcome:
    """Everything between the request and its finish. Only cancellation and the like pass."""
    try:
        tool = request.tool
        if tool is None:
            raise _unknown_tool_error(request.name, registry, ctx.settings)
        if request.flaw is not None:
            raise request.flaw
        if tool.needs_workspace and ctx.writer is None:
            raise no_workspace_error()
        args = tool.parse(request.arguments)
        args, asked = await _ask_gate(gate, tool, args, ctx)
        ctx = replace(ctx, asked=asked)
        await _announce(tool, ctx.call)
        return await _execute(tool, args, ctx)
    except Exception as error:  # noqa: BLE001 - a tool's bug is a result too
        return _failure_of(request.name, error)


async def _ask_gate(gate: ApprovalGate, tool: Tool, args: Any, ctx: ToolContext) -> tuple[Any, str]:
    """The arguments as the gate lets them through, and what it was asked for. ApprovalDenied.

    The answer is on record when a person gave it or anything was decided. Without a gate nobody
    was asked, and then nothing is; neither is a gate's own plain yes to a call that asked for
    nothing.
    """
    if type(gate) is AllowAll:
        return args, ""
    asked = await approval_reason(tool, args, ctx)
    try:
        answer = await gate.decide(tool, args, ctx, asked=asked)
    except AuditUnavailable:
        raise
    except AuditError as error:
        answer = Decision("denied", "gate", f"the gate could not decide: {error.message}")
    except Exception as error:  # noqa: BLE001 - whatever goes wrong in the gate, the call is denied
        _log.exception("call %s: the gate failed", ctx.call_id)
        answer = Decision("denied", "gate", f"the gate failed: {type(error).__name__}: {error}")
    if answer.flaw is not None:
        raise answer.flaw
    changed = None if answer.arguments is None else as_json(answer.arguments, "arguments")
    if ctx.call is not None:
        plain = answer.decision == "allowed" and not (asked or answer.reason)
        if not answer.recorded and (not plain or changed is not None or is_person(answer.by)):
            ctx.call.add_decision(
                answer.decision, by=answer.by, reason=answer.reason or asked, arguments=changed
            )
        ctx.call.record.approved = None if answer.states is None else dict(answer.states)
    if answer.decision != "allowed":
        raise ApprovalDenied(
            f"{tool.name} was denied" + (f": {answer.reason}" if answer.reason else ""),
            details={"by": answer.by},
        )
    if changed is None:
        return args, asked
    args = tool.parse(changed)
    return args, await approval_reason(tool, args, ctx)


async def _announce(tool: Tool, call: OpenCall | None) -> None:
    """Put the request on record first when effects will not go through the context."""
    if call is None or not (tool.announced or tool.effect == "network"):
        return
    if tool.effect == "network":
        call.record.lower_coverage("outside the workspace: network")
    await in_thread(call.announce)


async def _execute(tool: Tool, args: Any, ctx: ToolContext) -> _Outcome:
    limit = tool.limit(args)
    outcomes: list[_Outcome] = []
    with anyio.move_on_after(limit):
        if ctx.call is not None and runs_in_one_thread(tool):
            stop = threading.Event()
            await in_thread(partial(_run_in_one_thread, tool, args, ctx, stop, outcomes), stop=stop)
        else:
            outcomes.append(_outcome_of(tool, await tool.execute(args, ctx)))
    if outcomes:
        return outcomes[0]
    if ctx.left_running:
        error = ToolTimeout(
            f"{tool.name} did not end within {count_text(limit, 'second')} and is still running",
            hint="A function cannot be stopped; one with `@tool(isolate=True)` can.",
        )
        return _Outcome("running", ToolResult.failure(error))
    error = ToolTimeout(f"{tool.name} was stopped after {count_text(limit, 'second')}")
    return _Outcome("timeout", ToolResult.failure(error))


def _run_in_one_thread(
    tool: Tool, args: Any, ctx: ToolContext, stop: threading.Event, outcomes: list[_Outcome]
) -> None:
    """The whole call and its finish, in the worker thread. Nothing more happens after `stop`."""
    try:
        running = tool.execute(args, replace(ctx, stop=stop))
        outcome = _outcome_of(tool, run_to_end(running))
    except Exception as error:  # noqa: BLE001 - a tool's bug is a result too
        outcome = _failure_of(tool.name, error)
    if ctx.call is not None and not stop.is_set():
        outcomes.append(_Outcome(outcome.status, _record(ctx.call, outcome), recorded=True))


def _outcome_of(tool: Tool, result: ToolResult | dict[str, Any]) -> _Outcome:
    if isinstance(result, dict):
        result = ToolResult.of(result)
    if not isinstance(result, ToolResult):
        raise TypeError(f"{tool.name} returned {type(result).__name__}, not a ToolResult")
    if result.success:
        tool.check_output(result.data)
    if result.error is not None and result.error.code == ToolTimeout.code:
        return _Outcome("timeout", result)
    return _Outcome("ok" if result.success else "error", result)


def _failure_of(name: str, error: Exception) -> _Outcome:
    if isinstance(error, AuditError):
        return _Outcome(status_of(error), ToolResult.failure(error))
    return _Outcome("error", ToolResult.failure(_bug_error(name, error)))


async def _finish(opened: OpenCall | None, outcome: _Outcome) -> ToolResult:
    """Put the outcome on record, shielded from cancellation, and give it as the caller sees it.

    Not in the queue for threads: those waiting there may wait for the lock this call holds.
    """
    if outcome.recorded:
        return outcome.result
    if opened is None:
        return _check_serializable(outcome.result)
    return await in_thread(partial(_record, opened, outcome), shielded=True)


def _record(call: OpenCall, outcome: _Outcome) -> ToolResult:
    status, result = outcome.status, with_rest_kept(_with_changes(outcome.result, call), call)
    try:
        try:
            call.finish(status, {**call.result, **result.to_record()})
        except (AuditUnavailable, Conflict):
            raise
        except Exception as error:  # noqa: BLE001 - a call must finish, be its result what it may
            flaw = error if isinstance(error, AuditError) else _bug_error(call.tool, error)
            result = _with_changes(ToolResult.failure(flaw), call)
            call.finish("error", result.to_record())
    except AuditError as error:
        _log.error("call %s: its finish cannot be recorded: %s", call.call_id, error)
        return _with_changes(ToolResult.failure(_finish_error(error, call)), call)
    return result


def _check_serializable(result: ToolResult) -> ToolResult:
    try:
        result.to_record()
    except NotSerializable as error:
        return ToolResult.failure(error)
    return result


def _with_changes(result: ToolResult, call: OpenCall) -> ToolResult:
    """The result with the files that the call changed, and in its output what it did to git."""
    result = replace(result, files_changed=sorted(call.files_changed))
    if not call.record.git_changed:
        return result
    words = first_few([one_line(text, 200) for text in call.record.git_changed], 10, str)
    said = result.full_output
    said += "\n" if said and not said.endswith("\n") else ""
    whole = cut(f"{said}git: {words}", MAX_KEPT)
    return replace(result, output=whole, full_output=whole)


def _finish_error(error: AuditError, call: OpenCall) -> AuditError:
    """What the caller is told when the finish cannot be stored."""
    if isinstance(error, AuditUnavailable) and call.files_changed:
        return AuditUnavailable(
            "The change was made, but its finish could not be recorded: " + error.message,
            hint="Run `loom-audit recover` when the store can be written again.",
            details=error.details,
        )
    return error


def _bug_error(name: str, error: BaseException) -> AuditError:
    """An exception no tool should let through, as an error; the traceback goes to the log."""
    _log.error("%s failed", name, exc_info=error)
    text = "".join(traceback.format_exception_only(error)).strip()
    return ExecutionFailed(
        f"{name} failed: {text[:500]}",
        details={"exception": type(error).__name__, "text": text[:2000]},
    )


def _unknown_tool_error(name: str, registry: Tools, settings: ToolSettings) -> AuditError:
    names = [tool.name for tool in registry.list() if not tool.lacks(settings)]
    near = difflib.get_close_matches(name, names, n=2, cutoff=0.75)
    return UnknownTool(
        f"Unknown tool: {name}",
        hint=f"Did you mean {' or '.join(near)}?" if near else f"There are: {', '.join(names)}.",
    )
