"""A store that was made once in this process, for the many tests that only need one to be there.

What a store's making and upgrading do is tested where they happen: tests/sql, tests/contracts,
tests/test_golden_stores.py and what calls `open_store` in an empty folder.
"""

import functools
import os
import tempfile
from pathlib import Path

import pytest

from loom_audit import open_store
from loom_audit.sql.store.ballast import BALLAST_BYTES

STORE = "audit.db"


@functools.cache
def _made() -> bytes:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOOM_AUDIT_HOME", folder)
        patch.delenv("LOOM_AUDIT_STORE", raising=False)
        open_store().close()
        return (Path(folder) / STORE).read_bytes()


def lay_store(home: Path) -> None:
    """Put an empty store of the newest revision into a data folder, which is made if need be."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    (home / STORE).touch(0o600)
    (home / STORE).write_bytes(_made())
    lay_ballast(home / STORE)


def lay_ballast(store: Path) -> None:
    """Put a file of the ballast's length beside a store, without its room.

    To lay a real one and to free it takes five milliseconds; where a disk gets full, tests need it.
    """
    ballast = store.with_name(f"{store.name}.ballast")
    ballast.touch(0o600)
    os.truncate(ballast, BALLAST_BYTES)
