"""The event loop of a command, which no signal leaves half made or half closed."""

import asyncio
import inspect
from collections.abc import Coroutine
from typing import Any, TypeVar

from loom_audit.wiring.signals import deferred

T = TypeVar("T")


def run_in_loop(running: Coroutine[Any, Any, T]) -> T:
    """What a coroutine comes to in an event loop of its own, as `asyncio.run` gives it; what it
    raises passes through. KeyboardInterrupt for a signal that asks for an end.
    """
    try:
        with asyncio.Runner(loop_factory=_Loop) as runner:
            return runner.run(running)
    finally:
        if inspect.getcoroutinestate(running) == inspect.CORO_CREATED:
            running.close()  # or Python warns that nobody awaited it


class _Loop(asyncio.SelectorEventLoop):
    """Python closes a loop again when it deletes it, which fails for half a loop and is printed."""

    def __init__(self) -> None:
        with deferred():
            super().__init__()

    def close(self) -> None:
        with deferred():
            super().close()
