"""Every kind of page that links lead to, at four widths and in both themes: accessible, silent.

In a thread of its own: the driver of the browser keeps an event loop there.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Page, sync_playwright

from loom_audit.api.face import open_store
from tests.given.demo import run_demo
from tests.web.browser.test_web_approvals import waiting_for
from tests.web.browser.test_web_browser import AXE, RUN_AXE, Watch
from tests.web.busy_store import make
from tests.web.conftest import CHROMIUM, FLAGS, Live, Recorded, serving

pytestmark = [pytest.mark.browser, pytest.mark.deep, pytest.mark.timeout(3600)]

WIDTHS = (1440, 768, 390, 320)
THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
OF_A_KIND = 2
"""So many pages of each kind are looked at."""

MOST = 80
BESIDES = """() => {
    const ids = [...document.querySelectorAll('[id]')].map(e => e.id)
    const out = ids.filter((id, at) => ids.indexOf(id) != at).map(id => 'twice: ' + id)
    if (document.documentElement.scrollWidth > innerWidth) out.push('wider than the window')
    return out
}"""
LINKS = "[...document.links].map(a => a.getAttribute('href')).filter(h => /^\\/(?!raw)/.test(h))"


def kind(address: str) -> str:
    """What an address is one of: its numbers, ids and names left out."""
    path, _, query = address.partition("#")[0].partition("?")
    parts = [part for part in path.split("/") if part][2:]
    parts = parts[: 3 if parts[:1] == ["s"] else 2]  # a session has several pages
    words = [part if re.fullmatch("[a-z]{2,12}|[cs]", part) else "_" for part in parts]
    fields = sorted({field.partition("=")[0].partition("%")[0] for field in query.split("&")})
    return "/".join(words) + "?" + "&".join(fields)


def crawl(page: Page, live: Live, starts: list[str]) -> Iterator[str]:
    """Pages as links lead to them, so many of each kind; the page is at each when it is given."""
    waiting, known, seen = [*starts], {*starts}, defaultdict[str, int](int)
    while waiting and sum(seen.values()) < MOST:
        address = min(waiting, key=lambda one: seen[kind(one)])  # new kinds first
        waiting.remove(address)
        if address not in starts and seen[kind(address)] >= OF_A_KIND:
            continue
        answer = page.goto(live.address + address)
        assert answer is not None
        if "text/html" not in answer.headers.get("content-type", ""):
            continue
        seen[kind(address)] += 1
        for link in page.evaluate(LINKS):
            if "/raw/" not in link and link not in known:
                known.add(link)
                waiting.append(link)
        yield address


def problems(page: Page) -> list[str]:
    """What is wrong with the page that is shown, at each width and in each theme."""
    found: list[str] = []
    page.evaluate(AXE)
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        for theme in THEMES:
            page.emulate_media(color_scheme=theme, reduced_motion="reduce")
            for text in [*page.evaluate(RUN_AXE, {}), *page.evaluate(BESIDES)]:
                found.append(f"{width} {theme}: {text}")
    return found


def sweep(live: Live, starts: list[str]) -> tuple[int, dict[str, list[str]]]:
    """How many pages were looked at, and what is wrong with which."""
    found: dict[str, list[str]] = {}
    looked = 0
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        context = live.visit(browser)
        watch = Watch(context.new_page(), live.address)
        for address in crawl(watch.page, live, starts):
            looked += 1
            wrong = problems(watch.page)
            # a browser logs each answer that is an error; that the page is one is not a fault of it
            wrong += [one for one in watch.problems if "Failed to load resource" not in one]
            watch.problems.clear()
            if wrong:
                found[address] = wrong
        browser.close()
    return looked, found


@contextmanager
def demonstration(folder: Path) -> Iterator[Recorded]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOOM_AUDIT_HOME", str(folder / "home"))
        with open_store() as store:
            demo = run_demo(store, folder)
            yield Recorded(store, store.workspace(demo.root), Path(demo.root))


@contextmanager
def busy(folder: Path) -> Iterator[Recorded]:
    with contextmanager(make)(folder, 400, per_session=40) as made:
        yield Recorded(made.store, made.workspace, made.root)


@pytest.mark.parametrize("store", [demonstration, busy], ids=["demonstration", "busy store"])
def test_every_kind_of_page_is_accessible_silent_and_as_wide_as_the_window(
    store: Callable[[Path], AbstractContextManager[Recorded]], tmp_path: Path
) -> None:
    with ExitStack() as stack:
        recorded = stack.enter_context(store(tmp_path))
        url = recorded.url
        plan = f"{url}/plan?verb=rollback&target=10"
        live = stack.enter_context(serving(recorded))
        asked = {"path": "README.md", "content": "new\n" * 400}
        (recorded.root / "README.md").write_text("old\n")
        waiting = stack.enter_context(waiting_for(recorded, arguments=asked, seconds=3600))
        starts = ["/", f"{url}/", waiting.url, plan, "/nothing", f"{url}/calls?tool=none"]
        starts += [f"{url}/find?q=tests", f"{url}/find?q=none", f"{url}/needs", "/sign-out"]
        with ThreadPoolExecutor(1) as own:
            looked, found = own.submit(sweep, live, starts).result()
    assert found == {}
    assert looked > 30, looked
