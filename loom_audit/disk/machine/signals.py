"""Signals that ask for an end, kept back while something must not be left half done.

Python runs what answers a signal between any two instructions of the main thread, also between a
record that is durable and the note that it is. Within `deferred` the first signal is kept and
answered after the block, by what answered before it; the second ends the process as that signal
does, and recovery does the rest. A signal that is ignored stays so, as does one of which no notice
is taken.
"""

import os
import signal
import threading
from types import FrameType
from typing import Any

from msgspec import Struct, field

from loom_audit.ports import take_no_notice

ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


class _Hold(Struct):
    """An outermost block: what answered each signal before it, and the signals that came.

    It is a step once something in it must not be left half done.
    """

    before: dict[int, Any] = field(default_factory=dict)
    came: list[int] = field(default_factory=list)
    is_over: bool = False
    is_step: bool = False

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
            if before not in (signal.SIG_IGN, None, take_no_notice):
                self.before[number] = before
                signal.signal(number, self.keep)

    def let_through(self) -> None:
        """Answer what came, as after the block, which goes on unless the answer ends it."""
        came, self.came = self.came, []
        self._put_back()
        try:
            self.answer(came[0])
        finally:
            self.begin()

    def end(self) -> None:
        self.is_over = True
        if _is_interrupted_here():
            self._put_back()
        for number in self.came[:1]:
            self.answer(number)

    def _put_back(self) -> None:
        for number, before in self.before.items():
            signal.signal(number, before)


_holds: list[_Hold] = []
"""The outermost block that is under way, if there is one."""


class deferred:
    """Keep back a signal that asks for an end; nothing in a thread that none interrupts.

    `with deferred() as is_first`: true for the outermost block, of which nothing has been done when
    it begins. A block that is not a `step`, nor has one in it yet, is left where `answer` is
    called. A write enters a dozen of them, mostly in a thread, so that this is not a generator.
    """

    __slots__ = ("_hold", "_step")

    def __init__(self, *, step: bool = True) -> None:
        self._step = step
        self._hold: _Hold | None = None

    def __enter__(self) -> bool:
        if not _is_interrupted_here():
            return False
        if _holds:
            _holds[0].is_step |= self._step
            return False
        self._hold = _Hold(is_step=self._step)
        _holds.append(self._hold)
        try:
            self._hold.begin()
        except BaseException:
            self._end(self._hold)
            raise
        return True

    def __exit__(self, *_: object) -> None:
        if self._hold is not None:
            self._end(self._hold)

    def _end(self, hold: _Hold) -> None:
        _holds.clear()
        hold.end()


def answer(*, whole: bool = False) -> None:
    """Answer a signal that is kept back, where no step is under way.

    What was done in the block until now may be said to be `whole`: then a step begins anew.
    """
    if _is_interrupted_here():
        for hold in _holds:
            hold.is_step &= not whole
            if hold.came and not hold.is_step:
                hold.let_through()


def is_told_to_end() -> bool:
    """Whether a signal came that is kept back, so that whoever waits need not wait on."""
    return any(hold.came for hold in _holds)


def _is_interrupted_here() -> bool:
    return threading.get_ident() == threading.main_thread().ident


def _end_by(number: int) -> None:
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
