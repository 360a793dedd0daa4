"""The ten questions of a reviewer about targets drawn at random, each answered in three clicks.

Whoever made the calls kept the answers in plain lists; nothing of ours is asked for them. A click
by keyboard alone is Tab until what is meant has the focus, then Enter.
"""

import random
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.web.conftest import Live, Served, serving
from tests.web.told_store import Done, Told, telling

pytestmark = pytest.mark.browser

MOST = 3
"""Clicks from the overview to an answer; what is typed is not counted."""
TABS = 600
AGO = 4
PUTS_IN = "form[data-hx-post], a[data-hx-get]"
FOCUSABLE_BEFORE = """one => {
    const all = [...document.querySelectorAll('a[href], button, input, select, summary')];
    const from = all.indexOf(document.activeElement);
    return all.filter(other => other.checkVisibility()).indexOf(one) - from;
}"""


class Reviewer:
    """Somebody in front of the overview, with a mouse or without one, who counts clicks."""

    def __init__(self, page: Page, live: Live, told: Served, *, keys: bool, scripted: bool) -> None:
        self.page, self._address, self._keys = page, live.address + told.url, keys
        self.scripted = scripted
        self._clicks = 0

    def begin(self) -> None:
        self.page.goto(f"{self._address}/")
        self._clicks = 0

    def click(self, what: Locator) -> None:
        self._clicks += 1
        assert self._clicks <= MOST
        if self._keys:
            self._focus(what)
        with self._answer_to(what):
            if self._keys:
                self.page.keyboard.press("Enter")
            else:
                what.click()
        self.page.wait_for_load_state()

    def _answer_to(self, what: Locator) -> AbstractContextManager[Any]:
        """What follows a click: another page, or with JavaScript something new in this one."""
        if self.scripted and what.evaluate(f"one => !!one.closest('{PUTS_IN}')"):
            return nullcontext()
        # the page's own notes in its history are navigations too; a link beside the fields is plain
        is_filter = self.scripted and what.evaluate(
            "one => one.matches('form[data-hx-get] button')"
        )
        return self.page.expect_event("framenavigated" if is_filter else "domcontentloaded")

    def _focus(self, what: Locator) -> None:
        # most of the way nobody has to look where the focus is
        for _ in range(what.evaluate(FOCUSABLE_BEFORE) - AGO):
            self.page.keyboard.press("Tab")
        for _ in range(TABS):
            if what.evaluate("one => one === document.activeElement"):
                return
            self.page.keyboard.press("Tab")
        raise AssertionError("nobody gets there by keyboard")

    def type(self, label: str, text: str) -> None:
        field = self.page.get_by_label(label, exact=True)
        self.fill(field, text)

    def fill(self, field: Locator, text: str) -> None:
        if not self._keys:
            field.fill(text)
            return
        self._focus(field)
        self.page.keyboard.press("ControlOrMeta+a")
        self.page.keyboard.type(text)

    def go(self, place: str) -> None:
        self.click(self.page.get_by_role("navigation").get_by_role("link", name=place, exact=True))

    def open_session(self, session: int | str) -> None:
        """Open a session that the first page lists, by the number of its task or its address."""
        if isinstance(session, int):
            self.click(self.page.get_by_role("link", name=f"task {session}", exact=True))
        else:
            self.begin()
            self.click(self.page.locator(f'main a[href="{session}"]').first)

    def open_steps(self, session: int | str) -> None:
        self.open_session(session)
        tabs = self.page.get_by_role("navigation", name="Session")
        self.click(tabs.get_by_role("link", name="Steps"))

    def failures(self) -> list[int]:
        """The calls that the timeline lists as failed, newest first."""
        self.begin()
        self.go("Calls")
        self.click(self.page.get_by_role("link", name="Failures"))
        rows = self.page.locator("tr[id^=c]")
        return [int(one) for one in rows.evaluate_all("rows => rows.map(row => row.id.slice(1))")]

    def filter(self, path: str) -> list[int]:
        """The calls that the timeline lists for a path, newest first."""
        self.go("Calls")
        self.type("Path", path)
        self.click(self.page.get_by_role("button", name="Filter"))
        # not the list of what was typed so far: with JavaScript each is put in with its address
        self.page.wait_for_url(lambda url: parse_qs(urlsplit(url).query).get("path") == [path])
        found = self.page.locator("tr[id^=c]").evaluate_all("rows => rows.map(row => row.id)")
        return [int(one[1:]) for one in found]


def content_shown(page: Page) -> list[str]:
    return page.locator(".diff td.code").all_text_contents()


