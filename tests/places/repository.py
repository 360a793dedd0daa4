"""A small folder that agents work in, and a data folder with what their hooks need there."""

from pathlib import Path

import pytest

from loom_audit.api.agents.launcher import write_launcher
from loom_audit.config import read_settings
from tests.places.made_store import lay_store


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    root.mkdir()
    (root / "a.txt").write_text("one\n")
    return root


@pytest.fixture
def data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    lay_store(folder)
    monkeypatch.setenv("LOOM_AUDIT_HOME", str(folder))
    (folder / "hooks").mkdir()
    write_launcher(read_settings())
    return folder
