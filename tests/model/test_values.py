"""JSON values against the standard library's own idea of them."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_audit.errors import NotSerializable
from loom_audit.model import values
from loom_audit.model.values import as_json, nearest_json

leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(max_size=3)
anything = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=4)
        | st.tuples(inner)
    ),
    max_leaves=20,
)


def is_json(value: object) -> bool:
    if isinstance(value, dict) and not all(isinstance(key, str) for key in value):
        return False
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return False
    return (
        all(map(is_json, value.values()))
        if isinstance(value, dict)
        else (all(map(is_json, value)) if isinstance(value, (list, tuple)) else True)
    )


@given(anything)
def test_what_json_can_hold_passes_and_nothing_else(value: object) -> None:
    if is_json(value):
        assert as_json(value) == json.loads(json.dumps(value))
        assert nearest_json(value) == as_json(value)
    else:
        with pytest.raises(NotSerializable):
            as_json(value)
        assert is_json(nearest_json(value))


def test_a_copy_is_not_changed_with_the_original() -> None:
    value = {"a": [1]}
    copy = as_json(value)
    value["a"].append(2)
    assert copy == {"a": [1]}


def test_a_value_that_holds_itself_many_times_over_comes_to_an_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(values, "MAX_VALUES", 10_000)
    knot: list[object] = []
    knot.extend([knot] * 10)
    with pytest.raises(NotSerializable):
        as_json(knot)
    assert "<left out>" in json.dumps(nearest_json(knot))
    wide: list[object] = [0]
    for _ in range(60):
        wide = [wide, wide]
    with pytest.raises(NotSerializable, match="more than 10000 values"):
        as_json(wide)


@pytest.mark.parametrize("wrap", [list, lambda items: dict.fromkeys(map(str, items), None)])
def test_so_many_values_and_not_one_more(
    monkeypatch: pytest.MonkeyPatch, wrap: Callable[[range], Any]
) -> None:
    monkeypatch.setattr(values, "MAX_VALUES", 1_000)
    assert len(as_json(wrap(range(999)))) == 999
    with pytest.raises(NotSerializable, match="more than 1000 values"):
        as_json(wrap(range(1_000)))


def test_what_has_no_place_in_json_stands_as_its_type_and_text() -> None:
    value = {"a": {1}, 2: (b"x", float("inf")), "b": [None, True, 0.5]}
    assert nearest_json(value) == {
        "a": "<set: {1}>",
        "int: 2": ["<bytes: b'x'>", "<float: inf>"],
        "b": [None, True, 0.5],
    }
    assert nearest_json([0] * 10_001)[-2:] == [0, "<left out>"]


def test_an_error_names_the_place() -> None:
    with pytest.raises(NotSerializable, match=r"set at arguments\.a\[1\]\.b is not a JSON value"):
        as_json({"a": [0, {"b": {1}}]}, "arguments")
