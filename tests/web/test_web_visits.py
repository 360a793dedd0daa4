"""What one browser takes back in one visit is one session; what is refused leaves none."""

import os
import re
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from loom_audit.api.face import AuditedWorkspace, person
from loom_audit.model.plans.planning import Plan
from loom_audit.model.plans.request import PlanRequest
from loom_audit.model.records import Session as Listed
from loom_audit.web.shared import admission
from loom_audit.web.shared.admission import Admission
from tests.web.conftest import Recorded, asking
from tests.web.test_web_undo import HX, carry_out, fields, plan

ROOT = Path(__file__).parents[2]


def own(recorded: Recorded) -> list[Listed]:
    """The sessions of people, newest first."""
    found = recorded.workspace.timeline.sessions()
    return [one for one in found if one.actor.startswith("person:")]


def press(client: TestClient, recorded: Recorded, number: int) -> int:
    """Undo a call by one press: the number of the undo."""
    form = {"verb": "revert", "target": str(number), "quick": "1"}
    answer = carry_out(client, recorded, form)
    assert answer.status_code == 303 and "/c/" in answer.headers["location"], answer.text
    return int(answer.headers["location"].rsplit("/", 1)[1])


def test_what_is_taken_back_in_a_visit_is_one_session_that_has_ended(
    recorded: Recorded, client: TestClient
) -> None:
    number = recorded.numbers["notes"]
    for _ in range(5):
        number = press(client, recorded, number)
        [visit] = own(recorded)
        assert (visit.status, visit.title, visit.agent) == ("completed", "dashboard", person())
    assert visit.calls == 5 and visit.ended == recorded.workspace.log.head()
    text = plan(client, recorded, f"verb=rollback&target={recorded.numbers['read']}")
    assert carry_out(client, recorded, fields(text)).status_code == 303
    assert [one.calls for one in own(recorded)] == [6]
    overview = client.get(f"{recorded.url}/").text
    assert overview.count(f'{recorded.url}/s/{visit.id}" title="{person()}"') == 1
    assert client.get(f"{recorded.url}/s/{visit.id}").status_code == 200
    assert recorded.workspace.verify().ok
    assert recorded.workspace.differences() == []


def test_each_browser_has_a_session_of_its_own(recorded: Recorded) -> None:
    for name in ("notes", "huge"):
        with asking(recorded.store, "Ada") as client:
            press(client, recorded, recorded.numbers[name])
    assert [one.calls for one in own(recorded)] == [1, 1]


def test_a_visit_ends_when_the_browser_was_silent_for_long(
    recorded: Recorded, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1_000.0]
    monkeypatch.setattr(admission, "monotonic", lambda: now[0])
    first = press(client, recorded, recorded.numbers["notes"])
    now[0] += admission.IDLE - 1
    assert client.get(f"{recorded.url}/").status_code == 200
    now[0] += admission.IDLE - 1
    again = press(client, recorded, first)
    assert [one.calls for one in own(recorded)] == [2]
    now[0] += admission.IDLE + 1
    press(client, recorded, again)
    assert [one.calls for one in own(recorded)] == [1, 2]


def test_a_visit_is_not_a_secret_of_the_cookie() -> None:
    made = Admission("person:x")
    cookie = made.redeem(made.new_token(), "") or ""
    visitor = made.visitor({admission.COOKIE: cookie})
    assert visitor is not None and visitor.visit and visitor.visit not in cookie


