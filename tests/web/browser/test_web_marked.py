"""A review is marked in a browser, with JavaScript and without it."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from loom_audit.api.review.marks import last_read
from tests.web.browser.following import follow
from tests.web.browser.test_web_browser import AXE, RUN_AXE
from tests.web.conftest import Live, Recorded

pytestmark = pytest.mark.browser


@pytest.fixture(params=[True, False], ids=["with JavaScript", "without"])
def page(
    request: pytest.FixtureRequest, recorded: Recorded, browser: Browser, live: Live
) -> Iterator[Page]:
    context = live.visit(browser, java_script_enabled=request.param)
    made = context.new_page()
    said: list[str] = []
    made.on("console", lambda message: said.append(message.text))
    made.on("pageerror", lambda error: said.append(str(error)))
    made.goto(f"{live.address}{recorded.url}/s/{recorded.session}")
    yield made
    assert said == []
    context.close()


def press(page: Page, what: Locator) -> None:
    """Without JavaScript each press leads to the page made anew."""
    (Locator.click if page.evaluate("typeof htmx") == "object" else follow)(what)


@pytest.mark.few(1)
def test_a_part_is_folded_and_unfolded_and_the_file_with_it(page: Page) -> None:
    told = page.locator("#progress b")
    count = int((told.text_content() or "").split()[2])
    file = page.locator(".file", has_text="copy/main.py").first
    part = file.locator(".part")
    number = page.locator(".part .viewed-toggle").count()
    name = part.get_attribute("data-part")
    assert name and part.get_attribute("id") == f"p-{name}"
    expect(file.get_by_text("import sys")).to_be_visible()
    press(page, part.locator(".viewed-toggle"))
    expect(told).to_have_text(f"1 of {count} parts viewed")
    expect(file.get_by_text("import sys")).to_be_hidden()
    pressed = page.locator(f"#p-{name} .viewed-toggle")
    expect(pressed).to_have_attribute("aria-pressed", "true")
    if page.evaluate("typeof htmx") == "object":
        assert page.evaluate("document.activeElement.id") == f"v-{name}", "the focus stays"
        page.evaluate(AXE)
        assert page.evaluate(RUN_AXE, {}) == []
        assert "#" not in page.url, "nothing but the file was loaded"
    else:
        assert page.url.endswith(f"#p-{name}")
    file.locator("summary").click()
    expect(file.get_by_text("import sys")).to_be_visible()
    assert page.locator(".part .viewed-toggle").count() == number
    press(page, pressed)
    expect(told).to_have_text(f"0 of {count} parts viewed")
    expect(file.get_by_text("import sys")).to_be_visible()


@pytest.mark.few(1)
def test_more_lines_of_a_marked_file_go_on_below_it(page: Page) -> None:
    file = page.locator(".file", has_text="big.txt").first
    press(page, file.get_by_role("link", name="Load diff"))
    file = page.locator(".file", has_text="big.txt").first
    expect(file.locator("tr.add").nth(150)).to_be_visible()
    for _ in range(9):
        more = file.locator(".more a")
        if not more.count():
            break
        where = more.get_attribute("href")
        press(page, more)
        file = page.locator(".file", has_text="big.txt").first
        expect(file.locator(f'.more a[href="{where}"]')).to_have_count(0)
    expect(file.locator("td.code", has_text="899").last).to_be_visible()
    assert file.locator("tbody tbody").count() == 0
    part = file.locator(".part").last
    assert part.get_attribute("data-part") is None, "the part began above"
    press(page, file.locator(".viewed-file, .viewed-toggle").first)
    expect(page.locator("#progress b")).to_contain_text("1 of")
    expect(page.locator("[aria-pressed=true]").first).to_be_visible()


def test_it_is_read_up_to_an_event(page: Page, recorded: Recorded) -> None:
    page.get_by_role("button", name="Read up to #").click()
    expect(page.get_by_role("link", name="Since I read #")).to_be_visible()
    read = last_read(recorded.workspace, recorded.session)
    expect(page.locator("#progress").get_by_text(f"read up to #{read}")).to_be_visible()
    page.get_by_role("link", name="Since I read #").click()
    expect(
        page.get_by_text(f"Since #{read} it changed nothing that still differs.")
    ).to_be_visible()
    page.get_by_role("button", name="Not read").click()
    expect(page.get_by_role("button", name="Read up to #")).to_be_visible()
    assert last_read(recorded.workspace, recorded.session) is None
