"""Our terminal while a command has it: who gets the keyboard's signals, and stopping with it."""

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from types import FrameType

FORWARDED = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGWINCH", "SIGTSTP")
FROM_KEYBOARD = ("SIGINT", "SIGQUIT", "SIGTSTP", "SIGWINCH")


def terminal_mode() -> tuple[str, int, tuple[str, ...]]:
    """How the command uses our terminal: mode letters, our group, signals to forward.

    In the foreground with the terminal at both ends it gets the terminal for itself, so the
    keyboard's signals reach it alone. In a pipeline it shares our group, because the others
    need the terminal too: then the keyboard reaches it directly and is not forwarded.
    """
    group = os.getpgrp()
    try:
        tty = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)
    except OSError:
        return "g", group, FORWARDED
    try:
        foreground = os.tcgetpgrp(tty) == group
    finally:
        os.close(tty)
    if foreground and not (os.isatty(0) and os.isatty(1)):
        return "", group, tuple(n for n in FORWARDED if n not in FROM_KEYBOARD)
    return "gts", group, FORWARDED


@contextlib.contextmanager
def forward_signals(names: tuple[str, ...], send: Callable[[int], None]) -> Iterator[None]:
    """Send the signals that we get on to the command; possible in the main thread only.

    A signal that was ignored stays ignored. In a pipeline Ctrl-C is the command's to answer.
    """

    def forward(number: int, _frame: FrameType | None) -> None:
        send(number)

    def leave(_number: int, _frame: FrameType | None) -> None:
        return None

    previous = {}
    try:
        for name in FORWARDED if names else ():
            number = signal.Signals[name]
            if name not in names and name == "SIGTSTP":
                continue  # the whole pipeline stops, we with it
            if signal.getsignal(number) in (signal.SIG_IGN, None):
                continue
            with contextlib.suppress(ValueError):  # not the main thread
                previous[number] = signal.signal(number, forward if name in names else leave)
        yield
    finally:
        for number, before in previous.items():
            signal.signal(number, before)


def stop_ourselves(number: int) -> None:
    """Stop our process group until continued, so that the shell takes its terminal back."""
    stop = number if number in (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU) else signal.SIGTSTP
    before = None
    with contextlib.suppress(ValueError):
        before = signal.signal(stop, signal.SIG_DFL)
    os.killpg(os.getpgrp(), stop)
    if before is not None:
        signal.signal(stop, before)
