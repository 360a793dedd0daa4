"""Calls that wait, on the dashboard: seen, looked into, answered, and by whom first."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from playwright.sync_api import Browser, Page

from loom_audit.api.control.recommended import write_recommended
from loom_audit.api.face import person
from loom_audit.errors import InvalidArguments
from loom_audit.history.ground.questions import ApprovalRequest, Questions
from loom_audit.model.events import CallDecided
from loom_audit.tools.approvals.asking_gate import AskingGate
from loom_audit.web.approvals import changed, to_type
from tests.web.browser.following import follow
from tests.web.browser.test_web_browser import AXE, RUN_AXE
from tests.web.conftest import Live, Recorded, asking, in_thread
from tests.web.web_pages import HOSTILE

ROOT = Path(__file__).parents[3]
OVERWRITE = {"path": "notes.txt", "content": "changed\n"}


class Waiting:
    """A call in a thread of its own that waits for an answer."""

    def __init__(
        self, made: Recorded, tool: str, arguments: dict[str, Any], seconds: float
    ) -> None:
        self.made = made
        self.results: list[Any] = []
        self.session = made.workspace.session("asking", gate=AskingGate(timeout=seconds))
        self.session.__enter__()
        known = {one.seq for one in self.pending()}

        self.thread = threading.Thread(target=self.call, args=(tool, arguments))
        self.thread.start()
        self.request = self.next(known)
        self.url = f"{made.url}/approvals/{self.request.requested}"

    def call(self, tool: str, arguments: dict[str, Any]) -> None:
        self.results.append(asyncio.run(self.session.call(tool, arguments)))

    def pending(self) -> list[ApprovalRequest]:
        return [*Questions(self.made.workspace.attachment).pending()]

    def next(self, known: set[int]) -> ApprovalRequest:
        deadline = time.monotonic() + 60  # only so that a hang ends
        while time.monotonic() < deadline:
            for one in self.pending():
                if one.seq not in known:
                    return one
            time.sleep(0.02)
        raise AssertionError("no call came to wait")

    def result(self) -> Any:
        self.thread.join(60)
        return self.results[0]

    def end(self) -> None:
        for one in self.pending():
            if one.session == self.session.id:
                Questions(self.made.workspace.attachment).answer(one, "denied", "person:end")
        self.thread.join(60)
        self.session.__exit__(None, None, None)


@contextmanager
def waiting_for(
    made: Recorded,
    tool: str = "write_file",
    arguments: dict[str, Any] | None = None,
    seconds: float = 60,
) -> Iterator[Waiting]:
    waiting = Waiting(made, tool, arguments or OVERWRITE, seconds)
    try:
        yield waiting
    finally:
        waiting.end()


def test_where_there_are_no_rules_the_page_says_that_nothing_is_asked(
    recorded: Recorded, client: TestClient
) -> None:
    told = "Nothing is asked: there is no"
    assert told in client.get(f"{recorded.url}/needs").text
    write_recommended(recorded.workspace.adapters.settings)
    assert told not in client.get(f"{recorded.url}/needs").text


def test_what_waits_is_listed_and_counted_on_every_page(
    recorded: Recorded, client: TestClient
) -> None:
    assert "No call waits" in client.get(f"{recorded.url}/needs").text
    assert 'class="count"' not in client.get(f"{recorded.url}/").text
    with waiting_for(recorded) as waiting:
        text = client.get(f"{recorded.url}/needs").text
        assert "overwrites notes.txt" in text and waiting.url in text
        assert "Nothing is asked" not in text
        assert re.search(r'class="count">1<', client.get(f"{recorded.url}/status").text)


def test_the_old_address_of_the_list_leads_to_the_queue_which_asks_again_while_it_is_empty(
    recorded: Recorded, client: TestClient
) -> None:
    answer = client.get(f"{recorded.url}/approvals")
    assert (answer.status_code, answer.headers["location"]) == (308, f"{recorded.url}/needs")
    asks = {"hx-request": "true"}
    empty = client.get(f"{recorded.url}/needs", headers=asks).text
    assert "No call waits" in empty and 'hx-trigger="every 5s"' in empty and "<h1>" not in empty
    with waiting_for(recorded) as waiting:
        listed = client.get(f"{recorded.url}/needs", headers=asks).text
        assert waiting.url in listed and "every 5s" not in listed


def test_the_page_of_one_shows_what_it_is_about_first_and_the_other_arguments_last(
    recorded: Recorded, client: TestClient
) -> None:
    with waiting_for(recorded) as waiting:
        main = client.get(waiting.url).text.partition("<main")[2]
        places = [main.index(one) for one in (">notes.txt</pre>", "Because", "Other arguments")]
        assert places == sorted(places)
        others = main.partition("Other arguments")[2].partition("</pre>")[0]
        assert "changed" in others and "notes.txt" not in others


def test_the_page_of_one_shows_what_would_change_and_nothing_changes(
    recorded: Recorded, client: TestClient
) -> None:
    with waiting_for(recorded) as waiting:
        text = client.get(waiting.url).text
        assert "<ins>+changed</ins>" in text and "<del>-one</del>" in text
        assert "write_file" in text and "agent:asking" in text
        assert waiting.pending() and not waiting.results
        call = client.get(f"{recorded.url}/c/{waiting.request.requested}").text
        assert "waits for an answer" in call and waiting.url in call


def test_the_account_decides_and_the_name_given_at_the_sign_in_stands_beside_it(
    recorded: Recorded,
) -> None:
    with asking(recorded.store, label="Ada") as signed_in, waiting_for(recorded) as waiting:
        assert f"Recorded as {person()} (Ada)" in signed_in.get(waiting.url).text
        form = {"question": waiting.request.seq, "decision": "denied"}
        assert signed_in.post(waiting.url, data=form).status_code == 303
        assert not waiting.result().success
        events = recorded.workspace.timeline.call(waiting.request.requested).events
    (decided,) = [event for event in events if isinstance(event.fact, CallDecided)]
    assert decided.actor == person()
    assert decided.fact.by == f"{person()} (Ada)"


def test_allowing_and_denying_are_on_record_with_their_reason(
    recorded: Recorded, client: TestClient
) -> None:
    for decision, success in (("denied", False), ("allowed", True)):
        with waiting_for(recorded) as waiting:
            form = {
                "question": waiting.request.seq,
                "decision": decision,
                "reason": "as I said",
                "arguments": to_type(OVERWRITE),
            }
            answer = client.post(waiting.url, data=form)
            assert answer.status_code == 303
            assert answer.headers["location"] == f"{recorded.url}/c/{waiting.request.requested}"
            assert waiting.result().success == success
            page = client.get(answer.headers["location"]).text
            assert f"{decision} by person:" in page and "as I said" in page
            assert "arguments modified" not in page
    assert (recorded.root / "notes.txt").read_text() == "changed\n"


def test_changed_arguments_are_what_runs_and_wrong_ones_stay_typed(
    recorded: Recorded, client: TestClient
) -> None:
    with waiting_for(recorded) as waiting:
        form = {"question": str(waiting.request.seq), "decision": "allowed"}
        answer = client.post(waiting.url, data={**form, "arguments": "{no json"})
        assert answer.status_code == 400 and "{no json</textarea>" in answer.text
        assert client.post(waiting.url, data={**form, "arguments": "[]"}).status_code == 400
        assert client.post(waiting.url, data={**form, "decision": "maybe"}).status_code == 400
        assert waiting.pending()
        wrong = client.post(waiting.url, data={**form, "arguments": '{"foo": 1}'})
        assert wrong.status_code == 400 and "foo" in wrong.text and waiting.pending()
        other = json.dumps({"path": "fresh.txt", "content": "x"})
        told = client.post(waiting.url, data={**form, "arguments": other})
        assert told.status_code == 303 and told.headers["location"] == waiting.url
        form["question"] = str(waiting.next({waiting.request.seq}).seq)
        assert client.post(waiting.url, data=form).status_code == 303
        assert waiting.result().success
    assert (recorded.root / "fresh.txt").read_text() == "x"


def test_an_answer_to_a_question_that_was_asked_again_is_not_taken(
    recorded: Recorded, client: TestClient
) -> None:
    with waiting_for(recorded) as waiting:
        (recorded.root / "notes.txt").write_text("edited in between\n")
        form = {"question": str(waiting.request.seq), "decision": "allowed"}
        assert client.post(waiting.url, data=form).status_code == 303
        again = waiting.next({waiting.request.seq})
        late = client.post(waiting.url, data=form)
        assert late.status_code == 409 and "asked again" in late.text
        assert "edited in between" in late.text and f'value="{again.seq}"' in late.text


def test_who_answers_second_is_told_who_was_first(recorded: Recorded, client: TestClient) -> None:
    with waiting_for(recorded) as waiting:
        Questions(recorded.workspace.attachment).answer(waiting.request, "denied", "person:first")
        form = {"question": str(waiting.request.seq), "decision": "allowed"}
        late = client.post(waiting.url, data=form)
        assert late.status_code == 409 and "denied by person:first already" in late.text


def test_an_answer_from_a_foreign_page_is_refused(recorded: Recorded, client: TestClient) -> None:
    with waiting_for(recorded) as waiting:
        form = {"question": str(waiting.request.seq), "decision": "allowed"}
        foreign = {"sec-fetch-site": "cross-site", "origin": "http://evil.example"}
        assert client.post(waiting.url, data=form, headers=foreign).status_code == 403
        assert client.get(waiting.url + "?decision=allowed").status_code == 200
        assert waiting.pending()


def test_for_this_session_is_taken_from_the_form(recorded: Recorded, client: TestClient) -> None:
    with waiting_for(recorded) as waiting:
        form = {"question": str(waiting.request.seq), "decision": "allowed", "lasting": "1"}
        assert client.post(waiting.url, data=form).status_code == 303
        assert waiting.result().success
        again = OVERWRITE | {"content": "2"}
        in_thread(lambda: waiting.call("write_file", again))
        assert [one.success for one in waiting.results] == [True, True]


def test_arguments_come_back_from_the_form_as_they_went_there() -> None:
    strange = {"text": "\x00\x1b\u202e\u200b\x7f\U000e0001\udcff \u00e9 \U0001f600 </textarea>\n"}
    text = to_type(strange)
    assert text is not None and json.loads(text) == strange
    assert to_type({"content": "x" * 300_000}) is None


def test_numbers_that_are_not_json_are_refused(recorded: Recorded) -> None:
    with waiting_for(recorded) as waiting:
        for name in ("NaN", "Infinity", "-Infinity"):
            with pytest.raises(InvalidArguments, match="not a JSON number"):
                changed(waiting.request, f'{{"path": {name}}}')


def test_a_question_outlives_the_dashboard_and_not_the_process_that_asked(
    recorded: Recorded, client: TestClient
) -> None:
    """The dashboard reads the log anew for each page; the asking process is a real one."""
    home = recorded.store.adapters.settings.home
    (home / "config").mkdir(exist_ok=True)
    (home / "config" / "approvals.toml").write_text("")
    kept = {k: v for k, v in os.environ.items() if not k.startswith("LOOM_AUDIT_")}
    process = subprocess.Popen(
        [sys.executable, "-m", "loom_audit", "call", "write_file", json.dumps(OVERWRITE)],
        cwd=recorded.root,
        env=kept | {"LOOM_AUDIT_HOME": str(home), "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 60  # only so that a hang ends
        while not (found := Questions(recorded.workspace.attachment).pending()):
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.05)
        url = f"{recorded.url}/approvals/{found[0].requested}"
        assert "Allow" in client.get(url).text
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(30)
    listed = client.get(f"{recorded.url}/needs").text
    assert "its process is gone" in listed and ">Close it<" in listed
    page = client.get(url).text
    assert "The process that asked is gone" in page and ">Close it<" in page
    assert ">Allow</button>" not in page
    answer = client.post(f"{recorded.url}/recover", data={"mode": "auto"})
    assert (answer.status_code, answer.headers["location"]) == (303, f"{recorded.url}/needs")
    assert "No call waits" in client.get(f"{recorded.url}/needs").text
    assert recorded.workspace.timeline.calls()[0].status == "interrupted"
    assert client.get(url).status_code == 404


@pytest.mark.parametrize("page", ["needs", ""], ids=["needs", "overview"])
def test_what_is_shown_whole_is_answered_in_the_list_which_shows_the_next(
    recorded: Recorded, client: TestClient, page: str
) -> None:
    listed = f"{recorded.url}/{page}"
    with waiting_for(recorded, arguments={"path": "notes.txt", "content": "<b>all</b>"}) as waiting:
        text = client.get(listed).text
        form = text[text.index('<li class="need"') : text.index("</li>")]
        assert form.index("notes.txt") < form.index("overwrites notes.txt")
        assert "&lt;b&gt;all&lt;/b&gt;" in form and "<b>all" not in form
        assert "waits for an answer</a>" in client.get(f"{recorded.url}/calls").text
        answer = client.post(
            waiting.url,
            data={"question": str(waiting.request.seq), "decision": "denied", "next": page},
        )
        assert answer.status_code == 303 and answer.headers["location"] == listed
        assert not waiting.result().success
    assert '<form method="post" action="' + waiting.url not in client.get(listed).text
    with waiting_for(recorded) as waiting:
        wrong = {"question": str(waiting.request.seq), "decision": "denied", "next": "//evil"}
        answer = client.post(waiting.url, data=wrong)
        assert answer.headers["location"].startswith(f"{recorded.url}/c/")


@pytest.mark.few(1)
@pytest.mark.browser
@pytest.mark.parametrize("scripted", [True, False], ids=["with JavaScript", "without JavaScript"])
def test_in_a_browser_one_is_found_looked_into_and_answered(
    recorded: Recorded, live: Live, browser: Browser, scripted: bool
) -> None:
    problems: list[str] = []
    context = live.visit(browser, java_script_enabled=scripted, reduced_motion="reduce")
    page: Page = context.new_page()
    page.on("console", lambda m: problems.append(m.text) if m.type == "error" else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    hostile = HOSTILE + "</textarea><script>window.hacked = 5</script>"
    with waiting_for(recorded, arguments={"path": "notes.txt", "content": hostile}) as waiting:
        page.goto(f"{live.address}{recorded.url}/")
        follow(page.get_by_role("link", name=re.compile("Needs you.*1 waiting")))
        button = page.get_by_role("link", name="Look at all of it, and answer")
        for width in (1440, 768, 718, 375):
            page.set_viewport_size({"width": width, "height": 700})
            assert button.bounding_box()["x"] + button.bounding_box()["width"] <= width - 20
            assert page.locator("html").evaluate("one => one.scrollWidth") == width
        # what is not shown whole is not answered here
        assert page.get_by_role("button", name="Allow").count() == 0
        follow(button)
        assert page.locator("html").bounding_box()["width"] == 375
        assert "overwrites notes.txt" in page.inner_text("main")
        if scripted:
            assert page.evaluate("window.hacked") is None
            page.evaluate(AXE)
            assert page.evaluate(RUN_AXE, {}) == []
        page.get_by_text("Change the arguments").click()
        typed = page.get_by_label("As JSON").input_value()
        assert json.loads(typed) == {"path": "notes.txt", "content": hostile}
        page.get_by_role("textbox", name="Reason").fill("looks right")
        page.get_by_role("button", name="Allow").click()
        page.wait_for_url(re.compile(r"/c/\d+$"))
        assert waiting.result().success
        page.reload()
        assert "looks right" in page.inner_text("main")
        assert "arguments modified" not in page.inner_text("main")
    assert (recorded.root / "notes.txt").read_text() == hostile
    assert unescape(page.title())
    context.close()
    assert problems == []
