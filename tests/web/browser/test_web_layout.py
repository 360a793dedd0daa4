"""However long what is recorded: status and what can be pressed stay on the screen."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from loom_audit.web.shared.urls import quoted
from tests.web.browser.following import follow
from tests.web.busy_store import AGENTS, LONG_FILE, LONG_TOOL, Busy
from tests.web.conftest import Live

pytestmark = pytest.mark.browser

WIDTHS = (1440, 768, 718, 390)
"""A desktop, a tablet, A4 on paper, a phone."""

OUT_OF_SIGHT = """() => {
    const out = []
    const seen = e => {
        const box = e.getBoundingClientRect(), frame = e.closest('.scroll')?.getBoundingClientRect()
        const cell = e.closest('td, th')?.getBoundingClientRect() ?? box
        return box.left >= 0 && box.right <= innerWidth + 0.5
            && (!frame || box.right <= frame.right + 0.5) && box.left < cell.right
    }
    if (document.documentElement.scrollWidth > innerWidth) out.push('wider than the window')
    const logo = document.querySelector('.brand svg').getBoundingClientRect()
    if (logo.top < 2 || logo.left < 2 || logo.width < 18) out.push('the logo is clipped')
    for (const e of document.querySelectorAll('.calls :is(.f, .t, .by), thead th, td.act'))
        if (e.scrollWidth > e.clientWidth) out.push(e.textContent + ' is cut')
    for (const row of document.querySelectorAll('.calls tbody tr[id]')) {
        for (const e of row.querySelectorAll('.s > .badge, .act button, .act a, .n a'))
            if (!seen(e)) out.push(row.id + ': ' + e.textContent)
        const what = row.querySelector('.what a').getBoundingClientRect()
        const cell = row.querySelector('.what').getBoundingClientRect()
        if (cell.width < 180 || what.left > cell.right - 40) out.push(row.id + ': no room for what')
        const error = row.querySelector('.err')?.getBoundingClientRect()
        if (error && Math.min(error.right, cell.right) - error.left < 150)
            out.push(row.id + ': no room for what went wrong')
    }
    for (const row of document.querySelectorAll('.list tbody tr')) {
        for (const e of row.querySelectorAll('.act a, .badge, td.r'))
            if (!seen(e)) out.push(row.textContent.slice(0, 40) + ': ' + e.textContent)
    }
    return out
}"""


@pytest.fixture
def page(browser: Browser, busy_live: Live) -> Iterator[Page]:
    context = busy_live.visit(browser)
    yield context.new_page()
    context.close()


def test_status_and_undo_stay_on_the_screen_beside_any_name(
    busy: Busy, busy_live: Live, page: Page
) -> None:
    assert {one.tool for one in busy.done} >= {LONG_TOOL} and len(AGENTS[2]) > 150
    sessions = {one.session for one in busy.done}
    paths = [
        f"{busy.url}/",
        f"{busy.url}/calls",
        *(f"{busy.url}/s/{session}" for session in sorted(sessions)),
        f"{busy.url}/at/head/",
        f"{busy.url}/at/1/" + quoted(LONG_FILE),
        f"{busy.url}/history/",
        f"{busy.url}/status",
        "/",
    ]
    found = {}
    for path in paths:
        page.goto(busy_live.address + path)
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            if problems := page.evaluate(OUT_OF_SIGHT):
                found[f"{path} at {width}"] = problems[:5]
    assert found == {}


def test_what_is_cut_is_whole_on_demand(busy: Busy, busy_live: Live, page: Page) -> None:
    page.goto(f"{busy_live.address}{busy.url}/calls?tool={LONG_TOOL}")
    shown = page.locator(".what .tool").first
    assert shown.get_attribute("title") == LONG_TOOL
    follow(page.locator(".calls .n a").first)
    assert LONG_TOOL in page.locator("h1").inner_text()
