"""Every test here runs a real client, installed from npm or PyPI: `make test-clients`."""

import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark them, and keep those of one client in one process: what is installed is shared."""
    for item in items:
        if not item.path.is_relative_to(HERE):
            continue
        item.add_marker(pytest.mark.clients)
        client = re.search(r"\[([\w-]+)\]$", item.name)
        item.add_marker(pytest.mark.xdist_group(client[1] if client else item.path.stem))
