"""Web search and the oracle: the tools, the real proxy process, and servers of the protocols."""

import asyncio
import json
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from starlette.testclient import TestClient

from loom_audit.errors import InvalidArguments
from loom_audit.proxy import Keys, create_proxy, read_keys
from loom_audit.tools.bundled.web import proxy_client
from loom_audit.tools.bundled.web.web_search import (
    Oracle,
    WebSearch,
    WebSearchToolGoogle,
    WebSearchToolSerper,
)
from loom_audit.tools.calls.result import ToolResult
from loom_audit.tools.calls.settings import ToolSettings
from tests.processes.forked import Forked
from tests.tools.conftest import Bench

SECRETS = ("google-secret", "serper-secret", "oracle-secret")

Call = Callable[..., ToolResult]


class Providers(ThreadingHTTPServer):
    """Google's, Serper's and an OpenAI-compatible endpoint; `failures` answer first."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Endpoint)
        self.seen: list[tuple[str, dict[str, Any], dict[str, Any]]] = []
        self.failures: list[tuple[int, bytes]] = []


class Endpoint(BaseHTTPRequestHandler):
    server: Providers

    def log_message(self, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        self.server.seen.append((parts.path, query, dict(self.headers)))
        count = int(query.get("num", 10))
        items = [{"title": f"G{n}", "link": f"https://g/{n}", "snippet": "s"} for n in range(count)]
        self.say({"items": items})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.seen.append((self.path, body, dict(self.headers)))
        if self.path == "/v1/chat/completions":
            text = "You said: " + body["messages"][-1]["content"]
            self.say({"model": body["model"] + "-1", "choices": [{"message": {"content": text}}]})
        else:
            organic = [{"title": "S", "link": "https://s/", "snippet": "t", "position": 1}] * 12
            self.say({"organic": organic})

    def say(self, value: object) -> None:
        status, raw = 200, json.dumps(value).encode()
        if self.server.failures:
            status, raw = self.server.failures.pop(0)
        self.send_response(status)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)


@pytest.fixture
def providers() -> Iterator[Providers]:
    server = Providers()
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@contextmanager
def proxy(**environment: str) -> Iterator[str]:
    """The real command in a process of its own, ready to be asked."""
    port = _free_port()
    kept = {k: v for k, v in os.environ.items() if not k.startswith("LOOM_")}
    process = Forked(["proxy", "--port", str(port)], cwd=Path.cwd(), env={**kept, **environment})
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(200):
            try:
                httpx.get(f"{url}/healthz", trust_env=False)
                break
            except httpx.ConnectError:
                assert not process.ended(), process.printed()
                threading.Event().wait(0.05)
        yield url
    finally:
        process.kill(signal.SIGTERM)
        out, err = process.printed()
        assert not any(secret.encode() in out + err for secret in SECRETS)


def _free_port() -> int:
    import socket

    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


def environment(providers: Providers) -> dict[str, str]:
    base = f"http://127.0.0.1:{providers.server_port}"
    return {
        "LOOM_PROXY_GOOGLE_KEY": "google-secret",
        "LOOM_PROXY_GOOGLE_ENGINE": "engine",
        "LOOM_PROXY_GOOGLE_URL": f"{base}/customsearch/v1",
        "LOOM_PROXY_SERPER_KEY": "serper-secret",
        "LOOM_PROXY_SERPER_URL": f"{base}/search",
        "LOOM_PROXY_ORACLE_URL": f"{base}/v1",
        "LOOM_PROXY_ORACLE_KEY": "oracle-secret",
        "LOOM_PROXY_ORACLE_MODEL": "wise",
    }


@pytest.fixture
def call(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Call:
    monkeypatch.setattr(proxy_client, "FIRST_WAIT", 0.01)

    def made(kind: type[Any], url: str, arguments: dict[str, Any]) -> ToolResult:
        return bench.call(kind.name, arguments, settings=ToolSettings(proxy_url=url))

    return made


def test_tools_and_proxy_work_as_a_pair(bench: Bench, call: Call, providers: Providers) -> None:
    with proxy(**environment(providers)) as url:
        google = call(WebSearchToolGoogle, url, {"query": "merkle trees"})
        assert google.data["provider"] == "google" and len(google.data["results"]) == 5
        assert google.data["results"][0] == {"title": "G0", "url": "https://g/0", "snippet": "s"}
        serper = call(WebSearchToolSerper, url, {"query": "merkle", "numResults": 10})
        assert serper.data["provider"] == "serper" and len(serper.data["results"]) == 10
        either = call(WebSearch, url, {"query": "merkle", "max_results": 1})
        assert either.data["provider"] == "google" and len(either.data["results"]) == 1
        oracle = call(Oracle, url, {"question": "Why?", "context": "x = 1"})
        assert oracle.data == {"answer": "You said: Why?\n\nx = 1", "model": "wise-1"}
    paths = [path for path, _, _ in providers.seen]
    assert paths == ["/customsearch/v1", "/search", "/customsearch/v1", "/v1/chat/completions"]
    assert providers.seen[0][1] == {
        "key": "google-secret",
        "cx": "engine",
        "q": "merkle trees",
        "num": "5",
    }
    assert providers.seen[1][2]["X-API-KEY"] == "serper-secret"
    assert providers.seen[3][2]["Authorization"] == "Bearer oracle-secret"
    kept = json.dumps([fact.result for fact in bench.finished()])
    assert not any(secret in kept for secret in SECRETS)


def test_a_failure_that_passes_is_asked_again(call: Call, providers: Providers) -> None:
    providers.failures = [(503, b"busy google-secret"), (429, b"{}")]
    with proxy(**environment(providers)) as url:
        result = call(WebSearch, url, {"query": "x"})
    assert result.success and len(providers.seen) == 3


def test_a_failure_that_stays_is_given_up_after_four_attempts(
    call: Call, providers: Providers
) -> None:
    providers.failures = [(500, b"no")] * 10
    with proxy(**environment(providers)) as url:
        result = call(WebSearch, url, {"query": "x"})
    assert result.error.code == "EXECUTION_ERROR" and "Google answered 500" in result.error.message
    assert len(providers.seen) == proxy_client.ATTEMPTS


def test_a_refusal_is_not_asked_again_and_tells_no_key(call: Call, providers: Providers) -> None:
    providers.failures = [(403, b'{"error": "key google-secret is wrong"}')]
    with proxy(**environment(providers)) as url:
        result = call(WebSearch, url, {"query": "x"})
    assert result.error.message == "Google refused with 403" and len(providers.seen) == 1
    assert "secret" not in result.to_json()


@pytest.mark.few(1)
@pytest.mark.parametrize("raw", [b"<html>", b"[]", b'{"choices": []}', b"[" * 100_000])
def test_an_answer_that_is_none_is_an_error(call: Call, providers: Providers, raw: bytes) -> None:
    providers.failures = [(200, raw)] * 4
    with proxy(**environment(providers)) as url:
        result = call(Oracle, url, {"question": "x"})
    assert result.error.code == "EXECUTION_ERROR"


def test_without_a_provider_the_error_says_what_to_set(call: Call) -> None:
    with proxy() as url:
        for kind in (WebSearch, WebSearchToolGoogle, WebSearchToolSerper):
            result = call(kind, url, {"query": "x"})
            assert "configured" in result.error.message and "--help" in result.error.message
        assert "configured" in call(Oracle, url, {"question": "x"}).error.message


def test_without_a_proxy_the_error_says_how_to_start_one(call: Call) -> None:
    result = call(WebSearch, "", {"query": "x"})
    assert result.error.code == "EXECUTION_ERROR" and "loom-audit proxy" in result.error.hint
    gone = call(WebSearch, f"http://127.0.0.1:{_free_port()}", {"query": "x"})
    assert gone.error.code == "EXECUTION_ERROR" and "running" in gone.error.hint
    assert "proxy_url" in call(WebSearch, "127.0.0.1", {"query": "x"}).error.message


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"query": ""},
        {"query": "x", "max_results": 0},
        {"query": "x", "max_results": 11},
        {"query": "x", "numResults": 11},
        {"query": "x", "max_results": 2, "numResults": 3},
        {"query": "x" * 2001},
    ],
)
def test_arguments_beyond_the_limits_are_refused(call: Call, arguments: dict[str, object]) -> None:
    assert call(WebSearch, "", arguments).error.code == "INVALID_ARGUMENTS"


def test_the_proxy_answers_programs_on_this_machine_only(providers: Providers) -> None:
    with proxy(**environment(providers)) as url:
        body = {"query": "x"}

        def post(**headers: str) -> int:
            return httpx.post(
                f"{url}/proxy/cse", json=body, headers=headers, trust_env=False
            ).status_code

        assert post() == 200
        assert post(Host="evil.example") == 421
        assert post(Origin="https://evil.example") == 403
        plain = httpx.post(f"{url}/proxy/cse", content=json.dumps(body), trust_env=False)
        assert plain.status_code == 403
        wrong = httpx.post(f"{url}/proxy/cse", json={"query": 3}, trust_env=False)
        assert wrong.status_code == 400
        headers = {"Content-Type": "application/json"}
        deep = httpx.post(
            f"{url}/proxy/cse", content="[" * 100_000, headers=headers, trust_env=False
        )
        assert deep.status_code == 400 and deep.json()["code"] == "INVALID_ARGUMENTS"
        nowhere = httpx.get(f"{url}/nowhere", trust_env=False)
        assert nowhere.status_code == 404 and nowhere.json()["code"]
        health = httpx.get(f"{url}/healthz", trust_env=False)
        assert health.json() == {"google": True, "serper": True, "oracle": True}
        assert not any(secret in health.text for secret in SECRETS)


def test_a_url_of_the_environment_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidArguments, match="ORACLE_URL"):
        read_keys({"LOOM_PROXY_ORACLE_URL": "localhost"})
    assert "secret" not in repr(read_keys({"LOOM_PROXY_SERPER_KEY": "serper-secret"}))


def test_no_key_is_in_a_log_that_says_which_addresses_are_asked(
    providers: Providers, caplog: pytest.LogCaptureFixture
) -> None:
    """httpx logs whole URLs, and Google takes its key in one."""
    keys = Keys(
        google_key="google-secret",
        google_engine="e",
        google_url=f"http://127.0.0.1:{providers.server_port}/google",
    )
    caplog.set_level("DEBUG")
    with TestClient(create_proxy(keys), base_url="http://127.0.0.1:8643") as client:
        client.post("/proxy/cse", json={"query": "x"})
    assert providers.seen and "google-secret" not in caplog.text


@pytest.mark.parametrize("name", ["GOOGLE_KEY", "SERPER_KEY", "ORACLE_KEY"])
@pytest.mark.parametrize("key", ["schlüssel", "two words", "two\nlines"])
def test_a_key_that_no_header_can_hold_is_refused_at_the_start(name: str, key: str) -> None:
    with pytest.raises(InvalidArguments, match=name) as raised:
        read_keys({f"LOOM_PROXY_{name}": key})
    assert key not in str(raised.value)


def test_searching_again_waits_twice_as_long_each_time(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = []
    whole = asyncio.sleep

    async def sleep(seconds: float, *more: object) -> None:
        if seconds:
            waits.append(seconds)
        await whole(0, *more)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        result = bench.call("web_search", {"query": "x"}, settings=ToolSettings(proxy_url=url))
    assert result.error.code == "EXECUTION_ERROR"
    assert [round(wait - wait % 0.5, 1) for wait in waits] == [0.5, 1.0, 2.0]
