"""A program that is asked something on its standard input, and ended when it has answered."""

import subprocess
from collections.abc import Callable, Sequence
from threading import Timer

from loom_audit.errors import ExecutionFailed


def first_answer(
    words: Sequence[str], told: bytes, is_wanted: Callable[[bytes], bool], cwd: str, seconds: float
) -> bytes:
    """The first line that is wanted of those that a program prints; until then its input is open.

    ExecutionFailed when the program cannot be run, or prints no such line within so many seconds.
    """
    try:
        asked = subprocess.Popen(
            [*words],
            cwd=cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        raise ExecutionFailed(f"{words[0]} cannot be run: {error.strerror}") from error
    assert asked.stdin is not None
    assert asked.stdout is not None
    limit = Timer(seconds, asked.kill)
    limit.start()
    try:
        asked.stdin.write(told)
        asked.stdin.flush()
        for line in asked.stdout:
            if is_wanted(line):
                return line
    except OSError:
        pass  # it has ended before it read all
    finally:
        limit.cancel()
        asked.kill()
        asked.communicate()
    raise ExecutionFailed(f"{words[0]} gave no answer within {seconds:g} seconds")
