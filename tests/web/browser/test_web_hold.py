"""Holding over HTTP: the session's page holds, releases, and goes back while an agent runs."""

import os
import re

import pytest
from fastapi.testclient import TestClient
from playwright.sync_api import Browser

from loom_audit import ApprovalDenied, ForeignSession
from tests.web.browser.following import follow
from tests.web.browser.test_web_browser import AXE, RUN_AXE
from tests.web.conftest import Live, Recorded, asking
from tests.web.test_web_undo import fields

HOSTILE = "<script>window.hacked = 1</script> \u00e9"


@pytest.fixture
def foreign(recorded: Recorded) -> ForeignSession:
    """An agent whose process is this one, with a call that is open and has changed a file."""
    session = recorded.workspace.start_foreign_session("codex", id="agent-1", pid=os.getpid())
    session.begin_call("c1", "Bash", {"command": "make"})
    (recorded.root / "made").write_text("by the agent\n")
    return session


def page(client: TestClient, recorded: Recorded) -> str:
    answer = client.get(f"{recorded.url}/s/agent-1")
    assert answer.status_code == 200
    return answer.text


def press(client: TestClient, recorded: Recorded, **form: str) -> None:
    answer = client.post(f"{recorded.url}/s/agent-1/hold", data=form)
    assert answer.status_code == 303
    assert answer.headers["location"] == f"{recorded.url}/s/agent-1"


def test_a_session_is_held_and_released_on_its_page(
    recorded: Recorded, client: TestClient, foreign: ForeignSession
) -> None:
    text = page(client, recorded)
    assert "<button>Hold</button>" in text and "Release" not in text
    assert "last heard" in text, "the open call"
    press(client, recorded, hold="1", reason=HOSTILE)
    with pytest.raises(ApprovalDenied):
        foreign.begin_call("c2", "Bash", {})
    text = page(client, recorded)
    assert "<b>Held</b> by <bdi>person:" in text and "&lt;script&gt;" in text
    assert "<script>window" not in text
    assert f"The agent still runs</b> (process {os.getpid()})" in text
    assert "<button>Release</button>" in text and "<button>Hold</button>" not in text
    assert 'title="open">held</span>' in client.get(f"{recorded.url}/").text
    assert "<b>Held</b>" in client.get(f"{recorded.url}/c/{open_call(recorded)}").text
    press(client, recorded, hold="0")
    assert "<b>Held</b>" not in page(client, recorded)
    foreign.begin_call("c3", "Bash", {})


def open_call(recorded: Recorded) -> int:
    return recorded.workspace.timeline.open_calls()[0].requested


def test_who_signed_in_by_a_name_is_named_with_it(
    recorded: Recorded, foreign: ForeignSession
) -> None:
    with asking(recorded.store, "Ada") as client:
        press(client, recorded, hold="1")
    held = recorded.workspace.timeline.hold("agent-1")
    assert held is not None and held.by.startswith("person:") and held.by.endswith(" (Ada)")


@pytest.mark.parametrize(
    "form",
    [{}, {"hold": "2"}, {"hold": "1", "reason": "x" * 2000}, {"hold": "1", "reason": "a\nb"}],
)
def test_what_is_not_an_answer_changes_nothing(
    recorded: Recorded,
    client: TestClient,
    foreign: ForeignSession,
    form: dict[str, str],
) -> None:
    head = recorded.workspace.log.head()
    assert client.post(f"{recorded.url}/s/agent-1/hold", data=form).status_code == 400
    assert recorded.workspace.log.head() == head


def test_only_our_own_pages_hold(
    recorded: Recorded, client: TestClient, foreign: ForeignSession
) -> None:
    answer = client.post(
        f"{recorded.url}/s/agent-1/hold",
        data={"hold": "1"},
        headers={"sec-fetch-site": "cross-site"},
    )
    assert answer.status_code == 403 and recorded.workspace.timeline.hold("agent-1") is None


