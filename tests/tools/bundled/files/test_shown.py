"""What an answer shows of any text: both ends or a page of it, and truly where the rest begins."""

import io
import re
from datetime import UTC, datetime

from hypothesis import example, given, settings
from hypothesis import strategies as st

from loom_audit.tools.bundled.files.reading import ReadInput, _shown
from loom_audit.tools.bundled.files.shown import ShownText
from loom_audit.tools.calls.places.area import Entry
from loom_audit.tools.calls.result import MAX_OUTPUT
from tests.given.examples import examples

SIGNS = st.sampled_from([b"x", "é".encode(), "🙂".encode(), b"\xff", b"\r", b" a"])
LINES = st.lists(
    st.tuples(SIGNS, st.sampled_from([0, 1, 3, 9, 700, 3_000, 9_000])), min_size=1, max_size=12
)


@st.composite
def contents(draw: st.DrawFn) -> bytes:
    lines = [sign * length for sign, length in draw(LINES)]
    many = draw(st.booleans()) and sum(map(len, lines)) < 2_000
    whole = b"\n".join(lines * (90 if many else 1))
    return whole + (b"\n" if draw(st.booleans()) else b"")


def shown(content: bytes, **asked: object) -> ShownText:
    entry = Entry("f", "file", len(content), datetime(2026, 1, 1, tzinfo=UTC))
    args = ReadInput(path="f", **asked)  # type: ignore[arg-type] # drawn
    return _shown(args.read(io.BytesIO(content), entry), args)


def unnumbered(text: str) -> str:
    """The text behind the numbers, which count up one by one."""
    lines = re.findall(r"[^\n]*\n|[^\n]+", text)
    numbers = [int(line.partition("\t")[0]) for line in lines]
    assert not numbers or numbers == [*range(numbers[0], numbers[0] + len(numbers))]
    return "".join(line.partition("\t")[2] for line in lines)


@examples(30, 150)
@given(contents(), st.sampled_from([2**20, 5_000, 20_000]))
@example(b"\n" * 9_000, 2**20)
@example(b"x\n" * 3_000, 1_100)
@example(b"\xff" * 30_000, 2**20)
@example(b"x" * 9_000 + b"\n" + b"a\n" * 300, 2**20)
def test_both_ends_are_those_of_the_file_and_what_lies_between_is_named(
    content: bytes, most: int
) -> None:
    answer = shown(content, max_bytes=most)
    text = content.decode("utf-8", "replace")
    assert len(answer.text.encode()) <= MAX_OUTPUT
    if answer.whole and answer.next_offset is None:
        assert unnumbered(answer.text) == text
        return
    assert answer.next_offset is not None
    before = content[: answer.next_offset].decode("utf-8", "replace")
    if answer.next_line is not None:
        assert before.count("\n") == answer.next_line - 1 and before.endswith("\n")
    for sign in ("[… ", "[lines ", "[bytes "):
        head, found, rest = answer.text.rpartition(sign)
        if found:
            break
    assert unnumbered(head).removesuffix("\n") == before.removesuffix("\n")
    if sign == "[… ":
        tail = rest.partition(" …]\n")[2]
        assert text.endswith(unnumbered(tail) if re.match(r" *\d+\t", tail) else tail)


@settings(max_examples=60, deadline=None)
@given(contents(), st.sampled_from([None, 1, 7, 4_000]), st.booleans())
def test_pages_of_lines_put_together_are_the_file(
    content: bytes, limit: int | None, numbers: bool
) -> None:
    parts, at, inside = [], 1, 0
    while True:
        asked = {"line_limit": limit} if limit else {}
        answer = shown(content, line_offset=at, numbers=numbers, **asked)
        assert len(answer.text.encode()) <= MAX_OUTPUT
        if answer.next_offset is None:
            parts.append(content[inside:])
            break
        assert answer.next_offset > inside
        parts.append(content[inside : answer.next_offset])
        inside = answer.next_offset
        if answer.next_line is None:  # in bytes, up to the next line
            at += 1
            inside = content.find(b"\n", inside) + 1 or len(content)
            parts.append(content[sum(map(len, parts)) : inside])
            if inside == len(content):
                break
        else:
            at = answer.next_line
            assert content[:inside].count(b"\n") == at - 1
    assert b"".join(parts) == content
