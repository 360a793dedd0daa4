"""Edits between texts: right, shortest, in one canonical place, and bounded in work."""

import random
from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_audit.model.text.lines import Edit, edits, split_lines

few_lines = st.lists(st.sampled_from([b"a\n", b"b\n", b"\n", b"  c\n", b"d"]), max_size=12)


def replayed(old: list[bytes], new: list[bytes], found: Iterable[Edit]) -> list[bytes]:
    out: list[bytes] = []
    at = 0
    for edit in found:
        out += old[at : edit.old_start] + new[edit.new_start : edit.new_end]
        at = edit.old_end
    return out + old[at:]


def longest_common(a: list[bytes], b: list[bytes]) -> int:
    """The textbook table."""
    rows = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            rows[i + 1][j + 1] = rows[i][j] + 1 if x == y else max(rows[i][j + 1], rows[i + 1][j])
    return rows[-1][-1]


@given(few_lines, few_lines, st.booleans())
def test_edits_lead_from_old_to_new_and_are_shortest(
    old: list[bytes], new: list[bytes], tidy: bool
) -> None:
    found = edits(old, new, tidy=tidy)
    assert replayed(old, new, found) == new
    assert sum(e.new_end - e.new_start for e in found) == len(new) - longest_common(old, new)
    assert all(before.old_end < after.old_start for before, after in pairwise(found))


@given(st.binary())
def test_lines_joined_are_the_content(content: bytes) -> None:
    lines = split_lines(content)
    assert b"".join(lines) == content
    assert all(line.count(b"\n") == line.endswith(b"\n") for line in lines) and b"" not in lines


def test_a_carriage_return_alone_ends_no_line() -> None:
    assert split_lines(b"a\rb\r\nc") == [b"a\rb\r\n", b"c"]


def test_a_repeated_line_is_inserted_at_the_lowest_place() -> None:
    assert edits([b"x", b"a", b"a", b"y"], [b"x", b"a", b"a", b"a", b"y"]) == [Edit(3, 3, 3, 4)]


def test_tidy_edits_follow_blank_lines() -> None:
    old = [b"def a():\n", b"    pass\n", b"\n", b"def c():\n", b"    pass\n"]
    new = [*old[:3], b"def b():\n", b"    pass\n", b"\n", *old[3:]]
    assert edits(old, new, tidy=True) == [Edit(3, 3, 3, 6)]


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", ["shuffled", "repetitive", "disjoint", "moved block"])
def test_texts_of_50000_lines_with_nothing_in_order_end_and_replay(kind: str) -> None:
    rng = random.Random(7)
    old = [b"line %d\n" % i for i in range(50_000)]
    if kind == "shuffled":
        new = rng.sample(old, len(old))
    elif kind == "repetitive":
        old = [rng.choice([b"a\n", b"b\n", b"c\n"]) for _ in range(50_000)]
        new = [rng.choice([b"a\n", b"b\n", b"c\n"]) for _ in range(50_000)]
    elif kind == "disjoint":
        new = [b"other %d\n" % i for i in range(50_000)]
    else:
        new = old[20_000:] + old[:20_000]
    found = edits(old, new)
    assert replayed(old, new, found) == new
    if kind == "moved block":
        assert sum(e.new_end - e.new_start for e in found) == 20_000