def files_shown(page: Page) -> set[str]:
    headings = page.locator("section.file h3 > code:last-of-type").all_text_contents()
    return {*page.locator("ol.index li > a").all_text_contents(), *headings}


def differing(one: dict[str, list[str]], other: dict[str, list[str]]) -> set[str]:
    return {path for path in one.keys() | other.keys() if one.get(path) != other.get(path)}


# --- the questions ------------------------------------------------------------------------


def in_what_order(who: Reviewer, told: Told, chance: random.Random) -> None:
    session = chance.randrange(len(told.sessions))
    who.open_steps(session)
    shown = who.page.locator("ol.steps > li.step").evaluate_all(
        """rows => rows.flatMap(row => row.id.startsWith('c') ? [row.id.slice(1)]
            : [...row.querySelectorAll('details ul a.num')].map(one => one.textContent.slice(1)))"""
    )
    wanted = [one.number for _, one in told.of(session)]
    numbers = [*map(int, shown)]
    assert numbers == wanted[: len(numbers)]
    assert len(numbers) == len(wanted) or len(numbers) >= 30


def why(who: Reviewer, told: Told, chance: random.Random) -> None:
    session = chance.randrange(len(told.sessions))
    one = chance.choice([one for _, one in told.of(session)[:25] if one.tool != "read_file"])
    who.open_steps(session)
    step = who.page.locator(f"#c{one.number}")
    who.click(step.get_by_role("link", name=f"#{one.number}", exact=True))
    expect(who.page.locator("section.why dd").first).to_have_text(one.why)


def who_touched_it(who: Reviewer, told: Told, chance: random.Random) -> None:
    path = chance.choice(sorted({path for one in told.done for path in one.changed}))
    newest(who.filter(path), [one for one in told.done if path in (*one.changed, *one.named)])


def what_failed(who: Reviewer, told: Told, chance: random.Random) -> None:
    who.go("Calls")
    who.click(who.page.get_by_role("link", name="Failures"))
    expect(who.page.locator("tr[id^=c] .s-ok")).to_have_count(0)
    rows = who.page.locator("tr[id^=c]").evaluate_all("rows => rows.map(row => row.id.slice(1))")
    newest([*map(int, rows)], [one for one in told.done if not one.ok])


def newest(listed: list[int], wanted: list[Done]) -> None:
    """As many of the wanted calls as a page has room for, the newest ones."""
    numbers = sorted((one.number for one in wanted), reverse=True)
    assert listed == numbers[: len(listed)]
    assert len(listed) == len(numbers) or len(listed) >= 20


def who_allowed_it(who: Reviewer, told: Told, chance: random.Random) -> None:
    one = chance.choice([one for one in told.done if one.by])
    assert one.number in who.filter(one.named[0])
    badge = who.page.locator(f"#c{one.number} .badge.by")
    assert badge.inner_text() == f"allowed by {one.by}"


def what_differs(who: Reviewer, told: Told, chance: random.Random) -> None:
    session = chance.randrange(len(told.sessions))
    begun, ended = told.spans[session]
    who.go("Compare")
    points = who.page.get_by_label("Point or time")
    who.fill(points.nth(0), begun.isoformat())
    who.fill(points.nth(1), ended.isoformat())
    who.click(who.page.get_by_role("button", name="Compare"))
    assert files_shown(who.page) == differing(told.starts[session], told.end(session))


def the_file_then(who: Reviewer, told: Told, chance: random.Random) -> None:
    one = chance.choice(told.done)
    path = chance.choice(sorted(path for path, lines in one.files.items() if lines))
    who.go("Files")
    who.type("Point", one.at.isoformat())
    who.type("File or folder", path)
    who.click(who.page.get_by_role("button", name="Go"))
    assert content_shown(who.page) == [line.strip() for line in one.files[path]]


def the_total(who: Reviewer, told: Told, chance: random.Random) -> None:
    session = chance.randrange(len(told.sessions))
    own, standing = (
        {n for n, _ in told.of(session)},
        {line for lines in told.end(session).values() for line in lines},
    )
    added = {line for line, by in told.wrote.items() if by in own} & standing
    removed = {
        line for line, by in told.removed.items() if by in own and told.wrote.get(line) not in own
    }
    who.open_session(session)
    sums = who.page.locator("h2 .stat").first
    assert sums.inner_text().split() == [f"+{len(added):,}", f"−{len(removed):,}"]


