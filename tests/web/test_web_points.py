"""Pages of the workspace at a point."""

import re
from datetime import timedelta
from urllib.parse import unquote

import pytest
from fastapi.testclient import TestClient

from loom_audit.api.agents.connect import record_as_it_is
from loom_audit.api.face import open_store
from loom_audit.sql.ground.clock import SystemClock
from loom_audit.web.shared.urls import quoted
from tests.integrity.test_tamper import connect, unguarded
from tests.web.conftest import Recorded, asking


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


def test_a_damaged_content_is_said_to_be_and_is_not_downloaded(recorded: Recorded) -> None:
    state = recorded.workspace.timeline.state("notes.txt")
    file = recorded.store.adapters.settings.file
    assert state and file
    with connect(file) as raw:
        unguarded(raw).execute(
            "UPDATE blob_content SET content = x'00' WHERE blob = "
            f"(SELECT number FROM blob WHERE sha256 = x'{state.blob}')"
        )
    with open_store(recorded.store.url) as store, asking(store, raises=False) as client:
        for page in ("at/head/notes.txt", f"compare/{recorded.numbers['read']}..head"):
            answer = client.get(f"{recorded.url}/{page}")
            assert answer.status_code == 200
            assert "<code>CORRUPT</code>" in answer.text and "TWO" not in answer.text
        answer = client.get(f"{recorded.url}/raw/head/notes.txt")
        assert answer.status_code == 500 and "<code>CORRUPT</code>" in answer.text


def test_the_history_of_a_folder_leads_to_its_files_and_to_what_came_from_outside(
    recorded: Recorded, client: TestClient
) -> None:
    (recorded.root / "src" / "main.py").write_text("by hand\n")
    record_as_it_is(recorded.workspace)
    [seq] = [one.seq for one in recorded.workspace.timeline.outside(limit=1)]
    text = client.get(f"{recorded.url}/history/src").text
    assert f'href="{recorded.url}/compare/{seq - 1}..{seq}">#{seq}</a>' in text
    assert f'href="{recorded.url}/history/src/main.py"' in text
    alone = client.get(f"{recorded.url}/history/src/main.py").text
    assert f'<a class="path" href="{recorded.url}/history/src/main.py"' not in alone


def test_a_typed_time_is_meant_in_the_zone_that_the_form_names(
    recorded: Recorded, client: TestClient
) -> None:
    def led(typed: str, zone: str) -> str:
        query = f"point={quoted(typed)}&zone={quoted(zone)}"
        page = client.get(f"{recorded.url}/at?{query}", follow_redirects=False)
        return unquote(page.headers["location"]).removeprefix(f"{recorded.url}/at/").rstrip("/")

    assert led("2200-01-31 14:05", "") == "2200-01-31T14:05:00+00:00"
    assert led("2200-01-31 14:05", "America/New_York") == "2200-01-31T19:05:00+00:00"
    assert led("2200-07-31 14:05", "America/New_York") == "2200-07-31T18:05:00+00:00"
    for zone in ("America/New_York", "Nowhere/Atall", "/etc/passwd", "America", "x" * 5_000):
        assert led("2200-01-31T14:05:00Z", zone) == "2200-01-31T14:05:00+00:00"
        assert led("head~1", zone) == "head~1"
    for zone in ("Nowhere/Atall", "../../etc/passwd", "\0", "x" * 5_000):
        query = f"a=2200-01-31&zone={quoted(zone)}"
        page = client.get(f"{recorded.url}/compare?{query}", follow_redirects=False)
        assert page.status_code == 400 and "with a Z behind it" in page.text
    newer = client.get(f"{recorded.url}/compare?b=14:05&zone=Asia/Tokyo", follow_redirects=False)
    assert newer.status_code == 303


def test_points_are_taken_as_people_type_them(recorded: Recorded, client: TestClient) -> None:
    head = recorded.workspace.log.head()
    for typed in ("1 second ago", "today", "yesterday 17:00"):
        page = client.get(f"{recorded.url}/at?point={quoted(typed)}", follow_redirects=False)
        assert "ago" not in page.headers["location"] and "day" not in page.headers["location"]
        assert page.headers["location"].count("%2B00:00") == 1
        page = client.get(f"{recorded.url}/compare?a={quoted(typed)}", follow_redirects=False)
        assert re.search(r"/compare/\d+\.\.\d+$", page.headers["location"])
    planned = client.get(f"{recorded.url}/plan?verb=rollback&target=0 seconds ago")
    assert planned.status_code == 200 and f"#{head}" in planned.text
