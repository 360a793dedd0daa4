"""A page that is open says what is new; long work says how far it is."""

import asyncio
import re
import threading
from typing import Any

import pytest
from fastapi.testclient import TestClient
from playwright.sync_api import Browser, Page, expect

from loom_audit.api.agents.connect import record_as_it_is
from loom_audit.api.face import AuditedWorkspace
from loom_audit.ports import Progress
from tests.web.browser.following import follow
from tests.web.conftest import Live, Recorded, in_thread


def asked_by(client: TestClient, page: str) -> str:
    """The address that a page asks again and again."""
    found = re.search(r'<p class="fresh"[^>]*data-hx-get="([^"]+)"', client.get(page).text)
    assert found is not None
    return found[1].replace("&amp;", "&")


def work(recorded: Recorded, count: int, tool: str = "read_file") -> None:
    with recorded.workspace.session("busy") as session:

        async def run() -> None:
            for _ in range(count):
                await session.call(tool, {"path": "notes.txt"})

        in_thread(lambda: asyncio.run(run()))


@pytest.mark.parametrize("where", ["/", "/calls", "/s/{session}", "/s/{session}/calls"])
def test_a_page_learns_of_calls_that_came_after_it(
    recorded: Recorded, client: TestClient, where: str
) -> None:
    own = "/s/" in where
    where = asked_by(client, recorded.url + where.format(session=recorded.session))
    answer = client.get(where)
    assert (answer.status_code, answer.content) == (204, b"")
    work(recorded, 3)
    answer = client.get(where)
    if own:
        assert answer.status_code == 204, "of another session"
    else:
        assert answer.text == '<a class="button" href="">3 new calls</a>'


def test_only_what_a_page_would_list_is_counted(recorded: Recorded, client: TestClient) -> None:
    where = asked_by(client, f"{recorded.url}/calls?tool=write_file")
    other = asked_by(client, f"{recorded.url}/calls?path=notes.txt")
    work(recorded, 2)
    (recorded.root / "by-hand.cfg").write_text("x")
    record_as_it_is(recorded.workspace)
    assert client.get(where).status_code == 204
    assert "2 new calls</a>" in client.get(other).text
    every = re.sub("since=[0-9]+", "since=1", asked_by(client, f"{recorded.url}/calls"))
    assert re.search(r"\d+ new calls, \d+ new changes? from outside", client.get(every).text)


def test_what_the_page_itself_did_is_no_news_to_it(recorded: Recorded, client: TestClient) -> None:
    where = asked_by(client, f"{recorded.url}/")
    number = str(recorded.numbers["notes"])
    form = {"verb": "revert", "target": number, "quick": "1", "row": number}
    answer = client.post(
        f"{recorded.url}/carry-out", data=form, headers={"HX-Request": "true"}
    ).text
    own = re.search(r'name="own" value="(\d+)"', answer)
    assert own is not None
    assert client.get(where).text == '<a class="button" href="">1 new call</a>', "on another page"
    assert client.get(f"{where}&own={own[1]}&own=x").status_code == 204
    work(recorded, 2)
    assert "2 new calls<" in client.get(f"{where}&own={own[1]}").text


@pytest.mark.browser
def test_an_undo_of_ones_own_is_not_offered_as_news(
    recorded: Recorded, live: Live, page: Page
) -> None:
    page.goto(f"{live.address}{recorded.url}/calls")
    row = page.locator(f"#c{recorded.numbers['notes']}")
    row.get_by_role("button", name="Undo").click()
    page.locator("#own input").wait_for(state="attached")
    for _ in range(2):
        with page.expect_response("**/fresh?**own=**") as told:
            pass
        assert told.value.status == 204
    assert page.locator(".fresh").inner_text() == ""
    page.locator("tr.nested").get_by_role("button", name="Redo").click()
    expect(page.locator("#own input")).to_have_count(2)
    with page.expect_response("**/fresh?**own=**own=**") as told:
        pass
    assert told.value.status == 204
    work(recorded, 2)
    page.get_by_role("link", name="2 new calls").wait_for()


def test_pages_of_the_past_do_not_ask(recorded: Recorded, client: TestClient) -> None:
    for query in ("before=20", "after=3"):
        assert 'class="fresh"' not in client.get(f"{recorded.url}/calls?{query}").text


