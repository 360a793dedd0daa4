"""Web search and the oracle, through the server proxy that holds the keys."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from loom_audit.errors import ExecutionFailed
from loom_audit.tools.bundled.text import encode
from loom_audit.tools.bundled.web.proxy_client import ask
from loom_audit.tools.calls.context import ToolContext
from loom_audit.tools.calls.models import Arguments, NonEmpty, Output
from loom_audit.tools.calls.result import ToolResult
from loom_audit.tools.calls.settings import ToolSettings
from loom_audit.tools.calls.tool import Tool

RESULTS = 5
MAX_RESULTS = 10
MAX_SECONDS = 300
_SECONDS = 10.0
_SYSTEM = "You advise another agent. Answer its question directly, and say what you do not know."

NO_PROXY = "no `loom-audit proxy` is set as proxy_url in tools.toml"
"""What these tools lack in most places: the proxy holds the keys."""

Query = Annotated[
    str, Field(min_length=1, max_length=2000, description="What to look for, in plain words")
]
Count = Annotated[int, Field(ge=1, le=MAX_RESULTS)]


class SearchInput(Arguments):
    query: Query
    max_results: Annotated[
        Count | None, Field(description=f"How many results; {RESULTS} by default")
    ] = None
    numResults: Annotated[Count | None, Field(description="The same as max_results")] = None

    @model_validator(mode="after")
    def _one_name(self) -> "SearchInput":
        if None not in (self.max_results, self.numResults) and self.max_results != self.numResults:
            raise ValueError("max_results and numResults are the same and differ here")
        return self


class Found(Output):
    title: str
    url: str
    snippet: str


class SearchOutput(Output):
    provider: str
    results: list[Found]


class WebSearch(Tool):
    """Searches the web by any provider that the proxy has; the classes below name one."""

    name = "web_search"
    description = "Search the web; gives title, url and snippet of each result."
    input = SearchInput
    output = SearchOutput
    effect = "network"
    timeout_seconds = 60
    needs_workspace = False
    provider: Literal["google", "serper"] | None = None

    def lacks(self, settings: ToolSettings) -> str:
        """Return that a proxy is missing where none is set."""
        return "" if settings.proxy_url else NO_PROXY

    async def execute(self, args: SearchInput, ctx: ToolContext) -> ToolResult:
        count = args.max_results or args.numResults or RESULTS
        body: dict[str, Any] = {"query": args.query, "max_results": count}
        if self.provider:
            body["provider"] = self.provider
        said = await ask(ctx.settings.proxy_url, "/proxy/cse", body, _SECONDS)
        results = said.get("results")
        if not isinstance(results, list):
            raise ExecutionFailed(
                "The proxy's answer holds no results",
                hint="`proxy_url` must be the address of a `loom-audit proxy`.",
            )
        lines = [f"{r.get('title')}\n  {r.get('url')}\n  {r.get('snippet')}" for r in results]
        data = {"provider": str(said.get("provider", "")), "results": results[:count]}
        return ToolResult(True, "\n".join(lines) or "[no results]", data)


class WebSearchToolGoogle(WebSearch):
    """Searches the web by Google."""

    name = "web_search_google"
    description = "Search the web with Google; gives title, url and snippet of each result."
    provider = "google"


class WebSearchToolSerper(WebSearch):
    """Searches the web by Serper."""

    name = "web_search_serper"
    description = "Search the web with Serper; gives title, url and snippet of each result."
    provider = "serper"


class OracleInput(Arguments):
    question: Annotated[NonEmpty, Field(description="What to ask the other model")]
    context: Annotated[str, Field(description="What it should know, such as code")] = ""
    max_tokens: Annotated[
        int | None, Field(ge=1, le=100_000, description="Length of the answer at most")
    ] = None
    timeout: Annotated[
        float | None,
        Field(gt=0, le=MAX_SECONDS, description=f"Seconds to wait: 30, at most {MAX_SECONDS}"),
    ] = None


class OracleOutput(Output):
    answer: str
    model: str


class Oracle(Tool):
    """Asks a second model a question."""

    name = "oracle"
    description = "Ask a second model for advice. It sees only the question and the context."
    input = OracleInput
    output = OracleOutput
    effect = "network"
    timeout_seconds = 30
    needs_workspace = False

    def limit(self, args: OracleInput) -> float:
        return args.timeout or self.timeout_seconds

    def lacks(self, settings: ToolSettings) -> str:
        """Return that a proxy is missing where none is set."""
        return "" if settings.proxy_url else NO_PROXY

    async def execute(self, args: OracleInput, ctx: ToolContext) -> ToolResult:
        text = f"{args.question}\n\n{args.context}" if args.context else args.question
        encode(text, "the question")
        messages = [{"role": "system", "content": _SYSTEM}, {"role": "user", "content": text}]
        body: dict[str, Any] = {"messages": messages}
        if args.max_tokens:
            body["max_tokens"] = args.max_tokens
        said = await ask(ctx.settings.proxy_url, "/proxy/oracle", body, self.limit(args))
        answer = str(said.get("answer", ""))
        return ToolResult(True, answer, {"answer": answer, "model": str(said.get("model", ""))})
