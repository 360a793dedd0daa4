"""Ranges, edits and cutting against models that are naive and obviously right."""

import io
import json

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from loom_audit.errors import FileNotFound, InvalidArguments
from loom_audit.model.text.cutting import cut
from loom_audit.tools.bundled.edits import TextEdit, apply_edits
from loom_audit.tools.bundled.text import (
    count_lines,
    decode,
    diff_text,
    encode,
    read_part,
)
from loom_audit.tools.calls.result import MAX_OUTPUT, ToolResult

raw = st.lists(
    st.sampled_from([b"a", b"bb", b"\n", b"\r\n", "é".encode(), b"\xff", b"\0", "🙂".encode()]),
    max_size=60,
).map(b"".join)
short = st.lists(st.sampled_from([b"a", b"b", b"\n", b"\r\n", b"\xff"]), max_size=4).map(b"".join)


def lines_of(content: bytes) -> list[bytes]:
    return [part + b"\n" for part in content.split(b"\n")[:-1]] + (
        [content.split(b"\n")[-1]] if content.split(b"\n")[-1] else []
    )


@given(raw, st.integers(1, 20), st.integers(0, 20), st.integers(1, 100))
@example(b"ab\ncd\nef\n", 1, 2, 4)
def test_a_range_is_what_cutting_a_list_of_lines_gives(
    content: bytes, first: int, more: int, limit: int
) -> None:
    last = first + more
    part = read_part(io.BytesIO(content), first, last, limit)
    wanted = b"".join(lines_of(content)[first - 1 : last])
    assert part.raw == wanted[:limit]
    assert part.truncated == (len(wanted) > limit)


@given(raw)
def test_a_file_read_whole_is_the_file_and_its_lines_are_counted(content: bytes) -> None:
    part = read_part(io.BytesIO(content), 1, None, 10**6)
    assert (part.raw, part.truncated, part.lines) == (content, False, len(lines_of(content)))


def test_a_range_is_found_across_chunks_of_the_stream() -> None:
    content = b"".join(b"%d %s\n" % (n, b"x" * 1000) for n in range(1, 500))
    part = read_part(io.BytesIO(content), 300, 301, 10**6)
    assert part.raw == b"".join(lines_of(content)[299:301])


def test_an_endless_line_is_not_read_beyond_the_limit() -> None:
    class Endless(io.BytesIO):
        given = 0

        def read(self, size: int | None = -1) -> bytes:
            assert size is not None
            self.given += size
            assert self.given < 10**6
            return b"x" * size

    assert read_part(Endless(), 1, 1, 1000).truncated


def naive_edit(content: bytes | None, steps: list[TextEdit]) -> bytes | None:
    """The rules word by word; None where they call for an error."""
    for step in steps:
        if not step.old:
            content = (content or b"") + step.new
            continue
        if content is None:
            return None
        places = [n for n in range(len(content)) if content[n : n + len(step.old)] == step.old]
        if not places or (len(places) > 1 and not step.everywhere):
            return None
        content = (
            step.new.join(content.split(step.old))
            if step.everywhere
            else content[: places[0]] + step.new + content[places[0] + len(step.old) :]
        )
    return content


# files with CRLF: test_line_ends.py
exact = raw.filter(lambda content: b"\r\n" not in content)
steps = st.lists(st.builds(TextEdit, short, short, st.booleans()), min_size=1, max_size=5)


@given(st.none() | exact, steps)
def test_edits_do_what_the_rules_say(content: bytes | None, steps: list[TextEdit]) -> None:
    between = [naive_edit(content, steps[:n]) or b"" for n in range(len(steps))]
    assume(not any(b"\r\n" in one for one in between))  # what an edit made of it counts too
    wanted = naive_edit(content, steps)
    if wanted is None:
        with pytest.raises((InvalidArguments, FileNotFound)):
            apply_edits("f", content, steps)
    else:
        assert apply_edits("f", content, steps) == wanted


def test_an_edit_keeps_bytes_that_are_not_utf_8_and_newlines_as_they_are() -> None:
    content = b"\xff\xfe one\r\ntwo\nthree\r"
    done = apply_edits("f", content, [TextEdit(b"two", "zwö".encode())])
    assert done == b"\xff\xfe one\r\nzw\xc3\xb6\nthree\r"


def test_overlapping_occurrences_count_as_several() -> None:
    with pytest.raises(InvalidArguments, match="found 2 times"):
        apply_edits("f", b"aaa", [TextEdit(b"aa", b"b")])


def test_of_several_occurrences_the_lines_are_told() -> None:
    content = b"x\nname = 1\n\nname = 2; name = 3\n" + b"y\n" * 9 + b"name\n"
    with pytest.raises(InvalidArguments, match="found 4 times") as caught:
        apply_edits("f", content, [TextEdit(b"name", b"b")])
    assert caught.value.hint.startswith("It begins in lines 2, 4, 4, 14. ")


