"""JSON with comments, changed as text: what is not changed keeps every byte."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_audit.clients import jsonc
from loom_audit.errors import InvalidArguments

NAMES = st.text(max_size=4)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=12,
)
BLANK = st.sampled_from(["", " ", "\n", "\r\n", "\t", " // note, {\n", '/* , } ] " */', "\n  "])


@st.composite
def commented(draw: st.DrawFn, told: Any) -> str:
    """The value as somebody might write it, with blanks, comments and commas after the last."""
    if isinstance(told, dict | list):
        parts = []
        pairs = told.items() if isinstance(told, dict) else ((None, one) for one in told)
        for name, one in pairs:
            label = "" if name is None else f"{json.dumps(name)}{draw(BLANK)}:{draw(BLANK)}"
            parts.append(f"{draw(BLANK)}{label}{draw(commented(one))}{draw(BLANK)}")
        comma = draw(st.sampled_from(["", ","])) if parts else ""
        first, last = ("{", "}") if isinstance(told, dict) else ("[", "]")
        return f"{first}{','.join(parts)}{comma}{draw(BLANK)}{last}"
    return json.dumps(told, ensure_ascii=draw(st.booleans()))


@given(PLAIN, st.data())
def test_a_text_is_read_as_what_it_was_written_from(told: Any, data: st.DataObject) -> None:
    text = data.draw(BLANK) + data.draw(commented(told)) + data.draw(BLANK)
    assert jsonc.value(text, jsonc.read(text)) == told


@given(st.dictionaries(st.text(max_size=4), PLAIN, max_size=4), PLAIN, st.data())
def test_what_was_added_is_there_and_taken_out_leaves_the_rest(
    told: dict[str, Any], added: Any, data: st.DataObject
) -> None:
    text = data.draw(commented(told))
    name = "added\u00e9"
    more = jsonc.with_member(text, jsonc.read(text), name, added)
    node = jsonc.read(more)
    assert jsonc.value(more, node) == {**told, name: added}
    less = jsonc.without(more, node, node.names.index(name))
    assert jsonc.value(less, jsonc.read(less)) == told
    assert "".join(less.split()).count("//note,{") == "".join(text.split()).count("//note,{")


@given(st.lists(PLAIN, min_size=1, max_size=5), st.data())
def test_an_item_is_taken_out_of_a_list(told: list[Any], data: st.DataObject) -> None:
    text = data.draw(commented(told))
    index = data.draw(st.integers(0, len(told) - 1))
    less = jsonc.without(text, jsonc.read(text), index)
    assert jsonc.value(less, jsonc.read(less)) == told[:index] + told[index + 1 :]
    more = jsonc.with_item(text, jsonc.read(text), told[index])
    assert jsonc.value(more, jsonc.read(more)) == [*told, told[index]]


@pytest.mark.parametrize(
    "text",
    ['{"a": 1 /* x *//* y */}', '{"a": 1 // y\n}', '{"a": "http://b"}', '{"a": 1, // y\n}'],
)
def test_two_slashes_are_a_comment_only_where_they_begin_one(text: str) -> None:
    more = jsonc.with_member(text, jsonc.read(text), "added", [1])
    node = jsonc.read(more)
    assert jsonc.without(more, node, 1) == text


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ("", 1, 1),
        ("{", 1, 2),
        ('{"a": 1 "b"}', 1, 9),
        ('{\n  "a": tru\n}', 2, 8),
        ("{a: 1}", 1, 2),
        ('{"a" 1}', 1, 6),
        ("[1]\n[2]", 2, 1),
        ('{"a": "\\x"}', 1, 7),
        ("/* open", 1, 1),
        ("[" * 300, 1, 202),
    ],
)
def test_what_is_wrong_is_named_by_line_and_column(text: str, line: int, column: int) -> None:
    with pytest.raises(InvalidArguments) as caught:
        jsonc.read(text)
    assert caught.value.details == {"line": line, "column": column}
