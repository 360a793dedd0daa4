"""Times are in UTC; the reader's own time stands beside one that is pointed at."""

import pytest
from playwright.sync_api import Browser

from tests.web.conftest import Live, Recorded


@pytest.mark.browser
def test_the_readers_own_time_stands_beside_the_one_in_utc(
    standing: Recorded, standing_live: Live, browser: Browser
) -> None:
    context = standing_live.visit(browser, timezone_id="Asia/Kathmandu", locale="en-GB")
    page = context.new_page()
    page.goto(f"{standing_live.address}{standing.url}/calls")
    time = page.locator(".calls td time").first
    told = time.get_attribute("title")
    assert told is not None and told.endswith(" UTC")
    time.hover()
    local, utc = (time.get_attribute("title") or "").split("\n")
    assert utc == told and "5:45" in local
    context.close()
