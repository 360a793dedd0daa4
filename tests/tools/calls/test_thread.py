"""Steps in threads: each is waited for to its end, however often its caller is interrupted."""

import asyncio
import threading
from collections.abc import Coroutine, Generator
from contextlib import suppress
from types import coroutine
from typing import Any

from loom_audit.tools.calls.thread import in_thread


@coroutine
def interrupted_again(inner: Coroutine[Any, Any, object]) -> Generator[Any, Any, None]:
    """Runs a coroutine; where it is cancelled, a second Ctrl-C comes just after that in it."""
    send, given = inner.send, None
    throw: BaseException | None = None
    while True:
        waits = inner.throw(throw) if throw else send(given)
        if isinstance(throw, asyncio.CancelledError):
            waits = inner.throw(KeyboardInterrupt())
        given = throw = None
        try:
            given = yield waits
        except BaseException as error:  # noqa: BLE001 - handed on
            throw = error


def test_a_step_has_ended_when_its_caller_leaves_although_ctrl_c_came_twice() -> None:
    begun, goes_on, left, ended = (threading.Event() for _ in range(4))
    alone: list[bool] = []

    def step() -> None:
        begun.set()
        goes_on.wait(30)
        alone.append(left.is_set())
        ended.set()

    async def caller() -> None:
        try:
            await in_thread(step)
        finally:
            left.set()

    async def main() -> None:
        task = asyncio.ensure_future(interrupted_again(caller()))
        while not begun.is_set():
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.sleep(0.1)
        goes_on.set()
        with suppress(asyncio.CancelledError, KeyboardInterrupt):
            await task

    def run() -> None:
        with suppress(KeyboardInterrupt):  # a task that ends so ends its loop
            asyncio.run(main())

    loop = threading.Thread(target=run)
    loop.start()
    loop.join(30)
    goes_on.set()
    ended.wait(30)
    assert alone == [False]
