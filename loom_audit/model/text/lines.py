"""Which lines two texts have in common: the base of line diffs and merges.

Myers, "An O(ND) difference algorithm and its variations" (1986), greedy forward form, after
common ends are trimmed and lines that only one side has are set aside: neither changes what
the longest common subsequence is. Above a bound on the work the texts are cut at lines that
are unique in both (patience), and a stretch without such lines is replaced as a block.
"""

from bisect import bisect_left
from collections.abc import Sequence
from io import BytesIO
from itertools import compress, count, pairwise
from operator import ne
from typing import Final, NamedTuple

WHOLE_CAP: Final = 2000
"""Most differences looked for in one go; the work grows with the square."""

PART_CAP: Final = 256
"""The same within a stretch between two unique lines."""


class Edit(NamedTuple):
    """Lines `old_start:old_end` became `new_start:new_end`; one of the two may be empty."""

    old_start: int
    old_end: int
    new_start: int
    new_end: int


def split_lines(content: bytes) -> list[bytes]:
    r"""Return the lines of a content with their endings; only `\n` ends a line, as in git."""
    return BytesIO(content).readlines()


def edits(old: Sequence[bytes], new: Sequence[bytes], *, tidy: bool = False) -> list[Edit]:
    """Return the shortest list of edits from old to new, in order, no two of them touching.

    Where lines repeat, an insertion or a deletion stands as low as it can, or, when `tidy`, where a
    reader would put it: at blank lines and at the least indentation.
    """
    top = _common_start(old, new)
    end = _common_start(old[top:][::-1], new[top:][::-1])
    numbers: dict[bytes, int] = {}
    a = [numbers.setdefault(line, len(numbers)) for line in old[top : len(old) - end]]
    b = [numbers.setdefault(line, len(numbers)) for line in new[top : len(new) - end]]
    found = _from_pairs(_common_lines(a, b), len(a), len(b))
    return _slide([_shift(one, top) for one in found], old, new, tidy=tidy)


def _common_start(one: Sequence[bytes], other: Sequence[bytes]) -> int:
    """How many lines are equal from the first on."""
    return next(compress(count(), map(ne, one, other)), min(len(one), len(other)))


def _common_lines(a: list[int], b: list[int]) -> list[tuple[int, int]]:
    """Pairs of equal lines, increasing on both sides."""
    pairs: list[tuple[int, int]] = []
    # a stack of stretches still to be compared
    parts = [(0, len(a), 0, len(b), WHOLE_CAP)]
    while parts:
        a0, a1, b0, b1, cap = parts.pop()
        while a0 < a1 and b0 < b1 and a[a0] == b[b0]:
            pairs.append((a0, b0))
            a0, b0 = a0 + 1, b0 + 1
        tail = 0
        while a0 < a1 - tail and b0 < b1 - tail and a[a1 - tail - 1] == b[b1 - tail - 1]:
            tail += 1
        if tail:
            # An equal stretch is taken by the loop above when its turn comes.
            parts.append((a1 - tail, a1, b1 - tail, b1, cap))
            a1, b1 = a1 - tail, b1 - tail
        shared = set(a[a0:a1]).intersection(b[b0:b1])
        xs = [i for i in range(a0, a1) if a[i] in shared]
        ys = [j for j in range(b0, b1) if b[j] in shared]
        found = _shortest([a[i] for i in xs], [b[j] for j in ys], cap)
        if found is not None:
            pairs += ((xs[i], ys[j]) for i, j in found)
            continue
        anchors = _anchors(a, b, xs, ys)
        if not anchors:
            continue
        cuts = [*anchors, (a1, b1)]
        stretches = [(a0, cuts[0][0], b0, cuts[0][1], PART_CAP)]
        stretches += [(i, k, j, m, PART_CAP) for (i, j), (k, m) in pairwise(cuts)]
        parts += reversed(stretches)
    return pairs


def _shortest(a: list[int], b: list[int], cap: int) -> list[tuple[int, int]] | None:
    """The pairs of a longest common subsequence; None when more than `cap` lines differ."""
    n, m = len(a), len(b)
    if not n or not m:
        return []
    limit = min(cap, n + m)
    reach = [0] * (2 * limit + 3)  # furthest x on diagonal k = x - y, at limit + 1 + k
    trace: list[list[int]] = []
    for d in range(limit + 1):
        low, high = -d, d
        if low < -m:
            low = -m + (d - m) % 2
        if high > n:
            high = n - (d - n) % 2
        for k in range(low, high + 1, 2):
            index = limit + 1 + k
            if k == -d or (k != d and reach[index - 1] < reach[index + 1]):
                x = reach[index + 1]
            else:
                x = reach[index - 1] + 1
            y = x - k
            while x < n and y < m and a[x] == b[y]:
                x, y = x + 1, y + 1
            reach[index] = x
            if x >= n and y >= m:
                return _walk_back(trace, d, n, m)
        trace.append(reach[limit + 1 - d : limit + 2 + d : 2])
    return None


