"""Taking back over HTTP: nothing happens before the plan is seen, and only what it showed."""

import html
import re
from contextlib import closing
from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient
from pysqlite3 import dbapi2 as sqlite3

from loom_audit.api.upkeep.drift import accept_drift
from loom_audit.web.shared.urls import quoted
from loom_audit.web.undo import CLEAN_FILES
from tests.web.conftest import Recorded

HX = {"hx-request": "true"}


def fields(text: str) -> dict[str, str]:
    """The hidden fields of the form that carries a plan out."""
    form = text[text.index('class="carry"') :]
    form = form[: form.index("</form>")]
    pairs = re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)">', form)
    return {html.unescape(name): html.unescape(value) for name, value in pairs}


def plan(client: TestClient, recorded: Any, query: str) -> str:
    answer = client.get(f"{recorded.url}/plan?{query}")
    assert answer.status_code == 200, answer.text
    return answer.text


def carry_out(client: TestClient, recorded: Any, form: dict[str, str]) -> Any:
    return client.post(f"{recorded.url}/carry-out", data=form)


def test_a_plan_that_was_seen_is_carried_out_and_leads_to_its_call(
    recorded: Recorded, client: TestClient
) -> None:
    text = plan(client, recorded, f"verb=revert&target={recorded.numbers['notes']}")
    assert "Will change" in text
    assert "Update the plan" not in text  # there is nothing to choose
    answer = carry_out(client, recorded, fields(text))
    assert answer.status_code == 303
    assert (recorded.root / "notes.txt").read_text() == "one\ntwo\nthree\n"
    page = client.get(answer.headers["location"])
    assert page.status_code == 200
    assert "Takes back" in page.text
    assert f"#{recorded.numbers['notes']}" in page.text
    newest = recorded.workspace.timeline.calls()[0]
    assert newest.actor.startswith("person:")
    assert newest.reverts == (recorded.numbers["notes"],)


def test_the_undone_call_is_marked_and_can_be_brought_back(
    recorded: Recorded, client: TestClient
) -> None:
    number = recorded.numbers["notes"]
    done = carry_out(client, recorded, {"verb": "revert", "target": str(number), "quick": "1"})
    undo = int(done.headers["location"].rsplit("/", 1)[1])
    assert (
        f'undone by <a class="num" href="{recorded.url}/c/{undo}"'
        in client.get(f"{recorded.url}/calls").text
    )
    again = carry_out(client, recorded, {"verb": "revert", "target": str(undo), "quick": "1"})
    assert again.status_code == 303
    assert (recorded.root / "notes.txt").read_text() == "one\nTWO\nthree\n"


def test_the_page_of_a_call_says_when_one_click_shows_the_plan_first(
    recorded: Recorded, client: TestClient
) -> None:
    text = client.get(f"{recorded.url}/c/{recorded.numbers['notes']}").text
    said = f"The plan is shown first when it changes more than {CLEAN_FILES} paths"
    assert said in text


def test_one_click_on_what_needs_a_decision_shows_the_plan(
    recorded: Recorded, client: TestClient
) -> None:
    head = recorded.workspace.log.head()
    form = {"verb": "revert", "target": str(recorded.numbers["first"]), "quick": "1"}
    answer = carry_out(client, recorded, form)
    assert answer.status_code == 303
    assert "/plan?" in answer.headers["location"]
    assert recorded.workspace.log.head() == head
    text = client.get(answer.headers["location"]).text
    assert "Needs a decision" in text
    assert f"#{recorded.numbers['later']}</a>" in text
    assert 'value="current"' in text
    assert not re.search(r'value="(current|old|merge)" checked', text), (
        "nothing is chosen for a person"
    )
    assert "disabled>Carry out" in text


def test_one_click_by_htmx_answers_with_the_row_or_sends_to_the_plan(
    recorded: Recorded, client: TestClient
) -> None:
    number = str(recorded.numbers["first"])
    form = {"verb": "revert", "target": number, "quick": "1", "row": number}
    answer = client.post(f"{recorded.url}/carry-out", data=form, headers=HX)
    assert "/plan?" in answer.headers["hx-redirect"]
    number = str(recorded.numbers["notes"])
    form = {"verb": "revert", "target": number, "quick": "1", "row": number}
    answer = client.post(f"{recorded.url}/carry-out", data=form, headers=HX)
    assert answer.status_code == 200
    assert answer.text.lstrip().startswith(f'<tr id="c{number}" class="undone"')
    assert "<hx-partial" in answer.text