def test_a_missing_old_str_says_that_line_ends_differ() -> None:
    with pytest.raises(InvalidArguments) as caught:
        apply_edits("f", b"one\ntwo\n", [TextEdit(b"one\r\ntwo", b"x")])
    assert "line ends (the file: LF, old_str: CRLF)" in caught.value.hint


@given(raw)
def test_lines_are_counted_as_they_are_read(content: bytes) -> None:
    assert count_lines(io.BytesIO(content)) == len(lines_of(content))


def test_an_error_names_which_edit_of_several_failed() -> None:
    with pytest.raises(
        InvalidArguments,
        match=r"edit 2 of 2, of which none was made: old_str not found in f: 'nope'",
    ):
        apply_edits("f", b"one", [TextEdit(b"one", b"1"), TextEdit(b"nope", b"")])


def naive_patch(old: bytes, text: str) -> bytes:
    """What `patch` makes of the hunks; what they say is there must stand there."""
    lines, made, at = lines_of(old), list[bytes](), 0
    for line in text.encode().splitlines(keepends=True):
        mark, content = line[:1], line[1:]
        if mark == b"@":
            place, size = [*map(int, line.split()[1][1:].split(b",")), 1][:2]
            made += lines[at : (at := place - (size > 0))]
        if mark in b" -":
            assert lines[at] == content
            at += 1
        if mark in b" +":
            made.append(content)
    return b"".join(made + lines[at:])


lines = st.lists(st.sampled_from([b"a\n", b"b\n", b"\n", b"c d\n"]), max_size=30).map(b"".join)


@given(lines, lines, lines, lines)
@example(b"", b"a\n", b"", b"")
@example(b"a\n" * 20, b"", b"a\n", b"a\n" * 20)
def test_the_shown_difference_patches_the_old_content_into_the_new(
    above: bytes, old: bytes, new: bytes, below: bytes
) -> None:
    old, new = above + old + below, above + new + below
    shown = diff_text(old, new)
    assert shown == "[the content is as it was]" if old == new else naive_patch(old, shown) == new


@pytest.mark.few(0)
def test_a_difference_in_a_file_of_40_mib_is_found_and_a_rewritten_one_is_not_compared() -> None:
    content = b"".join(b"line %d of the file\n" % n for n in range(2_000_000))
    changed = content.replace(b"line 1000000 of", b"LINE 1000000 of")
    assert diff_text(content, changed).splitlines() == [
        "@@ -999998,7 +999998,7 @@",
        " line 999997 of the file",
        " line 999998 of the file",
        " line 999999 of the file",
        "-line 1000000 of the file",
        "+LINE 1000000 of the file",
        " line 1000001 of the file",
        " line 1000002 of the file",
        " line 1000003 of the file",
    ]
    assert "too large" in diff_text(content, content.replace(b"line", b"LINE"))


def test_a_missing_newline_at_the_end_is_shown_and_binary_content_is_not() -> None:
    assert diff_text(b"a\nb\n", b"a\nb") == (
        "@@ -1,2 +1,2 @@\n a\n-b\n+b\n\\ No newline at end of file\n"
    )
    assert diff_text(b"\0", b"\0\0") == "[binary content is not shown]"


@given(raw, st.integers(0, 100))
def test_a_part_decodes_to_the_start_of_the_whole(content: bytes, end: int) -> None:
    text = decode(content[:end], whole=False)
    assert decode(content).startswith(text)


def test_a_lone_surrogate_is_not_content() -> None:
    with pytest.raises(InvalidArguments, match="lone surrogate at 1"):
        encode("a\udcff", "content")


@given(st.text(alphabet=st.characters(), max_size=400), st.integers(100, 300))
def test_a_cut_text_fits_keeps_both_ends_and_says_so(text: str, limit: int) -> None:
    shown = cut(text, limit)
    size = len(text.encode("utf-8", "surrogatepass"))
    assert len(shown.encode("utf-8", "surrogatepass")) <= limit
    if size <= limit:
        assert shown == text
    else:
        head, tail = (
            shown.split(f" of {size} bytes left out …]\n")[0].rsplit("\n[… ", 1)[0],
            (shown.rsplit(f" of {size} bytes left out …]\n", 1)[1]),
        )
        assert text.startswith(head) and text.endswith(tail)
        assert len(head) > 3 and len(tail) > 3


def test_a_long_output_is_cut_for_the_model_and_kept_for_the_log() -> None:
    text = "".join(f"line {n}\n" for n in range(10_000))
    result = ToolResult(True, text)
    assert len(result.output.encode()) <= MAX_OUTPUT
    assert result.output.startswith("line 0\n") and result.output.endswith("line 9999\n")
    said = [line for line in result.output.splitlines() if line not in text.splitlines()]
    assert len(said) == 1  # no part of a line looks like one
    assert "bytes left out" in result.output
    assert result.to_record()["output"] == text
    assert json.loads(result.to_json())["output"] == result.output