def test_a_session_that_ended_is_not_held_and_one_that_is_not_there_not_found(
    recorded: Recorded, client: TestClient, foreign: ForeignSession
) -> None:
    foreign.end()
    text = page(client, recorded)
    assert "<button>Hold" not in text
    form = {"hold": "1"}
    assert client.post(f"{recorded.url}/s/agent-1/hold", data=form).status_code == 409
    assert client.post(f"{recorded.url}/s/nobody/hold", data=form).status_code == 404


def forms(text: str, button: str) -> dict[str, str]:
    """The fields of the form with this button."""
    [form] = [one for one in re.findall(r"<form.*?</form>", text, re.DOTALL) if button in one]
    return dict(re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)">', form))


def test_one_press_holds_and_goes_back_while_a_call_is_open(
    recorded: Recorded, client: TestClient, foreign: ForeignSession
) -> None:
    form = forms(page(client, recorded), "Hold and roll back")
    done = client.post(f"{recorded.url}/carry-out", data=form)
    assert done.status_code == 303, done.text
    assert not (recorded.root / "made").exists()
    shown = client.get(done.headers["location"]).text
    assert "Left open:" in shown and f"#{open_call(recorded)}" in shown
    with pytest.raises(ApprovalDenied, match="rolled back to session:agent-1"):
        foreign.begin_call("c2", "Bash", {})
    (recorded.root / "later").touch()
    foreign.end_call("c1")
    [*_, last] = recorded.workspace.attachment.stored.tables.changes(paths=["later"])
    assert last.call_id == "c1"


def test_where_something_is_to_be_decided_the_agent_is_held_and_the_plan_is_shown(
    recorded: Recorded, client: TestClient, foreign: ForeignSession
) -> None:
    foreign.end_call("c1")
    (recorded.root / "notes.txt").write_text("a person's\n")
    foreign.begin_call("c2", "Bash", {})
    (recorded.root / "more").touch()
    form = forms(page(client, recorded), "Hold and roll back")
    shown = client.post(f"{recorded.url}/carry-out", data=form)
    assert "/plan?" in shown.headers["location"] and (recorded.root / "made").exists()
    head = recorded.workspace.log.head()
    text = client.get(shown.headers["location"]).text
    assert "<b>Held</b>" in text and "Still open, and not stopped" in text
    assert recorded.workspace.log.head() == head, "a page writes nothing"
    (recorded.root / "even more").touch()  # by the agent, who goes on
    done = client.post(f"{recorded.url}/carry-out", data=fields(text))
    assert done.status_code == 303 and "/c/" in done.headers["location"]
    assert not [p for p in ("made", "more", "even more") if (recorded.root / p).exists()]
    assert (recorded.root / "notes.txt").read_text() == "a person's\n"


@pytest.mark.few(1)
@pytest.mark.browser
@pytest.mark.parametrize("scripted", [True, False], ids=["with JavaScript", "without JavaScript"])
def test_it_works_in_a_browser(
    recorded: Recorded,
    live: Live,
    browser: Browser,
    foreign: ForeignSession,
    scripted: bool,
) -> None:
    before = recorded.root.joinpath("made")
    tab = live.visit(browser, java_script_enabled=scripted).new_page()
    tab.goto(f"{live.address}{recorded.url}/s/agent-1")
    tab.get_by_label("Reason").fill("the tests come first")
    follow(tab.get_by_role("button", name="Hold", exact=True))
    tab.get_by_text("the tests come first").first.wait_for()
    if scripted:
        tab.evaluate(AXE)
        assert tab.evaluate(RUN_AXE, {}) == []
    tab.get_by_role("button", name="Hold and roll back").click()
    tab.get_by_text("Left open:").wait_for()
    assert not before.exists()
    tab.goto(f"{live.address}{recorded.url}/s/agent-1")
    tab.get_by_role("button", name="Release").click()
    tab.get_by_role("button", name="Hold", exact=True).wait_for()
    assert recorded.workspace.timeline.hold("agent-1") is None
