"""A reviewer's questions about sessions of the four real clients, as their transcripts tell them.

What is answered is held against the transcripts themselves, read without the package.
"""

import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from loom_audit import AuditStore, open_store
from loom_audit.api.agents.importing import Imported, import_file
from tests.given.cases import some
from tests.oracles.transcripts import Told, told
from tests.web.browser.test_web_ten_questions import WAYS, Reviewer, content_shown
from tests.web.conftest import serving

pytestmark = pytest.mark.browser

RECORDINGS = Path(__file__).parents[2] / "data" / "clients"
SESSIONS = {
    "claude-code": "session.jsonl",
    "codex": "rollout.jsonl",
    "gemini": "session.jsonl",
    "opencode": "export.json",
}
ROWS = """rows => rows.flatMap(row => {
    const said = row.querySelector('blockquote')
    if (row.classList.contains('turn')) return [[row.classList[1], said.textContent.trim(), 0]]
    const folded = [...row.querySelectorAll('details li')]
    const calls = folded.length ? folded : row.id.startsWith('c') ? [row] : []
    return calls.map(one => ['call', one.querySelector('.tool').textContent,
        Number(one.querySelector('a.num').textContent.slice(1))])
})"""


class Imports:
    """A store with one imported session, and what its transcript says."""

    def __init__(self, store: AuditStore, done: Imported, steps: list[Told]) -> None:
        self.store = store
        self.url = f"/w/{done.workspace}"
        self.session = f"{self.url}/s/{done.sessions[0]}"
        self.steps = steps
        self.calls = [one for one in steps if one.kind == "call"]
        self.root = done.root.removeprefix("import:") + "/"
        self.numbers: list[int] = []

    def number(self, one: Told) -> int:
        return self.numbers[self.calls.index(one)]

    def path(self, one: Told) -> str:
        return one.path.removeprefix(self.root)


@pytest.fixture(params=SESSIONS)
def made(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Imports]:
    file = RECORDINGS / request.param / SESSIONS[request.param]
    with tempfile.TemporaryDirectory() as home, monkeypatch.context() as patch:
        patch.setenv("LOOM_AUDIT_HOME", home)
        with open_store() as store:
            yield Imports(store, import_file(store, file), told(request.param, file))


def in_what_order(who: Reviewer, made: Imports) -> None:
    """The numbers that the calls have are taken from here."""
    who.open_steps(made.session)
    rows: list[Any] = who.page.locator("ol.steps > li").evaluate_all(ROWS)
    assert [(kind, text) for kind, text, _ in rows] == [
        (one.kind, one.text.strip()) for one in made.steps
    ]
    made.numbers = [number for kind, _, number in rows if kind == "call"]
    assert made.numbers == sorted({*made.numbers})


def why(who: Reviewer, made: Imports, one: Told) -> None:
    who.open_steps(made.session)
    number = made.number(one)
    for folded in who.page.locator("ol.steps details").all():
        folded.evaluate("one => { one.open = true }")
    steps = who.page.locator("ol.steps")
    who.click(steps.get_by_role("link", name=f"#{number}", exact=True).first)
    before = made.steps[: made.steps.index(one)]
    [*_, prompt] = [said.text for said in before if said.kind == "prompt"]
    expect(who.page.locator("section.why dd").first).to_have_text(prompt)


def who_touched_it(who: Reviewer, made: Imports, one: Told) -> None:
    who.begin()
    path = made.path(one)
    named = {made.number(other) for other in made.calls if made.path(other) == path}
    assert named <= {*who.filter(path)}


def what_failed(who: Reviewer, made: Imports) -> None:
    failed = [made.number(one) for one in made.calls if one.failed]
    assert failed and sorted(who.failures()) == failed


def who_wrote_this_line(who: Reviewer, made: Imports, one: Told) -> None:
    who.open_session(made.session)
    number = f"#{made.number(one)}"
    rows = who.page.locator("section.file tr.add", has_text=one.lines[-1])
    who.click(rows.get_by_role("link", name=number, exact=True).first)
    expect(who.page.locator("h1")).to_contain_text(number.removeprefix("#"))


def the_file_then(who: Reviewer, made: Imports, one: Told) -> None:
    who.begin()
    who.go("Files")
    who.type("Point", str(made.number(one)))
    who.type("File or folder", made.path(one))
    who.click(who.page.get_by_role("button", name="Go"))
    assert one.lines[-1] in content_shown(who.page)


def nothing_is_taken_back(who: Reviewer, made: Imports, one: Told) -> None:
    who.begin()
    who.filter(made.path(one))
    expect(who.page.get_by_role("button", name="Undo")).to_have_count(0)
    expect(who.page.locator('a[href*="/plan?"]')).to_have_count(0)


@pytest.mark.few(1)
@pytest.mark.parametrize(("scripted", "keys"), some(WAYS[:2], 1))
def test_a_session_of_a_real_client_is_reviewed_in_three_clicks(
    made: Imports, browser: Browser, scripted: bool, keys: bool
) -> None:
    chance = random.Random(26)
    with serving(made) as live:
        context = live.visit(browser, java_script_enabled=scripted)
        who = Reviewer(context.new_page(), live, made, keys=keys, scripted=scripted)
        in_what_order(who, made)
        wrote = [one for one in made.calls if one.lines and one.path and not one.failed]
        why(who, made, chance.choice(made.calls))
        who_touched_it(who, made, chance.choice(wrote))
        what_failed(who, made)
        who_wrote_this_line(who, made, wrote[-1])
        the_file_then(who, made, wrote[-1])
        nothing_is_taken_back(who, made, wrote[-1])
        context.close()
