"""Every test here runs a real client, installed from npm or PyPI: `make test-clients`."""

import pytest


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark it; the tests of one client's session run in one process, which has that session."""
    item.add_marker(pytest.mark.clients)
    given = item.callspec.params if hasattr(item, "callspec") else {}
    item.add_marker(pytest.mark.xdist_group(str(given.get("run", item.name))))
