"""A terminal with a client in it, and a person who presses keys, resizes and reads."""

import fcntl
import os
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

ESCAPE = b"\x1b"
ENTER = b"\r"
INTERRUPT = b"\x03"
ANSWERS = {
    b"\x1b[6n": b"\x1b[1;1R",
    b"\x1b[c": b"\x1b[?62;c",
}
"""What a client asks its terminal, where it is and what it is, and what that answers."""
MODE = re.compile(rb"\x1b\[\?([\d;]+)([hl])")


class Terminal:
    """A pseudo terminal; `screen` is all that was written to it."""

    def __init__(self, words: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
        self.screen = b""
        self._here, self._there = os.openpty()
        self.resize(40, 120)
        self.found = self.attributes()
        self._process = subprocess.Popen(
            words,
            cwd=folder,
            env=environment,
            stdin=self._there,
            stdout=self._there,
            stderr=self._there,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )

    def resize(self, lines: int, columns: int) -> None:
        fcntl.ioctl(self._here, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def attributes(self) -> list[Any]:
        """How the terminal treats what is typed and written."""
        return termios.tcgetattr(self._there)

    def modes(self) -> dict[int, bool]:
        """Each mode of the screen that was set or reset, and which of them is left."""
        found: dict[int, bool] = {}
        for numbers, how in MODE.findall(self.screen):
            found |= {int(number): how == b"h" for number in numbers.split(b";") if number}
        return found

    def press(self, *keys: bytes) -> None:
        for key in keys:
            os.write(self._here, key)
            self.read_for(0.4)

    def read_for(self, seconds: float) -> None:
        self.read_until(lambda: False, seconds)

    def read_until(self, done: Callable[[], bool], seconds: float) -> bool:
        """Read, as a terminal always does, until something is so; whether it came to that."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if done():
                return True
            ready, _, _ = select.select([self._here], [], [], 0.1)
            if ready:
                part = os.read(self._here, 1 << 16)
                self.screen += part
                for question, answer in ANSWERS.items():
                    if question in part:
                        os.write(self._here, answer)
        return done()

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def close(self) -> int | None:
        """The exit code; None of one that had to be killed."""
        code = self._process.poll()
        if code is None:
            self._process.kill()
            self._process.wait()
        os.close(self._here)
        os.close(self._there)
        return code
