"""Six questions about targets drawn at random, each answered in at most three clicks.

The answers are compared with the list that the program kept which made the calls.
"""

import random
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.web.browser.following import follow
from tests.web.busy_store import Busy, make
from tests.web.conftest import Live, serving

pytestmark = pytest.mark.browser

MOST = 3
"""Clicks from the overview to an answer; what is typed is not counted."""


class Person:
    """Somebody in front of the overview who counts clicks."""

    def __init__(self, page: Page, live: Live, busy: Busy) -> None:
        self.page, self._live, self._busy = page, live, busy
        self._clicks = 0

    def begin(self) -> None:
        self.page.goto(f"{self._live.address}{self._busy.url}/")
        self._clicks = 0

    def count(self) -> None:
        self._clicks += 1
        assert self._clicks <= MOST

    def click(self, what: Locator) -> None:
        """Go to the page that a click leads to."""
        self.count()
        follow(what)

    def go(self, place: str) -> None:
        self.click(self.page.get_by_role("navigation").get_by_role("link", name=place, exact=True))

    def filter(self, path: str) -> list[int]:
        """The calls that the timeline lists for what is typed, newest first."""
        self.go("Calls")
        self.page.get_by_label("Path", exact=True).fill(path)
        self.count()
        self.page.get_by_role("button", name="Filter").click()
        # with JavaScript the list is put in together with its address
        self.page.wait_for_url(re.compile(r"[?&]path=[^&]"))
        return self.listed()

    def listed(self) -> list[int]:
        found = self.page.locator("tr[id^=c]").evaluate_all("rows => rows.map(row => row.id)")
        return [int(one[1:]) for one in found]

    def look_back(self, point: str, path: str = "") -> None:
        self.go("Files")
        self.page.get_by_label("Point").fill(point)
        self.page.get_by_label("File or folder").fill(path)
        self.click(self.page.get_by_role("button", name="Go"))


def newest(listed: list[int], wanted: list[int]) -> None:
    """As many of the wanted calls as a page has room for, the newest ones."""
    assert listed == sorted(wanted, reverse=True)[: len(listed)]
    assert len(listed) == len(wanted) or len(listed) >= 20


def which_command_touched(person: Person, busy: Busy, chance: random.Random) -> None:
    path = chance.choice(sorted({path for one in busy.done for path in one.paths if "src" in path}))
    typed = chance.choice([path, path.removeprefix("src/")])
    listed = person.filter(typed)
    newest(listed, [one.number for one in busy.done if path in (*one.paths, *one.named)])


def what_failed(person: Person, busy: Busy, chance: random.Random) -> None:
    person.go("Calls")
    person.click(person.page.get_by_role("link", name="Failures"))
    expect(person.page.locator("tr[id^=c] .s-ok")).to_have_count(0)
    newest(person.listed(), [one.number for one in busy.done if not one.ok])


def who_approved(person: Person, busy: Busy, chance: random.Random) -> None:
    path = chance.choice(sorted({one.paths[0] for one in busy.done if one.by}))
    listed = person.filter(path)
    row = chance.choice([one for one in busy.done if one.by and one.number in listed])
    shown = person.page.locator(f"#c{row.number} .badge.by").inner_text()
    assert shown == f"allowed by {row.by}"
    asked = {one.number for one in busy.done if one.by}
    rows = person.page.locator("tr[id^=c]:has(.badge.by)")
    assert {int(one[1:]) for one in rows.evaluate_all("rows => rows.map(row => row.id)")} == {
        *listed
    } & asked


def files_shown(page: Page) -> set[str]:
    headings = page.locator("section.file h3 > code:last-of-type").all_text_contents()
    return {*page.locator(".index li > a").all_text_contents(), *headings}


def back_to(person: Person, busy: Busy, chance: random.Random) -> None:
    end = len(busy.done)
    while True:
        count = chance.randrange(end - 12, end - 1)
        paths = {path for one in busy.done[count:] for path in one.paths}
        if paths and paths.isdisjoint(busy.outside):
            break
    now, then = busy.files_after(end), busy.files_after(count)
    wanted = {path for path, _ in now.items() ^ then.items()}
    person.look_back(busy.done[count - 1].at.isoformat())
    person.click(person.page.get_by_role("link", name="Roll the workspace back to here"))
    count_shown = person.page.locator(".tally li", has_text="will change").locator("b")
    expect(count_shown).to_have_text(str(len(wanted)))
    shown = files_shown(person.page)
    assert shown and shown <= wanted
    assert shown == wanted or person.page.get_by_role("link", name="More").count()


def the_file_then(person: Person, busy: Busy, chance: random.Random) -> None:
    count = chance.randrange(len(busy.done) // 4, len(busy.done))
    then = busy.files_after(count)
    path = chance.choice(sorted(path for path in then if path.startswith("src/")))
    person.look_back(busy.done[count - 1].at.isoformat(), path)
    assert (
        person.page.locator(".diff td.code").all_text_contents() == then[path].decode().splitlines()
    )


def what_differs_now(person: Person, busy: Busy, chance: random.Random) -> None:
    path = chance.choice(sorted(path for path in busy.first if path.startswith("src/")))
    with changed(busy, path) as line:
        person.go("Status")
        assert files_shown(person.page) == {path}
        added = person.page.locator(".diff .add .code").evaluate_all(
            "all => all.map(l => l.textContent)"
        )
        assert added == [line]


@contextmanager
def changed(busy: Busy, path: str) -> Iterator[str]:
    """A line at the end of a file that nobody has recorded."""
    file, line = busy.root / path, "a line by hand"
    content = file.read_bytes()
    file.write_bytes(content + line.encode() + b"\n")
    try:
        yield line
    finally:
        file.write_bytes(content)


QUESTIONS = (
    which_command_touched,
    what_failed,
    who_approved,
    back_to,
    the_file_then,
    what_differs_now,
)


@contextmanager
def somebody(busy: Busy, live: Live, browser: Browser, *, scripted: bool) -> Iterator[Person]:
    context = live.visit(browser, java_script_enabled=scripted)
    yield Person(context.new_page(), live, busy)
    context.close()


@pytest.mark.few(1)
@pytest.mark.parametrize("scripted", [True, False], ids=["with JavaScript", "without JavaScript"])
def test_questions_are_answered_in_three_clicks(
    busy: Busy, busy_live: Live, browser: Browser, scripted: bool
) -> None:
    chance = random.Random(1)
    with somebody(busy, busy_live, browser, scripted=scripted) as person:
        for question in QUESTIONS[not scripted :: 2]:
            person.begin()
            question(person, busy, chance)


@pytest.mark.deep
@pytest.mark.timeout(1800)
def test_each_question_is_answered_in_a_large_store(
    tmp_path_factory: pytest.TempPathFactory, browser: Browser
) -> None:
    chance = random.Random(random.randrange(1 << 32))
    folder = tmp_path_factory.mktemp("large")
    with contextmanager(make)(folder, 5_000) as busy, serving(busy) as live:
        for scripted in (True, False):
            with somebody(busy, live, browser, scripted=scripted) as person:
                for question in QUESTIONS * 5:
                    person.begin()
                    question(person, busy, chance)
