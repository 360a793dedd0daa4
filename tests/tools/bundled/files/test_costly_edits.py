"""Edits of content that is made so that looking for a text in it takes for ever: none does.

Each of these took minutes, under the lock of the workspace, when the work grew with the square.
"""

import pytest

from loom_audit.errors import InvalidArguments, TooLarge
from loom_audit.model.text.nearest import nearest
from loom_audit.tools.bundled.edits import MAX_COUNTED, MAX_FITTED, TextEdit, apply_edits
from loom_audit.tools.bundled.text import diff_text
from tests.tools.conftest import Bench

MANY = 450_000
MIXED = b"z\n" * 50 + b"z\r\n"


def refused(content: bytes, old: bytes, new: bytes = b"q", *, everywhere: bool = False) -> str:
    with pytest.raises(InvalidArguments) as caught:
        apply_edits("y", content, [TextEdit(old, new, everywhere)])
    return f"{caught.value} {caught.value.hint}"


def test_a_text_that_overlaps_itself_at_every_byte_is_counted_so_far_as_is_told(
    bench: Bench,
) -> None:
    bench.call("write_file", {"path": "y", "content": "z" * 2 * MANY})
    result = bench.call("edit_file", {"path": "y", "old_str": "z" * 50_000, "new_str": "q"})
    assert result.error.message.startswith(f"old_str found at least {MAX_COUNTED} times in y")
    assert result.error.details == {"count": MAX_COUNTED, "lines": [1] * MAX_COUNTED}
    assert bench.tree()["y"] == b"z" * 2 * MANY
    assert "found 99 times" in refused(b"z" * 99, b"z")


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "content", [b"z\n" * MANY, b"z\r\n" * MANY, b"z\r\n" + b"z\n" * MANY, MIXED * (MANY // 50)]
)
def test_lines_that_overlap_themselves_are_counted_whatever_they_end_with(content: bytes) -> None:
    assert f"at least {MAX_COUNTED} times" in refused(content, b"z\n" * 25_000)
    assert "not found" in refused(content, b"z\n" * 25_000 + b"q")


def test_the_ends_of_lines_are_kept_at_a_number_of_places_that_is_told() -> None:
    content = b"a\r\n" + b"z\n" * (MAX_FITTED + 1)
    said = refused(content, b"z\n", b"q\n", everywhere=True)
    assert f"found {MAX_FITTED + 1} times" in said and str(MAX_FITTED) in said
    fewer = apply_edits("y", content[:-2], [TextEdit(b"z\n", b"q\n", everywhere=True)])
    assert fewer == b"a\r\n" + b"q\n" * MAX_FITTED
    # within lines there is no end to keep
    within = apply_edits("y", content, [TextEdit(b"z", b"qq", everywhere=True)])
    assert within == b"a\r\n" + b"qq\n" * (MAX_FITTED + 1)


def test_a_line_of_many_places_is_not_copied_for_each_of_them() -> None:
    content = b"a\r\n" + (b"z" + b"x" * 99) * MAX_FITTED + b"\n"
    done = apply_edits("y", content, [TextEdit(b"z", b"q\nw", everywhere=True)])
    assert done == b"a\r\n" + (b"q\nw" + b"x" * 99) * MAX_FITTED + b"\n"


def test_a_result_that_no_file_may_have_is_refused_before_it_is_made() -> None:
    with pytest.raises(TooLarge, match="more than"):
        apply_edits("y", b"z" * MANY, [TextEdit(b"z", b"q" * 50_000, everywhere=True)])


def test_numbers_of_any_length_are_no_line_numbers() -> None:
    assert "line numbers" not in refused(b"abc", b"1" * 5_000 + b"\tx")


def test_lines_of_the_same_letters_in_another_order_are_compared_so_far_as_is_bounded() -> None:
    content = (b"b" * 100 + b"a" * 100 + b"\n") * 5_000
    assert nearest(content, b"a" * 100 + b"b" * 100) is None
    found = nearest(content + b"a" * 100 + b"b" * 99, b"a" * 100 + b"b" * 100)
    assert found is None or found.line == 5_001


def test_lines_that_look_alike_are_not_each_compared_with_all() -> None:
    said = diff_text(b"\xff\n" * 200_000, b"\xfe\n" * 200_000)
    assert said.endswith("[lines that look alike differ in bytes that are not UTF-8]\n")
