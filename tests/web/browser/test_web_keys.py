"""A review read by keyboard, on a phone and on paper."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from tests.web.browser.test_web_browser import AXE, RUN_AXE, Watch
from tests.web.conftest import Live, Recorded, serving

pytestmark = pytest.mark.browser

FOCUSED = """() => {
    const one = document.activeElement, box = one.getBoundingClientRect()
    return [one.tagName, one.id || one.className, box.top < innerHeight && box.bottom > 0]
}"""


@pytest.fixture
def watch(browser: Browser, standing_live: Live) -> Iterator[Watch]:
    context = standing_live.visit(browser, reduced_motion="reduce")
    made = Watch(context.new_page(), standing_live.address)
    yield made
    context.close()
    assert made.problems == []


def read(watch: Watch, path: str) -> Page:
    """A page whose keys work: the first of them loads what they do."""
    watch.go(path)
    watch.page.keyboard.press("?")
    watch.page.get_by_role("dialog", name="Keys").wait_for()
    watch.page.keyboard.press("Escape")
    return watch.page


def press(page: Page, *keys: str) -> list[object]:
    """Press keys; what has the focus then: its element, its name, whether it is in sight."""
    for key in keys:
        page.keyboard.press(key)
    found: list[object] = page.evaluate(FOCUSED)
    return found


def parts_of(page: Page) -> list[str]:
    """The names of the parts of a page, from the top."""
    found: list[str] = page.locator("[data-part]").evaluate_all("all => all.map(one => one.id)")
    return found


def test_parts_and_files_are_gone_through_in_both_directions(
    standing: Recorded, watch: Watch
) -> None:
    page = read(watch, f"{standing.url}/s/{standing.session}")
    files = page.locator("section.file").evaluate_all("all => all.map(one => one.id)")
    assert press(page, "n") == ["SECTION", files[0], True]
    assert press(page, "n", "n") == ["SECTION", files[2], True]
    assert press(page, "p") == ["SECTION", files[1], True]
    assert press(page, "p", "p", "p")[1] == files[0], "there is none before the first"
    parts = parts_of(page)
    passed = [press(page, key) for key in "jjjk"]
    assert [(name, seen) for _, name, seen in passed] == [(parts[n], True) for n in (0, 1, 2, 1)]
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_a_part_leads_to_its_call_and_to_the_plan_that_takes_it_back(
    standing: Recorded, watch: Watch
) -> None:
    number = standing.numbers["notes"]
    page = read(watch, f"{standing.url}/s/{standing.session}?diff=notes.txt")
    press(page, "j")
    page.keyboard.press("c")
    page.wait_for_url(f"**/c/{number}")
    page = read(watch, f"{standing.url}/s/{standing.session}?diff=notes.txt")
    press(page, "j")
    page.keyboard.press("u")
    page.wait_for_url(f"**/plan?verb=revert&target={number}")
    page = read(watch, f"{standing.url}/calls")
    press(page, "j")
    page.keyboard.press("c")
    page.wait_for_url("**/c/*")


def test_viewed_is_pressed_and_the_next_part_follows_the_one_that_was_made_anew(
    standing: Recorded, watch: Watch
) -> None:
    page = read(watch, f"{standing.url}/s/{standing.session}")
    parts = parts_of(page)
    pressed = page.locator(f"#v-{parts[1].removeprefix('p-')}[aria-pressed=true]")
    assert press(page, "j", "j")[1] == parts[1]
    press(page, "v")
    pressed.wait_for()
    assert press(page, "j")[1] == parts[2]
    assert press(page, "k")[1] == parts[1]
    press(page, "v")
    pressed.wait_for(state="detached")


def test_find_and_the_list_of_keys(standing: Recorded, watch: Watch) -> None:
    page = read(watch, f"{standing.url}/calls")
    press(page, "/")
    assert page.locator(":focus").get_attribute("name") == "tool"
    page = read(watch, f"{standing.url}/s/{standing.session}")
    press(page, "?")
    page.get_by_role("dialog", name="Keys").wait_for()
    page.evaluate(AXE)
    assert page.evaluate(RUN_AXE, {}) == []
    press(page, "n")
    assert page.locator("section.file:focus").count() == 0, "the list is read first"
    page.keyboard.press("Escape")
    assert page.get_by_role("dialog", name="Keys").count() == 0
    page.keyboard.press("/")
    page.wait_for_url("**/find")


def switch(page: Page, *, on: bool) -> None:
    """Turn the keys on or off on this page, and wait until that is noted."""
    page.get_by_role("button", name="Keys").click()
    with page.expect_response("**/keys") as noted:
        page.get_by_label("Keys are on").set_checked(on)
    assert noted.value.status == 204
    page.keyboard.press("Escape")


def test_keys_that_were_turned_off_stay_off_at_the_next_server_until_they_are_on_again(
    standing: Recorded, browser: Browser
) -> None:
    review = f"{standing.url}/s/{standing.session}"
    for begins, ends in ((True, False), (False, True)):
        with serving(standing) as live:
            context = live.visit(browser)
            page = context.new_page()
            for _ in range(2):
                page.goto(live.address + review)
                if begins:
                    break
                press(page, "n", "j", "?")
                assert page.locator("section.file:focus, tr:focus").count() == 0
                assert page.get_by_role("dialog", name="Keys").count() == 0
            switch(page, on=ends)
            page.keyboard.press("n")
            if ends:
                page.locator("section.file:focus").wait_for()
            context.close()


def test_a_switch_that_cannot_be_noted_says_so_and_holds_for_the_page(
    standing: Recorded, standing_live: Live, browser: Browser
) -> None:
    context = standing_live.visit(browser)
    page = context.new_page()
    page.goto(f"{standing_live.address}{standing.url}/")
    context.clear_cookies()
    page.get_by_role("button", name="Keys").click()
    page.get_by_label("Keys are on").uncheck()
    page.get_by_text("This holds for this page only").wait_for()
    assert not (standing.store.home / "keys-off").exists()
    page.keyboard.press("Escape")
    press(page, "?")
    assert page.get_by_role("dialog", name="Keys").count() == 0
    context.close()


def test_keys_do_nothing_in_fields_and_with_modifier_keys(standing: Recorded, watch: Watch) -> None:
    page = watch.page
    watch.go(f"{standing.url}/find?q=script")
    field = page.get_by_label("Words")
    field.focus()
    page.keyboard.type("jknpvcu/?")
    assert "jknpvcu/?" in field.input_value()
    page = read(watch, f"{standing.url}/s/{standing.session}")
    press(page, "Control+j", "Alt+n", "Shift+N", "Shift+J")
    assert page.locator("section.file:focus, tr:focus").count() == 0


@pytest.mark.parametrize("scripted", [True, False])
def test_on_a_phone_the_header_is_one_line_with_all_places_in_a_menu(
    standing: Recorded, standing_live: Live, browser: Browser, scripted: bool
) -> None:
    context = standing_live.visit(
        browser, viewport={"width": 390, "height": 800}, java_script_enabled=scripted
    )
    page = context.new_page()
    page.goto(f"{standing_live.address}{standing.url}/s/{standing.session}")
    box = page.locator("header.top").bounding_box()
    assert box is not None and box["height"] == 48
    assert not page.get_by_role("link", name="Compare").is_visible()
    page.get_by_role("button", name="Menu").click()
    page.get_by_role("link", name="Sign out").wait_for()
    page.get_by_role("link", name="Compare").click()
    page.wait_for_url("**/compare/**")
    page.get_by_role("button", name="Keys").click()
    page.get_by_role("dialog", name="Keys").wait_for()
    context.close()


def test_the_heading_of_a_file_stays_while_its_lines_pass(standing: Recorded, watch: Watch) -> None:
    watch.go(f"{standing.url}/s/{standing.session}?diff=big.txt")
    page = watch.page
    heading = page.locator("section.file h3").first
    row = page.locator(".diff .add").nth(200)
    assert heading.evaluate("one => one.getBoundingClientRect().top") > 1
    row.evaluate("row => row.scrollIntoView({block: 'center'})")
    page.wait_for_function(
        "() => Math.abs(document.querySelector('.file h3').getBoundingClientRect().top) < 1"
    )
    assert heading.is_visible()


@pytest.mark.parametrize("width", [1280, 800, 375])
def test_who_wrote_a_line_stands_beside_its_number_and_not_over_it(
    standing: Recorded, watch: Watch, width: int
) -> None:
    watch.page.set_viewport_size({"width": width, "height": 800})
    watch.go(f"{standing.url}/at/head/src/main.py?view=blame")
    over = """() => {
        const end = one => one.getBoundingClientRect().right
        const inside = [...document.querySelectorAll('.blame .by *')]
        return inside.filter(one => end(one) > end(one.closest('td'))).length
    }"""
    assert "not known before" in watch.page.locator(".blame").inner_text()
    assert watch.page.evaluate(over) == 0


def test_on_a_phone_who_wrote_lines_stands_above_them_and_stays_in_sight(
    standing: Recorded, watch: Watch
) -> None:
    watch.page.set_viewport_size({"width": 375, "height": 800})
    watch.go(f"{standing.url}/at/head/huge.txt?view=blame")
    by, code = watch.page.locator(".blame .by").first, watch.page.locator(".blame .code").first
    watch.page.locator(".scroll").evaluate("one => one.scrollTo(500, 0)")
    above, below = by.bounding_box(), code.bounding_box()
    assert above and below and above["y"] + above["height"] <= below["y"]
    assert above["x"] >= 0 and above["x"] + above["width"] <= 375


@pytest.mark.parametrize("width", [1280, 375])
@pytest.mark.parametrize("view", ["", "?view=blame"])
def test_lines_longer_than_the_screen_are_read_by_scrolling(
    standing: Recorded, watch: Watch, view: str, width: int
) -> None:
    watch.page.set_viewport_size({"width": width, "height": 800})
    watch.go(f"{standing.url}/at/head/huge.txt{view}")
    code = watch.page.locator(".diff .code").first
    before = code.bounding_box()
    assert before and before["width"] > width
    watch.page.locator(".scroll").evaluate("one => one.scrollTo(500, 0)")
    after = code.bounding_box()
    assert after and after["x"] == before["x"] - 500


def test_on_paper_all_is_open_and_calls_have_their_addresses(
    standing: Recorded, watch: Watch
) -> None:
    watch.go(f"{standing.url}/s/{standing.session}?diff=notes.txt")
    page = watch.page
    page.emulate_media(media="print")
    assert page.locator(".diff .add").first.is_visible(), "what it changed"
    assert not page.get_by_role("button", name="Viewed").first.is_visible()
    assert not page.locator(".undo-call").first.is_visible()
    assert not page.locator("header.top").is_visible()
    assert not page.get_by_role("button", name="Keys").is_visible()
    shown = page.locator("h3 .by a").first.evaluate("a => getComputedStyle(a, '::after').content")
    assert "/c/" in shown or "attr(href)" in shown
    watch.go(f"{standing.url}/c/{standing.numbers['notes']}")
    events = page.locator("details", has_text="Events (")
    assert not events.evaluate("one => one.open")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details:not([open])").count() == 0
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert not events.evaluate("one => one.open")


def test_the_list_is_one_step_from_the_top(standing: Recorded, watch: Watch) -> None:
    page = watch.page
    for path in ("", "calls", f"s/{standing.session}", f"s/{standing.session}/steps"):
        watch.go(f"{standing.url}/{path}")
        page.keyboard.press("Tab")
        page.keyboard.press("Tab")
        skip = page.locator("a.skip:focus")
        assert skip.inner_text().startswith("Skip to the "), path
        target = (skip.get_attribute("href") or "")[1:]
        assert page.locator(f"[id='{target}']").count() == 1, path
        page.keyboard.press("Enter")
        page.wait_for_function("target => location.hash === '#' + target", arg=target)
