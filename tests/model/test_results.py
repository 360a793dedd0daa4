"""What a call gave, as the log keeps it."""

import pytest

from loom_audit import ToolResult
from loom_audit.model.coverage import Status
from loom_audit.model.results import MAX_KEPT, result_record, told_result


def test_a_result_of_a_tool_and_one_that_a_client_told_have_one_form() -> None:
    told = told_result("ok", {"output": "done", "data": {"exit_code": 0}})
    assert told == ToolResult(True, "done", {"exit_code": 0}).to_record()
    assert told.keys() == result_record(True).keys()


@pytest.mark.parametrize(
    ("status", "code"),
    [
        ("ok", None),
        ("running", None),
        ("unknown", None),
        ("denied", "APPROVAL_DENIED"),
        ("timeout", "TIMEOUT"),
        ("error", "EXECUTION_ERROR"),
        ("cancelled", "EXECUTION_ERROR"),
    ],
)
def test_how_a_call_ended_is_in_its_result(status: Status, code: str | None) -> None:
    told = told_result(status, {"output": "why\nand more"})
    assert told["success"] == (code is None)
    assert (told["error"] or {}).get("code") == code
    assert (told["error"] or {"message": "why"})["message"] == "why"


def test_what_is_neither_text_nor_object_is_left_out_and_a_long_text_is_cut() -> None:
    assert told_result("ok", {"output": 3, "data": {}}) == result_record(True)
    kept = told_result("error", {"output": "x" * 2 * MAX_KEPT})["output"]
    assert len(kept) <= MAX_KEPT and "bytes left out" in kept
