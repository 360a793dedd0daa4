"""A real store with a recorded session full of hostile content, and the dashboard over it."""

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from fastapi.testclient import TestClient
from web_pages import HOSTILE, STRANGE

from loom_audit.session import AuditedWorkspace, AuditStore, open_store
from loom_audit.web.app import create_app

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PORT = 8642


@dataclass
class Recorded:
    """A store with one workspace; `numbers` names the calls of its session."""

    store: AuditStore
    workspace: AuditedWorkspace
    root: Path
    session: str = ""
    numbers: dict[str, int] = field(default_factory=dict)

    def call(self, name: str, tool: str, arguments: dict[str, Any]) -> int:
        """Record one more call, in a session of its own, and return its number."""
        with self.workspace.session("second") as session:
            in_thread(lambda: _run(session.call(tool, arguments)))
            self.numbers[name] = self.workspace.timeline.calls()[0].seq or 0
        return self.numbers[name]

    @property
    def url(self) -> str:
        return f"/w/{self.workspace.id}"


def in_thread(work: Callable[[], None]) -> None:
    """Playwright's own loop runs in the main thread, where `asyncio.run` is refused."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(work).result()


def _run(work: Coroutine[Any, Any, object]) -> None:
    asyncio.run(work)


def lay_out(root: Path) -> None:
    (root / "src").mkdir(parents=True)
    steps = "".join(f"def step_{n}(value):\n    return value + {n}\n\n\n" for n in range(20))
    (root / "src" / "main.py").write_text("import sys\n\n\n" + steps)
    (root / "notes.txt").write_text("one\ntwo\nthree\n")
    (root / "build").mkdir()
    (root / "build" / "out.o").write_bytes(b"\x7fELF\0\1\2" * 300)
    (root / "link").symlink_to("src/main.py")


CALLS: list[tuple[str, str, dict[str, Any]]] = [
    ("read", "read_file", {"path": "src/main.py"}),
    ("notes", "edit_file", {"path": "notes.txt", "old_str": "two", "new_str": "TWO"}),
    ("hostile", "write_file", {"path": "docs/evil <i>.html", "content": HOSTILE}),
    (
        "first",
        "edit_file",
        {"path": "src/main.py", "old_str": "value + 7\n", "new_str": "value * 7\n"},
    ),
    (
        "later",
        "edit_file",
        {"path": "src/main.py", "old_str": "value * 7\n", "new_str": "value ** 7\n"},
    ),
    ("big", "write_file", {"path": "big.txt", "content": "\n".join(map(str, range(900)))}),
    ("huge", "write_file", {"path": "huge.txt", "content": "x" * (1024 * 1024 + 1)}),
    ("shell", "shell_execute", {"command": "rm -rf build && chmod 700 notes.txt && mkdir empty"}),
    ("failing", "shell_execute", {"command": "echo '<b>no</b>' >&2; exit 3"}),
    ("unknown", "<b>nothing</b>", {"a": "\x1b[31m"}),
]


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorded]:
    monkeypatch.setenv("LOOM_AUDIT_HOME", str(tmp_path / "home"))
    root = tmp_path / "work"
    lay_out(root)
    with open_store(f"sqlite:///{tmp_path / 'home' / 'audit.db'}") as store:
        workspace = store.attach(root)
        made = Recorded(store, workspace, root)
        title = "<script>window.hacked = 3</script> \x1b[31m"
        with workspace.session("coder", title=title) as session:
            made.session = session.id

            async def run() -> None:
                for name, tool, arguments in CALLS:
                    await session.call(tool, arguments)
                    made.numbers[name] = workspace.timeline.calls()[0].seq or 0
                (root / STRANGE).write_bytes(b"bytes \xff\xfe\n")
                await session.call("shell_execute", {"command": "cp -r src copy"})

            in_thread(lambda: asyncio.run(run()))
        workspace.checkpoint("v1/<b>", note="<script>window.hacked = 4</script>")
        yield made


@pytest.fixture
def client(recorded: Recorded) -> Iterator[TestClient]:
    app = create_app(recorded.store, port=PORT)
    with TestClient(app, base_url=f"http://127.0.0.1:{PORT}", follow_redirects=False) as made:
        made.headers["sec-fetch-site"] = "same-origin"
        yield made


@pytest.fixture
def live(recorded: Recorded) -> Iterator[str]:
    """The dashboard on a real port; its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    app = create_app(recorded.store, port=port)
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    for _ in range(500):
        if server.started:
            break
        time.sleep(0.02)
    assert server.started
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join(10)


@pytest.fixture(scope="session")
def browser_type_launch_args(browser_type_launch_args: dict[str, Any]) -> dict[str, Any]:
    return {
        **browser_type_launch_args,
        "executable_path": str(CHROMIUM),
        "headless": True,
        "args": FLAGS,
    }


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not CHROMIUM.exists():
        for item in items:
            if item.get_closest_marker("browser"):
                item.add_marker(pytest.mark.skip(reason="needs Chromium"))
