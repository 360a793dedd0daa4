"""A hundred hostile texts in every field that a page shows: nothing runs, all is shown as text."""

import asyncio
from collections.abc import Iterator
from functools import partial
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser

from loom_audit.model.conversation import MessageReceived, PromptSubmitted
from tests.web.browser.test_web_browser import Watch
from tests.web.browser.test_web_hostile_names import PIECES
from tests.web.conftest import Live, Recorded, in_thread, say

pytestmark = pytest.mark.browser

SHAPES = ("{}", "{0}\n{0}", "a " * 400 + "{}", "</blockquote></dd>{}", "\0{}\x85\u2028")
TEXTS = tuple(shape.format(piece) for piece in PIECES for shape in SHAPES)
RAN = "hacked"
"""No address of ours has it, so that any that has it was asked for by a text."""
HUGE = "<b>" + "x" * 10_000_000


@pytest.fixture
def watch(browser: Browser, live: Live) -> Iterator[Watch]:
    context = live.visit(browser, reduced_motion="reduce")
    made = Watch(context.new_page(), live.address)
    yield made
    context.close()
    assert made.problems == []


@pytest.mark.few(0)
def test_a_hundred_hostile_texts_are_text_on_every_page(recorded: Recorded, watch: Watch) -> None:
    assert len(TEXTS) == 100
    workspace, said = recorded.workspace, dict[int, str]()
    title = "".join(PIECES[:6])
    with workspace.session("".join(PIECES[:2]), title=title) as session:
        for text in TEXTS:
            said[say(workspace, session.id, PromptSubmitted(text))] = text
            said[say(workspace, session.id, MessageReceived("assistant", text))] = text
        say(workspace, session.id, PromptSubmitted(HUGE))
        content = "".join(text.replace("\udcff\udcfe", "") + "\n" for text in TEXTS)
        told = {"path": "init/__init__.py", "content": content}
        command = {"command": "cat init/__init__.py; exit 3 # " + "".join(PIECES[:15])}
        for tool, arguments in (("write_file", told), ("shell_execute", command)):
            in_thread(partial(asyncio.run, session.call(tool, arguments)))
    failed, wrote = (one.seq for one in workspace.timeline.calls()[:2])
    base = f"{recorded.url}/s/{session.id}"
    pages = [
        recorded.url + "/",
        f"{recorded.url}/needs",
        f"{recorded.url}/calls",
        base,
        *(f"{base}/{tab}" for tab in ("steps", "commands", "taken-back", "calls", "only/failed")),
        *(f"{base}/steps?after={seq}" for seq in list(said)[::20]),
        *(f"{recorded.url}/said/{seq}" for seq in list(said)[::9]),
        f"{recorded.url}/c/{wrote}",
        f"{recorded.url}/c/{failed}",
        f"{recorded.url}/at/{wrote}/init/__init__.py",
        f"{recorded.url}/at/{wrote}/init/__init__.py?view=blame",
        f"{recorded.url}/history/init/__init__.py",
        f"{recorded.url}/compare/{min(said) - 1}..{wrote}?by={session.id}",
        f"{recorded.url}/plan?verb=revert&target={wrote}",
        f"{recorded.url}/find?q=onerror",
        *(
            f"{recorded.url}/find?q={quote(one, errors='replace')}"
            for one in PIECES
            if RAN not in one
        ),
    ]
    for where in pages:
        watch.go(where)
        assert watch.page.evaluate("window.hacked") is None, where
        assert watch.page.locator("main script, main img, main [data-hx-get='hacked']").count() == 0
    watch.go(f"{recorded.url}/said/{min(said)}")
    assert PIECES[0] in watch.page.locator("main").inner_text()
    watch.go(base)
    assert "init/__init__.py" in watch.page.locator("section.file h3").inner_text()
    watch.page.locator(".viewed-toggle").first.click()
    watch.page.locator("[aria-pressed=true]").first.wait_for()
