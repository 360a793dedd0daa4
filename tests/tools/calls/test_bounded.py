"""to_json: what a model may be given of a result, bounded as its message is."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_audit.errors import ExecutionFailed
from loom_audit.tools.calls.bounded import bounded, json_size
from loom_audit.tools.calls.result import MAX_OUTPUT, ToolResult
from tests.tools.conftest import Bench

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=400),
    lambda inner: st.lists(inner, max_size=9) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=40,
)


@given(VALUES, st.integers(300, 3_000))
def test_any_value_fits_and_one_that_did_fit_is_not_touched(value: Any, most: int) -> None:
    shown = bounded(value, most)
    assert json_size(shown) <= most
    if json_size(value) <= most:
        assert shown == value
    if isinstance(value, str | list | dict):
        assert type(shown) is type(value)


def test_short_fields_stay_whole_and_long_ones_share_the_room() -> None:
    value = {"size": 9, "a": "x" * 50_000, "path": "a.txt", "b": "é" * 50_000, "list": [1] * 9_999}
    shown = bounded(value, 3_000)
    assert [*shown] == [*value] and (shown["size"], shown["path"]) == (9, "a.txt")
    assert "bytes left out" in shown["a"] and "bytes left out" in shown["b"]
    assert 100 < len(shown["list"]) < 400


def test_of_a_large_file_the_json_is_small_and_says_what_is_cut(bench: Bench) -> None:
    (bench.root / "long.txt").write_text("a line of some length\n" * 40_000)
    result = bench.call("read_file", {"path": "long.txt"})
    told = json.loads(result.to_json())
    assert len(result.to_json()) < 3 * MAX_OUTPUT
    assert told["output"] == result.output and told["message_truncated"] is True
    assert told["data"]["truncated"] is True and told["data"]["size"] == 880_000
    # and nothing else is cut
    assert len(result.data["content"]) == 880_000 and result.data["truncated"] is False
    kept = bench.last().result
    assert len(kept["data"]["content"]) == 880_000 and kept["data"]["truncated"] is False
    assert "message_truncated" not in kept


def test_a_result_that_fits_is_given_as_it_is() -> None:
    result = ToolResult(True, "done", {"n": 1, "truncated": False})
    assert json.loads(result.to_json()) == {
        "success": True,
        "output": "done",
        "data": {"n": 1, "truncated": False},
        "files_changed": [],
        "error": None,
        "message_truncated": False,
    }


def test_many_changed_files_and_a_long_error_are_cut_too() -> None:
    files = [f"folder/file-{n}.txt" for n in range(5_000)]
    error = ExecutionFailed("it broke", details={"text": "x" * 99_999})
    failed = ToolResult.failure(error, output="y" * 99_999)
    told = json.loads(ToolResult(False, failed.output, None, files, failed.error).to_json())
    assert told["files_changed"] == files[: len(told["files_changed"])] != []
    assert told["files_left_out"] == 5_000 - len(told["files_changed"])
    assert told["error"]["message"] == "it broke" and told["message_truncated"] is False
    assert failed.message_truncated is True


@pytest.mark.parametrize("value", [float("nan"), object()])
def test_what_is_not_json_is_not_json(value: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        ToolResult(True, "", {"x": value}).to_json()
