"""The statements that a store executes, counted and not timed."""

from typing import Any

import pytest

from loom_audit.sql.ground import connections, driver


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every statement that any connection of the store executes, those of triggers too."""
    statements: list[str] = []
    connect = driver.connect

    def traced_connect(*args: Any) -> Any:
        connection = connect(*args)
        connection.set_trace_callback(statements.append)
        return connection

    for module in (driver, connections):
        monkeypatch.setattr(module, "connect", traced_connect)
    return statements
