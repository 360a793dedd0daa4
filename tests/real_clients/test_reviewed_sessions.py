"""A session of each real client, reviewed in a browser, against what its model asked and saw.

A reviewer has three clicks from the overview for each question.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, expect

from loom_audit import AuditedWorkspace, AuditStore, open_store
from tests.real_clients import sessions
from tests.real_clients.clients import CLIENTS
from tests.real_clients.runs import Run, running
from tests.real_clients.script import Call
from tests.real_clients.sessions import CREATED, EDITED, EXPECTED, TWICE
from tests.real_clients.workspaces import difference, manifest
from tests.web.browser.test_web_ten_questions import WAYS, Reviewer, content_shown
from tests.web.conftest import browser_type_launch_args as browser_type_launch_args
from tests.web.conftest import serving

pytestmark = pytest.mark.timeout(600)

PROMPT = "please do all of it"


@pytest.fixture(scope="module", params=CLIENTS)
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    """A session that has ended; what a test takes back, it brings back."""
    client = CLIENTS[request.param]
    with running(client, sessions.whole) as run:
        run.ours("connect", client.name)
        run.work(client.once(PROMPT))
        yield run


class Reviewed:
    """A store with the session of a client, opened beside it."""

    def __init__(self, store: AuditStore, run: Run) -> None:
        [attached] = store.workspaces()
        self.store = store
        self.workspace: AuditedWorkspace = store.workspace(attached.id)
        self.url = f"/w/{self.workspace.id}"
        self.session = f"{self.url}/s/{run.session()}"
        seqs = {id: call["seq"] for id, call in run.calls().items()}
        self.asked = run.model.asked
        self.numbers = {call.id: seqs[run.client.id_of(call)] for call in self.asked}

    def of(self, run: Run, step: str) -> tuple[Call, int]:
        """The one call of a step, with its number."""
        [call] = next(one.calls for one in run.model.steps if one.name == step)
        return call, self.numbers[call.id]


@contextmanager
def reviewed(run: Run) -> Iterator[Reviewed]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOOM_AUDIT_HOME", str(run.home / ".local/share/loom-audit"))
        with open_store() as store:
            yield Reviewed(store, run)


def in_what_order(who: Reviewer, made: Reviewed) -> None:
    who.open_steps(made.session)
    turns = who.page.locator("ol.steps li.turn blockquote").all_text_contents()
    assert [turns[0].strip(' "'), turns[-1].strip()] == [PROMPT, "All of it is done."]
    numbers = who.page.locator("ol.steps").evaluate(
        """list => [...list.querySelectorAll('li.step[id^=c], details li')]
            .map(one => Number(one.querySelector('a.num').textContent.slice(1)))"""
    )
    assert sorted(numbers) == sorted(made.numbers.values())
    alone = [made.numbers[id] for id in ("call_02", "call_04", "call_05", "call_07", "call_09")]
    assert [one for one in numbers if one in alone] == alone


def why(who: Reviewer, made: Reviewed, number: int) -> None:
    who.open_steps(made.session)
    who.click(who.page.locator(f"#c{number}").get_by_role("link", name=f"#{number}", exact=True))
    asked = who.page.locator("section.why dd").first.inner_text()
    assert asked.strip(' "') == PROMPT


def what_failed(who: Reviewer, made: Reviewed, failed: set[int]) -> None:
    assert {*who.failures()} == failed


def who_wrote_this_line(who: Reviewer, made: Reviewed, path: str, line: str, number: int) -> None:
    """The differences of a session that deletes much come in parts; those of a file by its row."""
    who.open_session(made.session)
    rows = who.page.locator("section.file", has_text=path).locator("tr.add", has_text=line)
    if not rows.count():
        who.click(who.page.locator(".index a[class^=act-]", has_text=path.rpartition("/")[2]).first)
    who.click(rows.get_by_role("link", name=f"#{number}", exact=True).first)
    expect(who.page.locator("h1")).to_contain_text(str(number))


def the_file_then(who: Reviewer, number: int, path: str, lines: list[str]) -> None:
    who.begin()
    who.go("Files")
    who.type("Point", str(number))
    who.type("File or folder", path)
    who.click(who.page.get_by_role("button", name="Go"))
    assert content_shown(who.page) == lines


@pytest.mark.parametrize(("scripted", "keys"), WAYS[:2])
def test_a_session_of_a_real_client_is_reviewed_in_three_clicks(
    run: Run, browser: Browser, scripted: bool, keys: bool
) -> None:
    with reviewed(run) as made, serving(made) as live:
        context = live.visit(browser, java_script_enabled=scripted)
        who = Reviewer(context.new_page(), live, made, keys=keys, scripted=scripted)
        in_what_order(who, made)
        for step in ("edit", "exit 3", "rm -r"):
            why(who, made, made.of(run, step)[1])
        for step, path in (("edit", EDITED), ("create", CREATED)):
            who.begin()
            assert made.of(run, step)[1] in who.filter(path)
        steps = [(one.name, call) for one in run.model.steps for call in one.calls]
        wrong = {name for name, one in EXPECTED.items() if one.status in ("error", "denied")}
        what_failed(who, made, {made.numbers[call.id] for name, call in steps if name in wrong})
        again = made.of(run, "write again")[1]
        who_wrote_this_line(who, made, TWICE, "second", again)
        the_file_then(who, made.of(run, "write")[1], TWICE, ["first"])
        who.begin()
        who.filter(TWICE)
        who.click(who.page.get_by_role("button", name=f"Undo call {again}", exact=True))
        if scripted:
            expect(who.page.locator(f"#c{again} .s-undone")).to_be_visible()
        left = difference(run.before["end"], manifest(run.workspace))
        assert [*left] == [TWICE] and (run.workspace / TWICE).read_text() == "first\n"
        run.ours("undo", "--yes")
        assert not difference(run.before["end"], manifest(run.workspace))
        context.close()
