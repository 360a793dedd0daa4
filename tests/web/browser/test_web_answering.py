"""The page of a call that waits: its buttons are in sight, and a no is shown as one."""

import re

import pytest
from fastapi.testclient import TestClient
from playwright.sync_api import Browser

from loom_audit.history.ground.writer import Writer
from loom_audit.model.events import CallDecided
from tests.web.browser.test_web_approvals import waiting_for
from tests.web.conftest import Live, Recorded

LONG = {"path": "notes.txt", "content": "a line\n" * 3_000}


def test_a_call_that_was_denied_has_ended_on_the_page_that_follows(
    recorded: Recorded, client: TestClient
) -> None:
    with waiting_for(recorded) as waiting:
        form = {"question": str(waiting.request.seq), "decision": "denied"}
        answer = client.post(waiting.url, data=form)
        text = client.get(answer.headers["location"]).text
        assert re.search(r'<a class="badge s-denied" [^>]*>denied</a>', text)
        assert "s-open" not in text and "0 µs" not in text


def test_a_call_that_is_open_took_no_time_yet_and_captured_nothing(
    recorded: Recorded, client: TestClient
) -> None:
    with waiting_for(recorded) as waiting:
        text = client.get(f"{recorded.url}/c/{waiting.request.requested}").text
        assert "s-open" in text and "UTC, took" not in text
        assert "known when it has ended" in text and "all it changed" not in text


def test_a_call_that_was_denied_and_whose_process_is_slow_is_said_to_be_denied(
    recorded: Recorded, client: TestClient
) -> None:
    other = recorded.workspace.start_foreign_session("other", id="other-1")
    begun = other.begin_call("1", "Bash", {"command": "make"})
    page = f"{recorded.url}/c/{begun.seq}"
    assert "It was denied" not in client.get(page).text
    Writer(recorded.workspace.attachment, "other-1", "person:x").record(
        CallDecided("1", "Bash", "denied", "person:x")
    )
    assert "It was denied and will not run" in client.get(page).text
    other.end_call("1", "denied")
    assert "It was denied" not in client.get(page).text


@pytest.mark.few(1)
@pytest.mark.browser
@pytest.mark.parametrize("width", [1440, 768, 390])
def test_its_buttons_are_on_the_first_screen_however_much_would_change(
    recorded: Recorded, live: Live, browser: Browser, width: int
) -> None:
    context = live.visit(browser, viewport={"width": width, "height": 800})
    page = context.new_page()
    with waiting_for(recorded, arguments=LONG) as waiting:
        page.goto(live.address + waiting.url)
        for name in ("Allow", "Deny"):
            box = page.get_by_role("button", name=name).bounding_box()
            assert box is not None and box["y"] + box["height"] <= 800
        bar = page.locator("form.answer").bounding_box()
        assert bar is not None and bar["height"] < 800 / 3, "the rest is seen beside them"
        page.get_by_text("Change the arguments").click()
        assert page.get_by_label("As JSON").input_value().startswith("{")
        page.get_by_role("textbox", name="Reason").fill("too long")
        page.get_by_role("button", name="Deny").click()
        page.wait_for_url(re.compile(r"/c/\d+$"))
        assert not waiting.result().success
        assert "too long" in page.inner_text("main")
    context.close()


@pytest.mark.few(1)
@pytest.mark.browser
@pytest.mark.parametrize("width", [340, 320])
def test_no_page_with_a_call_that_waits_is_wider_than_a_narrow_window(
    recorded: Recorded, live: Live, browser: Browser, width: int
) -> None:
    page = live.visit(browser, viewport={"width": width, "height": 800}).new_page()
    with waiting_for(recorded) as waiting:
        for where in (f"{recorded.url}/", f"{recorded.url}/needs", waiting.url):
            page.goto(live.address + where)
            assert page.locator("html").evaluate("one => one.scrollWidth") == width, where
