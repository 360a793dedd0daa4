"""The first search of a long log says how far its index is, and ends with what was searched for."""

import pytest
from playwright.sync_api import Browser, Route, expect

from loom_audit.model.conversation import MessageReceived
from loom_audit.model.events import Draft
from tests.web.browser.test_web_browser import AXE, RUN_AXE, Watch
from tests.web.conftest import Recorded, serving

pytestmark = pytest.mark.browser

AT_ONCE = 300
BEHIND = 3 * AT_ONCE
"""Events that no search has seen: some answers say how far the index is, the last has the hits."""


@pytest.mark.few(1)
@pytest.mark.parametrize("scripted", [True, False])
def test_the_first_search_shows_how_far_it_is_until_it_has_its_hits(
    scripted: bool, recorded: Recorded, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loom_audit.web.finding.INDEXED", AT_ONCE)
    texts = (f"word {number} needle{number % 100}" for number in range(BEHIND))
    said = [MessageReceived("assistant", text) for text in texts]
    recorded.workspace.log.append([Draft(one, recorded.session, "agent:coder") for one in said])
    total = recorded.workspace.log.head()
    again = list[str]()
    with serving(recorded) as live:
        context = live.visit(browser, java_script_enabled=scripted)
        page = context.new_page()
        watch = Watch(page, live.address)
        address = f"{live.address}{recorded.url}/find?q=needle76"

        def stay(route: Route) -> None:
            """Let the page stay, when it goes on by itself, until it was looked at."""
            if page.url == address:
                again.append(route.request.url)
                route.fulfill(status=204)
            else:
                route.continue_()

        page.route("**/find?*", stay)
        page.goto(address)
        reached = page.get_by_role("progressbar")
        expect(reached).to_have_attribute("max", str(total))
        expect(page.get_by_text("The search is made ready")).to_be_visible()
        now = int(reached.get_attribute("value") or 0)
        assert 0 < now < total
        expect(page.get_by_text(f"{now:,} of {total:,} events are in its index")).to_be_visible()
        if scripted:
            page.evaluate(AXE)
            assert page.evaluate(RUN_AXE, {}) == []
        while not again:
            page.wait_for_timeout(20)
        assert again == [address]
        page.unroute_all()
        page.get_by_role("link", name="Go on").click()
        expect(page.locator("mark").first).to_have_text("needle76", timeout=120_000)
        expect(reached).to_have_count(0)
        assert watch.problems == []
        context.close()
