"""A real store with a recorded session full of hostile content, and the dashboard over it."""

import asyncio
import shutil
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import pytest
from fastapi.testclient import TestClient
from jinja2 import BytecodeCache, Environment
from jinja2.bccache import Bucket
from playwright.sync_api import Browser, BrowserContext, expect

from loom_audit.api.face import AuditedWorkspace, AuditStore, open_store, person
from loom_audit.model.conversation import MessageReceived, PromptSubmitted
from loom_audit.model.events import Draft
from loom_audit.web.app import create_app, server_of
from loom_audit.web.listening import listen
from loom_audit.web.request_timeout import SECONDS
from loom_audit.web.shared.admission import COOKIE, Admission
from tests.places.made_store import STORE, lay_ballast
from tests.web.busy_store import Busy, make
from tests.web.web_pages import HOSTILE, STRANGE

CHROMIUMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
"""The one without windows first: it lays out and runs the same in a third of the time."""
CHROMIUM = next(filter(None, map(shutil.which, CHROMIUMS)), None)
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

expect.set_options(timeout=30_000)  # as long as what Playwright itself waits for


class CompiledTemplates(BytecodeCache):
    """The templates that this process has compiled, by their sources, for the apps of all tests."""

    def __init__(self) -> None:
        self._compiled: dict[str, bytes] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        if bucket.key in self._compiled:
            bucket.bytecode_from_string(self._compiled[bucket.key])

    def dump_bytecode(self, bucket: Bucket) -> None:
        self._compiled[bucket.key] = bucket.bytecode_to_string()


@pytest.fixture(scope="session", autouse=True)
def _compiled_once() -> Iterator[None]:
    """Compile a template once in a process, not for each app: a fourth of what these tests took."""
    with pytest.MonkeyPatch.context() as patch:
        environment = partial(Environment, bytecode_cache=CompiledTemplates())
        patch.setattr("loom_audit.web.shared.pages.Environment", environment)
        yield


@dataclass
class Recorded:
    """A store with one workspace; `numbers` names the calls of its session, `said` what was said
    before some of them.
    """

    store: AuditStore
    workspace: AuditedWorkspace
    root: Path
    session: str = ""
    numbers: dict[str, int] = field(default_factory=dict)
    said: dict[str, int] = field(default_factory=dict)

    def call(self, name: str, tool: str, arguments: dict[str, Any]) -> int:
        """Record one more call, in a session of its own, and return its number."""
        with self.workspace.session("second") as session:
            in_thread(lambda: _run(session.call(tool, arguments)))
            self.numbers[name] = self.workspace.timeline.calls()[0].seq or 0
        return self.numbers[name]

    @property
    def url(self) -> str:
        return f"/w/{self.workspace.id}"


def in_thread(work: Callable[[], object]) -> None:
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


TITLE = "<script>window.hacked = 3</script> \x1b[31m"
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
    ("shell", "shell_execute", {"command": "rm -rf build && chmod 700 big.txt && mkdir empty"}),
    ("failing", "shell_execute", {"command": "echo '<b>no</b>' >&2; exit 3"}),
    ("unknown", "<b>nothing</b>", {"a": "\x1b[31m"}),
]


SAID: dict[str, PromptSubmitted | MessageReceived] = {
    "read": PromptSubmitted(f"Make it so. {HOSTILE}"),
    "hostile": MessageReceived("assistant", f"I will write it. {HOSTILE}"),
    "big": PromptSubmitted("Now the big one."),
    "failing": MessageReceived("assistant", "Almost done."),
}
"""What was asked and said before each of these calls."""


def say(workspace: AuditedWorkspace, session: str, fact: PromptSubmitted | MessageReceived) -> int:
    """Put a prompt or a message on record, as hooks do; its event."""
    actor = "person:a" if isinstance(fact, PromptSubmitted) else "agent:coder"
    return workspace.log.append([Draft(fact, session, actor)])[0].seq


@contextmanager
def recording(folder: Path) -> Iterator[Recorded]:
    """A store and a workspace in the folder, with everything of CALLS on record."""
    root = folder / "work"
    lay_out(root)
    with ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("LOOM_AUDIT_HOME", str(folder / "home"))
            store = stack.enter_context(open_store())
        workspace = store.attach(root)
        made = Recorded(store, workspace, root)
        with workspace.session("coder", title=TITLE) as session:
            made.session = session.id

            async def run() -> None:
                for name, tool, arguments in CALLS:
                    if name in SAID:
                        made.said[name] = say(workspace, session.id, SAID[name])
                    await session.call(tool, arguments)
                    made.numbers[name] = workspace.timeline.calls()[0].seq or 0
                (root / STRANGE).write_bytes(b"bytes \xff\xfe\n")
                await session.call("shell_execute", {"command": "cp -r src copy"})

            in_thread(lambda: asyncio.run(run()))
        workspace.checkpoint("v1/<b>", note="<script>window.hacked = 4</script>")
        yield made


