"""`loom-audit proxy`: web search and the oracle for tools that must not hold the keys.

Keys are read from this process's environment and go nowhere else: not into answers, errors or
logs. It listens on loopback only and answers no web page, as no page can send what it asks for
(a JSON body without an Origin).
"""

import asyncio
import logging
import os
import re
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import httpx
import uvicorn
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from loom_audit.errors import InvalidArguments, StorageFailed

GOOGLE = "https://www.googleapis.com/customsearch/v1"
SERPER = "https://google.serper.dev/search"
PORT = 8643
MAX_ANSWER = 4 * 1024 * 1024
_SECONDS = 120
"""How long one question to a provider may take."""
TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})
_NAMES = {"google": "Google", "serper": "Serper"}
_log = logging.getLogger(__name__)

Provider = Literal["google", "serper"]


@dataclass(frozen=True, slots=True, repr=False)
class Keys:
    """The keys that the proxy may use; an empty one is not configured."""

    google_key: str = ""
    google_engine: str = ""
    google_url: str = GOOGLE
    serper_key: str = ""
    serper_url: str = SERPER
    oracle_url: str = ""
    oracle_key: str = ""
    oracle_model: str = ""

    def has(self, provider: Provider) -> bool:
        """Whether a provider of web search is configured."""
        if provider == "google":
            return bool(self.google_key and self.google_engine)
        return bool(self.serper_key)

    @property
    def ready(self) -> dict[str, bool]:
        """Which providers are configured, never with what."""
        return {
            "google": self.has("google"),
            "serper": self.has("serper"),
            "oracle": bool(self.oracle_url and self.oracle_model),
        }


def read_keys(environment: Mapping[str, str] | None = None) -> Keys:
    """The keys that LOOM_PROXY_… variables of the environment hold.

    Those are LOOM_PROXY_GOOGLE_KEY, _GOOGLE_ENGINE, _SERPER_KEY, _ORACLE_URL, _ORACLE_KEY and
    _ORACLE_MODEL, with _GOOGLE_URL and _SERPER_URL for another server of the same protocol.
    InvalidArguments for an address that is not one.
    """
    given = os.environ if environment is None else environment
    found = {
        name: value
        for name in Keys.__slots__
        if (value := given.get(f"LOOM_PROXY_{name.upper()}", "").strip())
    }
    for name in ("google_url", "serper_url", "oracle_url"):
        if not found.get(name, "http://").startswith(("http://", "https://")):
            raise InvalidArguments(
                f"LOOM_PROXY_{name.upper()} is not an http:// or https:// address",
                hint="Correct it, or unset it.",
            )
    for name in ("google_key", "serper_key", "oracle_key"):
        if not re.fullmatch(r"[!-~]*", found.get(name, "")):
            raise InvalidArguments(
                f"LOOM_PROXY_{name.upper()} holds what no key does: a space, or no ASCII",
                hint="Correct it, or unset it.",
            )
    return Keys(**found)


