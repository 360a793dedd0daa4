"""Model answers of three vendors, and rubbish, as tool calls; results as messages."""

import pytest

from loom_audit.errors import FileNotFound, InvalidArguments
from loom_audit.tools.messages import ToolCall, tool_calls_of, tool_messages
from loom_audit.tools.tool import ToolResult

WANTED = [ToolCall("call_1", "read_file", {"path": "a"}), ToolCall("call_2", "bash", {})]


def test_a_chat_completion_message_is_read():
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


def test_items_of_a_response_are_read():
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


def test_content_blocks_are_read():
    blocks = [
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "call_1", "name": "read_file", "input": {"path": "a"}},
        {"type": "tool_use", "id": "call_2", "name": "bash", "input": {}},
    ]
    assert tool_calls_of({"role": "assistant", "content": blocks}) == WANTED


def test_objects_of_a_package_are_read_by_their_dump():
    class Block:
        def model_dump(self):
            return {"type": "tool_use", "id": "call_2", "name": "bash", "input": {}}

    assert tool_calls_of([Block()]) == WANTED[1:]


def test_a_message_without_calls_has_none():
    assert tool_calls_of({"role": "assistant", "content": "Done."}) == []
    assert tool_calls_of({"role": "assistant", "content": "Done.", "tool_calls": None}) == []


@pytest.mark.parametrize("text", ['{"path": ', "[" * 100_000, "nonsense"])
def test_arguments_that_are_no_json_stay_a_text(text):
    (call,) = tool_calls_of([{"id": "x", "function": {"name": "bash", "arguments": text}}])
    assert call.arguments == text


def test_a_call_without_an_id_is_given_one():
    first, second = tool_calls_of([{"name": "bash", "arguments": {}}] * 2)
    assert first.id and second.id and first.id != second.id


@pytest.mark.parametrize("answer", ["text", 3, None, [3], [{"function": 3}], [{"function": {}}]])
def test_what_is_no_answer_is_refused(answer):
    with pytest.raises(InvalidArguments):
        tool_calls_of(answer)


def test_results_go_back_as_tool_messages_errors_included():
    results = [
        ToolResult.failure(FileNotFound("File not found: missing.txt")),
        ToolResult(True, "fine"),
    ]
    first, second = tool_messages(WANTED, results)
    assert first["role"] == "tool" and first["tool_call_id"] == "call_1"
    assert first["content"].startswith("Error: File not found: missing.txt")
    assert second == {"role": "tool", "tool_call_id": "call_2", "content": "fine"}