def test_a_blocked_plan_is_not_carried_out_even_when_asked(
    recorded: Recorded, client: TestClient
) -> None:
    text = plan(client, recorded, f"verb=revert&target={recorded.numbers['first']}")
    before = (recorded.root / "src/main.py").read_bytes()
    answer = carry_out(client, recorded, fields(text))
    assert answer.status_code == 409
    assert (recorded.root / "src/main.py").read_bytes() == before


def test_a_refusal_of_one_press_is_a_piece_of_the_page_and_links_what_stands_in_the_way(
    recorded: Recorded, client: TestClient
) -> None:
    other = recorded.workspace.start_foreign_session("other")
    begun = other.begin_call("1", "Bash", {"command": "make"})
    number = str(recorded.numbers["notes"])
    form = {"verb": "revert", "target": number, "quick": "1", "row": number}
    answer = client.post(f"{recorded.url}/carry-out", data=form, headers=HX)
    assert answer.status_code == 409 and "<main" not in answer.text and "<h1" not in answer.text
    assert 'role="alert"' in answer.text and "/plan?verb=revert" in answer.text
    assert f'href="{recorded.url}/c/{begun.seq}"' in answer.text
    shown = client.post(f"{recorded.url}/carry-out", data=form)
    assert shown.status_code == 409 and shown.text.count("<main") == 1
    assert f'href="{recorded.url}/c/{begun.seq}"' in shown.text
    assert (recorded.root / "notes.txt").read_text() == "one\nTWO\nthree\n"


def test_each_choice_for_a_conflict_does_what_it_says(
    recorded: Recorded, client: TestClient
) -> None:
    query = f"verb=revert&target={recorded.numbers['first']}&choice:src/main.py="
    current = plan(client, recorded, query + "current")
    assert "Needs a decision" not in current
    merged = plan(client, recorded, query + "merge")
    assert "&lt;&lt;&lt;&lt;&lt;&lt;&lt;" in merged
    taken = plan(client, recorded, query + "old")
    answer = carry_out(client, recorded, fields(taken))
    assert answer.status_code == 303
    assert "return value + 7\n" in (recorded.root / "src/main.py").read_text()


def test_a_plan_that_no_longer_holds_is_shown_anew_and_nothing_is_changed(
    recorded: Recorded, client: TestClient
) -> None:
    text = plan(client, recorded, f"verb=rollback&target={recorded.numbers['read']}")
    recorded.call("more", "write_file", {"path": "more.txt", "content": "more\n"})
    answer = carry_out(client, recorded, fields(text))
    assert answer.status_code == 409
    assert "moved on" in answer.text
    assert "more.txt" in answer.text
    assert (recorded.root / "more.txt").read_text() == "more\n"
    assert (recorded.root / "notes.txt").read_text() == "one\nTWO\nthree\n"
    again = carry_out(client, recorded, fields(answer.text))
    assert again.status_code == 303
    assert not (recorded.root / "more.txt").exists()


def test_an_edit_from_outside_since_the_plan_stops_it(
    recorded: Recorded, client: TestClient
) -> None:
    text = plan(client, recorded, f"verb=revert&target={recorded.numbers['notes']}")
    (recorded.root / "notes.txt").write_text("somebody else\n")
    answer = carry_out(client, recorded, fields(text))
    assert answer.status_code == 409
    assert (recorded.root / "notes.txt").read_text() == "somebody else\n"


def test_a_call_elsewhere_does_not_make_a_person_decide_again(
    recorded: Recorded, client: TestClient
) -> None:
    text = plan(client, recorded, f"verb=revert&target={recorded.numbers['notes']}")
    recorded.call("look", "read_file", {"path": "notes.txt"})
    assert carry_out(client, recorded, fields(text)).status_code == 303


