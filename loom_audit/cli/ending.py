"""SIGTERM and SIGHUP end a command as Ctrl-C does, so that nothing is left open or lying about."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType


@contextmanager
def told_to_end() -> Iterator[list[int]]:
    """Take both for an interrupt within the block; the list holds the signal that came first.

    Those after it change nothing, as we are ending. What was ignored (`nohup`) stays ignored.
    """
    came: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        came.append(number)
        if len(came) > 1:
            return
        answer = signal.getsignal(signal.SIGINT)  # of an event loop, where one is running
        if not callable(answer):
            raise KeyboardInterrupt
        answer(signal.SIGINT, frame)

    previous = {}
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            with suppress(ValueError):  # not the main thread
                previous[number] = signal.signal(number, interrupt)
    try:
        yield came
    finally:
        for number, before in previous.items():
            signal.signal(number, before)
