"""A hundred names that mean something to a page: rows of a tree that lead where they say."""

import asyncio
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from loom_audit.web.shared.urls import quoted
from tests.web.browser.test_web_browser import Watch
from tests.web.conftest import Live, Recorded, in_thread

pytestmark = pytest.mark.browser

PIECES = (
    "<script>window.hacked=1</script>",
    '"><img src=x onerror=window.hacked=1>',
    "<div data-hx-get='hacked' data-hx-trigger=load>",
    "' onfocus='window.hacked=1",
    "{{ 7 * 7 }}{% raw %}",
    "javascript:window.hacked=1",
    "%2e%2e%2F%00%41",
    "#f-notes.txt",
    "?diff=x&of=files",
    "&amp;&lt;b&gt;",
    "\x1b[2J\x1b]0;t\x07",
    "\u202etxt.exe\u202c",
    "zero\u200bwidth",
    "new\nline\ttab",
    "two  spaces ",
    "raw \udcff\udcfe bytes",
    "\\x41\\u0041",
    "-rf --help",
    "`id` $(id)",
    "a" * 180,
)
NAMES = [
    name
    for n, piece in enumerate(PIECES)
    for name in (
        piece,
        f"{piece}/{piece}",
        f"in/{n}/{piece}/deep/{piece}",
        f"in/{n}/side",
        f".{piece}",
    )
]

TARGETS = """() => [...document.querySelectorAll('.index a[href^="#"]')].map(link => {
    location.hash = link.getAttribute('href')
    return [link.textContent, document.querySelector(':target h3 code:last-of-type')?.textContent]
})"""


@pytest.fixture
def watch(browser: Browser, live: Live) -> Iterator[Watch]:
    context = live.visit(browser, reduced_motion="reduce")
    made = Watch(context.new_page(), live.address)
    yield made
    context.close()
    assert made.problems == []


def lay(recorded: Recorded) -> int:
    """Files of these names, brought there by one command; how many of them there are."""
    made = 0
    for number, name in enumerate(NAMES):
        path = recorded.root / "stock" / str(number % 2) / name.strip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            path.write_text("x\n")
            made += 1
    return made


def test_a_hundred_hostile_names_are_rows_that_lead_to_their_files(
    recorded: Recorded, watch: Watch
) -> None:
    count = lay(recorded)
    assert count >= 95
    with recorded.workspace.session("copier") as session:
        in_thread(
            lambda: asyncio.run(session.call("shell_execute", {"command": "cp -r stock brought"}))
        )
    page = watch.page
    review = f"{recorded.url}/s/{session.id}"
    compare = f"{recorded.url}/compare/{recorded.numbers['read']}..head?by={session.id}"
    for where in (review, compare):
        watch.go(where)
        pairs = page.evaluate(TARGETS)
        assert len(pairs) > 2 and all(row == heading for row, heading in pairs), pairs
    found = set[str]()
    for folder in range(2):
        inside = quoted(quoted(f"brought/{folder}", safe="/"), safe="/")
        watch.go(f"{review}?of=files&in.q={inside}")
        for closed in page.locator(".index a.folder").all():
            closed.click()
        page.locator(".index a.folder").first.wait_for(state="detached")
        found |= {*page.locator(".index a[class^=act-]").all_text_contents()}
        assert page.locator(".index .more").count() == 0
    assert len(found) == count
    assert page.evaluate("window.hacked") is None
