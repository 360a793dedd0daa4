"""A file's lines followed from version to version: each has a writer and, once gone, a remover.

A line is one from the version that wrote it to the one that removes it, and again once an undo has
brought it back. Only `\\n` ends a line.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from itertools import repeat

from msgspec import Struct, field

from loom_audit.model.authorship.versions import BroughtBack, Version, brought_back
from loom_audit.model.files import FileState
from loom_audit.model.text.lines import Edit, edits

MARGIN = 100
"""The number of equal lines around what differs that are compared with it: along them an edit may
slide."""

_PIECE = 512
_STRIDE = 1024


class Line(Struct, eq=False, gc=False):
    """One line: the version that wrote it, its place there, and by which versions it went and came.

    Versions are named by their indices, -1 for the state before the first. `turns` are the versions
    that removed it and brought it back, in turns; `old` and `new` are its numbers at the two ends
    that are compared, 0 where it is not there.
    """

    text: bytes
    writer: int
    number: int
    turns: tuple[int, ...] = ()
    old: int = 0
    new: int = 0
    replaced: bool = False

    @property
    def is_gone(self) -> bool:
        """Whether it was removed, and not brought back since."""
        return len(self.turns) % 2 == 1

    @property
    def back(self) -> int | None:
        """The version that brought it back last, while it stands; None for none."""
        return self.turns[-1] if self.turns and not self.is_gone else None


class UnreadableLines(Struct, frozen=True):
    """Why the lines of a state cannot be told."""

    reason: str


Read = Callable[[FileState | None], Sequence[bytes] | UnreadableLines]
"""Gives the lines of a state, none for one that is absent."""


class Walk(Struct):
    """The lines of a file after the version that was followed last, and their texts.

    `woven` are all lines that ever stood, in an order in which every version has its own; None
    where that was not asked for. `unknown` has the versions whose lines have no writer that is
    known, each with the reason. With a `reason` the last version's lines cannot be told.
    """

    lines: list[Line] = field(default_factory=list)
    texts: Sequence[bytes] = ()
    woven: list[Line] | None = None
    unknown: dict[int, str] = field(default_factory=dict)
    reason: str = ""
    kept: dict[int, list[Line]] = field(default_factory=dict)
    """The lines of earlier versions that a later one brings back."""
    unreadable: dict[int, str] = field(default_factory=dict)
    """The versions whose lines cannot be told, each with the reason."""

    def begin(self, texts: Sequence[bytes] | UnreadableLines) -> None:
        """Start from a state of which nobody asks who wrote it."""
        if isinstance(texts, UnreadableLines):
            self.reason = self.unreadable[-1] = texts.reason
            return
        self.texts = texts
        self.lines = [Line(text, -1, number) for number, text in enumerate(texts, 1)]
        if self.woven is not None:
            self.woven = [*self.lines]

    def lose(self, n: int, reason: str) -> None:
        """Let the version `n` be one of which no line can be told, for this reason."""
        self._replace(n, [])
        self.texts, self.reason = (), reason
        if reason:
            self.unreadable[n] = reason

    def follow(self, n: int, texts: Sequence[bytes], source: BroughtBack | None) -> None:
        """Go on to the version `n`, whose content stood before where the `source` says."""
        if self.reason:  # nothing is known of the version before
            self.unknown.setdefault(n, self.reason)
            self.reason = ""
        before = self.kept.get(source.index) if source else None
        if source is not None and source.same and before is not None:
            self._replace(n, before)
        else:
            found = changed_lines(self.texts, texts)
            after = _carried(self.lines, found)
            made = set(self._bring_back(after, before, texts) if before is not None else ())
            for one in found:
                for line in self.lines[one.old_start : one.old_end]:
                    line.turns = (*line.turns, n)
                for place in range(one.new_start, one.new_end):
                    back = after[place]
                    if back is None:
                        after[place] = line = Line(texts[place], n, place + 1)
                        made.add(id(line))
                    else:
                        back.turns = (*back.turns, n)
            self.lines = [line for line in after if line is not None]
            if self.woven is not None:
                for one in reversed(found):
                    _weave(self.woven, self.lines, one, made)
        self.texts = texts

    def _replace(self, n: int, after: list[Line]) -> None:
        """Let these lines stand: others that stood are removed, and those that were gone are
        back.
        """
        standing, was = set(map(id, after)), set(map(id, self.lines))
        for line in self.lines:
            if id(line) not in standing:
                line.turns = (*line.turns, n)
        for line in after:
            if id(line) not in was:
                line.turns = (*line.turns, n)
        self.lines = after

    def _bring_back(
        self, after: list[Line | None], before: Sequence[Line], texts: Sequence[bytes]
    ) -> Iterator[int]:
        """Fill the places of new lines with those that stood before and are gone.

        Yields the id of each that is made anew, since it stands at another place than it did.
        """
        order = {id(line): place for place, line in enumerate(self.woven or ())}
        below = _orders_below(order, after)
        above = -1
        for place, line in enumerate(_returning(before, after, texts)):
            standing = after[place]
            if standing is not None:
                above = order.get(id(standing), above)
            elif line is not None:
                here = order.get(id(line), 0)
                if self.woven is None or above < here < below[place]:
                    after[place], above = line, here
                else:
                    line.replaced = True
                    other = Line(line.text, line.writer, line.number, line.turns, line.old)
                    after[place] = other
                    yield id(other)


def walk(
    versions: Sequence[Version], read: Read, *, start: int = -1, woven: bool = False, mark: int = -2
) -> Walk:
    """Follow the lines over the versions after `start`, to the last.

    Nobody is named as the writer of what stood at `start`; -1 is the state before the first
    version. The lines that stand after the version `mark` are numbered in their field `old`, those
    of the last version in `new`.
    """
    for n, done in walked(versions, read, start=start, woven=woven):
        if n == mark:
            for number, line in enumerate(done.lines, 1):
                line.old = number
    for number, line in enumerate(done.lines, 1):
        line.new = number
    return done


def walked(
    versions: Sequence[Version],
    read: Read,
    *,
    start: int = -1,
    woven: bool = False,
    begun: Walk | None = None,
) -> Iterator[tuple[int, Walk]]:
    """Yield each version's index with the lines as they stand after it, from `start` on.

    `begun` has followed the version `start`; none that comes later brings back what stood before.
    """
    later = range(start + 1, len(versions))
    sources = {n: source for n in later if (source := brought_back(versions, n))}
    last_use = {source.index: n for n, source in sources.items()}
    done = begun or Walk(woven=[] if woven else None)
    for n in range(start, len(versions)):
        if n == start:
            if begun is None:
                done.begin(read(versions[n].after if n >= 0 else versions[0].before))
        else:
            _step(done, n, versions[n], read, sources.get(n))
        if n in last_use and not done.reason:
            done.kept[n] = [*done.lines]
        if n in sources and last_use[sources[n].index] == n:
            done.kept.pop(sources[n].index, None)
        yield n, done


def _step(done: Walk, n: int, one: Version, read: Read, source: BroughtBack | None) -> None:
    if one.gap:
        done.lose(n, one.gap)
    elif _is_same(one) and not done.reason:
        return  # its place or mode changed
    if one.writer.kind == "unknown":
        done.unknown[n] = one.writer.reason
    texts = read(one.after)
    if isinstance(texts, UnreadableLines):
        done.lose(n, texts.reason)
    else:
        kinds = {state.kind for state in (one.before, one.after) if state is not None}
        if len(kinds) > 1 and not done.reason:
            done.lose(n, "")  # a file and a symlink have no line in common
        done.follow(n, texts, source)


def _is_same(one: Version) -> bool:
    """Whether a step left the content as it was, and changed its place or mode at most."""
    before, after = one.before, one.after
    if one.gap or before is None or after is None:
        return False
    return before.blob is not None and (before.kind, before.blob) == (after.kind, after.blob)


def changed_lines(old: Sequence[bytes], new: Sequence[bytes]) -> list[Edit]:
    """Return the edits between two texts, each where a reader would put it.

    What differs in long texts is compared in pieces: one ends where a run of equal lines follows it
    on both sides.
    """
    done: list[Edit] = []
    i = j = 0
    while True:
        equal = _common(old, new, i, j)
        above = min(equal, MARGIN)
        i, j = i + equal - above, j + equal - above
        if i + above == len(old) and j + above == len(new):
            return done
        size = _PIECE
        while True:
            found = edits(old[i : i + size], new[j : j + size], tidy=True)
            whole = i + size >= len(old) and j + size >= len(new)
            piece = found if whole else _settled(found, min(size, len(old) - i))
            if piece:
                break
            size *= 4
        done += [Edit(one[0] + i, one[1] + i, one[2] + j, one[3] + j) for one in piece]
        if whole:
            return done
        i, j = done[-1].old_end, done[-1].new_end


def _settled(changed: Sequence[Edit], count: int) -> Sequence[Edit]:
    """The edits up to the first after which so many lines are equal that it ends there."""
    for n, one in enumerate(changed, 1):
        end = changed[n].old_start if n < len(changed) else count
        if end - one.old_end >= MARGIN:
            return changed[:n]
    return ()


def _common(one: Sequence[bytes], other: Sequence[bytes], i: int, j: int) -> int:
    """How many lines are equal from `i` and from `j` on."""
    at, most = 0, min(len(one) - i, len(other) - j)
    while at < most and one[i + at : i + at + _STRIDE] == other[j + at : j + at + _STRIDE]:
        at += _STRIDE
    at = min(at, most)
    while at < most and one[i + at] == other[j + at]:
        at += 1
    return at


def _carried(lines: Sequence[Line], changed: Sequence[Edit]) -> list[Line | None]:
    """The lines at their places after the edits; None where an edit put another one."""
    after: list[Line | None] = []
    at = 0
    for one in changed:
        after += lines[at : one.old_start]
        after += repeat(None, one.new_end - one.new_start)
        at = one.old_end
    after += lines[at:]
    return after


def _returning(
    before: Sequence[Line], after: Sequence[Line | None], texts: Sequence[bytes]
) -> list[Line | None]:
    """For each place of a new line the one that stood before and is gone, where there is one.

    Lines are paired in the order of the whole texts, and what is not paired so among themselves.
    """
    found = changed_lines([line.text for line in before], texts)
    paired = [
        line if line is not None and line.is_gone and standing is None else None
        for line, standing in zip(_carried(before, found), after, strict=True)
    ]
    used = set(map(id, paired))
    rest = [line for line in before if line.is_gone and id(line) not in used]
    places = [n for n, line in enumerate(paired) if line is None and after[n] is None]
    found = changed_lines([line.text for line in rest], [texts[n] for n in places])
    for place, line in zip(places, _carried(rest, found), strict=True):
        paired[place] = line
    return paired


def _orders_below(order: Mapping[int, int], after: Sequence[Line | None]) -> list[int]:
    """For each place where the next line below it that stands is among all lines."""
    limit, limits = len(order), list[int]()
    for line in reversed(after):
        limits.append(limit)
        limit = order.get(id(line), limit) if line is not None else limit
    return limits[::-1]


def _weave(woven: list[Line], lines: Sequence[Line], edit: Edit, made: Set[int]) -> None:
    """Put the lines that were made by an edit among all lines, before the next one that stands."""
    place = end = edit.new_end
    below = woven.index(lines[end]) if end < len(lines) else len(woven)
    while place > edit.new_start:
        place -= 1
        if id(lines[place]) not in made:
            woven[below:below] = lines[place + 1 : end]
            end, below = place, woven.index(lines[place])
    woven[below:below] = lines[place:end]
