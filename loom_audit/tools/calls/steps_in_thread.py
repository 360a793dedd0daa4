"""Takes several steps of a call in one worker thread: each hop to a thread costs what a small step
does."""

import threading
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, TypeVar

from loom_audit.tools.calls.context import ToolContext
from loom_audit.tools.calls.thread import in_thread, run_to_end

T = TypeVar("T")


async def steps_in_thread(
    ctx: ToolContext, steps: Callable[[ToolContext], Coroutine[Any, Any, T]]
) -> T:
    """Return what `steps` comes to, which awaits nothing but steps of the context that it is given.

    What runs in it is told to stop when the call is cancelled, and no further step begins.
    """
    if ctx.stop is not None:
        return await steps(ctx)
    stop = threading.Event()
    inside = replace(ctx, stop=stop)
    return await in_thread(lambda: run_to_end(steps(inside)), stop=stop)
