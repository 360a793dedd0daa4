"""The event loop of a command, which no signal leaves half made or half closed."""

import asyncio
import inspect
import signal
from collections.abc import Coroutine
from types import FrameType
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
        _never_began(running)


def run_interrupted_once(running: Coroutine[Any, Any, T]) -> T:
    """As `run_in_loop`, for what ends by itself once it is cancelled: the first Ctrl-C cancels it,
    and those that come before it has ended change nothing.

    asyncio raises KeyboardInterrupt at the second one, wherever that comes, also between two
    instructions of anyio, which then waits for ever or fails.
    """
    try:
        return run_in_loop(_interrupted_once(running))
    finally:
        _never_began(running)


async def _interrupted_once(running: Coroutine[Any, Any, T]) -> T:
    answer = signal.getsignal(signal.SIGINT)
    if not callable(answer):
        return await running
    came: list[int] = []

    def once(number: int, frame: FrameType | None) -> None:
        came.append(number)
        if len(came) == 1:
            answer(number, frame)

    signal.signal(signal.SIGINT, once)
    try:
        return await running
    finally:
        signal.signal(signal.SIGINT, answer)


def _never_began(running: Coroutine[Any, Any, object]) -> None:
    """Close what never began, or Python warns that nobody awaited it."""
    if inspect.getcoroutinestate(running) == inspect.CORO_CREATED:
        running.close()


class _Loop(asyncio.SelectorEventLoop):
    """Python closes a loop again when it deletes it, which fails for half a loop and is printed."""

    def __init__(self) -> None:
        with deferred():
            super().__init__()

    def close(self) -> None:
        with deferred():
            super().close()
