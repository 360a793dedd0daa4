"""A store of the test's own, and events in it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from loom_audit.disk.machine.locks import DiskLock
from loom_audit.model.events import SessionStarted
from loom_audit.sql.store.database import Database, open_database
from tests.contracts.stores import draft


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store" / "audit.db"


@pytest.fixture
def lock(tmp_path: Path) -> DiskLock:
    return DiskLock(tmp_path / "locks")


@pytest.fixture
def database(path: Path, lock: DiskLock) -> Iterator[Database]:
    found = open_database(str(path), lock=lock)
    yield found
    found.close()


def record(database: Database, count: int = 1) -> str:
    id = database.create_log()
    database.event_log(id).append([draft(SessionStarted("a", str(n))) for n in range(count)])
    return id
