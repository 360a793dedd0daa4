"""The one boundary between the event loop and threads."""

import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from contextlib import suppress
from contextvars import copy_context
from typing import Any, TypeVar

from anyio import CancelScope, CapacityLimiter, Event, get_cancelled_exc_class, to_thread
from anyio.from_thread import BlockingPortal

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
            # Again when asyncio cancels the task itself, which no scope shields from, and when one
            # more Ctrl-C comes here: what the step does would not be in the finish of its call.
            with suppress(get_cancelled_exc_class(), KeyboardInterrupt), CancelScope(shield=True):
                await to_thread.run_sync(whole, abandon_on_cancel=True, limiter=CapacityLimiter(1))
        raise


def run_to_end(running: Coroutine[Any, Any, T]) -> T:
    """What a coroutine comes to that waits for nothing, here. TypeError for one that waits."""
    try:
        running.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    running.close()
    raise TypeError("what runs in one thread awaited more than the steps of its context")


async def in_own_thread(step: Callable[[], T], given_up: Callable[[int], object]) -> T:
    """Run a step in a thread of its own, which goes on alone when the caller is cancelled.

    `given_up` is told the system's id of that thread then, before the cancellation passes through.
    The thread does not keep the process from ending.
    """
    done, context = Event(), copy_context()
    values: list[T] = []
    errors: list[BaseException] = []
    async with BlockingPortal() as portal:

        def whole() -> None:
            try:
                values.append(context.run(step))
            except BaseException as error:  # noqa: BLE001 - raised where the step is waited for
                errors.append(error)
            with suppress(RuntimeError, CancelledError):  # nobody waits any more
                portal.call(done.set)

        thread = threading.Thread(target=whole, name="loom-audit tool", daemon=True)
        thread.start()
        try:
            await done.wait()
        except get_cancelled_exc_class():
            if not values and not errors:
                given_up(thread.native_id or 0)
            raise
    for error in errors:
        raise error
    return values[0]
