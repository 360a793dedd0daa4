"""A session's tools in real agent frameworks, led by models that follow a script."""

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loom_audit.api.face import AuditedWorkspace, open_store
from loom_audit.errors import InvalidArguments, NotFound

ASKED = (
    ("call_1", "write_file", {"path": "a.txt", "content": "one\n"}),
    ("call_2", "read_file", {"path": "none.txt"}),
    ("call_3", "write_file", {"path": "b.txt", "content": "two\n"}),
)


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AuditedWorkspace]:
    monkeypatch.setenv("LOOM_AUDIT_HOME", str(tmp_path / "home"))
    (tmp_path / "work").mkdir()
    with open_store() as store:
        yield store.attach(tmp_path / "work")


def check(workspace: AuditedWorkspace) -> None:
    calls = [*reversed(workspace.timeline.calls())]
    assert {call.call_id: (call.tool, call.status) for call in calls} == {
        "call_1": ("write_file", "ok"),
        "call_2": ("read_file", "error"),
        "call_3": ("write_file", "ok"),
    }
    for call in calls:
        detail = workspace.timeline.call(call.requested)
        assert detail.arguments == next(told for id, _, told in ASKED if id == call.call_id)
    assert Path(workspace.root, "b.txt").read_text() == "two\n"


def test_pydantic_ai(workspace: AuditedWorkspace) -> None:
    pytest.importorskip("pydantic_ai", reason="needs pydantic-ai-slim")
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import AgentInfo, FunctionModel

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if len(messages) > 1:
            return ModelResponse(parts=[TextPart(str(messages[-1]))])
        assert {tool.name for tool in info.function_tools} >= {"read_file", "write_file"}
        parts = [ToolCallPart(name, told, tool_call_id=id) for id, name, told in ASKED]
        return ModelResponse(parts=parts)

    async def work() -> str:
        with workspace.session("agent") as session:
            agent = Agent(FunctionModel(answer), tools=session.tools("pydantic-ai"))
            return (await agent.run("go")).output

    assert "File not found: none.txt" in asyncio.run(work())
    check(workspace)


def test_openai_agents(workspace: AuditedWorkspace) -> None:
    pytest.importorskip("agents", reason="needs openai-agents")
    from agents import FunctionTool
    from agents.tool_context import ToolContext

    async def work() -> list[str]:
        with workspace.session("agent") as session:
            tools: dict[str, FunctionTool] = {
                tool.name: tool for tool in session.tools("openai-agents")
            }
            told = [
                tools[name].on_invoke_tool(
                    ToolContext(
                        context=None,
                        tool_name=name,
                        tool_call_id=id,
                        tool_arguments=json.dumps(arguments),
                    ),
                    json.dumps(arguments),
                )
                for id, name, arguments in ASKED
            ]
            return [str(one) for one in await asyncio.gather(*told)]

    assert "File not found: none.txt" in asyncio.run(work())[1]
    check(workspace)


def test_an_openai_agents_run_keeps_the_models_ids(workspace: AuditedWorkspace) -> None:
    pytest.importorskip("agents", reason="needs openai-agents")
    from agents import Agent, Model, ModelResponse, RunConfig, Runner, Usage
    from openai.types.responses import (
        ResponseFunctionToolCall,
        ResponseOutputMessage,
        ResponseOutputText,
    )

    class Scripted(Model):
        """Asks for every call at once, then repeats what it was told of them."""

        async def get_response(  # type: ignore[override]
            self, system_instructions: Any, input: Any, **_: Any
        ) -> ModelResponse:
            told = [
                str(item["output"])
                for item in input
                if isinstance(item, dict) and item.get("type") == "function_call_output"
            ]
            text = ResponseOutputText(text="\n".join(told), type="output_text", annotations=[])
            message = ResponseOutputMessage(
                id="m", content=[text], role="assistant", status="completed", type="message"
            )
            calls = [
                ResponseFunctionToolCall(
                    arguments=json.dumps(given), call_id=id, name=name, type="function_call"
                )
                for id, name, given in ASKED
            ]
            output = [message] if told else [*calls]
            return ModelResponse(output=[*output], usage=Usage(), response_id=None)

        def stream_response(self, *_: Any, **__: Any) -> Any:
            raise NotImplementedError

    async def work() -> str:
        with workspace.session("agent") as session:
            agent = Agent("a", model=Scripted(), tools=session.tools("openai-agents"))
            config = RunConfig(tracing_disabled=True)
            return str((await Runner.run(agent, "go", run_config=config)).final_output)

    assert "File not found: none.txt" in asyncio.run(work())
    check(workspace)


def test_langchain(workspace: AuditedWorkspace) -> None:
    pytest.importorskip("langchain_core", reason="needs langchain-core")

    async def work() -> list[Any]:
        with workspace.session("agent") as session:
            tools = {tool.name: tool for tool in session.tools("langchain")}
            assert tools["write_file"].args.keys() >= {"path", "content"}
            told = [
                tools[name].ainvoke({"type": "tool_call", "id": id, "name": name, "args": given})
                for id, name, given in ASKED
            ]
            return [*await asyncio.gather(*told)]

    messages = asyncio.run(work())
    assert [message.status for message in messages] == ["success", "error", "success"]
    assert [message.tool_call_id for message in messages] == ["call_1", "call_2", "call_3"]
    assert "File not found: none.txt" in messages[1].content
    check(workspace)


def test_a_framework_that_is_not_known_or_not_there_is_named(
    workspace: AuditedWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    with workspace.session("agent") as session:
        with pytest.raises(InvalidArguments) as unknown:
            session.tools("crewai")
        assert "pydantic-ai, openai-agents, langchain" in (unknown.value.hint or "")
        monkeypatch.setitem(sys.modules, "loom_audit.api.frameworks.langchain", None)
        with pytest.raises(NotFound) as missing:
            session.tools("langchain")
        assert missing.value.hint == "pip install langchain-core"
