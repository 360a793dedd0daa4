"""Python functions, coroutine functions and generators of which each call is recorded."""

import functools
import inspect
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import AbstractContextManager, aclosing
from typing import Any, ParamSpec, TypeVar, cast

from loom_audit.history.record.call import OpenCall
from loom_audit.tools.calls.result import ToolResult

P = ParamSpec("P")
R = TypeVar("R")
Recording = Callable[[str, dict[str, Any]], AbstractContextManager[OpenCall]]
"""Opens a call of this name with these arguments."""


def recorded_function(function: Callable[P, R], recording: Recording) -> Callable[P, R]:
    """The function, each call of it within a recording that keeps what it returns."""
    signature = inspect.signature(function)
    name = getattr(function, "__name__", type(function).__name__)
    run: Any = function

    def begin(*args: Any, **kwargs: Any) -> AbstractContextManager[OpenCall]:
        return recording(name, dict(signature.bind(*args, **kwargs).arguments))

    def plain(*args: Any, **kwargs: Any) -> Any:
        with begin(*args, **kwargs) as call:
            return _keep(call, run(*args, **kwargs))

    def steps(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        with begin(*args, **kwargs) as call:
            return _keep(call, (yield from run(*args, **kwargs)))

    async def later(*args: Any, **kwargs: Any) -> Any:
        with begin(*args, **kwargs) as call:
            return _keep(call, await run(*args, **kwargs))

    async def later_steps(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        with begin(*args, **kwargs):
            async with aclosing(run(*args, **kwargs)) as given:
                async for item in given:
                    yield item

    recorded: Any = plain
    if inspect.iscoroutinefunction(function):
        recorded = later
    elif inspect.isgeneratorfunction(function):
        recorded = steps
    elif inspect.isasyncgenfunction(function):
        recorded = later_steps
    return cast("Callable[P, R]", functools.wraps(function)(recorded))


def _keep(call: OpenCall, value: R) -> R:
    """Make a return value the call's result."""
    call.result = ToolResult.of(value).to_record()
    return value
