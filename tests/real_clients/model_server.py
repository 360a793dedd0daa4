"""A model on loopback that follows a script, and remembers what it asked for and was told."""

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.real_clients.dialects import Dialect, Event, dialect_of
from tests.real_clients.script import Call, Step, Told, next_step

PATIENCE = 30.0
"""Seconds that a step waits for a file."""
Watcher = Callable[[Step], None]


@dataclass(frozen=True)
class Request:
    """One request as it came, for a person who looks why a client did not follow the script."""

    path: str
    body: Mapping[str, Any]
    step: str


class ScriptedModel:
    """Answers on 127.0.0.1 with the script's steps, the same one until its results are told.

    `before` is called with a step before its calls are asked for the first time: what the
    workspace is then is what it was before them. `asked` and `told` are the list that records are
    compared with. A request that offers none of the script's tools is answered with a few words.
    """

    def __init__(
        self, steps: Sequence[Step], folder: Path, before: Watcher = lambda step: None
    ) -> None:
        self.steps = steps
        self.folder = folder
        self.asked: list[Call] = []
        self.told: dict[str, Told] = {}
        self.requests: list[Request] = []
        self.tools: Sequence[str] = ()
        self.problems: list[str] = []
        self._before = before
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def step_for(self, path: str, dialect: Dialect, body: Mapping[str, Any]) -> Step:
        """The step that answers a request."""
        offered = dialect.tools(body)
        with self._lock:
            if not offered or (dialect.name != "gemini" and not self._is_main(offered)):
                self.requests.append(Request(path, body, "beside"))
                return Step("beside", text="a title")
            self.tools = offered
            self._learn([*dialect.told(body)])
            step = self.steps[next_step(self.steps, self.told)]
            self.requests.append(Request(path, body, step.name))
            if step.calls and step.calls[0] not in self.asked:
                self._wait_for(step)
                self._before(step)
                self.asked.extend(step.calls)
            return step

    def _wait_for(self, step: Step) -> None:
        deadline = time.monotonic() + PATIENCE
        while step.waits_for and not (self.folder / step.waits_for).exists():
            if time.monotonic() > deadline:
                self.problems.append(f"{step.name}: {step.waits_for} never came")
                return
            time.sleep(0.05)

    def _is_main(self, offered: Sequence[str]) -> bool:
        return len(offered) > 1

    def _learn(self, found: Sequence[Told]) -> None:
        """Keep what was told; a result without the call's id is that of its place in the list."""
        for place, one in enumerate(found):
            id = one.id
            if not id or id not in {call.id for call in self.asked}:
                if place >= len(self.asked):
                    continue
                id = self.asked[place].id
            self.told.setdefault(id, Told(id, one.text, one.failed))

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        model = self

        class Answering(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: Any) -> None:
                """Nothing: the requests are kept."""

            def do_HEAD(self) -> None:
                self._send(200, "text/plain", b"")

            def do_GET(self) -> None:
                listing = {"object": "list", "data": [], "models": []}
                self._send(200, "application/json", json.dumps(listing).encode())

            def do_POST(self) -> None:
                length = int(self.headers.get("content-length") or 0)
                data = self.rfile.read(length)
                dialect = dialect_of(self.path)
                if dialect is None:
                    self._send(404, "application/json", b"{}")
                    return
                body = json.loads(data)
                step = model.step_for(self.path, dialect, body)
                if body.get("stream") or ":stream" in self.path:
                    self._send(200, "text/event-stream", encoded(dialect.stream(step)))
                else:
                    answer = json.dumps(dialect.whole(step)).encode()
                    self._send(200, "application/json", answer)

            def _send(self, status: int, type: str, data: bytes) -> None:
                try:
                    self.send_response(status)
                    self.send_header("content-type", type)
                    self.send_header("content-length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data)
                except ConnectionError as error:
                    model.problems.append(f"{self.path}: {error}")

        return Answering


def encoded(events: Any) -> bytes:
    """Server-sent events as bytes."""
    return b"".join(_encoded(event) for event in events)


def _encoded(event: Event) -> bytes:
    name, data = event
    text = data if isinstance(data, str) else json.dumps(data)
    return f"{f'event: {name}' + chr(10) if name else ''}data: {text}\n\n".encode()
