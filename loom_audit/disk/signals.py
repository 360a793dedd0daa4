"""Signals that ask for an end, kept back while something must not be left half done.

Python runs what answers a signal between any two instructions of the main thread, also between a
record that is durable and the note that it is. Within `held` the first signal is kept and answered
after the block, by what answered before it; the second ends the process as that signal does, and
recovery does the rest. What is ignored stays so.
"""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from msgspec import Struct, field

ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


class _Hold(Struct):
    """An outermost block: what answered each signal before it, and the signals that came."""

    before: dict[int, Any] = field(default_factory=dict)
    came: list[int] = field(default_factory=list)
    is_over: bool = False

    def keep(self, number: int, frame: FrameType | None) -> None:
        if self.is_over:  # it could not be undone, as when another thread ended the block
            self.answer(number, frame)
            return
        self.came.append(number)
        if len(self.came) > 1:
            _end_by(number)

    def answer(self, number: int, frame: FrameType | None = None) -> None:
        before = self.before[number]
        if callable(before):
            before(number, frame)
        else:
            _end_by(number)

    def begin(self) -> None:
        for number in ENDING:
            before = signal.getsignal(number)
            if before not in (signal.SIG_IGN, None):
                self.before[number] = before
                signal.signal(number, self.keep)

    def end(self) -> None:
        self.is_over = True
        if _is_interrupted_here():
            for number, before in self.before.items():
                signal.signal(number, before)
        for number in self.came[:1]:
            self.answer(number)


_holds: list[_Hold] = []
"""The outermost block that is under way, if there is one."""


@contextmanager
def held() -> Iterator[bool]:
    """Keep back a signal that asks for an end; nothing in a thread that none interrupts.

    True for the outermost block, of which nothing has been done when it begins.
    """
    if _holds or not _is_interrupted_here():
        yield False
        return
    hold = _Hold()
    _holds.append(hold)
    try:
        hold.begin()
        yield True
    finally:
        _holds.clear()
        hold.end()


def is_told_to_end() -> bool:
    """Whether a signal came that is kept back, so that whoever waits need not wait on."""
    return any(hold.came for hold in _holds)


def _is_interrupted_here() -> bool:
    return threading.current_thread() is threading.main_thread()


def _end_by(number: int) -> None:
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