@contextmanager
def asking(store: AuditStore, label: str = "", *, raises: bool = True) -> Iterator[TestClient]:
    """A client of the dashboard that has signed in and asks as its own pages do.

    A defect of ours is raised here, or answered by its page.
    """
    admission = Admission(person())
    app, address = create_app(store, admission), f"http://{admission.host}:{PORT}"
    with TestClient(
        app, base_url=address, follow_redirects=False, raise_server_exceptions=raises
    ) as client:
        client.headers["sec-fetch-site"] = "same-origin"
        form = {"token": admission.new_token(), "name": label}
        assert client.post("/sign-in", data=form).status_code == 200
        yield client


@pytest.fixture(scope="session")
def _made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Recorded]:
    """A recording, where it was made, and a copy of that folder: commands take time."""
    folder, kept = tmp_path_factory.mktemp("recorded"), tmp_path_factory.mktemp("kept") / "copy"
    with recording(folder) as made:
        pass
    shutil.copytree(folder, kept, symlinks=True, ignore=shutil.ignore_patterns("*.ballast"))
    return folder, kept, made


@pytest.fixture
def recorded(_made: tuple[Path, Path, Recorded]) -> Iterator[Recorded]:
    """A recording to change; the next test has it as it was."""
    folder, kept, made = _made
    shutil.rmtree(folder)
    shutil.copytree(kept, folder, symlinks=True)
    lay_ballast(folder / "home" / STORE)
    with ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("LOOM_AUDIT_HOME", str(folder / "home"))
            store = stack.enter_context(open_store())
        workspace = store.workspace(made.workspace.id)
        yield Recorded(store, workspace, made.root, made.session, {**made.numbers}, {**made.said})


@pytest.fixture
def client(recorded: Recorded) -> Iterator[TestClient]:
    with asking(recorded.store) as made:
        yield made


@pytest.fixture(scope="session")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    """A recording that all tests look at and none changes."""
    with recording(tmp_path_factory.mktemp("standing")) as made:
        head = made.workspace.log.head()
        yield made
        assert made.workspace.log.head() == head


@pytest.fixture(scope="session")
def _standing_client(standing: Recorded) -> Iterator[TestClient]:
    with asking(standing.store) as made:
        yield made


@pytest.fixture
def reader(_standing_client: TestClient) -> Iterator[TestClient]:
    """A client of the standing recording."""
    before = dict(_standing_client.headers)
    yield _standing_client
    _standing_client.headers.clear()
    _standing_client.headers.update(before)


@dataclass(frozen=True)
class Live:
    """The dashboard on a real port."""

    address: str
    admission: Admission

    def visit(self, browser: Browser, **options: Any) -> BrowserContext:
        """A browser of its own that has signed in; it has the cookie that the server sets."""
        context = browser.new_context(**options)
        cookie = self.admission.redeem(self.admission.new_token(), "")
        assert cookie is not None
        context.add_cookies(
            [
                {
                    "name": COOKIE,
                    "value": cookie,
                    "url": self.address,
                    "httpOnly": True,
                    "sameSite": "Strict",
                }
            ]
        )
        return context


class Served(Protocol):
    """A store, and the address of the workspace in it that is looked at."""

    @property
    def store(self) -> AuditStore: ...
    @property
    def url(self) -> str: ...


@contextmanager
def serving(
    made: Served, seconds: float = SECONDS, admission: Admission | None = None
) -> Iterator[Live]:
    admission = admission or Admission(person())
    sockets = listen(0)
    port = sockets[0].getsockname()[1]
    app = create_app(made.store, admission)
    server = server_of(app, seconds)
    thread = threading.Thread(target=server.run, args=(sockets,), daemon=True)
    thread.start()
    for _ in range(500):
        if server.started:
            break
        time.sleep(0.02)
    assert server.started
    yield Live(f"http://{admission.host}:{port}", admission)
    server.should_exit = True
    thread.join(10)


@pytest.fixture
def live(recorded: Recorded) -> Iterator[Live]:
    with serving(recorded) as made:
        yield made


@pytest.fixture(scope="session")
def standing_live(standing: Recorded) -> Iterator[Live]:
    with serving(standing) as made:
        yield made


@pytest.fixture(scope="session")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Busy]:
    """Calls of five agents with long names, on long files; no test changes it."""
    with contextmanager(make)(tmp_path_factory.mktemp("busy"), 120, per_session=24) as made:
        yield made


@pytest.fixture(scope="session")
def busy_live(busy: Busy) -> Iterator[Live]:
    with serving(busy) as made:
        yield made


@pytest.fixture(scope="session")
def browser_type_launch_args(browser_type_launch_args: dict[str, Any]) -> dict[str, Any]:
    return {
        **browser_type_launch_args,
        "executable_path": CHROMIUM,
        "headless": True,
        "args": FLAGS,
    }


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if CHROMIUM is None:
        for item in items:
            if item.get_closest_marker("browser"):
                item.add_marker(pytest.mark.skip(reason="needs Chromium: apt-get install chromium"))
