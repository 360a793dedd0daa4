"""edit_file in files whose lines end with CRLF, against a list of lines with their ends."""

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from loom_audit.errors import InvalidArguments
from loom_audit.tools.bundled.edits import TextEdit, apply_edits
from tests.given.examples import examples
from tests.tools.conftest import Bench

CRLF, LF, NONE = b"\r\n", b"\n", b""


def edited(content: bytes, old: str, new: str, *, everywhere: bool = False) -> bytes:
    return apply_edits("f", content, [TextEdit(old.encode(), new.encode(), everywhere)])


@pytest.mark.parametrize(
    ("content", "old", "new", "wanted"),
    [
        (b"one\r\ntwo\r\n", "one\ntwo", "one\n2", b"one\r\n2\r\n"),
        (b"one\r\ntwo\r\n", "one\n", "1\n", b"1\r\ntwo\r\n"),
        (b"one\r\ntwo\r\n", "two", "two\nthree", b"one\r\ntwo\r\nthree\r\n"),
        (b"one\r\ntwo\r\n", "one\n", "", b"two\r\n"),
        (b"one\r\ntwo\r\n", "\ntwo", "", b"one\r\n"),
        (b"one\r\ntwo\r\n", "", "three\n", b"one\r\ntwo\r\nthree\r\n"),
        (b"one\r\ntwo", "two", "two\nthree", b"one\r\ntwo\r\nthree"),
        (b"one\r\ntwo", "two", "two\n", b"one\r\ntwo\r\n"),
        (b"one\r\n", "one", "nil\none", b"nil\r\none\r\n"),
        (b"one\r\ntwo\n", "two", "two\nthree", b"one\r\ntwo\nthree\n"),
        (b"one\r\ntwo\n", "one", "one\nmore", b"one\r\nmore\r\ntwo\n"),
        (b"one\ntwo\r\nthree\n", "one", "nil\none", b"nil\none\ntwo\r\nthree\n"),
        (b"one\r\ntwo\nthree\r\n", "one\ntwo\nthree", "1\n2\n3", b"1\r\n2\n3\r\n"),
        (b"a\r\nb\nc\r\n", "a\nb\nc\n", "a\nx\nb\nc\n", b"a\r\nx\r\nb\nc\r\n"),
        (b"a\r\nb\nc\r\n", "", "d\n", b"a\r\nb\nc\r\nd\r\n"),
        (b"a\r\nb\n", "\nb", "", b"a\n"),
        (b"a\r\nb\nc\r\n", "b", "b\r\nx", b"a\r\nb\r\nx\nc\r\n"),
    ],
)
def test_a_line_keeps_its_end_and_an_added_one_ends_as_the_one_before(
    content: bytes, old: str, new: str, wanted: bytes
) -> None:
    assert edited(content, old, new) == wanted


@pytest.mark.parametrize(
    ("content", "old", "new", "wanted"),
    [
        (b"one\r\ntwo\r\n", "one\r\ntwo", "one\ntwo", b"one\ntwo\r\n"),
        (b"one\ntwo\n", "two", "two\r\nthree", b"one\ntwo\r\nthree\n"),
        (b"one\r\ntwo\rthree\r\n", "one", "one\nmore", b"one\nmore\r\ntwo\rthree\r\n"),
        (b"one\r\n\0\r\n", "one", "one\nmore", b"one\nmore\r\n\0\r\n"),
    ],
)
def test_who_writes_a_cr_means_every_byte_and_so_does_who_edits_no_text(
    content: bytes, old: str, new: str, wanted: bytes
) -> None:
    assert edited(content, old, new) == wanted


@pytest.mark.parametrize("content", [b"one\r\ntwo\r\nx\r", b"one\r\ntwo\r\n\0"])
def test_in_a_file_with_nul_or_a_cr_alone_lf_is_not_crlf(content: bytes) -> None:
    with pytest.raises(InvalidArguments, match="not found"):
        edited(content, "one\ntwo", "x")


def test_what_matches_byte_for_byte_is_taken_before_what_ends_otherwise() -> None:
    content = b"a\nb\nc\r\na\r\nb\r\n"
    assert edited(content, "a\nb\n", "x\n") == b"x\nc\r\na\r\nb\r\n"
    with pytest.raises(InvalidArguments, match="found 2 times") as caught:
        edited(b"a\r\nb\nc\n" + b"a\nb\r\nc\n", "a\nb\nc", "x")
    assert caught.value.details == {"count": 2, "lines": [1, 4]}


def test_overlapping_matches_that_begin_with_a_line_end_are_counted_once_each() -> None:
    with pytest.raises(InvalidArguments) as caught:
        edited(b"x\n\r\na\r\na\r\n", "\na", "")
    assert caught.value.details["lines"] == [2, 3]


# --- any file, any edit -------------------------------------------------------------------


