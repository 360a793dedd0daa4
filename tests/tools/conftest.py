"""A real store, workspace and runner; calls go the whole way."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from loom_audit.api.face import AuditedWorkspace, AuditStore, Session, open_store
from loom_audit.api.registry import ToolRegistry
from loom_audit.model.events import CallFinished, CallRequested, Event
from loom_audit.ports import EventFilter
from loom_audit.tools.calls.call import call_tool
from loom_audit.tools.calls.result import ToolResult
from tests.places.made_store import lay_store


@dataclass
class Bench:
    """One session in one workspace, and the questions tests ask of it."""

    root: Path
    store: AuditStore
    workspace: AuditedWorkspace
    session: Session
    registry: ToolRegistry

    def call(self, tool: Any, arguments: Any, **options: Any) -> ToolResult:
        async def one() -> ToolResult:
            return await self.acall(tool, arguments, **options)

        return anyio.run(one)

    async def acall(
        self, tool: Any, arguments: Any, *, gate: Any = None, **options: Any
    ) -> ToolResult:
        writer = self.session.writer
        return await call_tool(
            self.registry,
            gate or self.session.gate,
            writer,
            tool,
            arguments,
            past=partial(self.workspace.own_calls, writer),
            **options,
        )

    def events(self, *kinds: str) -> list[Event]:
        return [*self.workspace.log.read(EventFilter(kinds=kinds))]

    def requested(self) -> list[CallRequested]:
        return [e.fact for e in self.events("call.requested") if isinstance(e.fact, CallRequested)]

    def finished(self) -> list[CallFinished]:
        return [e.fact for e in self.events("call.finished") if isinstance(e.fact, CallFinished)]

    def last(self) -> CallFinished:
        newest = EventFilter(kinds=("call.finished",), newest_first=True, limit=1)
        [event] = self.workspace.log.read(newest)
        assert isinstance(event.fact, CallFinished)
        return event.fact

    def tree(self) -> dict[str, bytes | str | None]:
        """Everything on disk: a file's bytes, a symlink's target, None for a directory."""
        found: dict[str, bytes | str | None] = {}
        for path in sorted(self.root.rglob("*")):
            name = str(path.relative_to(self.root))
            if path.is_symlink():
                found[name] = str(path.readlink())
            elif path.is_dir():
                found[name] = None
            elif path.is_file():
                found[name] = path.read_bytes()
            else:
                found[name] = "special"
        return found

    def assert_every_call_has_one_finish(self) -> None:
        facts = [event.fact for event in self.events("call.requested", "call.finished")]
        asked = [one.call_id for one in facts if isinstance(one, CallRequested)]
        ended = [one.call_id for one in facts if isinstance(one, CallFinished)]
        assert sorted(asked) == sorted(ended) == sorted(set(asked))
        assert not self.workspace.timeline.open_calls()

    def assert_log_agrees_with_disk(self) -> None:
        status = self.workspace.status()
        assert (status.drift, status.open_calls) == ((), ())


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    monkeypatch.setenv("LOOM_AUDIT_HOME", str(folder))
    monkeypatch.delenv("LOOM_AUDIT_STORE", raising=False)
    return folder


@contextmanager
def opened_store(home: Path) -> Iterator[AuditStore]:
    """A store in a new data folder, which is deleted at the end."""
    lay_store(home)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOOM_AUDIT_HOME", str(home))
        patch.delenv("LOOM_AUDIT_STORE", raising=False)
        store = open_store()
    with store:
        yield store
    shutil.rmtree(home)


@pytest.fixture(scope="session")
def new_bench(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[Path], AbstractContextManager[Bench]]:
    """Makes a small workspace in a folder, with an open session in it and a store of its own."""

    @contextmanager
    def make(folder: Path) -> Iterator[Bench]:
        root = folder / "work"
        (root / "src").mkdir(parents=True)
        (root / "src" / "main.py").write_text("import os\n\nprint('one')\nprint('two')\n")
        (root / "notes.txt").write_bytes(b"first\r\nsecond\r\nthird")
        with opened_store(tmp_path_factory.mktemp("stores") / "home") as store:
            workspace = store.attach(root)
            with workspace.session("tester") as session:
                yield Bench(root, store, workspace, session, session.registry)

    return make


@pytest.fixture
def bench(
    tmp_path: Path, new_bench: Callable[[Path], AbstractContextManager[Bench]]
) -> Iterator[Bench]:
    with new_bench(tmp_path) as made:
        yield made
