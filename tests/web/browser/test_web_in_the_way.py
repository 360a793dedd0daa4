"""What cannot be carried out now is not offered: the plan says why, and comes back by itself."""

import os
from typing import Any

import pytest
from fastapi.testclient import TestClient
from playwright.sync_api import Browser, expect

from loom_audit import ForeignSession
from loom_audit.history.ground.questions import Questions
from loom_audit.web.undo import name_of
from tests.web.browser.test_web_approvals import waiting_for
from tests.web.browser.test_web_browser import AXE, RUN_AXE
from tests.web.conftest import Live, Recorded
from tests.web.test_web_undo import HX, carry_out, fields, plan

OFFERED = '<button class="main">Carry out'
REFUSED = "This cannot be carried out now"


@pytest.fixture
def agent(recorded: Recorded) -> ForeignSession:
    """An agent whose process is this one."""
    return recorded.workspace.start_foreign_session("codex", id="agent-1", pid=os.getpid())


def query(recorded: Recorded) -> str:
    return f"verb=revert&target={recorded.numbers['notes']}"


def test_an_open_call_is_named_and_linked_and_when_it_ends_the_plan_is_offered(
    recorded: Recorded, client: TestClient, agent: ForeignSession
) -> None:
    begun = agent.begin_call("c1", "Bash", {"command": "make"})
    head = recorded.workspace.log.head()
    text = plan(client, recorded, query(recorded))
    assert REFUSED in text and OFFERED not in text and "disabled>Carry out" in text
    assert f'<a href="{recorded.url}/c/{begun.seq}">Call #{begun.seq}</a>' in text
    assert carry_out(client, recorded, fields(text)).status_code == 409
    assert recorded.workspace.log.head() == head, "what is refused records nothing"
    agent.end_call("c1")
    text = plan(client, recorded, query(recorded))
    assert REFUSED not in text and OFFERED in text
    assert carry_out(client, recorded, fields(text)).status_code == 303


def test_a_call_that_only_reads_is_not_in_the_way(
    recorded: Recorded, client: TestClient, agent: ForeignSession
) -> None:
    agent.begin_call("c1", "Read", {"path": "notes.txt"}, "read")
    text = plan(client, recorded, query(recorded))
    assert OFFERED in text and carry_out(client, recorded, fields(text)).status_code == 303


def test_a_call_that_waits_for_an_answer_leads_to_its_question(
    recorded: Recorded, client: TestClient
) -> None:
    with waiting_for(recorded) as waiting:
        text = plan(client, recorded, query(recorded))
        assert REFUSED in text and OFFERED not in text
        assert f'<a href="{waiting.url}">Answer call #{waiting.request.requested}</a>' in text
        assert text.index("Answer call #") < text.index("loom-audit approve")
        number = str(recorded.numbers["notes"])
        form = {"verb": "revert", "target": number, "quick": "1", "row": number}
        pressed = client.post(f"{recorded.url}/carry-out", data=form, headers=HX)
        assert pressed.status_code == 409 and f'<a href="{waiting.url}">' in pressed.text
    assert OFFERED in plan(client, recorded, query(recorded))


def test_a_rollback_may_hold_what_is_open_instead(
    recorded: Recorded, client: TestClient, agent: ForeignSession
) -> None:
    agent.begin_call("c1", "Bash", {"command": "make"})
    back = f"verb=rollback&target={recorded.numbers['read']}"
    text = plan(client, recorded, back)
    assert REFUSED in text and "hold=1" in text
    held = plan(client, recorded, back + "&hold=1")
    assert REFUSED not in held and OFFERED in held
    assert carry_out(client, recorded, fields(held)).status_code == 303


def test_an_undo_that_was_interrupted_is_in_the_way_of_all_others(
    recorded: Recorded, client: TestClient
) -> None:
    from loom_audit.history.ground.writer import Writer
    from loom_audit.history.record.call import OpenCall

    own = Writer(recorded.workspace.attachment, session=recorded.session, actor="person:x")
    call = OpenCall(own, "revert", {}, "write", call_id="left")
    call.announce()
    for back in (query(recorded), f"verb=rollback&target={recorded.numbers['read']}&hold=1"):
        text = plan(client, recorded, back)
        assert REFUSED in text and "waits for a decision" in text and OFFERED not in text
    recorded.workspace.recover("abandon")
    assert OFFERED in plan(client, recorded, query(recorded))


def test_the_page_is_told_when_what_stands_in_the_way_is_another(
    recorded: Recorded, client: TestClient, agent: ForeignSession
) -> None:
    agent.begin_call("c1", "Bash", {"command": "make"})
    text = plan(client, recorded, query(recorded))
    [still] = [part.split("&")[0].split('"')[0] for part in text.split("stopped=")[1:]]
    address = f"{recorded.url}/plan?{query(recorded)}&stopped={still}"
    assert client.get(address, headers=HX).status_code == 204
    agent.begin_call("c2", "Bash", {"command": "make more"})
    changed = client.get(address, headers=HX)
    assert (changed.status_code, changed.headers.get("hx-refresh")) == (200, "true")
    assert client.get(address).status_code == 200, "without htmx it is the plan"
    assert name_of(None) == ""


def test_whether_a_client_has_told_its_end_is_looked_at_by_a_press(
    recorded: Recorded, client: TestClient, agent: ForeignSession
) -> None:
    agent.begin_call("c1", "Bash", {"command": "make"})
    text = plan(client, recorded, query(recorded))
    assert "Look whether it has ended" in text
    form = {"verb": "revert", "target": str(recorded.numbers["notes"])}
    answer = client.post(f"{recorded.url}/look-again", data=form)
    assert answer.status_code == 303 and answer.headers["location"].endswith(query(recorded))
    with waiting_for(recorded):
        agent.end_call("c1")
        assert "Look whether" not in plan(client, recorded, query(recorded))


@pytest.mark.few(1)
@pytest.mark.browser
@pytest.mark.parametrize("scripted", [True, False], ids=["with JavaScript", "without JavaScript"])
def test_in_a_browser_it_is_offered_again_when_the_question_is_answered(
    recorded: Recorded, live: Live, browser: Browser, scripted: bool
) -> None:
    problems: list[Any] = []
    context = live.visit(browser, java_script_enabled=scripted, reduced_motion="reduce")
    page = context.new_page()
    page.on("console", lambda m: problems.append(m.text) if m.type == "error" else None)
    with waiting_for(recorded) as waiting:
        page.goto(f"{live.address}{recorded.url}/plan?{query(recorded)}")
        expect(page.get_by_role("button", name="Carry out")).to_be_disabled()
        if scripted:
            page.evaluate(AXE)
            assert page.evaluate(RUN_AXE, {}) == []
        page.get_by_role("link", name="Answer call").click()
        page.get_by_role("button", name="Deny").wait_for()
        page.go_back()
        expect(page.get_by_role("button", name="Carry out")).to_be_disabled()
        Questions(recorded.workspace.attachment).answer(waiting.request, "denied", "person:else")
        waiting.result()
        if not scripted:
            page.reload()
        expect(page.get_by_role("button", name="Carry out")).to_be_enabled(timeout=15_000)
    page.get_by_role("button", name="Carry out").click()
    page.wait_for_url("**/c/*")
    assert (recorded.root / "notes.txt").read_text() == "one\ntwo\nthree\n"
    context.close()
    assert problems == []