class Refusal(Exception):
    """An answer that is an error: HTTP status, code and message."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


class SearchRequest(BaseModel):
    """The body of a request for a web search."""

    model_config = ConfigDict(extra="forbid")
    query: Annotated[str, Field(min_length=1, max_length=2000)]
    max_results: Annotated[int, Field(ge=1, le=10)] = 5
    provider: Provider | None = None


class OracleRequest(BaseModel):
    """The body of a request to the oracle: messages, and at most so many tokens of answer."""

    model_config = ConfigDict(extra="forbid")
    messages: Annotated[list[dict[str, str]], Field(min_length=1, max_length=100)]
    max_tokens: Annotated[int, Field(ge=1, le=100_000)] | None = None


def create_proxy(keys: Keys, *, port: int = PORT) -> FastAPI:
    """The proxy as an ASGI application that answers with these keys."""

    # it logs the whole of each URL, and Google's key is in one
    logging.getLogger("httpx").setLevel(logging.WARNING)
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.state.client = httpx.AsyncClient(timeout=_SECONDS, follow_redirects=False)
    names = ("127.0.0.1", "localhost", "[::1]")
    hosts = {f"{name}:{port}" for name in names} | ({*names} if port == 80 else set())

    @app.middleware("http")
    async def guard(request: Request, call_next: Any) -> Response:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if request.headers.get("host", "").lower() not in hosts:
            return _refusal_response(Refusal(421, "MISDIRECTED", "No server of that name is here."))
        if "origin" in request.headers or (request.method == "POST" and kind != "application/json"):
            return _refusal_response(Refusal(403, "CROSS_SITE", "Web pages are not answered."))
        try:
            answer: Response = await call_next(request)
        except asyncio.CancelledError:  # told a second time to end, the server waits for nothing
            return _refusal_response(Refusal(503, "ENDING", "The proxy was told to end."))
        return answer

    @app.post("/proxy/cse")
    async def cse(query: SearchRequest) -> dict[str, Any]:
        provider = query.provider or _first_configured(keys)
        if not keys.has(provider):
            raise _not_configured(f"{_NAMES[provider]} search is not configured on the proxy")
        ask = _google if provider == "google" else _serper
        results = await ask(app.state.client, keys, query)
        return {"provider": provider, "results": results[: query.max_results]}

    @app.post("/proxy/oracle")
    async def oracle(query: OracleRequest) -> dict[str, Any]:
        if not keys.ready["oracle"]:
            raise _not_configured("No oracle is configured on the proxy")
        return await _oracle(app.state.client, keys, query)

    @app.get("/healthz")
    async def healthz() -> dict[str, bool]:
        return keys.ready

    app.add_exception_handler(Refusal, _handle_refusal)
    app.add_exception_handler(RequestValidationError, _handle_invalid)
    app.add_exception_handler(HTTPException, _handle_invalid)
    return app


def serve_proxy(
    keys: Keys, port: int = PORT, *, listening: Callable[[str], object] | None = None
) -> None:
    """Serve on 127.0.0.1 until interrupted; StorageFailed when the port is taken.

    `listening` is called with the address once it can be asked.
    """
    try:
        listener = socket.create_server(("127.0.0.1", port))
    except OSError as error:
        raise StorageFailed(
            f"cannot listen on 127.0.0.1:{port}: {str(error.strerror).partition(' (')[0]}",
            hint="Another proxy may be running there; give another port with `--port`.",
        ) from None
    with listener:
        server = uvicorn.Server(
            uvicorn.Config(
                create_proxy(keys, port=port),
                lifespan="off",  # nothing begins with it, and a second signal would cut it off
                log_level="warning",
                access_log=False,
                server_header=False,
                proxy_headers=False,
            )
        )
        if listening is not None:
            listening(f"http://127.0.0.1:{port}")
        server.run(sockets=[listener])


# --- providers ----------------------------------------------------------------------------


async def _google(
    client: httpx.AsyncClient, keys: Keys, query: SearchRequest
) -> list[dict[str, str]]:
    """Custom Search JSON API, `cse.list`."""
    answer = await _fetch_json(
        client,
        "Google",
        httpx.Request(
            "GET",
            keys.google_url,
            params={
                "key": keys.google_key,
                "cx": keys.google_engine,
                "q": query.query,
                "num": query.max_results,
            },
        ),
    )
    return _results(answer.get("items", []))


async def _serper(
    client: httpx.AsyncClient, keys: Keys, query: SearchRequest
) -> list[dict[str, str]]:
    answer = await _fetch_json(
        client,
        "Serper",
        httpx.Request(
            "POST",
            keys.serper_url,
            headers={"X-API-KEY": keys.serper_key},
            json={"q": query.query, "num": query.max_results},
        ),
    )
    return _results(answer.get("organic", []))


async def _oracle(client: httpx.AsyncClient, keys: Keys, query: OracleRequest) -> dict[str, Any]:
    """Chat completions as OpenAI's API and those compatible with it have them."""
    body: dict[str, Any] = {"model": keys.oracle_model, "messages": query.messages}
    if query.max_tokens:
        body["max_tokens"] = query.max_tokens
    headers = {"Authorization": f"Bearer {keys.oracle_key}"} if keys.oracle_key else {}
    url = keys.oracle_url.rstrip("/") + "/chat/completions"
    said = await _fetch_json(
        client, "The oracle", httpx.Request("POST", url, headers=headers, json=body)
    )
    try:
        choice = said["choices"][0]
        answer = choice["message"]["content"]
    except (KeyError, IndexError, TypeError):
        answer = None
    if not isinstance(answer, str):
        raise Refusal(502, "UPSTREAM_MALFORMED", "The oracle's answer holds no text")
    return {"answer": answer, "model": str(said.get("model", keys.oracle_model))}


async def _fetch_json(
    client: httpx.AsyncClient, who: str, request: httpx.Request
) -> dict[str, Any]:
    """A provider's JSON. Refusal says what went wrong, never with a key or an address."""
    try:
        response = await client.send(request, stream=True)
        try:
            raw = b""
            async for chunk in response.aiter_bytes():
                raw += chunk
                if len(raw) > MAX_ANSWER:
                    raise Refusal(502, "UPSTREAM_MALFORMED", f"{who} answered with too much")
        finally:
            await response.aclose()
    except httpx.TimeoutException:
        raise Refusal(504, "UPSTREAM_TIMEOUT", f"{who} did not answer in time") from None
    except httpx.HTTPError as error:
        name = type(error).__name__
        raise Refusal(502, "UPSTREAM_UNREACHABLE", f"{who} cannot be asked: {name}") from None
    if response.status_code in TRANSIENT:
        status = 429 if response.status_code == 429 else 503
        message = f"{who} answered {response.status_code}"
        raise Refusal(status, "UPSTREAM_BUSY", message)
    if response.status_code != 200:
        message = f"{who} refused with {response.status_code}"
        raise Refusal(424, "UPSTREAM_REFUSED", message)
    try:
        answer = httpx.Response(200, content=raw).json()
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise Refusal(502, "UPSTREAM_MALFORMED", f"{who} answered with no JSON object")
    return answer


def _results(items: Any) -> list[dict[str, str]]:
    found = items if isinstance(items, list) else []
    return [
        {
            "title": str(item.get("title") or ""),
            "url": str(item.get("link") or ""),
            "snippet": str(item.get("snippet") or ""),
        }
        for item in found
        if isinstance(item, dict)
    ]


def _first_configured(keys: Keys) -> Provider:
    providers: tuple[Provider, ...] = ("google", "serper")
    for provider in providers:
        if keys.has(provider):
            return provider
    raise _not_configured("No search provider is configured on the proxy")


def _not_configured(message: str) -> Refusal:
    hint = "Set the keys in the proxy's environment: see `loom-audit proxy --help`."
    return Refusal(501, "NOT_CONFIGURED", f"{message}. {hint}")


def _handle_refusal(request: Request, error: Exception) -> Response:
    if not isinstance(error, Refusal):
        raise error
    _log.info("%s: %s", error.code, error.message)
    return _refusal_response(error)


def _refusal_response(error: Refusal) -> Response:
    return JSONResponse({"code": error.code, "message": error.message}, error.status)


def _handle_invalid(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 400
    return _refusal_response(
        Refusal(status, "INVALID_ARGUMENTS", "The request is not as this proxy asks for")
    )
