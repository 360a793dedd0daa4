"""The `tmp_path_factory` of tests that are about the disk: their conftest.py imports it."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.places.temporary import in_memory


@pytest.fixture(scope="session")
def tmp_path_factory(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[pytest.TempPathFactory]:
    """Makes folders on the disk where others are in memory; they go unless a test failed."""
    if not in_memory():
        yield tmp_path_factory
        return
    folder = Path(tempfile.mkdtemp(prefix="loom-audit-tests-"))
    yield pytest.TempPathFactory(
        given_basetemp=None,
        basetemp=folder,
        retention_count=1,
        retention_policy="failed",
        trace=request.config.trace.get("tmpdir"),
        _ispytest=True,  # pytest has no public way to make one
    )
    if not request.session.testsfailed:
        shutil.rmtree(folder, ignore_errors=True)
