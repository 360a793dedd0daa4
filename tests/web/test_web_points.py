"""Pages of the workspace at a point."""

from datetime import timedelta

import pytest
from fastapi.testclient import TestClient

from loom_audit.sql.clock import SystemClock
from loom_audit.web.urls import quoted
from tests.web.conftest import Recorded


def test_a_page_at_a_time_around_which_clocks_went_back_names_both_points(
    recorded: Recorded, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = SystemClock().now
    head = recorded.workspace.log.head()
    with monkeypatch.context() as ahead:
        ahead.setattr(SystemClock, "now", lambda _: now() + timedelta(days=365))
        recorded.call("ahead", "write_file", {"path": "n", "content": "2"})
    recorded.call("behind", "write_file", {"path": "n", "content": "3"})
    later = recorded.workspace.log.head()
    at = quoted(now().isoformat())
    for page in (f"at/{at}/", f"compare/{at}..head"):
        text = client.get(f"{recorded.url}/{page}").text
        assert f"#{head} is the last event before a later one, #{later} the last" in text
