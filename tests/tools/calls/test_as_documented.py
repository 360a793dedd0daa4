"""Results, approvals and answers in every shape that the demands name."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest

from loom_audit.api.registry import ToolRegistry, builtin_registry
from loom_audit.errors import AuditUnavailable, InvalidArguments
from loom_audit.tools.approvals.asking_gate import AskingGate
from loom_audit.tools.bundled.files.files import WriteFile
from loom_audit.tools.bundled.files.reading import ReadFile
from loom_audit.tools.calls.batch import BatchOutcome
from loom_audit.tools.calls.context import ToolContext
from loom_audit.tools.calls.function import tool
from loom_audit.tools.calls.messages import tool_calls_of
from loom_audit.tools.calls.result import ToolError, ToolResult
from loom_audit.tools.calls.tool import Tool
from tests.tools.approvals.person import NO, Person
from tests.tools.conftest import Bench


class Written(Tool):
    name = "written"
    description = "Does what a test wants."
    gives: Any = None

    async def execute(self, args: Any, ctx: ToolContext) -> Any:
        return self.gives


class OneArgument(Written):
    def requires_approval(self, args: dict[str, Any]) -> str:
        return "one argument asks"


class Coroutine(Written):
    async def requires_approval(self, args: dict[str, Any], ctx: ToolContext) -> bool | str:
        await anyio.sleep(0)
        return "the coroutine asks" if not ctx.exists("nothing") else False


class CoroutineOfOneArgument(Written):
    async def requires_approval(self, args: dict[str, Any]) -> bool:
        return False


def test_an_error_may_be_a_text_and_is_what_the_model_reads() -> None:
    result = ToolResult(False, "", error="it broke")  # type: ignore[arg-type]
    assert (
        result.error == ToolError("EXECUTION_ERROR", "it broke") and str(result.error) == "it broke"
    )
    assert result.output == "Error: it broke"
    assert json.loads(result.to_json())["error"]["message"] == "it broke"
    kept = ToolResult(False, "half of it", error="it broke")  # type: ignore[arg-type]
    assert kept.output == "half of it"


def test_a_failure_with_a_text_is_on_record_as_one(bench: Bench) -> None:
    made = Written()
    made.gives = ToolResult(False, "", error="it broke")  # type: ignore[arg-type]
    bench.registry.register(made)
    assert bench.call("written", {}).output == "Error: it broke"
    assert bench.last().status == "error"


def test_a_dict_that_execute_returns_is_the_data_of_a_success(bench: Bench) -> None:
    made = Written()
    made.gives = {"sum": 3}
    bench.registry.register(made)
    result = bench.call("written", {})
    assert (result.success, result.data, json.loads(result.output)) == (
        True,
        made.gives,
        made.gives,
    )
    assert bench.last().status == "ok"


@pytest.mark.parametrize(
    ("made", "reasons"),
    [
        (OneArgument(), ["one argument asks"]),
        (Coroutine(), ["the coroutine asks"]),
        (CoroutineOfOneArgument(), []),
    ],
)
def test_approval_by_one_argument_or_by_a_coroutine_is_asked_and_awaited(
    made: Written, reasons: list[str], bench: Bench
) -> None:
    made.gives = ToolResult(True, "done")
    bench.registry.register(made)
    person = Person(NO)
    result = bench.call("written", {}, gate=AskingGate(ask=person))
    assert result.success is not bool(reasons)
    assert [request.reason for request in person.asked] == reasons


def test_a_flaw_inside_an_approval_of_two_arguments_is_not_taken_for_one_argument(
    bench: Bench,
) -> None:
    class Broken(Written):
        def requires_approval(self, args: dict[str, Any], ctx: ToolContext) -> bool:
            raise TypeError("missing 1 required positional argument")

    bench.registry.register(Broken())
    result = bench.call("written", {}, gate=AskingGate(ask=Person(NO)))
    assert not result.success and "missing 1 required" in result.error.message


def test_a_bundled_tool_executes_a_plain_dict_and_refuses_a_wrong_one(tmp_path: Path) -> None:
    async def both() -> None:
        ctx = ToolContext(workspace=None)
        with pytest.raises(InvalidArguments, match="path"):
            await ReadFile().execute({}, ctx)  # type: ignore[arg-type]

    anyio.run(both)


def test_a_context_made_by_hand_says_that_it_has_no_call_and_not_that_it_has_no_workspace(
    tmp_path: Path,
) -> None:
    (tmp_path / "notes.txt").write_text("first")
    registry = builtin_registry()

    async def run(name: str, arguments: dict[str, Any]) -> None:
        found = registry.get(name)
        assert found is not None
        with pytest.raises(AuditUnavailable, match="no call on record") as refused:
            await found.execute(arguments, ToolContext(tmp_path))
        assert "registry.execute" in refused.value.hint

    given = {
        "from": "notes.txt",
        "to": "moved.txt",
        "path": "notes.txt",
        "content": "second",
        "command": "touch made",
        "url": "http://127.0.0.1:1/",
        "packages": ["six"],
        "language": "python",
        "manager": "pip",
        "code": "open('made', 'w')",
    }
    alone = {"edit_file": {"old_str": "first", "new_str": "second"}}
    tools = [one for one in registry.list() if one.needs_workspace]
    assert len(tools) > 15
    of_each: list[tuple[str, dict[str, Any]]] = [
        (one.name, {name: given.get(name, "bg1") for name in one.parameters.get("required", ())})
        for one in tools
    ]
    of_each = [(name, {**arguments, **alone.get(name, {})}) for name, arguments in of_each]
    of_each += [
        ("list_files", {"path": "."}),
        ("git_diff", {"paths": ["notes.txt"]}),
        ("write_file", {"path": "notes.txt", "content": "second"}),
        ("bash", {"command": "touch made"}),
        ("read_file", {"path": "scratch://notes.txt"}),
    ]
    for name, arguments in of_each:
        anyio.run(run, name, arguments)
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [
        ("notes.txt", "first")
    ]


@pytest.mark.parametrize("content", ["text", None, bytearray(b"text")])
def test_content_that_is_not_bytes_is_refused_by_its_type_and_changes_nothing(
    content: Any, bench: Bench
) -> None:
    class Puts(Written):
        name = "puts"
        effect = "write"

        async def execute(self, args: dict[str, Any], ctx: ToolContext) -> ToolResult:
            if "edit" in args:
                await ctx.edit(args["edit"], lambda old: content)
            else:
                await ctx.write(args["write"], content)
            return ToolResult(True)

    Puts.parameters = {"type": "object"}
    bench.registry.register(Puts())
    before = bench.tree()
    for how in ("write", "edit"):
        for path in ("notes.txt", "scratch://notes.txt"):
            error = bench.call("puts", {how: path}).error
            assert error.code == "EXECUTION_ERROR" and "encode()" in error.hint
            assert f"{type(content).__name__}, not bytes" in error.message
    assert bench.tree() == before
    bench.assert_log_agrees_with_disk()


def test_a_bundled_tool_s_own_execute_takes_a_plain_dict_in_a_call(bench: Bench) -> None:
    class Copies(Tool):
        name = "copies"
        description = "Copies a file."
        parameters = {"type": "object"}  # noqa: RUF012
        effect = "write"

        async def execute(self, args: Any, ctx: ToolContext) -> ToolResult:
            read = await ReadFile().execute({"path": "notes.txt"}, ctx)  # type: ignore[arg-type]
            assert read.data is not None
            written = {"path": "copy.txt", "content": read.data["content"]}
            return await WriteFile().execute(written, ctx)  # type: ignore[arg-type]

    bench.registry.register(Copies())
    assert bench.call("copies", {}).files_changed == ["copy.txt"]
    assert bench.tree()["copy.txt"] == bench.tree()["notes.txt"]


CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "read_file", "arguments": '{"path": "notes.txt"}'},
}
RESPONSE = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "choices": [
        {
            "index": 0,
            "finish_reason": "tool_calls",
            "message": {"role": "assistant", "content": None, "tool_calls": [CALL]},
        }
    ],
}


@dataclass
class Dumped:
    """As a vendor's package gives it."""

    body: dict[str, Any] = field(default_factory=lambda: RESPONSE)

    def model_dump(self) -> dict[str, Any]:
        return self.body


