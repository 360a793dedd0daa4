"""A program of somebody else: an agent of a framework, with the tools of one of our sessions.

    python framework_program.py FRAMEWORK MODEL_URL

It works in the current folder until the model has finished.
"""

import sys
from typing import Any

from loom_audit import open_store


def pydantic_ai(tools: Any, url: str) -> None:
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    model = OpenAIChatModel("scripted", provider=OpenAIProvider(base_url=url, api_key="none"))
    Agent(model, tools=tools).run_sync("please do all of it")


def openai_agents(tools: Any, url: str) -> None:
    from agents import Agent, OpenAIResponsesModel, Runner, set_tracing_disabled
    from openai import AsyncOpenAI

    set_tracing_disabled(True)
    model = OpenAIResponsesModel("scripted", AsyncOpenAI(base_url=url, api_key="none"))
    Runner.run_sync(Agent("agent", tools=tools, model=model), "please do all of it", max_turns=30)


if __name__ == "__main__":
    framework, url = sys.argv[1:]
    run = {"pydantic-ai": pydantic_ai, "openai-agents": openai_agents}[framework]
    with open_store() as store, store.attach(".").session(framework) as session:
        run(session.tools(framework), f"{url}/v1")
