"""Model answers of three vendors, and rubbish, as tool calls; results as messages."""

from typing import Any

import pytest

from loom_audit.errors import FileNotFound, InvalidArguments
from loom_audit.tools.calls.messages import ToolCall, tool_calls_of, tool_messages, with_unique_ids
from loom_audit.tools.calls.result import ToolResult

WANTED = [ToolCall("call_1", "read_file", {"path": "a"}), ToolCall("call_2", "bash", {})]


def test_a_chat_completion_message_is_read() -> None:
    message = {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "call_1",
                "type": "function",
                "function": {"name": "read_file", "arguments": '{"path": "a"}'},
            },
            {"id": "call_2", "type": "function", "function": {"name": "bash", "arguments": ""}},
        ],
    }
    assert tool_calls_of(message) == WANTED
    assert tool_calls_of(message["tool_calls"]) == WANTED


def test_items_of_a_response_are_read() -> None:
    items = [
        {"type": "reasoning", "summary": []},
        {
            "type": "function_call",
            "id": "fc_1",
            "call_id": "call_1",
            "name": "read_file",
            "arguments": '{"path": "a"}',
        },
        {"type": "function_call", "call_id": "call_2", "name": "bash", "arguments": "{}"},
    ]
    assert tool_calls_of({"output": items}) == WANTED


def test_content_blocks_are_read() -> None:
    blocks = [
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "call_1", "name": "read_file", "input": {"path": "a"}},
        {"type": "tool_use", "id": "call_2", "name": "bash", "input": {}},
    ]
    assert tool_calls_of({"role": "assistant", "content": blocks}) == WANTED


def test_objects_of_a_package_are_read_by_their_dump() -> None:
    class Block:
        def model_dump(self) -> dict[str, object]:
            return {"type": "tool_use", "id": "call_2", "name": "bash", "input": {}}

    assert tool_calls_of([Block()]) == WANTED[1:]


def test_a_message_without_calls_has_none() -> None:
    assert tool_calls_of({"role": "assistant", "content": "Done."}) == []
    assert tool_calls_of({"role": "assistant", "content": "Done.", "tool_calls": None}) == []


@pytest.mark.parametrize("text", ['{"path": ', "[" * 100_000, "nonsense"])
def test_arguments_that_are_not_json_stay_a_text(text: str) -> None:
    (call,) = tool_calls_of([{"id": "x", "function": {"name": "bash", "arguments": text}}])
    assert call.arguments == text


def test_a_call_without_an_id_is_given_one() -> None:
    for said in ({}, {"id": ""}, {"id": 3}, {"id": None}):
        first, second = tool_calls_of([{"name": "bash", "arguments": {}, **said}] * 2)
        assert first.id and second.id and first.id != second.id
        assert isinstance(first.id, str)


@pytest.mark.parametrize("answer", ["text", 3, None, [3], ["text", None], {}, {"error": "busy"}])
def test_what_is_not_an_answer_is_refused(answer: Any) -> None:
    with pytest.raises(InvalidArguments):
        tool_calls_of(answer)


@pytest.mark.parametrize(
    ("part", "id", "arguments"),
    [
        ({"type": "tool_use", "id": "x", "input": {}}, "x", {}),
        ({"type": "tool_use", "id": "x", "name": "", "input": None}, "x", None),
        ({"type": "function_call", "call_id": "x", "name": 3, "arguments": "{}"}, "x", {}),
        ({"id": "x", "type": "function", "function": 3}, "x", 3),
        ({"id": "x", "function": {}}, "x", {}),
        ({"id": "x", "type": None}, "x", {}),
        (3, None, 3),
    ],
)
def test_a_malformed_call_stays_one_beside_the_others(
    part: dict[str, object] | int, id: str | None, arguments: dict[str, object] | int | None
) -> None:
    good = {"type": "tool_use", "id": "call_2", "name": "bash", "input": {}}
    first, second = tool_calls_of([part, good])
    assert second == WANTED[1]
    assert (first.name, first.arguments) == ("(no name)", arguments)
    assert first.id == id if id else first.id


def test_an_id_used_before_gets_a_number_and_the_message_answers_to_the_models() -> None:
    used: dict[str, int] = {}
    names = []
    for _ in range(3):
        calls = [ToolCall("call_0", "bash", {}), ToolCall("call_0#2", "bash", {})]
        given = [*with_unique_ids(calls, used)]
        names += [call.id for call in given]
        messages = tool_messages(given, [ToolResult(True)] * 2)
        assert [said["tool_call_id"] for said in messages] == ["call_0", "call_0#2"]
    assert names[:3] == ["call_0", "call_0#2", "call_0#3"]
    assert len({*names}) == len(names)


def test_no_calls_are_not_messages_and_another_dialect_is_refused() -> None:
    assert tool_messages([], [], "anthropic") == tool_messages([], []) == []
    with pytest.raises(InvalidArguments, match="mcp"):
        tool_messages([], [], "mcp")  # type: ignore[arg-type]


def test_results_go_back_as_tool_messages_errors_included() -> None:
    results = [
        ToolResult.failure(FileNotFound("File not found: missing.txt")),
        ToolResult(True, "fine"),
    ]
    first, second = tool_messages(WANTED, results)
    assert first["role"] == "tool" and first["tool_call_id"] == "call_1"
    assert first["content"].startswith("Error: File not found: missing.txt")
    assert second == {"role": "tool", "tool_call_id": "call_2", "content": "fine"}