@dataclass
class Lines:
    """A file as its lines: the text of each, no two alike, and its end."""

    texts: list[bytes]
    ends: list[bytes]

    @property
    def content(self) -> bytes:
        return b"".join(text + end for text, end in zip(self.texts, self.ends, strict=True))


@st.composite
def files(draw: st.DrawFn, ends: st.SearchStrategy[bytes]) -> Lines:
    count = draw(st.integers(1, 7))
    chosen = [draw(ends) for _ in range(count)]
    if draw(st.booleans()):
        chosen[-1] = NONE
    return Lines([b"line %d" % n for n in range(count)], chosen)


MIXED = st.sampled_from([CRLF, LF])
ENDS = st.one_of(st.just(CRLF), MIXED)


@examples(80, 400)
@given(st.data(), st.sampled_from([st.just(CRLF), st.just(LF), MIXED]))
def test_lines_that_are_replaced_added_and_taken_away_leave_every_other_byte(
    data: st.DataObject, ends: st.SearchStrategy[bytes]
) -> None:
    """Some lines become others: the oracle works on the list of lines and never on bytes."""
    file = data.draw(files(ends))
    count = len(file.texts)
    first = data.draw(st.integers(0, count - 1))
    last = data.draw(st.integers(first + 1, count))
    new = [b"new %d" % n for n in range(data.draw(st.integers(1, 4)))]
    whole = file.ends[last - 1] != NONE and data.draw(st.booleans())
    old_str = b"\n".join(file.texts[first:last]) + (b"\n" if whole else b"")
    new_str = b"\n".join(new) + (b"\n" if whole else b"")

    kept = file.ends[first:last]
    made = []
    for n in range(len(new)):
        if n == len(new) - 1 and not whole:
            made.append(kept[-1])  # its end was not part of what was replaced
        elif n < len(kept) and kept[n] != NONE:
            made.append(kept[n])
        else:
            before = made[-1] if made else file.ends[first - 1] if first else NONE
            made.append(before or LF)
    wanted = Lines(
        [*file.texts[:first], *new, *file.texts[last:]],
        [*file.ends[:first], *made, *file.ends[last:]],
    )
    done = apply_edits("f", file.content, [TextEdit(old_str, new_str)])
    assert done == wanted.content


@examples(40, 200)
@given(files(ENDS), st.integers(0, 7), st.integers(1, 3), st.booleans())
def test_lines_that_are_added_behind_a_line_end_as_it_does(
    file: Lines, place: int, count: int, before: bool
) -> None:
    at = place % len(file.texts)
    new = [b"new %d" % n for n in range(count)]
    anchor = file.texts[at]
    texts = [*new, anchor] if before else [anchor, *new]
    end = file.ends[at - 1] if before and at else file.ends[at]
    if end == NONE:
        end = file.ends[at - 1] if at else LF
    done = apply_edits("f", file.content, [TextEdit(anchor, b"\n".join(texts))])
    where = at if before else at + 1
    wanted = Lines([*file.texts], [*file.ends])
    wanted.texts[where:where] = new
    wanted.ends[where:where] = [end] * count
    if not before and file.ends[at] == NONE:
        wanted.ends[at], wanted.ends[-1] = end, NONE
    assert done == wanted.content


PIECES = [b"a", b"b", b"\n", b"\r\n", b"\r", b"\0", b"ab", b"\xc3\xa9", b"\xff", b""]
RAW = st.lists(st.sampled_from(PIECES), max_size=12).map(b"".join)
TEXT = st.lists(st.sampled_from(["a", "b", "\n", "\r\n", "\r", "ab", "é", ""]), max_size=5).map(
    "".join
)


def flat(content: bytes) -> bytes:
    return content.replace(CRLF, LF)


@examples(120, 600)
@given(RAW, TEXT, TEXT, st.booleans())
@example(b"a\r\n\r\nb", "\n\nb", "", False)
@example(b"\r\n\n", "\n\n", "\n", True)
def test_any_edit_of_any_file_makes_what_it_makes_without_regard_to_line_ends(
    content: bytes, old: str, new: str, everywhere: bool
) -> None:
    """And where no CR stands alone or is written: no end is torn apart, and none is made up."""
    step = TextEdit(old.encode(), new.encode(), everywhere)
    alone = content.count(b"\r") != content.count(CRLF) or b"\0" in content
    exact = alone or b"\r" in step.old or CRLF not in content
    try:
        done = apply_edits("f", content, [step])
    except InvalidArguments:
        searched = content if exact else flat(content)
        assert searched.count(step.old) == 0 or not everywhere
        return
    if exact:
        assert done == naive(content, step)
        return
    if b"\r" in step.new:
        return
    assert done.count(b"\r") == done.count(CRLF), "no end is torn apart"
    if step.old not in content or content.count(CRLF) == content.count(LF):
        assert flat(done) == naive(flat(content), step)
    if content.count(CRLF) == content.count(LF):
        assert done.count(CRLF) == done.count(LF), "a file of CRLF stays one"