def _walk_back(trace: list[list[int]], d: int, x: int, y: int) -> list[tuple[int, int]]:
    """The pairs on the path found; `trace[d][(k + d) // 2]` is the reach after d differences."""
    pairs = []
    for e in range(d, 0, -1):
        k, before = x - y, trace[e - 1]
        here = (k + e - 1) // 2  # index of diagonal k - 1; k + 1 is the next
        if k == -e or (k != e and before[here] < before[here + 1]):
            start = before[here + 1]
            from_x, from_y = start, start - k - 1
        else:
            start = before[here] + 1
            from_x, from_y = start - 1, start - k
        while x > start:
            x, y = x - 1, y - 1
            pairs.append((x, y))
        x, y = from_x, from_y
    while x > 0 and y > 0:
        x, y = x - 1, y - 1
        pairs.append((x, y))
    pairs.reverse()
    return pairs


def _anchors(a: list[int], b: list[int], xs: list[int], ys: list[int]) -> list[tuple[int, int]]:
    """The longest increasing run of lines that occur once on both sides."""
    in_a = _unique(a, xs)
    in_b = _unique(b, ys)
    tails: list[int] = []
    ends: list[tuple[int, int]] = []
    chain: dict[tuple[int, int], tuple[int, int] | None] = {}
    for line, i in in_a.items():
        j = in_b.get(line)
        if j is None:
            continue
        position = bisect_left(tails, j)
        pair = (i, j)
        chain[pair] = ends[position - 1] if position else None
        tails[position : position + 1] = [j]
        ends[position : position + 1] = [pair]
    run = []
    last = ends[-1] if ends else None
    while last is not None:
        run.append(last)
        last = chain[last]
    return run[::-1]


def _unique(lines: list[int], indices: list[int]) -> dict[int, int]:
    """The index of each line that occurs once, in order of index."""
    places: dict[int, int] = {}
    twice: set[int] = set()
    for i in indices:
        if lines[i] in places:
            twice.add(lines[i])
        places.setdefault(lines[i], i)
    return {line: i for line, i in places.items() if line not in twice}


def _from_pairs(pairs: list[tuple[int, int]], n: int, m: int) -> list[Edit]:
    result = []
    i = j = 0
    for x, y in [*pairs, (n, m)]:
        if x > i or y > j:
            result.append(Edit(i, x, j, y))
        i, j = x + 1, y + 1
    return result


def _slide(
    unslid: list[Edit], old: Sequence[bytes], new: Sequence[bytes], *, tidy: bool
) -> list[Edit]:
    """Insertions and deletions slid to one canonical place; those that meet become one."""
    done: list[Edit] = []
    waiting = unslid[::-1]
    while waiting:
        edit = waiting.pop()
        low = (done[-1].old_end, done[-1].new_end) if done else (0, 0)
        up = _max_slide(edit, old, new, low, -1)
        top = _shift(edit, -up)
        if done and (top.old_start, top.new_start) == low:
            waiting.append(_join(done.pop(), top))
            continue
        high = (waiting[-1].old_start, waiting[-1].new_start) if waiting else (len(old), len(new))
        down = _max_slide(edit, old, new, high, 1)
        bottom = _shift(edit, down)
        if waiting and (bottom.old_end, bottom.new_end) == high:
            waiting.append(_join(bottom, waiting.pop()))
            continue
        if tidy and up + down:
            bottom = _best_slide(top, up + down, old, new)
        done.append(bottom)
    return done


def _max_slide(
    edit: Edit, a: Sequence[bytes], b: Sequence[bytes], end: tuple[int, int], step: int
) -> int:
    """By how many lines a pure insertion or deletion can slide in one direction."""
    i0, i1, j0, j1 = edit
    if (i0 < i1) == (j0 < j1):
        return 0
    lines, start, stop, bound = (a, i0, i1, end[0]) if i0 < i1 else (b, j0, j1, end[1])
    count = 0
    if step > 0:
        while stop + count < bound and lines[start + count] == lines[stop + count]:
            count += 1
    else:
        while start - count > bound and lines[start - count - 1] == lines[stop - count - 1]:
            count += 1
    return count


def _shift(edit: Edit, by: int) -> Edit:
    return Edit(edit[0] + by, edit[1] + by, edit[2] + by, edit[3] + by)


def _join(first: Edit, second: Edit) -> Edit:
    return Edit(first.old_start, second.old_end, first.new_start, second.new_end)


def _best_slide(top: Edit, reach: int, old: Sequence[bytes], new: Sequence[bytes]) -> Edit:
    lines, start, stop = (
        (old, top.old_start, top.old_end)
        if top.old_start < top.old_end
        else (new, top.new_start, top.new_end)
    )
    # edits slide far in runs of equal lines only, where all places look the same
    first = max(0, reach - 100)
    best = min(
        range(reach, first - 1, -1),
        key=lambda by: _boundary_cost(lines, start + by) + _boundary_cost(lines, stop + by),
    )
    return _shift(top, best)


def _boundary_cost(lines: Sequence[bytes], boundary: int) -> int:
    """The cost of a boundary before the line `boundary`: columns of indentation, less is better."""
    if boundary in (0, len(lines)):
        return -4
    line = lines[boundary]
    text = line.lstrip()
    # a blank line belongs to the lines above it
    indent = len(line) - len(text) if text else 12
    return indent - (0 if lines[boundary - 1].strip() else 4)
