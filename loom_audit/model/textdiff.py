"""Line diffs: structured for pages and terminals, unified for `git apply` and `patch`."""

from dataclasses import dataclass
from typing import Literal

from loom_audit.model.files import FileState

Kind = Literal[" ", "-", "+"]


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a hunk, its ending included; numbers count from 1, None on the other side.

    `spans` are the changed stretches within the line as byte offsets (start, end), empty when
    the line has no counterpart or differs as a whole.
    """

    kind: Kind
    content: bytes
    old: int | None
    new: int | None
    spans: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Hunk:
    """A stretch of changes with context; starts count from 1 (0 before the first line)."""

    old_start: int
    old_count: int
    new_start: int
    new_count: int
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class Diff:
    """The difference of two contents; `binary` diffs have no hunks."""

    hunks: tuple[Hunk, ...]
    added: int
    removed: int
    binary: bool = False


def diff_lines(
    old: bytes | None, new: bytes | None, context: int = 3, *, words: bool = False
) -> Diff:
    """The line diff of two contents; None is an absent file."""
    raise NotImplementedError


def unified(
    path_old: str | None,
    path_new: str | None,
    old: bytes | None,
    new: bytes | None,
    *,
    state_old: FileState | None = None,
    state_new: FileState | None = None,
    context: int = 3,
) -> bytes:
    """The difference of one file in git's format; empty when nothing differs."""
    raise NotImplementedError
