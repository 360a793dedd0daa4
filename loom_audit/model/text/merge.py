"""Three-way merge of texts, by lines of bytes.

A change of one side is taken; changes of both sides that overlap or touch are a conflict
unless they are the same, as `git merge-file` has it. Endings are part of a line: CRLF and a
missing final newline are kept as they are.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from msgspec import Struct

from loom_audit.model.text.lines import Edit, edits, split_lines

MAX_BYTES: Final = 10_000_000
"""Larger content is not merged as text."""

_SNIFFED: Final = 8000


class MergeResult(Struct, frozen=True):
    """A merged content; with `conflicts` above 0 it holds that many stretches with markers."""

    content: bytes
    conflicts: int


def is_binary(content: bytes) -> bool:
    """Return whether there is a NUL in the first 8,000 bytes (git's rule)."""
    return b"\0" in content[:_SNIFFED]


def merge3(
    base: bytes | None,
    ours: bytes,
    theirs: bytes,
    *,
    labels: tuple[str, str] = ("taken back", "current"),
) -> MergeResult | None:
    """Merge both sides' changes to the base; None where they cannot be merged as text.

    `base` is None when both sides were created. Where one side equals the base or the other side
    the other side is the result, whatever the content; otherwise the result is None for binary
    content and content over `MAX_BYTES`. `labels` name ours and theirs at the markers.
    """
    if ours == theirs or theirs == base:
        return MergeResult(ours, 0)
    if ours == base:
        return MergeResult(theirs, 0)
    for content in (base or b"", ours, theirs):
        if len(content) > MAX_BYTES or is_binary(content):
            return None
    sides = _Sides(split_lines(base or b""), split_lines(ours), split_lines(theirs))
    # the markers end as the lines around them do
    newline = b"\r\n" if any(s and s[0].endswith(b"\r\n") for s in sides) else b"\n"
    start = b"<<<<<<< " + _label(labels[0]) + newline
    middle = b"=======" + newline
    end = b">>>>>>> " + _label(labels[1]) + newline
    result: list[bytes] = []
    conflicts = position = 0
    for region in _regions(edits(sides.base, sides.ours), edits(sides.base, sides.theirs)):
        result += sides.base[position : region.start]
        position = region.end
        mine = sides.ours[region.ours[0] : region.ours[1]]
        other = sides.theirs[region.theirs[0] : region.theirs[1]]
        if region.changed == "ours" or mine == other:
            result += mine
        elif region.changed == "theirs":
            result += other
        else:
            head, mine, other, tail = _without_common_ends(mine, other)
            result += head
            result += [
                start,
                *_with_newline(mine, newline),
                middle,
                *_with_newline(other, newline),
                end,
            ]
            result += tail
            conflicts += 1
    result += sides.base[position:]
    return MergeResult(b"".join(result), conflicts)


class _Sides(NamedTuple):
    base: list[bytes]
    ours: list[bytes]
    theirs: list[bytes]


class _Region(NamedTuple):
    """A stretch of the base that one side or both changed, and where it is on each side."""

    start: int
    end: int
    ours: tuple[int, int]
    theirs: tuple[int, int]
    changed: str


def _regions(ours: Sequence[Edit], theirs: Sequence[Edit]) -> list[_Region]:
    """The changed stretches in order; changes that overlap or touch are in one."""
    regions = []
    i = j = 0
    shift_ours = shift_theirs = 0
    while i < len(ours) or j < len(theirs):
        first_i, first_j = i, j
        start = end = min(e.old_start for e in (*ours[i : i + 1], *theirs[j : j + 1]))
        from_ours, from_theirs = start + shift_ours, start + shift_theirs
        while True:
            if i < len(ours) and ours[i].old_start <= end:
                end = max(end, ours[i].old_end)
                shift_ours = ours[i].new_end - ours[i].old_end
                i += 1
            elif j < len(theirs) and theirs[j].old_start <= end:
                end = max(end, theirs[j].old_end)
                shift_theirs = theirs[j].new_end - theirs[j].old_end
                j += 1
            else:
                break
        changed = "theirs" if i == first_i else "ours" if j == first_j else "both"
        to_ours, to_theirs = end + shift_ours, end + shift_theirs
        regions.append(_Region(start, end, (from_ours, to_ours), (from_theirs, to_theirs), changed))
    return regions


def _without_common_ends(
    mine: list[bytes], other: list[bytes]
) -> tuple[list[bytes], list[bytes], list[bytes], list[bytes]]:
    """What both begin with, what is left of each, what both end with."""
    head = 0
    most = min(len(mine), len(other))
    while head < most and mine[head] == other[head]:
        head += 1
    tail = 0
    while tail < most - head and mine[-1 - tail] == other[-1 - tail]:
        tail += 1
    return (
        mine[:head],
        mine[head : len(mine) - tail],
        other[head : len(other) - tail],
        mine[len(mine) - tail :],
    )


def _with_newline(lines: list[bytes], newline: bytes) -> list[bytes]:
    """The lines with a newline after the last, so that a marker can follow."""
    if lines and not lines[-1].endswith(b"\n"):
        return [*lines[:-1], lines[-1] + newline]
    return lines


def _label(label: str) -> bytes:
    return label.encode("utf-8", "surrogateescape")
