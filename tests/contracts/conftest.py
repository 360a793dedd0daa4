"""The implementations that the contracts of log, contents and projections are held against."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contracts.stores import KINDS, Opened, open_kind, open_sqlite


@pytest.fixture(params=KINDS)
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opened]:
    found = open_kind(request.param, tmp_path)
    yield found
    if found.database:
        found.database.close()


@pytest.fixture
def stored(tmp_path: Path) -> Iterator[Opened]:
    found = open_sqlite(tmp_path)
    yield found
    assert found.database
    found.database.close()