def who_wrote_this_line(who: Reviewer, told: Told, chance: random.Random) -> None:
    session = chance.randrange(len(told.sessions))
    own = {n for n, _ in told.of(session)}
    standing = {line for lines in told.end(session).values() for line in lines}
    line = chance.choice(sorted(x for x, by in told.wrote.items() if by in own and x in standing))
    who.open_session(session)
    row = who.page.locator("tr.add", has=who.page.get_by_text(line.strip(), exact=True))
    if not row.count():  # the page had no room for the lines of its file
        who.click(way_to_lines(who.page, line.split()[-1]))
    # a run of lines of one call names it once, at its beginning
    named = row.evaluate(
        """row => { while (!row.querySelector('.by a')) row = row.previousElementSibling;
            return row.querySelector('.by a').textContent; }"""
    )
    wrote = told.done[told.wrote[line]]
    assert named == f"#{wrote.number}"
    section = who.page.locator("section.file", has=row)
    who.click(section.locator(".diff").get_by_role("link", name=named, exact=True).first)
    expect(who.page.locator("section.why dd").first).to_have_text(wrote.why)


def way_to_lines(page: Page, name: str) -> Locator:
    """The link to the lines of a changed file: at its place or, where it has none, in the tree."""
    at_its_place = page.get_by_role("link", name=f"Load diff of src/{name}", exact=True)
    if at_its_place.count():
        return at_its_place
    return page.get_by_role("navigation", name="Changed files").get_by_title(f": src/{name}")


def undo_a_call(who: Reviewer, told: Told, chance: random.Random) -> None:
    calls = told.of(len(told.sessions) - 1)
    last = {path: n for n, one in calls for path in one.changed}
    path, n = chance.choice(sorted(last.items()))
    number, before = told.done[n].number, told.done[n - 1].files.get(path)
    who.filter(path)
    who.click(who.page.get_by_role("button", name=f"Undo call {number}", exact=True))
    if who.scripted:
        expect(who.page.locator(f"#c{number} .s-undone")).to_be_visible()
    wanted = {**told.files} if before is None else {**told.files, path: before}
    if before is None:
        del wanted[path]
    assert on_disk(told) == wanted


def undo_a_session(who: Reviewer, told: Told, chance: random.Random) -> None:
    session = len(told.sessions) - 1
    who.click(
        who.page.get_by_role("link", name=re.compile(f"^Take back.*{told.sessions[session]}"))
    )
    who.click(who.page.get_by_role("button", name="Carry out"))
    assert on_disk(told) == told.starts[session]


def on_disk(told: Told) -> dict[str, list[str]]:
    files = sorted(told.root.rglob("*.txt"))
    return {str(f.relative_to(told.root)): f.read_text().splitlines(True) for f in files}


Question = Callable[[Reviewer, Told, random.Random], None]
LOOKING: tuple[Question, ...] = (
    in_what_order,
    why,
    who_touched_it,
    what_failed,
    who_allowed_it,
    what_differs,
    the_file_then,
    the_total,
    who_wrote_this_line,
)
TAKING_BACK = (undo_a_call, undo_a_session)
WAYS = [
    pytest.param(True, False, id="with JavaScript"),
    pytest.param(False, True, id="without JavaScript, by keyboard"),
    pytest.param(True, True, id="with JavaScript, by keyboard"),
    pytest.param(False, False, id="without JavaScript"),
]


def answer(
    folder: Path,
    browser: Browser,
    questions: Sequence[Question],
    *,
    seed: int,
    calls: int,
    keys: bool,
    scripted: bool,
) -> None:
    """Answer the questions in turn, of a store of three sessions of so many calls."""
    chance = random.Random(seed)
    with telling(folder, 3, calls, seed) as told, serving(told) as live:
        context = live.visit(browser, java_script_enabled=scripted)
        who = Reviewer(context.new_page(), live, told, keys=keys, scripted=scripted)
        for question in questions:
            who.begin()
            question(who, told, chance)
        context.close()


@pytest.mark.parametrize(("scripted", "keys"), WAYS[:2])
def test_the_ten_questions_are_answered_in_three_clicks(
    tmp_path: Path, browser: Browser, scripted: bool, keys: bool
) -> None:
    half = (*LOOKING[keys::2], TAKING_BACK[keys])
    answer(tmp_path, browser, half, seed=26, calls=8, keys=keys, scripted=scripted)


@pytest.mark.deep
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("scripted", "keys"), WAYS)
def test_the_ten_questions_are_answered_of_any_store(
    tmp_path: Path, browser: Browser, scripted: bool, keys: bool, seed: int
) -> None:
    every = (*LOOKING * 3, *TAKING_BACK)
    answer(tmp_path, browser, every, seed=seed, calls=20, keys=keys, scripted=scripted)
