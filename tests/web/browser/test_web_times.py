"""Times are on record in UTC, and with JavaScript each is read in the reader's own zone."""

import asyncio
import re
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import Browser, Locator, Page

from loom_audit.sql.ground.clock import SystemClock
from tests.web.conftest import Live, Recorded, in_thread

pytestmark = pytest.mark.browser

FAR = "Pacific/Kiritimati"
"""Fourteen hours ahead: for most of a day in UTC it is the next day there."""
DAY_ABOVE = """time => {
    let row = time.closest('.calls tr, .steps > li')
    while (row && !row.matches('.of')) row = row.previousElementSibling
    return row ? row.querySelector('time').textContent : ''
}"""
"""The day that stands above an hour in a list."""
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
            text, above = shown(time), time.evaluate(DAY_ABOVE)
            clock = local.strftime("%H:%M:%S")
            assert text.endswith(clock) or text == above == f"{local:%Y-%m-%d}", path
            if local.date() != at.date():
                assert local.strftime("%m-%d") in text or above == f"{local:%Y-%m-%d}", path
            assert time.get_attribute("title") == f"{at:%Y-%m-%d %H:%M:%S} UTC", path
        for named in page.locator(".zone").all():
            assert (named.text_content(), named.get_attribute("title")) == ("local", zone)
        assert page.evaluate("window.late") == 0, "UTC was painted first"
    assert problems == []
    page.context.close()


TOKYO = "Asia/Tokyo"
MIDNIGHT = datetime(2034, 5, 6, 15, tzinfo=UTC)
"""The one between the 6th and the 7th in Tokyo."""


@pytest.fixture
def over_midnight(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> str:
    """A session with two calls before and two after a midnight of Tokyo, on one day in UTC."""

    async def run() -> None:
        with recorded.workspace.session("second") as session, monkeypatch.context() as ahead:
            for minutes in (-2, -1, 1, 2):
                now = MIDNIGHT + timedelta(minutes=minutes)
                ahead.setattr(SystemClock, "now", lambda _, now=now: now)
                await session.call("write_file", {"path": "n", "content": f"{minutes}"})

    in_thread(lambda: asyncio.run(run()))
    return recorded.workspace.timeline.calls()[0].session


@pytest.mark.parametrize("scripted", [True, False])
@pytest.mark.parametrize("page_of", ["calls", "steps"])
def test_hours_of_each_day_stand_below_it(
    recorded: Recorded,
    live: Live,
    browser: Browser,
    over_midnight: str,
    page_of: str,
    scripted: bool,
) -> None:
    page = reader(live, browser, TOKYO, scripted=scripted)
    session = f"{live.address}{recorded.url}/s/{over_midnight}"
    page.goto(f"{session}/{page_of}")
    rows = page.locator(".calls tbody tr:has(time), .steps > li")
    told = [shown(time) for time in rows.locator("time").all()]
    if scripted:
        days = [["2034-05-06", "23:58:00", "23:59:00"], ["2034-05-07", "00:01:00", "00:02:00"]]
    else:
        days = [["2034-05-06", "14:58:00", "14:59:00", "15:01:00", "15:02:00"]]
    if page_of == "calls":
        days = [[day, *hours[::-1]] for day, *hours in days[::-1]]
    assert told == [one for day in days for one in day]
    heights = rows.evaluate_all("all => all.map(one => Math.round(one.offsetHeight))")
    assert len({*heights}) == 2, "a row with a time is as high as the others"
    page.context.close()


@pytest.mark.parametrize("width", [1280, 800, 375])
def test_a_time_of_another_day_than_its_row_s_is_seen_whole(
    recorded: Recorded, live: Live, browser: Browser, over_midnight: str, width: int
) -> None:
    recorded.workspace.carry_out(recorded.workspace.plan_undo(session=over_midnight))
    page = reader(live, browser, TOKYO)
    page.set_viewport_size({"width": width, "height": 800})
    page.goto(f"{live.address}{recorded.url}/calls")
    told = page.locator(".calls tr.nested td.t")
    assert re.fullmatch(r"\d\d-\d\d \d\d:\d\d:\d\d", shown(told.locator("time").first))
    assert told.evaluate_all("all => all.every(one => one.scrollWidth <= one.clientWidth)")
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