def test_the_second_of_two_browsers_that_press_at_once_leaves_no_session(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, first_plans = AuditedWorkspace.plan, [1, 2]
    both_have_one = threading.Barrier(2, timeout=60)

    def slowly(workspace: AuditedWorkspace, asked: PlanRequest) -> Plan:
        made = original(workspace, asked)
        if first_plans:
            first_plans.pop()
            both_have_one.wait()
        return made

    monkeypatch.setattr(AuditedWorkspace, "plan", slowly)
    form = {"verb": "revert", "target": str(recorded.numbers["notes"]), "quick": "1"}

    def work(client: TestClient) -> Any:
        return carry_out(client, recorded, form)

    with (
        asking(recorded.store) as one,
        asking(recorded.store) as other,
        ThreadPoolExecutor(2) as pool,
    ):
        answers = sorted(pool.map(work, (one, other)), key=lambda answer: answer.status_code)
    assert [answer.status_code for answer in answers] == [303, 409], answers[1].text
    assert [one.calls for one in own(recorded)] == [1]
    assert (recorded.root / "notes.txt").read_text() == "one\ntwo\nthree\n"


def test_a_call_that_began_since_leaves_no_session(recorded: Recorded, client: TestClient) -> None:
    text = plan(client, recorded, f"verb=revert&target={recorded.numbers['notes']}")
    agent = recorded.workspace.start_foreign_session("codex", id="agent-1", pid=os.getpid())
    agent.begin_call("c1", "Bash", {"command": "make"})
    assert carry_out(client, recorded, fields(text)).status_code == 409
    assert own(recorded) == []


KILLED = """
import os, signal, sys
from loom_audit.api.face import open_store
from loom_audit.history.record.call import OpenCall
def kill(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)
OpenCall.apply = kill
with open_store() as store:
    workspace = store.workspace(sys.argv[1])
    workspace.carry_out(workspace.plan_revert([int(sys.argv[2])]), visit=sys.argv[3])
"""


def test_a_visit_whose_server_is_killed_has_ended_and_goes_on(
    recorded: Recorded, client: TestClient
) -> None:
    first = press(client, recorded, recorded.numbers["notes"])
    [visit] = own(recorded)
    kept = {k: v for k, v in os.environ.items() if not k.startswith("LOOM_AUDIT_")}
    home = recorded.store.adapters.settings.home
    done = subprocess.run(
        [sys.executable, "-c", KILLED, recorded.workspace.id, str(first), visit.id],
        env=kept | {"LOOM_AUDIT_HOME": str(home), "PYTHONPATH": str(ROOT)},
        capture_output=True,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert own(recorded)[0].status == "open"
    recorded.workspace.recover("abandon")
    assert own(recorded)[0].status == "interrupted"
    press(client, recorded, first)
    [visit] = own(recorded)
    assert (visit.status, visit.calls) == ("completed", 2)
    assert recorded.workspace.verify().ok


def row_ids(text: str) -> list[str]:
    """The rows of calls on a page, from above; "+" marks those that are nested."""
    rows = re.findall(r'<tr id="c(\d+)"(?: class="([^"]*)")?>', text)
    return [("+" if "nested" in classes else "") + number for number, classes in rows]


def test_an_undo_is_listed_below_what_it_took_back(recorded: Recorded, client: TestClient) -> None:
    number = recorded.numbers["notes"]
    before = row_ids(client.get(f"{recorded.url}/calls").text)
    undo_ = press(client, recorded, number)
    redo = press(client, recorded, undo_)
    for page in ("/calls", "/"):
        shown = row_ids(client.get(recorded.url + page).text)
        at = shown.index(str(number))
        assert shown[at + 1 : at + 3] == [f"+{undo_}", f"+{redo}"]
        listed = [one for one in shown if "+" not in one]
        assert listed == before[: len(listed)]


def test_an_undo_of_many_is_listed_below_the_newest_of_them(
    recorded: Recorded, client: TestClient
) -> None:
    text = plan(client, recorded, f"verb=revert&target=session:{recorded.session}")
    done = carry_out(client, recorded, fields(text)).headers["location"].rsplit("/", 1)[1]
    taken = recorded.workspace.timeline.call(int(done)).call.reverts
    shown = row_ids(client.get(f"{recorded.url}/calls").text)
    assert shown[shown.index(str(max(taken))) + 1] == f"+{done}" and shown.count(f"+{done}") == 1


def test_an_undo_of_what_is_on_another_page_has_a_row_of_its_own(
    recorded: Recorded, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loom_audit.web.shared.listing.ROWS", 4)
    number = press(client, recorded, recorded.numbers["notes"])
    assert row_ids(client.get(f"{recorded.url}/calls").text)[0] == str(number)


def test_a_press_by_htmx_shows_the_undo_below_its_row(
    recorded: Recorded, client: TestClient
) -> None:
    number = str(recorded.numbers["notes"])
    form = {"verb": "revert", "target": number, "quick": "1", "row": number}
    answer = client.post(f"{recorded.url}/carry-out", data=form, headers=HX)
    done = recorded.workspace.timeline.calls()[0].seq
    assert row_ids(answer.text) == [number, f"+{done}"]
    form |= {"target": str(done), "row": str(done)}
    answer = client.post(f"{recorded.url}/carry-out", data=form, headers=HX)
    again = recorded.workspace.timeline.calls()[0].seq
    assert row_ids(answer.text) == [f"+{done}", f"+{again}"]