def test_what_came_from_outside_elsewhere_does_not_make_a_person_decide_again(
    recorded: Recorded, client: TestClient
) -> None:
    text = plan(client, recorded, f"verb=rollback&target={recorded.numbers['read']}")
    (recorded.root / "mine.txt").write_text("written while the plan was read\n")
    accept_drift(recorded.workspace)
    assert carry_out(client, recorded, fields(text)).status_code == 303
    assert (recorded.root / "mine.txt").read_text() == "written while the plan was read\n"
    assert (recorded.root / "notes.txt").read_text() == "one\ntwo\nthree\n"


def test_what_came_from_outside_at_a_path_that_the_plan_changes_stops_it(
    recorded: Recorded, client: TestClient
) -> None:
    text = plan(client, recorded, f"verb=rollback&target={recorded.numbers['read']}")
    (recorded.root / "notes.txt").write_text("written while the plan was read\n")
    accept_drift(recorded.workspace)
    answer = carry_out(client, recorded, fields(text))
    assert answer.status_code == 409 and "moved on" in answer.text
    assert (recorded.root / "notes.txt").read_text() == "written while the plan was read\n"


def test_what_came_from_outside_at_a_path_that_the_plan_keeps_is_kept(
    recorded: Recorded, client: TestClient
) -> None:
    (recorded.root / "mine.txt").write_text("before\n")
    accept_drift(recorded.workspace)
    text = plan(client, recorded, f"verb=rollback&target={recorded.numbers['read']}")
    (recorded.root / "mine.txt").write_text("written while the plan was read\n")
    accept_drift(recorded.workspace)
    assert carry_out(client, recorded, fields(text)).status_code == 303
    assert (recorded.root / "mine.txt").read_text() == "written while the plan was read\n"


def test_a_forged_plan_is_refused(recorded: Recorded, client: TestClient) -> None:
    form = fields(plan(client, recorded, f"verb=revert&target={recorded.numbers['notes']}"))
    for changed in ({"plan": "0" * 64}, {"plan": ""}, {"target": str(recorded.numbers["big"])}):
        answer = carry_out(client, recorded, {**form, **changed})
        assert answer.status_code == 409
    assert (recorded.root / "big.txt").exists()
    assert (recorded.root / "notes.txt").read_text() == "one\nTWO\nthree\n"


def test_rollback_brings_everything_back_and_is_itself_undoable(
    recorded: Recorded, client: TestClient
) -> None:
    text = plan(client, recorded, f"verb=rollback&target={recorded.numbers['read']}")
    answer = carry_out(client, recorded, fields(text))
    assert answer.status_code == 303
    assert (recorded.root / "build/out.o").exists()
    assert not (recorded.root / "docs").exists()
    undo = answer.headers["location"].rsplit("/", 1)[1]
    text = plan(client, recorded, f"verb=revert&target={undo}")
    assert carry_out(client, recorded, fields(text)).status_code == 303
    assert not (recorded.root / "build").exists()
    assert (recorded.root / "docs").exists()


def test_rollback_of_one_path_leaves_the_others(recorded: Recorded, client: TestClient) -> None:
    query = f"verb=rollback&target={recorded.numbers['read']}&path={quoted('notes.txt')}"
    text = plan(client, recorded, query)
    assert carry_out(client, recorded, fields(text)).status_code == 303
    assert (recorded.root / "notes.txt").read_text() == "one\ntwo\nthree\n"
    assert (recorded.root / "big.txt").exists()


def test_what_came_from_outside_is_kept_unless_chosen(
    recorded: Recorded, client: TestClient
) -> None:
    (recorded.root / "notes.txt").write_text("mine\n")
    recorded.call("shell2", "shell_execute", {"command": "true"})
    query = f"verb=rollback&target={recorded.numbers['shell']}"
    kept = plan(client, recorded, query)
    assert "Kept as it is" in kept
    chosen = plan(client, recorded, query + "&choice:notes.txt=old")
    answer = carry_out(client, recorded, fields(chosen))
    assert answer.status_code == 303
    assert (recorded.root / "notes.txt").read_text() == "one\nTWO\nthree\n"