def test_many_are_not_counted_to_the_end(
    recorded: Recorded, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loom_audit.web.live.COUNTED", 2)
    where = asked_by(client, f"{recorded.url}/calls")
    work(recorded, 5)
    assert "more than 2 new calls" in client.get(where).text


def test_nothing_new_is_one_small_question(
    recorded: Recorded, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = asked_by(client, f"{recorded.url}/calls?path=*.txt")

    def fail(*args: object, **more: object) -> None:
        raise AssertionError("asked for more")

    for name in ("calls", "outside", "events"):
        monkeypatch.setattr(f"loom_audit.history.read.timeline.Timeline.{name}", fail)
    assert client.get(where).status_code == 204


# --- long work ----------------------------------------------------------------------------


def test_long_work_says_how_far_it_is(
    recorded: Recorded, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    verify = AuditedWorkspace.verify

    def watched(self: AuditedWorkspace, *, report: Any = None, **more: Any) -> Any:
        report(Progress("events", 12_000, 50_000, "events"))
        told.append(client.get("/progress?job=mine").text)
        return verify(self, report=report, **more)

    monkeypatch.setattr(AuditedWorkspace, "verify", watched)
    answer = client.post(f"{recorded.url}/proof", data={"mode": "full", "job": "mine"})
    assert "Nothing was found" in answer.text
    assert told == ["events: 12,000 of 50,000 events"]
    assert client.get("/progress?job=mine").status_code == 204
    assert client.get("/progress?job=other").status_code == 204


def test_a_rollback_says_how_far_it_is(recorded: Recorded, client: TestClient) -> None:
    where = f"{recorded.url}/plan?verb=rollback&target={recorded.numbers['read']}"
    page = client.get(where).text
    form = re.search(
        r'<form method="post" class="carry" data-progress="/progress".*?</form>', page, re.S
    )
    assert form is not None
    fields = dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', form[0]))
    work = client.app.state.progress  # type: ignore[attr-defined]
    seen: list[str] = []
    inner = work.tracking

    class Telling:
        def __init__(self, form: Any) -> None:
            self.context = inner(form)

        def __enter__(self) -> Any:
            report = self.context.__enter__()

            def tell(progress: Progress) -> None:
                report(progress)
                seen.append(work.in_words("back"))

            return tell

        def __exit__(self, *error: Any) -> Any:
            return self.context.__exit__(*error)

    work.tracking = Telling
    answer = client.post(f"{recorded.url}/carry-out", data={**fields, "job": "back"})
    assert answer.status_code == 303, answer.text
    assert seen and all(" of " in one for one in seen)


def test_work_that_is_tracked_is_bounded(recorded: Recorded, client: TestClient) -> None:
    work = client.app.state.progress  # type: ignore[attr-defined]
    work._now = {str(n): Progress("x", n) for n in range(50)}
    with work.tracking({"job": ("more",)}) as report:
        assert report is None
    with work.tracking({}) as report:
        assert report is None
    assert work.in_words("3") == "x: 3 files" and work.in_words("more") == ""


# --- in a browser -------------------------------------------------------------------------


@pytest.fixture
def page(browser: Browser, live: Live) -> Any:
    context = live.visit(browser)
    yield context.new_page()
    context.close()


@pytest.mark.browser
def test_an_open_page_says_what_is_new_by_itself(
    recorded: Recorded, live: Live, page: Page
) -> None:
    problems: list[str] = []
    page.on("console", lambda message: problems.append(message.text))
    page.goto(f"{live.address}{recorded.url}/calls")
    before = page.locator("tr[id^=c]").count()
    work(recorded, 2)
    new = page.get_by_role("link", name="2 new calls")
    new.wait_for()
    follow(new)
    expect(page.locator("tr[id^=c]")).to_have_count(before + 2)
    assert page.locator(".fresh").inner_text() == ""
    assert problems == []


@pytest.mark.browser
def test_a_page_that_nobody_looks_at_asks_nothing(
    recorded: Recorded, live: Live, page: Page
) -> None:
    page.goto(f"{live.address}{recorded.url}/calls")
    with page.expect_request("**/fresh**"):
        pass
    page.evaluate(
        "Object.defineProperty(document, 'hidden', { get: () => window.away, configurable: true });"
        " window.away = true"
    )
    page.wait_for_timeout(300)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.wait_for_timeout(2_500)
    assert asked == []
    with page.expect_request("**/fresh**"):
        page.evaluate("window.away = false")


@pytest.mark.browser
def test_a_verification_shows_its_progress(
    recorded: Recorded, live: Live, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, verify = threading.Event(), AuditedWorkspace.verify

    def slow(self: AuditedWorkspace, *, report: Any = None, **more: Any) -> Any:
        report(Progress("events", 7, 9, "events"))
        go_on.wait(30)
        return verify(self, report=report, **more)

    monkeypatch.setattr(AuditedWorkspace, "verify", slow)
    page.goto(f"{live.address}{recorded.url}/proof")
    # the page cannot be asked while its next one is waited for
    page.evaluate(
        "new MutationObserver(() => console.log(document.querySelector('p[role=status]').innerText"
        ")).observe(document.querySelector('form'), { childList: true, subtree: true })"
    )
    said = "events: 7 of 9 events"
    with page.expect_console_message(lambda message: message.text == said):
        page.get_by_role("button", name="Verify now").click(no_wait_after=True)
    go_on.set()
    page.get_by_text("Nothing was found").wait_for()
