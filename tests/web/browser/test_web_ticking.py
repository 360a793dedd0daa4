"""Calls are ticked on one page, kept while others are looked at, and taken back together."""

import re

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.web.browser.test_web_browser import AXE, RUN_AXE, Watch
from tests.web.conftest import Live, Recorded

pytestmark = pytest.mark.browser


def tick(page: Page, number: int) -> None:
    page.get_by_label(f"Tick call {number}", exact=True).check()


@pytest.mark.few(1)
@pytest.mark.parametrize("scripted", [True, False])
def test_what_is_ticked_stays_ticked_on_the_way_to_other_calls(
    scripted: bool, standing: Recorded, standing_live: Live, browser: Browser
) -> None:
    n = standing.numbers
    context = standing_live.visit(browser, java_script_enabled=scripted)
    page = context.new_page()
    watch = Watch(page, standing_live.address)
    watch.go(f"{standing.url}/calls?before={n['later'] + 5}")
    newer = page.get_by_role("button", name=re.compile("^Newer calls"))
    expect(newer).to_have_count(0)
    tick(page, n["notes"])
    tick(page, n["later"])
    newer.first.click()
    page.get_by_text("Ticked before:").wait_for()
    before = page.locator(f".along input[value='{n['notes']}']")
    expect(before).to_be_checked()
    tick(page, n["shell"])
    if scripted:
        page.get_by_label("Tool", exact=True).fill("edit_file")
        expect(page.locator(f"#c{n['shell']}")).to_have_count(0)
        expect(before).to_be_checked()
        expect(page.locator(f".along input[value='{n['shell']}']")).to_be_checked()
        page.evaluate(AXE)
        assert page.evaluate(RUN_AXE, {}) == []
    page.get_by_role("button", name="Undo the ticked…").click()
    page.wait_for_url("**/plan?**")
    plan = page.locator("main").inner_text()
    assert all(f"#{n[one]}" in plan for one in ("notes", "later", "shell"))
    assert watch.problems == []
    context.close()
