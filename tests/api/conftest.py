"""A small workspace under audit, in the test's own data folder."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, AuditStore, open_store
from tests.places.made_store import lay_store


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "workspace"
    (root / "src").mkdir(parents=True)
    (root / "a.txt").write_text("one\n")
    return root


@pytest.fixture
def store(home: Path) -> Iterator[AuditStore]:
    lay_store(home)
    with open_store() as store:
        yield store


@pytest.fixture
def workspace(store: AuditStore, root: Path) -> AuditedWorkspace:
    return store.attach(root)
