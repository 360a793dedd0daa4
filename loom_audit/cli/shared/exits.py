"""How a command ends: every error code has its exit code here, and signals to end."""

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import FrameType

OK = 0
FAILED = 1
USAGE = 2
UNAVAILABLE = 3
UNREADABLE = 4
CONFLICT = 5
CORRUPT = 6
IN_PART = 7
OUR_FAILURE = 125
INTERRUPTED = 130
BROKEN_PIPE = 141

MEANINGS: Mapping[int, str] = {
    OK: "done",
    FAILED: "it failed or was denied",
    USAGE: "wrong usage or arguments",
    UNAVAILABLE: "the log cannot be written, so nothing ran",
    UNREADABLE: "not found, or cannot be read or written",
    CONFLICT: "somebody else changed it first, or a choice is needed; nothing was written",
    CORRUPT: "stored bytes do not match their hash",
    IN_PART: "done in part: something is kept unasked, or cannot be undone, and is listed",
    OUR_FAILURE: "loom-audit itself failed, also for wrong usage; the command may not have run",
    INTERRUPTED: "interrupted from the keyboard",
}

ALWAYS = (OK, USAGE, UNREADABLE, CORRUPT)

_BY_ERROR: Mapping[str, int] = {
    "INVALID_PATH": USAGE,
    "IS_A_DIRECTORY": USAGE,
    "NOT_A_DIRECTORY": USAGE,
    "NOT_EMPTY": CONFLICT,
    "INVALID_ARGUMENTS": USAGE,
    "AUDIT_UNAVAILABLE": UNAVAILABLE,
    "FILE_NOT_FOUND": UNREADABLE,
    "NOT_FOUND": UNREADABLE,
    "NO_WORKSPACE": UNREADABLE,
    "UNKNOWN_TOOL": UNREADABLE,
    "IO": UNREADABLE,
    "CONFLICT": CONFLICT,
    "CORRUPT": CORRUPT,
}


def exit_code(code: str) -> int:
    """The exit code that an error's code ends the program with; those not named here give 1."""
    return _BY_ERROR.get(code, FAILED)


def table(codes: Mapping[int, str]) -> str:
    """The lines of a help text that say what each exit code means, ordered by code.

    An empty meaning stands for the usual one.
    """
    lines = [f"  {code:>3}  {codes[code] or MEANINGS[code]}" for code in sorted(codes)]
    return "\b\nExit codes:\n" + "\n".join(lines)


def keep_from_interrupting(*, starting: bool = False) -> None:
    """Let no signal that asks for an end interrupt us from here on; for the main thread.

    What is `starting` a command does not ignore them, as the command would inherit that. Later
    they are ignored, which holds until the process has ended.
    """
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _no_notice() if starting else signal.SIG_IGN)


def _no_notice() -> Callable[[int, FrameType | None], None]:
    from loom_audit.ports import take_no_notice

    return take_no_notice


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
