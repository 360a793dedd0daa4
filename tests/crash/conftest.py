"""One stem for all and one arena for a module: what is killed is forked from what is loaded."""

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.register_assert_rewrite("tests.crash.programs.faults")

from tests.crash.programs.faults import Arena, Stem, needs_strace  # noqa: E402
from tests.places.on_disk import tmp_path_factory as tmp_path_factory  # noqa: E402
from tests.processes.clients import client as client  # noqa: E402 - after the line above


@pytest.fixture(scope="session")
def stem(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stem]:
    stem = Stem(tmp_path_factory.mktemp("stem"))
    yield stem
    stem.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("arena")


@pytest.fixture(scope="module")
def shared_arena(stem: Stem, folder: Path) -> Arena:
    needs_strace()
    return Arena(folder, stem)


@pytest.fixture
def arena(shared_arena: Arena, monkeypatch: pytest.MonkeyPatch) -> Arena:
    """A store and a workspace to be broken."""
    monkeypatch.setenv("LOOM_AUDIT_HOME", str(shared_arena.home))
    return shared_arena