@pytest.mark.parametrize("answer", [RESPONSE, Dumped()])
def test_a_whole_response_of_chat_completions_is_a_batch(answer: Any, bench: Bench) -> None:
    async def run() -> BatchOutcome:
        return await bench.session.batch(answer).run()

    outcome = anyio.run(run)
    [message] = outcome.messages()
    assert message["tool_call_id"] == "call_1" and message["content"].startswith("     1\tfirst")


@pytest.mark.parametrize(
    "answer", [{"choices": []}, {"choices": [{"text": "old"}]}, {"choices": 3}]
)
def test_choices_without_a_message_are_not_an_answer(answer: Any) -> None:
    with pytest.raises(InvalidArguments, match="not an answer"):
        tool_calls_of(answer)


def test_a_tool_without_description_is_refused_when_it_is_registered() -> None:
    class Unsaid(Tool):
        name = "unsaid"

        async def execute(self, args: Any, ctx: ToolContext) -> ToolResult:
            return ToolResult(True)

    registry = ToolRegistry()
    with pytest.raises(InvalidArguments, match="description"):
        registry.register(Unsaid())
    registry.register(Written())
    assert [one["function"]["name"] for one in registry.all_schemas()] == ["written"]


def test_a_function_without_docstring_is_refused_when_it_is_registered() -> None:
    def add(one: int, other: int) -> int:
        return one + other

    registry = ToolRegistry()
    for made in (tool(add), tool(description=" \n")(add)):
        with pytest.raises(InvalidArguments, match="description") as refused:
            registry.register(made)
        assert "docstring" in refused.value.hint
    registry.register(tool(description="Add two numbers.")(add))
    assert [one.name for one in registry.list()] == ["add"]
