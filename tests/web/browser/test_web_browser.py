"""In a real browser: JavaScript on and off, accessible, silent, deaf to hostile content."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, Route, expect

from loom_audit.api.control.flagged import FlaggedCalls
from loom_audit.api.face import AuditedWorkspace
from loom_audit.web.shared.listing import Listing, page_of_calls
from loom_audit.web.shared.urls import Fields
from tests.web.browser.following import follow
from tests.web.conftest import Live, Recorded
from tests.web.web_pages import pages

pytestmark = pytest.mark.browser

AXE = (Path(__file__).parents[1] / "vendor" / "axe-4.14.1.min.js").read_text()
RUN_AXE = """async options => (await axe.run(document, options)).violations.map(
    v => v.id + ': ' + v.nodes.map(n => n.target.join(' ')).slice(0, 3).join(' | '))"""


REQUESTS = """performance.getEntriesByType('resource')
    .filter(e => e.transferSize && !e.name.includes('/fresh?')).length"""
"""Of the first view: not what an open page asks later, nor what the browser has already."""


class Watch:
    """A page that remembers everything that went wrong on it."""

    def __init__(self, page: Page, live: str) -> None:
        self.page = page
        self.live = live
        self.problems: list[str] = []
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("requestfailed", self._failed)
        page.on("request", self._request)
        page.add_init_script(
            "document.addEventListener('securitypolicyviolation',"
            " e => console.error('CSP ' + e.violatedDirective + ' ' + e.blockedURI))"
        )

    def _console(self, message: object) -> None:
        kind, text = message.type, message.text  # type: ignore[attr-defined]
        if kind in ("error", "warning"):
            self.problems.append(f"{kind}: {text}")

    def _failed(self, request: object) -> None:
        if request.failure != "net::ERR_ABORTED":  # type: ignore[attr-defined]
            self.problems.append(f"failed {request.url}")  # type: ignore[attr-defined]

    def _request(self, request: object) -> None:
        url: str = request.url  # type: ignore[attr-defined]
        if not url.startswith(self.live) or "hacked" in url:
            self.problems.append(f"request {url}")

    def go(self, path: str) -> None:
        answer = self.page.goto(self.live + path)
        assert answer is not None
        assert answer.status == 200, path


@pytest.fixture(params=[True, False], ids=["with JavaScript", "without JavaScript"])
def scripted(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def watch(browser: Browser, live: Live, scripted: bool) -> Iterator[Watch]:
    context = live.visit(browser, java_script_enabled=scripted, reduced_motion="reduce")
    made = Watch(context.new_page(), live.address)
    yield made
    context.close()
    assert made.problems == []


@pytest.fixture
def looking(browser: Browser, standing_live: Live, scripted: bool) -> Iterator[Watch]:
    """Looks at the standing recording."""
    context = standing_live.visit(browser, java_script_enabled=scripted, reduced_motion="reduce")
    made = Watch(context.new_page(), standing_live.address)
    yield made
    context.close()
    assert made.problems == []


@pytest.fixture
def scripted_watch(browser: Browser, standing_live: Live) -> Iterator[Watch]:
    context = standing_live.visit(browser, reduced_motion="reduce")
    made = Watch(context.new_page(), standing_live.address)
    yield made
    context.close()
    assert made.problems == []


def notes(recorded: Recorded) -> str:
    return (recorded.root / "notes.txt").read_text()


@pytest.mark.few(1)
def test_a_clean_call_is_undone_by_one_click_in_its_row(
    recorded: Recorded, watch: Watch, scripted: bool
) -> None:
    page, number = watch.page, recorded.numbers["notes"]
    watch.go(f"{recorded.url}/calls")
    page.get_by_role("button", name=f"Undo call {number}", exact=True).click()
    if scripted:
        page.locator(f"tr#c{number}.undone").wait_for()
        expect(page.locator("#notice")).to_contain_text("Took back")
        assert page.url.endswith("/calls")
        page.locator("#notice").get_by_role("link", name="Redo").click()
    else:
        page.wait_for_url("**/c/*")
        page.get_by_role("link", name="Review first").click()
    assert notes(recorded) == "one\ntwo\nthree\n"
    page.get_by_role("button", name="Carry out").click()
    page.wait_for_url("**/c/*")
    assert notes(recorded) == "one\nTWO\nthree\n"


@pytest.mark.few(1)
def test_a_call_in_conflict_shows_its_plan_and_follows_the_choice(
    recorded: Recorded, watch: Watch
) -> None:
    page, number = watch.page, recorded.numbers["first"]
    watch.go(f"{recorded.url}/calls")
    page.get_by_role("button", name=f"Undo call {number}", exact=True).click()
    page.wait_for_url("**/plan?**")
    assert not page.get_by_role("radio", name="Keep current").is_checked()
    assert page.get_by_role("button", name="Carry out").is_disabled()
    page.get_by_role("radio", name="Take old").check()
    page.get_by_role("button", name="Update the plan").click()
    page.get_by_role("button", name="Carry out").click()
    page.wait_for_url("**/c/*")
    assert "return value + 7\n" in (recorded.root / "src/main.py").read_text()


@pytest.mark.few(1)
def test_ticked_calls_are_taken_back_by_one_plan(recorded: Recorded, watch: Watch) -> None:
    page, n = watch.page, recorded.numbers
    for where, ticked in (
        ("/calls", ("first", "later")),
        (f"/s/{recorded.session}/steps", ("notes",)),
    ):
        watch.go(f"{recorded.url}{where}")
        for name in ticked:
            page.get_by_role("checkbox", name=f"Tick call {n[name]}", exact=True).check()
        page.get_by_role("button", name="Undo the ticked").click()
        page.get_by_role("button", name="Carry out").click()
        page.wait_for_url("**/c/*")
        assert recorded.workspace.timeline.calls()[0].reverts == tuple(n[name] for name in ticked)
    assert notes(recorded) == "one\ntwo\nthree\n"


def test_all_conflicts_are_decided_by_one_press(recorded: Recorded, watch: Watch) -> None:
    page = watch.page
    for text in ("1", "2"):
        command = f"mkdir -p docs; for f in a b c; do echo {text} > docs/$f.txt; done"
        recorded.call(text, "shell_execute", {"command": command})
    watch.go(f"{recorded.url}/plan?verb=revert&target={recorded.numbers['1']}")
    group = page.get_by_role("group", name="docs/b.txt")
    group.get_by_role("radio", name="Keep current").check()
    page.get_by_role("button", name="Take old").click()
    page.get_by_role("button", name="Carry out").click()
    page.wait_for_url("**/c/*")
    assert [path.name for path in sorted((recorded.root / "docs").glob("?.txt"))] == ["b.txt"]


def test_rollback_from_a_call_page(recorded: Recorded, watch: Watch) -> None:
    page = watch.page
    watch.go(f"{recorded.url}/c/{recorded.numbers['notes']}")
    follow(page.get_by_role("link", name="before this call"))
    assert "Plan: roll back" in page.get_by_role("heading", level=1).inner_text()
    assert notes(recorded) == "one\nTWO\nthree\n"
    page.get_by_role("button", name="Carry out").click()
    page.wait_for_url("**/c/*")
    assert notes(recorded) == "one\ntwo\nthree\n"
    assert (recorded.root / "build/out.o").exists()
    assert not (recorded.root / "big.txt").exists()


def test_backing_out_of_a_plan_changes_nothing(standing: Recorded, looking: Watch) -> None:
    head = standing.workspace.log.head()
    looking.go(f"{standing.url}/plan?verb=rollback&target={standing.numbers['read']}")
    looking.page.get_by_role("link", name="Back, change nothing").click()
    looking.page.wait_for_url("**/calls")
    assert standing.workspace.log.head() == head


def test_a_plan_overtaken_by_another_call_is_shown_anew(
    recorded: Recorded, browser: Browser, live: Live, scripted: bool
) -> None:
    context = live.visit(browser, java_script_enabled=scripted)
    page = context.new_page()
    page.goto(f"{live.address}{recorded.url}/plan?verb=rollback&target={recorded.numbers['read']}")
    recorded.call("more", "write_file", {"path": "more.txt", "content": "more\n"})
    page.get_by_role("button", name="Carry out").click()
    assert "moved on" in page.get_by_role("alert").inner_text()
    assert (recorded.root / "more.txt").exists()
    context.close()


def test_a_large_diff_goes_on_where_it_stands(
    standing: Recorded, looking: Watch, scripted: bool
) -> None:
    looking.go(f"{standing.url}/c/{standing.numbers['big']}")
    rows = looking.page.locator(".diff tr.add")
    assert 0 < rows.count() < 900
    while (more := looking.page.get_by_role("link", name="More lines")).count():
        left = more.inner_text()
        (Locator.click if scripted else follow)(more)
        looking.page.get_by_text(left).wait_for(state="detached")
    assert rows.last.inner_text().split()[:2] == ["900", "+"]
    assert looking.page.locator("section.file").count() == 1


def test_filtering_by_form(standing: Recorded, looking: Watch) -> None:
    page = looking.page
    looking.go(f"{standing.url}/calls")
    page.get_by_label("Tool").fill("edit_file")
    page.get_by_label("Path", exact=True).fill("notes.txt")
    page.get_by_role("button", name="Filter").click()
    page.wait_for_url("**path=notes.txt**")
    page.locator(f"tr#c{standing.numbers['read']}").wait_for(state="detached")
    assert page.locator("tr[id^=c]").count() == 1
    assert page.locator(f"tr#c{standing.numbers['notes']}").count() == 1


def test_the_last_words_typed_win_over_a_slow_answer(
    standing: Recorded, scripted_watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = threading.Event()

    def slow(
        workspace: AuditedWorkspace, query: Fields, session: str | None, flagged_calls: FlaggedCalls
    ) -> Listing:
        if query.get("path") == ("",):
            last.wait(60)
        return page_of_calls(workspace, query, session, flagged_calls)

    monkeypatch.setattr("loom_audit.web.calls.page_of_calls", slow)
    page = scripted_watch.page
    scripted_watch.go(f"{standing.url}/calls?path=big.txt")
    path = page.get_by_label("Path", exact=True)
    for typed in ("", "nope", "notes.txt"):
        with page.expect_request("**/calls?**"):
            path.fill(typed)
    page.locator(f"tr#c{standing.numbers['shell']}").wait_for(state="detached")
    page.wait_for_url("**path=notes.txt&**")
    last.set()
    with page.expect_response("**/calls?**"):
        page.get_by_label("Tool").fill("edit_file")
    expect(page.locator("tr[id^=c]")).to_have_count(1)


def test_older_calls_are_reached(
    standing: Recorded, looking: Watch, monkeypatch: pytest.MonkeyPatch, scripted: bool
) -> None:
    monkeypatch.setattr("loom_audit.web.shared.listing.ROWS", 4)
    looking.go(f"{standing.url}/calls")
    looking.page.get_by_role("link", name="Older calls").click()
    oldest_here = looking.page.locator(f"tr#c{standing.numbers['big']}")
    oldest_here.wait_for()
    expect(looking.page.locator("tr[id^=c]")).to_have_count(8 if scripted else 4)


def test_every_page_is_silent_and_deaf_to_hostile_content(
    standing: Recorded, scripted_watch: Watch
) -> None:
    for name, path in pages(standing).items():
        scripted_watch.go(path)
        assert scripted_watch.page.evaluate("window.hacked") is None, name
        assert scripted_watch.page.evaluate("typeof htmx") == "object", name
        assert scripted_watch.problems == [], name


def test_an_injected_htmx_attribute_does_nothing(
    standing: Recorded, browser: Browser, standing_live: Live
) -> None:
    context = standing_live.visit(browser)
    page = context.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(standing_live.address + standing.url + "/calls")
    page.evaluate(
        """() => {
            const evil = document.createElement('a');
            evil.setAttribute('data-hx-get', '/hacked');
            evil.setAttribute('data-hx-trigger', 'load, click');
            document.body.append(evil);
            htmx.process(evil);
            evil.click();
        }"""
    )
    follow(page.get_by_role("link", name="Overview"))
    assert not any("hacked" in url for url in asked)
    context.close()


def test_every_page_is_accessible_in_light_and_dark_wide_and_narrow(
    standing: Recorded, browser: Browser, standing_live: Live
) -> None:
    context = standing_live.visit(
        browser,
        color_scheme="light",
        reduced_motion="reduce",
        viewport={"width": 1280, "height": 800},
    )
    page = context.new_page()
    found: dict[str, object] = {}
    listed = {
        **pages(standing),
        "sign in": "/sign-in",
        "error": "/nothing",
        "no match": f"{standing.url}/calls?tool=x",
    }
    for name, path in listed.items():
        page.goto(standing_live.address + path)
        page.evaluate(AXE)
        found[name] = page.evaluate(RUN_AXE, {})
        page.emulate_media(color_scheme="dark")
        page.set_viewport_size({"width": 375, "height": 800})
        narrow = ["scrollable-region-focusable", "target-size", "color-contrast"]
        found[name + ", narrow and dark"] = page.evaluate(RUN_AXE, {"runOnly": narrow})
        if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
            found[name + ", narrow"] = "wider than the window"
        page.emulate_media(color_scheme="light")
        page.set_viewport_size({"width": 1280, "height": 800})
    context.close()
    assert {name: problems for name, problems in found.items() if problems} == {}


def test_on_a_phone_nothing_to_press_is_out_of_sight(
    standing: Recorded, browser: Browser, standing_live: Live
) -> None:
    context = standing_live.visit(browser, viewport={"width": 360, "height": 740})
    page = context.new_page()
    found = {}
    for name, path in pages(standing).items():
        page.goto(standing_live.address + path)
        found[name] = page.evaluate(
            """() => [...document.querySelectorAll('main a, main button, main input')]
                .filter(e => !e.closest('.diff, .hex') && e.offsetWidth)
                .filter(e => e.getBoundingClientRect().right > innerWidth)
                .map(e => e.textContent)"""
        )
        if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
            found[name] = "wider than the window"
    context.close()
    assert {name: hidden for name, hidden in found.items() if hidden} == {}


def test_the_keyboard_reaches_the_content_first(standing: Recorded, scripted_watch: Watch) -> None:
    scripted_watch.go(f"{standing.url}/calls")
    page = scripted_watch.page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to content"
    page.keyboard.press("Enter")
    page.wait_for_function("() => location.hash === '#main'")


def test_nothing_is_asked_before_the_guard_of_htmx_is_there(
    standing: Recorded, scripted_watch: Watch
) -> None:
    page = scripted_watch.page
    asked: list[str] = []

    def late(route: Route) -> None:
        page.wait_for_timeout(500)
        asked.append("guard")
        route.continue_()

    page.route("**/hx-csp-*", late)
    page.on("request", lambda one: asked.append("counts") if "/lines" in one.url else None)
    with page.expect_response("**/lines?**"):
        scripted_watch.go(f"{standing.url}/calls")
    assert asked == ["guard", "counts"]


def test_a_first_visit_is_light(standing: Recorded, scripted_watch: Watch) -> None:
    scripted_watch.go(f"{standing.url}/calls")
    page = scripted_watch.page
    assert page.evaluate(REQUESTS) <= 6
    assert page.evaluate("document.getElementsByTagName('*').length") <= 1_500
