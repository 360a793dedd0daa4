"""The one boundary between the event loop and threads."""

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from anyio import CancelScope, CapacityLimiter, get_cancelled_exc_class, to_thread

T = TypeVar("T")


async def in_thread(
    step: Callable[[], T], *, stop: threading.Event | None = None, shielded: bool = False
) -> T:
    """Run a step in a worker thread, to its end also when the caller is cancelled meanwhile.

    `stop` is set on cancellation, for steps that can end early. Steps wait their turn for one
    of anyio's threads, and one that has not begun when the caller is cancelled never runs;
    a `shielded` one begins immediately, also when the caller is cancelled.
    """
    claim, ended = threading.Lock(), threading.Event()

    def whole() -> list[T]:
        if claim.acquire(blocking=False):
            try:
                return [step()]
            finally:
                ended.set()
        ended.wait()  # another thread has it
        return []

    try:
        with CancelScope(shield=shielded):
            [value] = await to_thread.run_sync(
                whole, abandon_on_cancel=True, limiter=CapacityLimiter(1) if shielded else None
            )
        return value
    except BaseException:
        if stop is not None:
            stop.set()
        if not shielded and claim.acquire(blocking=False):
            ended.set()  # it has not begun, and now it never will
        while not ended.is_set():
            # Again when asyncio cancels the task itself, which no scope shields from.
            with suppress(get_cancelled_exc_class()), CancelScope(shield=True):
                await to_thread.run_sync(whole, abandon_on_cancel=True, limiter=CapacityLimiter(1))
        raise
