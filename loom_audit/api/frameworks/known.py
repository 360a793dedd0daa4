"""Which frameworks there are, and what each is given of a tool."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

from msgspec import Struct

from loom_audit.errors import InvalidArguments, NotFound
from loom_audit.tools.calls.result import ToolResult

PACKAGES: Mapping[str, tuple[str, str]] = {
    "pydantic-ai": ("pydantic_ai", "pydantic-ai-slim"),
    "openai-agents": ("openai_agents", "openai-agents"),
    "langchain": ("langchain", "langchain-core"),
}
"""By a framework's name the module here, and what is installed for it."""

Call = Callable[[Mapping[str, Any], str | None], Awaitable[ToolResult]]


class Offered(Struct, frozen=True):
    """A tool to be offered: `call` takes its arguments and the model's id of the call."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    call: Call


def framework_tools(framework: str, offered: Sequence[Offered]) -> list[Any]:
    """The tools as this framework takes them.

    InvalidArguments for one that is not known, NotFound for one that is not installed.
    """
    if framework not in PACKAGES:
        raise InvalidArguments(
            f"{framework!r:.100} is not a framework that tools are made for",
            hint=f"There are: {', '.join(PACKAGES)}. For others use `session.call`.",
        )
    module, package = PACKAGES[framework]
    try:
        found = import_module(f"loom_audit.api.frameworks.{module}")
    except ImportError as error:
        raise NotFound(
            f"{framework} is not installed: {error}", hint=f"pip install {package}"
        ) from error
    return [found.make(one) for one in offered]