def test_what_is_merged_is_not_shown_as_kept(recorded: Recorded, client: TestClient) -> None:
    edit = {"path": "notes.txt", "old_str": "three", "new_str": "three\nfour"}
    recorded.call("later", "edit_file", edit)
    text = plan(client, recorded, f"verb=revert&target={recorded.numbers['notes']}")
    assert "<h2>Merged</h2>" in text and "Kept as it is" not in text
    assert 'value="merge" checked' in text and 'value="current" checked' not in text
    assert carry_out(client, recorded, fields(text)).status_code == 303
    assert (recorded.root / "notes.txt").read_text() == "one\ntwo\nthree\nfour\n"


def test_an_undo_that_keeps_everything_goes_on_record_and_to_the_call_before(
    recorded: Recorded, client: TestClient
) -> None:
    number = recorded.call("made", "write_file", {"path": "kept.txt", "content": "1"})
    text = plan(client, recorded, "verb=undo&choice:kept.txt=current")
    assert "No file changes" in text
    assert carry_out(client, recorded, fields(text)).status_code == 303
    assert recorded.workspace.timeline.calls()[0].reverts == (number,)
    assert (recorded.root / "kept.txt").exists()
    assert number not in recorded.workspace.plan_undo().calls


def test_a_whole_session_is_taken_back(recorded: Recorded, client: TestClient) -> None:
    text = plan(client, recorded, f"verb=revert&target=session:{recorded.session}")
    answer = carry_out(client, recorded, fields(text))
    assert answer.status_code == 303
    assert (recorded.root / "notes.txt").read_text() == "one\ntwo\nthree\n"
    assert not (recorded.root / "huge.txt").exists()


def test_undo_and_redo_walk_one_session(recorded: Recorded, client: TestClient) -> None:
    answer = carry_out(client, recorded, fields(plan(client, recorded, "verb=undo")))
    assert answer.status_code == 303
    assert not (recorded.root / "copy").exists()
    answer = carry_out(client, recorded, fields(plan(client, recorded, "verb=redo")))
    assert answer.status_code == 303
    assert (recorded.root / "copy").exists()


def test_showing_plans_records_nothing(recorded: Recorded, client: TestClient) -> None:
    head = recorded.workspace.log.head()
    for number in recorded.numbers.values():
        client.get(f"{recorded.url}/plan?verb=revert&target={number}")
        client.get(f"{recorded.url}/plan?verb=rollback&target={number}")
    assert recorded.workspace.log.head() == head


def every_byte(folder: Any) -> dict[str, bytes]:
    """What the store holds: its files as they are, and all that is in its database."""
    blobs = (path for path in (folder / "blobs").rglob("*") if path.is_file())
    found = {str(path): path.read_bytes() for path in blobs}
    with closing(sqlite3.connect(folder / "audit.db")) as database:
        tables = ("event", "payload", "blob", "tree_node", "call", "file_change", "tree_entry")
        for table in tables:
            rows = database.execute(f"SELECT * FROM {table} ORDER BY 1, 2, 3").fetchall()
            found[table] = repr(rows).encode()
    return found


def test_a_page_of_a_plan_writes_nothing(recorded: Recorded, client: TestClient) -> None:
    """Also of what is on disk only, and too large to be kept in the database."""
    (recorded.root / "notes.txt").write_bytes(bytes(range(256)) * 4_000)
    (recorded.root / "mine.txt").write_text("by hand\n")
    home = Path(recorded.store.adapters.settings.home)
    before = every_byte(home)
    number = recorded.numbers["notes"]
    for query in (f"verb=revert&target={number}", "verb=undo", f"verb=rollback&target={number}"):
        text = plan(client, recorded, query)
        assert "Provisional" in text or "verb=rollback" not in query
    recorded.workspace.attachment.stored.log.append([])
    assert every_byte(home) == before


def test_a_plan_with_what_is_on_disk_only_is_carried_out_at_the_first_press(
    recorded: Recorded, client: TestClient
) -> None:
    (recorded.root / "mine.txt").write_text("by hand\n")
    point = recorded.numbers["notes"] - 1
    text = plan(client, recorded, f"verb=rollback&target={point}")
    assert "Provisional" in text
    answer = carry_out(client, recorded, fields(text))
    assert answer.status_code == 303, answer.text
    assert (recorded.root / "mine.txt").read_text() == "by hand\n"
