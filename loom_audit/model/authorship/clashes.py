"""Which stretches of a text later versions changed again, and where a merge with them would ask."""

from collections.abc import Sequence

from msgspec import Struct

from loom_audit.model.authorship.walk import changed_lines
from loom_audit.model.text.lines import Edit, edits

Lines = Sequence[bytes]


class Stretch(Struct, frozen=True):
    """Lines of a text from `start` to before `end`, counted from 0, and what stood there before."""

    start: int
    end: int
    old: tuple[bytes, ...] = ()


class Clash(Struct, frozen=True):
    """The later versions that changed a stretch, or lines that touch it, by their places; it `asks`
    where what was there before cannot be brought back beside what stands there at last.
    """

    versions: tuple[int, ...]
    asks: bool


def clashes(text: Lines, later: Sequence[Lines], stretches: Sequence[Stretch]) -> list[Clash]:
    """Return what became of each of the stretches of a text in its later versions."""
    spans = [(one.start, one.end) for one in stretches]
    touched: list[list[int]] = [[] for _ in stretches]
    now = text
    for n, version in enumerate(later):
        changed = changed_lines(now, version)
        for place, span in enumerate(spans):
            if any(_touches(edit, *span) for edit in changed):
                touched[place].append(n)
            spans[place] = _moved(span, changed)
        now = version
    # as a merge compares them
    last = edits([*text], [*now])
    return [
        Clash((*found,), any(_asks(edit, one, now) for edit in last))
        for found, one in zip(touched, stretches, strict=True)
    ]


def _touches(edit: Edit, start: int, end: int) -> bool:
    return edit.old_start <= end and edit.old_end >= start


def _asks(edit: Edit, stretch: Stretch, now: Lines) -> bool:
    if not _touches(edit, stretch.start, stretch.end):
        return False
    same = (edit.old_start, edit.old_end) == (stretch.start, stretch.end)
    return not same or (*now[edit.new_start : edit.new_end],) != stretch.old


def _moved(span: tuple[int, int], changed: Sequence[Edit]) -> tuple[int, int]:
    """Where a stretch is in the next version, with what replaced lines of it."""
    inside = [one for one in changed if one.old_start < span[1] and one.old_end > span[0]]
    start = min([span[0], *(one.old_start for one in inside)])
    end = max([span[1], *(one.old_end for one in inside)])
    above = sum(_more(one) for one in changed if one.old_end <= start and one not in inside)
    return start + above, end + above + sum(map(_more, inside))


def _more(edit: Edit) -> int:
    return (edit.new_end - edit.new_start) - (edit.old_end - edit.old_start)
