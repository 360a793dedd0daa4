"""Changed lines that differ in white space only: which runs of them, and whether all of a file."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Protocol

MOST_LINES = 10_000
"""The number of changed lines over which nothing is said."""


class Changed(Protocol):
    """A line of a difference."""

    @property
    def kind(self) -> str:
        """What became of it: "+", "-", or " " where it stands on both sides."""
        ...

    @property
    def content(self) -> bytes:
        """The line with its ending."""
        ...


Said = Mapping[tuple[int, int], str]
"""What is said of a run of changed lines, by its hunk and the place of its first line in it."""


def spacing_of(hunks: Sequence[Sequence[Changed]]) -> tuple[Said, str]:
    """What is said of the runs that differ in white space only, and of the file where all do."""
    if sum(line.kind != " " for lines in hunks for line in lines) > MOST_LINES:
        return {}, ""
    said: dict[tuple[int, int], str] = {}
    runs = 0
    for n, lines in enumerate(hunks):
        place = 0
        for is_context, group in groupby(lines, lambda line: line.kind == " "):
            run = [*group]
            if not is_context:
                runs += 1
                if words := only_spaces(run):
                    said[n, place] = words
            place += len(run)
    kinds = {*said.values()}
    whole = runs > 0 and runs == len(said)
    return said, (kinds.pop() if len(kinds) == 1 else "white space only") if whole else ""


def only_spaces(run: Sequence[Changed]) -> str:
    """What is said of lines that differ in white space only; "" of others."""
    old, new = (b"".join(line.content for line in run if line.kind == kind) for kind in "-+")
    if old.split() == new.split() == []:
        return "blank lines only"
    if old.replace(b"\r\n", b"\n") == new.replace(b"\r\n", b"\n"):
        return "line endings only"
    return "white space only" if b"".join(old.split()) == b"".join(new.split()) else ""
