"""Merging texts, compared with `git merge-file` and with merges known by construction."""

import random
import shutil
import subprocess
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_audit.model.text.merge import MAX_BYTES, MergeResult, merge3
from tests.given.examples import examples

GitMerge = Callable[[bytes, bytes, bytes], tuple[bytes, int]]
"""Base, ours and theirs → what git makes of them, and its exit code."""

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


@pytest.fixture(scope="module")
def git_merge(tmp_path_factory: pytest.TempPathFactory) -> GitMerge:
    folder = tmp_path_factory.mktemp("merge")

    def run(base: bytes, ours: bytes, theirs: bytes) -> tuple[bytes, int]:
        for name, content in (("base", base), ("ours", ours), ("theirs", theirs)):
            (folder / name).write_bytes(content)
        done = subprocess.run(
            ["git", "merge-file", "-p", "ours", "base", "theirs"], cwd=folder, capture_output=True
        )
        return done.stdout, done.returncode

    return run


def changed(draw: st.DrawFn, base: list[bytes], mark: bytes) -> list[bytes]:
    """The base with a few stretches replaced, inserted or deleted, every new line unique."""
    lines = list(base)
    for n in range(draw(st.integers(0, 3))):
        start = draw(st.integers(0, len(lines)))
        end = min(len(lines), start + draw(st.integers(0, 2)))
        fresh = [b"%s%d.%d\n" % (mark, n, i) for i in range(draw(st.integers(0, 2)))]
        lines[start:end] = fresh
    return lines


@st.composite
def distinct_lines(draw: st.DrawFn) -> tuple[bytes, ...]:
    """Three versions whose lines occur once each, with any endings."""
    base = [b"line %d\n" % i for i in range(draw(st.integers(0, 14)))]
    sides = [base, changed(draw, base, b"ours "), changed(draw, base, b"theirs ")]
    ending = draw(st.sampled_from([b"\n", b"\r\n"]))
    contents = [b"".join(side).replace(b"\n", ending) for side in sides]
    return tuple(c.removesuffix(b"\n") if draw(st.booleans()) else c for c in contents)


few_lines = st.lists(st.sampled_from([b"a\n", b"b\n", b"\n"]), max_size=7).map(b"".join)


@needs_git
@examples(60, 300)
@given(versions=distinct_lines())
def test_git_agrees_where_every_line_is_different(
    git_merge: GitMerge, versions: tuple[bytes, bytes, bytes]
) -> None:
    merged = merge3(*versions)
    content, conflicts = git_merge(*versions)
    assert (merged.conflicts == 0) == (conflicts == 0)
    if not conflicts:
        assert merged.content == content


@examples(40, 200)
@given(few_lines, few_lines, few_lines)
def test_a_merge_does_not_depend_on_the_sides(base: bytes, ours: bytes, theirs: bytes) -> None:
    """Also where lines repeat, and git may place an insertion elsewhere among equal lines."""
    one, other = merge3(base, ours, theirs), merge3(base, theirs, ours)
    assert one.conflicts == other.conflicts
    if not one.conflicts:
        assert one == other


@given(few_lines, few_lines)
def test_one_side_alone_is_taken_whole(base: bytes, side: bytes) -> None:
    assert merge3(base, side, base) == MergeResult(side, 0)
    assert merge3(base, base, side) == MergeResult(side, 0)
    assert merge3(base, side, side) == MergeResult(side, 0)


@given(st.data())
def test_edits_apart_from_each_other_are_both_there(data: st.DataObject) -> None:
    """Each edit replaces one of a row of slots; between two slots stands an untouched line."""
    slots = data.draw(st.lists(st.sampled_from(["none", "ours", "theirs"]), min_size=1))
    base, ours, theirs, both = [], [], [], []
    for n, side in enumerate(slots):
        old = [b"old %d\n" % n] * data.draw(st.integers(0, 2))
        new = [b"new %d\n" % n] * data.draw(st.integers(0 if old else 1, 3))
        fence = b"fence %d\n" % n
        base += [*old, fence]
        ours += [*(new if side == "ours" else old), fence]
        theirs += [*(new if side == "theirs" else old), fence]
        both += [*(old if side == "none" else new), fence]
    assert merge3(*map(b"".join, (base, ours, theirs))) == MergeResult(b"".join(both), 0)


@given(st.data())
def test_different_edits_of_one_line_are_always_a_conflict(data: st.DataObject) -> None:
    base = [b"line %d\n" % n for n in range(data.draw(st.integers(1, 12)))]
    at = data.draw(st.integers(0, len(base) - 1))
    ours, theirs = list(base), list(base)
    ours[at], theirs[at] = b"mine\n", b"yours\n"
    merged = merge3(*map(b"".join, (base, ours, theirs)), labels=("taken back", "call 7"))
    marked = [b"<<<<<<< taken back\n", b"mine\n", b"=======\n", b"yours\n", b">>>>>>> call 7\n"]
    assert merged == MergeResult(b"".join([*base[:at], *marked, *base[at + 1 :]]), 1)


def test_touching_edits_are_a_conflict() -> None:
    assert merge3(b"a\nb\n", b"A\nb\n", b"a\nB\n").conflicts == 1


def test_lines_both_sides_share_stay_outside_the_markers() -> None:
    merged = merge3(b"x\n", b"1\n2\n3\n", b"1\n9\n3\n", labels=("l", "r"))
    assert merged.content == b"1\n<<<<<<< l\n2\n=======\n9\n>>>>>>> r\n3\n"


def test_files_both_created_conflict_where_they_differ() -> None:
    merged = merge3(None, b"same\nmine\n", b"same\nyours\n", labels=("l", "r"))
    assert merged == MergeResult(b"same\n<<<<<<< l\nmine\n=======\nyours\n>>>>>>> r\n", 1)


def test_carriage_returns_stay_and_markers_have_them_too() -> None:
    merged = merge3(b"a\r\n", b"b\r\n", b"c", labels=("l", "r"))
    assert merged.content == b"<<<<<<< l\r\nb\r\n=======\r\nc\r\n>>>>>>> r\r\n"


def test_a_missing_final_newline_stays_missing() -> None:
    assert merge3(b"a\nb\nc", b"A\nb\nc", b"a\nb\nC") == MergeResult(b"A\nb\nC", 0)


def test_binary_and_huge_content_is_merged_only_where_trivial() -> None:
    assert merge3(b"\0a", b"\0b", b"\0c") is None
    assert merge3(b"\0a", b"\0b", b"\0a") == MergeResult(b"\0b", 0)
    huge = b"x" * (MAX_BYTES + 1)
    assert merge3(b"a", b"b", huge) is None
    assert merge3(b"a", b"a", huge) == MergeResult(huge, 0)


@needs_git
def test_50000_lines_with_many_edits_merge_as_git_does(git_merge: GitMerge) -> None:
    rng = random.Random(3)
    base = [b"line %d\n" % n for n in range(50_000)]
    ours, theirs = list(base), list(base)
    for at in rng.sample(range(0, 50_000, 4), 1000):
        side = rng.choice([ours, theirs])
        side[at] = b"changed %d\n" % at
    versions = [b"".join(side) for side in (base, ours, theirs)]
    merged = merge3(*versions)
    assert (merged.content, merged.conflicts) == git_merge(*versions)


@pytest.mark.few(0)
def test_50000_lines_of_a_few_kinds_end_in_a_merge_or_a_conflict() -> None:
    rng = random.Random(5)
    versions = [b"".join(rng.choices([b"a\n", b"b\n"], k=50_000)) for _ in range(3)]
    assert merge3(*versions).conflicts >= 1