def naive(content: bytes, step: TextEdit) -> bytes:
    if not step.old:
        return content + step.new
    if step.everywhere:
        return step.new.join(content.split(step.old))
    before, _, after = content.partition(step.old)
    return before + step.new + after


some = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@some
@given(content=RAW, old=TEXT, new=TEXT, everywhere=st.booleans())
def test_what_is_on_disk_is_the_edit_in_memory_or_as_it_was(
    bench: Bench, content: bytes, old: str, new: str, everywhere: bool
) -> None:
    (bench.root / "e").write_bytes(content)
    arguments: dict[str, Any] = {"path": "e", "old_str": old, "new_str": new}
    result = bench.call("edit_file", {**arguments, "replace_all": everywhere})
    try:
        wanted = edited(content, old, new, everywhere=everywhere)
    except InvalidArguments:
        wanted = content
        assert not result.success
    assert (bench.root / "e").read_bytes() == wanted


def test_a_difference_of_line_ends_alone_is_named(bench: Bench) -> None:
    (bench.root / "e").write_bytes(b"one\r\ntwo\r\n")
    asked = {"path": "e", "old_str": "one\r\n", "new_str": "one\n"}
    result = bench.call("edit_file", asked)
    assert result.output == (
        "Edited e (1 edit):\n@@ -1,2 +1,2 @@\n-one\r\n+one\n two\r\n"
        "[lines that look alike end with CRLF before, with LF now]\n"
    )


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("caf\u00e9", "cafe\u0301", "U+00E9 before, U+0065 U+0301 now"),
        ("one", "one\u200b", "nothing before, U+200B now"),
        ("a b", "a\u00a0b", "U+0020 before, U+00A0 now"),
        ("one ", "one", "U+0020 before, nothing now"),
        ("on\u202ee", "one", "U+202E before, nothing now"),
        ("x" + "\u200b" * 9, "x", "U+200B U+200B U+200B U+200B … before, nothing now"),
    ],
)
def test_a_difference_of_characters_that_are_not_seen_is_named(
    bench: Bench, old: str, new: str, named: str
) -> None:
    (bench.root / "e").write_text(f"{old}\n", "utf-8")
    result = bench.call("edit_file", {"path": "e", "old_str": old, "new_str": new})
    assert result.output.endswith(f"[lines that look alike have {named}]\n")


def test_an_edit_of_a_file_with_crlf_shows_what_changed_and_nothing_else(bench: Bench) -> None:
    (bench.root / "e").write_bytes(b"one\r\ntwo\r\nthree\r\n")
    asked = {"path": "e", "old_str": "one\ntwo\n", "new_str": "one\n2\n"}
    result = bench.call("edit_file", asked)
    assert "-two\r\n+2\r\n" in result.output and "look alike" not in result.output
    assert (bench.root / "e").read_bytes() == b"one\r\n2\r\nthree\r\n"
    bench.assert_log_agrees_with_disk()


@pytest.mark.parametrize(
    "old",
    [
        *("     1\tone\n     2\ttwo\n", "1\tone", "e:1: one", "     1 | one\n     2 | two"),
        *("  7→seven", "1:one", "1:one\n2:two\n", "e:1:one", "1: one", "1-one\n2:two"),
    ],
)
def test_an_old_str_with_line_numbers_is_told_so_and_nothing_is_stripped(
    bench: Bench, old: str
) -> None:
    (bench.root / "e").write_text("one\ntwo\n")
    result = bench.call("edit_file", {"path": "e", "old_str": old, "new_str": "x"})
    assert result.error.code == "INVALID_ARGUMENTS"
    assert "old_str bears the line numbers of an answer" in result.error.hint
    assert (bench.root / "e").read_text() == "one\ntwo\n"


def test_a_file_whose_lines_begin_with_numbers_can_be_edited(bench: Bench) -> None:
    (bench.root / "e").write_text("1\tone\n2\ttwo\n")
    missed = bench.call("edit_file", {"path": "e", "old_str": "1\tuno", "new_str": "x"})
    assert "line numbers" not in missed.output
    (bench.root / "times").write_text("12:30 tea\n2026-01-01 rest\n")
    for old in ("12:31 tea", "2026-01-02 rest", "7:", "8:wine"):
        missed = bench.call("edit_file", {"path": "times", "old_str": old, "new_str": "x"})
        assert "line numbers" not in missed.output
    asked = {"path": "e", "old_str": "1\tone\n2\ttwo\n", "new_str": "1\teins\n"}
    assert bench.call("edit_file", asked).success
    assert (bench.root / "e").read_text() == "1\teins\n"
