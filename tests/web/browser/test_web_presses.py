"""After a press: something is said, also where nobody answers, and the focus is there."""

import os
import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.web.browser.test_web_browser import AXE, RUN_AXE
from tests.web.conftest import Live, Recorded

pytestmark = pytest.mark.browser

FOCUSED = "#notice :focus"


@pytest.fixture
def page(recorded: Recorded, browser: Browser, live: Live) -> Iterator[Page]:
    context = live.visit(browser, reduced_motion="reduce")
    made = context.new_page()
    made.goto(f"{live.address}{recorded.url}/calls")
    yield made
    context.close()


def press(page: Page, recorded: Recorded) -> None:
    number = recorded.numbers["notes"]
    page.get_by_role("button", name=f"Undo call {number}", exact=True).press("Enter")


def test_after_an_undo_the_focus_is_on_what_it_says(recorded: Recorded, page: Page) -> None:
    press(page, recorded)
    expect(page.locator(FOCUSED)).to_contain_text("Took back")
    page.evaluate(AXE)
    assert page.evaluate(RUN_AXE, {}) == []
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent").startswith("#")


def test_after_a_refusal_the_focus_is_on_what_it_says(recorded: Recorded, page: Page) -> None:
    agent = recorded.workspace.start_foreign_session("codex", id="agent-1", pid=os.getpid())
    agent.begin_call("c1", "Bash", {"command": "make"})
    press(page, recorded)
    expect(page.locator(FOCUSED)).to_contain_text("still open")
    assert page.locator("main").count() == 1


def test_an_undo_that_nobody_answers_says_so_and_can_be_pressed_again(
    recorded: Recorded, page: Page
) -> None:
    page.route(re.compile("carry-out"), lambda route: route.abort("connectionrefused"))
    press(page, recorded)
    expect(page.locator(FOCUSED)).to_contain_text("did not answer")
    page.unroute(re.compile("carry-out"))
    press(page, recorded)
    page.locator(f"tr#c{recorded.numbers['notes']}.undone").wait_for()
    expect(page.locator("#notice")).to_contain_text("Took back")
    assert (recorded.root / "notes.txt").read_text() == "one\ntwo\nthree\n"


def test_undoing_the_ticked_is_offered_only_where_something_can_be_ticked(
    recorded: Recorded, page: Page, live: Live
) -> None:
    expect(page.locator(".tick").first).to_be_visible()
    expect(page.locator("form.ticked")).to_be_visible()
    page.goto(f"{live.address}{recorded.url}/calls?tool=read_file")
    expect(page.locator("tr[id^=c]").first).to_be_visible()
    expect(page.locator(".tick")).to_have_count(0)
    expect(page.locator("form.ticked")).to_be_hidden()
