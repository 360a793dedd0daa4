"""A Python function as a tool: its type hints are the schema, its docstring the description."""

import inspect
import json
from collections.abc import Callable
from typing import Any, get_args, get_type_hints, overload

from pydantic import BaseModel, create_model
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo

from loom_audit.errors import InvalidArguments
from loom_audit.model.coverage import Effect
from loom_audit.model.values import as_json
from loom_audit.tools.calls.context import ToolContext
from loom_audit.tools.calls.isolated import MAX_VALUE, isolated_call, value_of
from loom_audit.tools.calls.models import Arguments, parameters_of
from loom_audit.tools.calls.result import ToolResult
from loom_audit.tools.calls.thread import in_own_thread
from loom_audit.tools.calls.tool import Approval, Tool


class FunctionTool(Tool):
    """A tool that `@tool` made of a function; calling the tool calls the function."""

    isolate = False

    def __init__(self, function: Callable[..., Any], *, name: str, description: str) -> None:
        self.function = function
        self.name = name
        self.description = description
        self._context, self.input = _input(function, name)
        self.parameters = parameters_of(self.input)
        self.output_schema, self._wrapped = _output(function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    async def execute(self, args: Any, ctx: ToolContext) -> ToolResult:
        named = {field: getattr(args, field) for field in type(args).model_fields}
        if self._context:
            named[self._context] = ctx
        if self.isolate:
            value = await self._run_isolated(named, ctx)
        elif self.effect == "execute" and ctx.call is not None:
            async with ctx.captured():
                value = await self._call_function(named, ctx)
        else:
            value = await self._call_function(named, ctx)
        if isinstance(value, ToolResult):
            return value
        if isinstance(value, str) and self.output_schema is None:
            return ToolResult(True, value)
        if isinstance(value, BaseModel):
            value = value.model_dump(mode="json", by_alias=True)
        plain = as_json(value, "result")
        shown = plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)
        whole = isinstance(plain, dict) and not self._wrapped
        return ToolResult(
            True, "" if plain is None else shown, plain if whole else {"result": plain}
        )

    async def _call_function(self, named: dict[str, Any], ctx: ToolContext) -> Any:
        if inspect.iscoroutinefunction(self.function):
            return await self.function(**named)

        def note_running(thread: int) -> None:
            ctx.left_running.append(thread)
            if ctx.call is not None:
                ctx.call.leave_running(thread)

        return await in_own_thread(lambda: self.function(**named), note_running)

    async def _run_isolated(self, named: dict[str, Any], ctx: ToolContext) -> Any:
        argv, order = isolated_call(self.function, named)
        if self.effect == "execute":
            completed = await ctx.run(
                *argv, stdin=order, timeout=None, limit=MAX_VALUE, confinement="off"
            )
        else:
            completed = await ctx.compute(
                *argv, stdin=order, timeout=None, limit=MAX_VALUE, read_only=False
            )
        return value_of(completed, self.name)

    def check_isolated(self) -> None:
        """Raise InvalidArguments when the function cannot be called in another process."""
        flaw = ""
        if inspect.iscoroutinefunction(self.function):
            flaw = "it is a coroutine function, which stops at its limit"
        elif "<" in self.function.__qualname__:
            flaw = "it is defined in another function, where no other process finds it"
        elif self._context:
            flaw = f"its parameter {self._context} takes the context, which stays in this process"
        elif self.effect == "write":
            flaw = "one of effect write changes files by the context, which stays in this process"
        if flaw:
            raise InvalidArguments(
                f"{self.name} cannot be isolated: {flaw}",
                hint="Isolate a `def` of a module, of effect read, execute or network.",
            )


@overload
def tool(function: Callable[..., Any], /) -> FunctionTool: ...


@overload
def tool(
    *,
    name: str | None = ...,
    description: str | None = ...,
    effect: Effect = ...,
    timeout_seconds: float = ...,
    needs_workspace: bool = ...,
    requires_approval: Approval = ...,
    isolate: bool = ...,
) -> Callable[[Callable[..., Any]], FunctionTool]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    effect: Effect = "read",
    timeout_seconds: float = 30,
    needs_workspace: bool = False,
    requires_approval: Approval = False,
    isolate: bool = False,
) -> FunctionTool | Callable[[Callable[..., Any]], FunctionTool]:
    """Make a function a tool: `@tool`, or `@tool(…)` to say more than its hints do.

    A parameter annotated `ToolContext` is given the call's context.

    A plain `def` runs in a thread of its own. A thread cannot be killed: at its limit the call
    returns, on record as still running, and the function goes on. With `isolate` it runs in a
    process, which is killed at the limit with all it started; it then needs a workspace, and
    arguments and result travel as pickles.

    It may return a ToolResult, a text, a pydantic model or any JSON value; what its hint says of
    it is the output schema. With an effect other than read its request is on record before it
    starts. Effect write is for functions that change files by the context only; with effect
    execute every change in the workspace while it runs is recorded.
    `requires_approval` says whether, or by a function of arguments and context why, somebody
    should be asked first. InvalidArguments when a parameter has no type hint, or when the
    function cannot be isolated.
    """

    def decorate(function: Callable[..., Any]) -> FunctionTool:
        made = FunctionTool(
            function,
            name=name or function.__name__,
            description=description or inspect.getdoc(function) or "",
        )
        made.effect = effect
        made.timeout_seconds = timeout_seconds
        made.needs_workspace = needs_workspace or isolate
        made.requires_approval = requires_approval
        made.announced = effect != "read"
        made.isolate = isolate
        if isolate:
            made.check_isolated()
        return made

    return decorate if function is None else decorate(function)


def _input(function: Callable[..., Any], name: str) -> tuple[str, type[Arguments]]:
    """The name of the parameter that takes the context ("" for none), and the others' model."""
    hints = get_type_hints(function, include_extras=True)
    context, fields = "", {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise InvalidArguments(
                f"{name} takes {parameter}, which no schema can describe",
                hint="Name each parameter, or take one list or dict.",
            )
        hint = hints.get(parameter.name)
        if hint is None:
            raise InvalidArguments(
                f"the parameter {parameter.name} of {name} has no type hint",
                hint=f"Write its type, as in `{parameter.name}: str`.",
            )
        if hint is ToolContext:
            context = parameter.name
            continue
        empty = parameter.default is parameter.empty
        fields[parameter.name] = (hint, FieldInfo() if empty else parameter.default)
    model: type[Arguments] = create_model(name, __base__=Arguments, **fields)  # type: ignore[call-overload]
    return context, model


def _output(function: Callable[..., Any]) -> tuple[dict[str, Any] | None, bool]:
    """The schema of what the function says it gives, and whether that stands in `result`.

    None where it says nothing, gives text or a ToolResult, or what no schema can describe.
    """
    hint = get_type_hints(function, include_extras=True).get("return", Any)
    if hint in (Any, str, type(None)) or ToolResult in (hint, *get_args(hint)):
        return None, False
    try:
        model = create_model("result", result=(hint, ...))
        named = parameters_of(model, mode="serialization")
    except PydanticUserError:
        return None, False
    inner = named["properties"]["result"]
    found = named.get("$defs", {}).get(str(inner.get("$ref", "")).rpartition("/")[2], inner)
    if found.get("type") != "object":
        return named, True
    return {**found, **({"$defs": named["$defs"]} if "$defs" in named else {})}, False
