"""A store and a small workspace under audit, all real."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from loom_audit import AuditedWorkspace, AuditStore, Session, ToolResult, open_store
from tests.places.made_store import lay_store
from tests.processes.clients import client as client


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder of our own."""
    home = tmp_path / "home"
    lay_store(home)
    monkeypatch.setenv("LOOM_AUDIT_HOME", str(home))
    monkeypatch.delenv("LOOM_AUDIT_STORE", raising=False)
    return home


@pytest.fixture
def store(home: Path) -> Iterator[AuditStore]:
    with open_store() as store:
        yield store


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "workspace"
    root.mkdir()
    (root / "a.txt").write_bytes(b"one\ntwo\nthree\n")
    (root / "src").mkdir()
    (root / "src" / "main.py").write_bytes(b"print('hello')\n")
    return root


@pytest.fixture
def workspace(store: AuditStore, root: Path) -> AuditedWorkspace:
    return store.attach(root)


@pytest.fixture
def session(workspace: AuditedWorkspace) -> Iterator[Session]:
    with workspace.session("tester") as session:
        yield session


@pytest.fixture
def call(session: Session) -> Callable[..., ToolResult]:
    """Call a tool of the session; the result must be a success unless `fails` is given."""

    def run(tool: str, *, fails: str | None = None, **arguments: Any) -> ToolResult:
        result = anyio.run(lambda: session.call(tool, arguments))
        if fails is None:
            assert result.success, result.error
        else:
            assert result.error is not None
            assert result.error.code == fails
        return result

    return run
