"""Times are on record in UTC, and with JavaScript each is read in the reader's own zone."""

import re
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import Browser, Locator, Page

from tests.web.conftest import Live, Recorded

pytestmark = pytest.mark.browser

FAR = "Pacific/Kiritimati"
"""Fourteen hours ahead: for most of a day in UTC it is the next day there."""
WATCHING = """() => {
    window.late = 0
    const look = () => {
        const told = document.querySelectorAll("time[datetime*='T']:not([data-local])").length
        window.late = Math.max(window.late, told - (document.readyState === 'loading'))
        requestAnimationFrame(look)
    }
    requestAnimationFrame(look)
}"""


def reader(live: Live, browser: Browser, zone: str, *, scripted: bool = True) -> Page:
    context = live.visit(browser, timezone_id=zone, java_script_enabled=scripted)
    return context.new_page()


def moment(time: Locator) -> datetime:
    return datetime.fromisoformat(time.get_attribute("datetime") or "")


def shown(time: Locator) -> str:
    return " ".join((time.text_content() or "").split())


@pytest.mark.few(1)
@pytest.mark.parametrize("zone", ["Asia/Tokyo", FAR])
def test_times_are_read_in_the_zone_of_the_reader_and_in_utc_in_their_tips(
    standing: Recorded, standing_live: Live, browser: Browser, zone: str
) -> None:
    page = reader(standing_live, browser, zone)
    page.add_init_script(f"({WATCHING})()")
    problems: list[str] = []
    page.on("console", lambda message: problems.append(message.text))
    number = standing.numbers["notes"]
    paths = ("", "calls", f"s/{standing.session}", f"s/{standing.session}/steps", f"c/{number}")
    for path in (*paths, "history/", "find?q=notes"):
        page.goto(f"{standing_live.address}{standing.url}/{path}")
        times = page.locator("time[datetime*=T]").all()
        assert times, path
        for time in times:
            at = moment(time)
            local = at.astimezone(ZoneInfo(zone))
            text = shown(time)
            assert text.endswith(local.strftime("%H:%M:%S")), path
            if local.date() != at.date():
                assert local.strftime("%m-%d") in text, path
            assert time.get_attribute("title") == f"{at:%Y-%m-%d %H:%M:%S} UTC", path
        for named in page.locator(".zone").all():
            assert (named.text_content(), named.get_attribute("title")) == ("local", zone)
        assert page.evaluate("window.late") == 0, "UTC was painted first"
    assert problems == []
    page.context.close()


@pytest.mark.parametrize("width", [1280, 800, 375])
def test_a_time_of_another_local_day_is_seen_whole_in_a_list(
    standing: Recorded, standing_live: Live, browser: Browser, width: int
) -> None:
    zones = {zone: datetime.now(ZoneInfo(zone)).date() for zone in (FAR, "Pacific/Niue")}
    other = next(zone for zone, day in zones.items() if day != datetime.now(UTC).date())
    page = reader(standing_live, browser, other)
    page.set_viewport_size({"width": width, "height": 800})
    page.goto(f"{standing_live.address}{standing.url}/calls")
    cells = page.locator(".calls td.t")
    assert re.fullmatch(r"\d\d-\d\d \d\d:\d\d:\d\d", shown(cells.locator("time").first))
    assert cells.evaluate_all("all => all.every(one => one.scrollWidth <= one.clientWidth)")
    page.context.close()


def test_what_is_put_into_a_page_later_has_its_times_in_the_same_zone(
    recorded: Recorded, live: Live, browser: Browser
) -> None:
    page = reader(live, browser, "Asia/Tokyo")
    page.goto(f"{live.address}{recorded.url}/calls")
    row = page.locator(f"#c{recorded.numbers['notes']}")
    row.get_by_role("button", name="Undo").click()
    done = page.locator("tr.nested time").first
    done.wait_for()
    local = moment(done).astimezone(ZoneInfo("Asia/Tokyo"))
    assert shown(done).endswith(f"{local:%H:%M:%S}")
    page.context.close()


@pytest.mark.parametrize(("zone", "scripted"), [("UTC", True), (FAR, False)])
def test_in_utc_and_without_javascript_times_are_as_they_are_on_record(
    standing: Recorded, standing_live: Live, browser: Browser, zone: str, scripted: bool
) -> None:
    page = reader(standing_live, browser, zone, scripted=scripted)
    page.goto(f"{standing_live.address}{standing.url}/calls")
    time = page.locator(".calls td time").first
    assert shown(time) == f"{moment(time).astimezone(UTC):%H:%M:%S}"
    heading = page.locator(".calls thead .t").text_content() or ""
    assert re.sub(r"\s+", " ", heading).strip() == "Time (UTC)"
    page.context.close()


@pytest.mark.few(1)
@pytest.mark.parametrize("scripted", [True, False])
@pytest.mark.parametrize("page_of", ["at/head/", "compare/head..head"])
def test_a_time_is_typed_in_the_zone_in_which_times_are_shown(
    standing: Recorded, standing_live: Live, browser: Browser, scripted: bool, page_of: str
) -> None:
    event = standing.workspace.timeline.call(standing.numbers["notes"]).events[-1]
    meant = event.at.astimezone(ZoneInfo(FAR) if scripted else UTC)
    page = reader(standing_live, browser, FAR, scripted=scripted)
    page.goto(f"{standing_live.address}{standing.url}/{page_of}")
    said = " ".join((page.locator("#points").text_content() or "").split())
    assert f"a time ({'local' if scripted else 'UTC'}): 10:32" in said
    page.get_by_role("textbox").first.fill(f"{meant:%Y-%m-%d %H:%M:%S.%f}")
    page.get_by_role("textbox").first.press("Enter")
    page.wait_for_url(lambda url: not url.endswith(page_of))
    at = standing.workspace.timeline.point(event.at.isoformat())
    assert f"#{at}" in (page.locator("h1").text_content() or "")
    page.context.close()
