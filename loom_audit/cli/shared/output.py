"""Where everything printed goes through: text for people, or one JSON object per line.

Nothing recorded reaches a terminal as it is: every piece of text is escaped here, at the last
moment, so that a caller cannot forget it. JSON is pure ASCII.
"""

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Literal, TextIO, TypeVar

from msgspec import Struct

from loom_audit.errors import AuditError
from loom_audit.model.text.display import size_text, visible, visible_bytes

if TYPE_CHECKING:
    from loom_audit.ports import OnProgress, Progress

PATIENCE = 1.0
"""Seconds after which progress is shown."""

Style = Literal["", "bold", "dim", "red", "green", "yellow", "cyan"]
_SGR: Mapping[str, str] = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "cyan": "36",
}
Piece = str | tuple[str, Style]
"""A text, with the style it is shown in where colour is wanted."""

Line = tuple[Piece, ...]
T = TypeVar("T")


def to_json(record: Mapping[str, Any]) -> str:
    """Write a record as a line of ASCII JSON; a surrogate of a non-UTF-8 name stays `\\udcXX`."""
    return json.dumps(record, ensure_ascii=True, default=str).replace("\x7f", "\\u007f")


def json_text(content: bytes) -> str:
    """Bytes as the text of a JSON record; what is not UTF-8 becomes surrogates `\\udcXX`."""
    return content.decode("utf-8", "surrogateescape")


def wants_color(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """Whether to colour: only a terminal that is not dumb, and never with NO_COLOR set."""
    return (
        stream.isatty()
        and not environment.get("NO_COLOR")
        and environment.get("TERM", "") not in ("", "dumb")
    )


class Output(Struct, frozen=True):
    """Standard output and standard error of one invocation."""

    json: bool
    stdout: TextIO
    stderr: TextIO
    color: bool = False
    color_errors: bool = False

    @property
    def width(self) -> int | None:
        """Columns of the terminal, None where output is not one: then nothing is cut."""
        if not self.stdout.isatty():
            return None
        return max(shutil.get_terminal_size().columns, 40)

    @property
    def interactive(self) -> bool:
        """Whether a person can be asked."""
        return not self.json and sys.stdin.isatty() and self.stderr.isatty()

    def record(self, record: Mapping[str, Any]) -> None:
        """Print one JSON object on its line."""
        self.stdout.write(to_json(record) + "\n")

    def line(self, *pieces: Piece) -> None:
        """Print one line of text; line breaks inside a piece are shown escaped."""
        self.stdout.write("".join(_paint(piece, self.color) for piece in pieces).rstrip() + "\n")

    def lines(self, lines: Iterable[Line]) -> None:
        """Print lines, each a tuple of pieces."""
        for line in lines:
            self.line(*line)

    def each(
        self,
        things: Iterable[T],
        record: Callable[[T], Mapping[str, Any]],
        lines: Callable[[T], Iterable[Line]],
        *,
        none: str = "",
    ) -> None:
        """Print each thing: its record with JSON, else its lines; a note where there are none."""
        thing = None
        for thing in things:
            if self.json:
                self.record(record(thing))
            else:
                self.lines(lines(thing))
        if thing is None and none:
            self.note(none)

    def text(self, text: str, *, indent: str = "") -> None:
        """Print recorded text of several lines; its line breaks and tabs stay."""
        for line in text.split("\n"):
            self.stdout.write((indent + visible(line, multiline=True)).rstrip("\r") + "\n")

    def marked(self, text: str, style: Style, indent: str = "") -> None:
        """Print one line of recorded text whose tabs stay, in a style."""
        shown = visible(text, multiline=True).replace("\n", "\\n")
        if self.color and style:
            shown = f"\x1b[{_SGR[style]}m{shown}\x1b[0m"
        self.stdout.write(f"{indent}{shown}\n")

    def raw(self, content: bytes) -> None:
        """Write bytes as they are to standard output."""
        self.stdout.flush()
        buffer = getattr(self.stdout, "buffer", None)
        if buffer is None:
            self.stdout.write(content.decode("utf-8", "backslashreplace"))
        else:
            buffer.write(content)
            buffer.flush()

    def content(self, pieces: Iterable[bytes], *, raw: bool) -> None:
        """Print recorded bytes: as they are with `raw` or where nobody looks on, else escaped."""
        if raw or not self.stdout.isatty():
            for piece in pieces:
                self.raw(piece)
        else:
            shown = visible_bytes(b"".join(pieces), multiline=True)
            self.text(shown.removesuffix("\n"))

    def note(self, *pieces: Piece) -> None:
        """Print one line for people on standard error; nothing with JSON."""
        if not self.json:
            self.stdout.flush()
            text = "".join(_paint(piece, self.color_errors) for piece in pieces)
            self.stderr.write(text.rstrip() + "\n")

    def warning(self, error: AuditError, text: str) -> None:
        """Print a text and an error's hint on standard error, as one JSON object with JSON.

        The command goes on.
        """
        if self.json:
            self.stdout.flush()
            self.stderr.write(to_json({"warning": error.to_dict()}) + "\n")
        self.note(text)
        self.note(error.hint)

    def error(self, error: AuditError) -> None:
        """Print an error with its hint on standard error, as one JSON object with JSON."""
        self.stdout.flush()
        if self.json:
            self.stderr.write(to_json({"error": error.to_dict()}) + "\n")
            return
        self.note(("error: ", "red"), error.message)
        if error.hint:
            self.note(("hint: ", "yellow"), error.hint)


def open_output(*, json: bool) -> Output:
    """The output on the process's own streams, which then never fail on a character."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(encoding=os.environ.get("LOOM_AUDIT_ENCODING"), errors="backslashreplace")
    return Output(
        json,
        sys.stdout,
        sys.stderr,
        wants_color(sys.stdout, os.environ),
        wants_color(sys.stderr, os.environ),
    )


def _paint(piece: Piece, color: bool) -> str:
    text, style = piece if isinstance(piece, tuple) else (piece, "")
    shown = visible(text)
    return f"\x1b[{_SGR[style]}m{shown}\x1b[0m" if color and style else shown


@contextmanager
def progress(output: Output) -> Iterator["OnProgress | None"]:
    """Yields what takes reports of progress and shows them as bars; None where nobody looks.

    What is done within a second shows no bar.
    """
    if output.json or not output.stderr.isatty():
        yield None
        return
    started, shown = time.monotonic(), ExitStack()
    to_bars: OnProgress | None = None

    def show(now: "Progress") -> None:
        nonlocal to_bars
        if to_bars is None and time.monotonic() - started >= PATIENCE:
            to_bars = shown.enter_context(_bars(output))
        if to_bars is not None:
            to_bars(now)

    with shown:
        yield show


@contextmanager
def _bars(output: Output) -> Iterator["OnProgress"]:
    from rich.console import Console
    from rich.progress import BarColumn, TaskID, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    console = Console(file=output.stderr, highlight=False, markup=False)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[count]}", markup=False),
        TimeElapsedColumn(),
    )
    with Bars(*columns, console=console, transient=True) as bars:
        tasks: dict[str, TaskID] = {}

        def show(now: "Progress") -> None:
            stage = visible(now.stage)
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=now.total, count="")
            count = _amount(now.done, now.unit)
            if now.total is not None:
                count += f" of {_amount(now.total, now.unit)}"
            bars.update(tasks[stage], completed=now.done, total=now.total, count=count)

        yield show


def _amount(n: int, unit: str) -> str:
    return size_text(n) if unit == "bytes" else f"{n:,} {unit}"
