"""The command line: `loom-audit`. Each command translates, nothing else."""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress

from loom_audit import __version__

_ENDED_BY_SIGNAL = (129, 130, 143)

VERSION_TEXT = f"loom-audit {__version__}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run `loom-audit` with the arguments, by default the process's own, and exit."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given == ["--version"]:
        sys.stdout.write(f"{VERSION_TEXT}\n")
        return
    if arguments is None:
        _use_utf8()
    import click

    from loom_audit.cli.application import app
    from loom_audit.cli.shared.command import leave_quietly, usage_error
    from loom_audit.cli.shared.exits import (
        INTERRUPTED,
        keep_from_interrupting,
        told_to_end,
    )
    from loom_audit.cli.shared.invocation import PROGRAM

    with told_to_end() as signals:
        try:
            code = app.main(given, prog_name=PROGRAM, standalone_mode=False)
        except click.ClickException as error:
            try:
                code = usage_error(error, given)
            except BrokenPipeError:
                code = leave_quietly(sys.stdout, sys.stderr)
        except (click.Abort, KeyboardInterrupt):
            code = INTERRUPTED
    if arguments is None:
        keep_from_interrupting()  # it has ended, and how is known
    if signals and code == INTERRUPTED:
        code = 128 + signals[0]
    if arguments is None and code in _ENDED_BY_SIGNAL:
        _leave_threads(code)
    sys.exit(code or 0)


def _leave_threads(code: int) -> None:
    """End at once where a second signal broke off waiting for threads: Python would wait for ever.

    What they were doing is as after a kill, and recovery does the rest.
    """
    import threading

    others = (one for one in threading.enumerate() if one is not threading.main_thread())
    if any(not one.daemon for one in others):
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)


def _use_utf8() -> None:
    """Start again in UTF-8 mode where the locale is another, as names on disk are bytes to us.

    What is printed keeps to the locale: `open_output` is told its encoding.
    """
    if sys.getfilesystemencoding().lower() not in ("utf-8", "utf8"):
        os.environ["LOOM_AUDIT_ENCODING"] = sys.stdout.encoding or "ascii"
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])
