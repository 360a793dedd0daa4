"""Exit codes: every error code is translated here, once."""

from collections.abc import Mapping

OK = 0
FAILED = 1
USAGE = 2
UNAVAILABLE = 3
UNREADABLE = 4
CONFLICT = 5
CORRUPT = 6
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
    OUR_FAILURE: "loom-audit itself failed, also for wrong usage; the command may not have run",
    INTERRUPTED: "interrupted from the keyboard",
}

ALWAYS = (OK, USAGE, UNREADABLE)

_BY_ERROR: Mapping[str, int] = {
    "INVALID_PATH": USAGE,
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
