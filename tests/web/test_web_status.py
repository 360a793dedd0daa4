"""What differs now: its difference, taking it back, putting it on record."""

import os
import re

import pytest
from fastapi.testclient import TestClient

from loom_audit.api.upkeep.drift import accept_drift
from loom_audit.web.shared.urls import quoted
from tests.integrity.test_cut_off import cut_off
from tests.integrity.test_verified_reads import forge
from tests.web.conftest import Recorded
from tests.web.web_pages import STRANGE


def differing(recorded: Recorded) -> set[str]:
    return {change.path for change in recorded.workspace.status().drift}


def links(client: TestClient, recorded: Recorded, path: str) -> dict[str, str]:
    """Where the plan that takes a drift back is."""
    text = client.get(f"{recorded.url}/status").text
    found = re.findall(r'href="([^"]+/plan\?[^"]+path\.q=([^"&]+))"', text)
    return {name.replace("%25", "%"): where.replace("&amp;", "&") for where, name in found}


def carry_out(client: TestClient, url: str, page: str) -> None:
    """Press what the plan offers."""
    form = re.search(r'<form method="post" class="carry".*?</form>', page, re.S)
    assert form is not None and "disabled" not in form[0], page
    fields = re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', form[0])
    answer = client.post(f"{url}/carry-out", data=dict(fields))
    assert answer.status_code == 303, answer.text


def test_the_difference_between_record_and_disk_is_shown(
    recorded: Recorded, client: TestClient
) -> None:
    (recorded.root / "notes.txt").write_text("one\nby hand <b>\nthree\n")
    text = client.get(f"{recorded.url}/status").text
    assert "1 path differs" in text
    assert "by hand &lt;b&gt;" in text.replace("<ins>", "").replace("</ins>", "")
    assert '<tr class="add">' in text and '<tr class="remove">' in text


def test_one_drift_is_taken_back_and_the_other_stays(
    recorded: Recorded, client: TestClient
) -> None:
    old = (recorded.root / "notes.txt").read_bytes()
    (recorded.root / "notes.txt").write_text("by hand\n")
    (recorded.root / "big.txt").write_text("by hand, too\n")
    (recorded.root / STRANGE).write_bytes(b"by hand")
    plans = links(client, recorded, "notes.txt")
    assert {"notes.txt", "big.txt", quoted(STRANGE, safe="/")} <= plans.keys()
    carry_out(client, recorded.url, client.get(plans["notes.txt"]).text)
    assert (recorded.root / "notes.txt").read_bytes() == old
    assert (recorded.root / "big.txt").read_text() == "by hand, too\n"
    assert (recorded.root / STRANGE).read_bytes() == b"by hand"
    # what was put on record with it is still to be taken back from here
    text = client.get(f"{recorded.url}/status").text
    assert "as recorded" in text and "big.txt" in text
    assert 'Take back…<span class="hidden"> #' in text


def test_one_drift_is_accepted_and_the_other_still_differs(
    recorded: Recorded, client: TestClient
) -> None:
    for name in ("notes.txt", "big.txt", STRANGE):
        (recorded.root / name).write_text("by hand\n")
    answer = client.post(f"{recorded.url}/status", data={"path.q": quoted(STRANGE, safe="/")})
    assert answer.status_code == 303 and answer.headers["location"] == f"{recorded.url}/status"
    assert differing(recorded) == {"notes.txt", "big.txt"}
    [newest, *_] = recorded.workspace.timeline.outside()
    assert newest.paths == (STRANGE,)
    client.post(f"{recorded.url}/status")
    assert differing(recorded) == set()
    assert (recorded.root / "notes.txt").read_text() == "by hand\n"
    assert recorded.workspace.verify().findings == ()


def test_with_a_path_what_it_needs_is_recorded_and_nothing_else(recorded: Recorded) -> None:
    root = recorded.root
    (root / "new" / "deep").mkdir(parents=True)
    for name in ("new/deep/a", "new/deep/b", "new/c"):
        (root / name).write_text(name)
    (root / "linked").write_text("x")
    os.link(root / "linked", root / "other")
    assert accept_drift(recorded.workspace, ["new/deep/a"]) == 3
    assert differing(recorded) == {"new/deep/b", "new/c", "linked", "other"}
    assert accept_drift(recorded.workspace, ["other"]) == 2
    assert accept_drift(recorded.workspace, ["new"]) == 2
    assert differing(recorded) == set()
    assert accept_drift(recorded.workspace, ["nothing"]) == accept_drift(recorded.workspace) == 0
    tree = recorded.workspace.timeline.tree()
    assert tree["linked"].group == tree["other"].group is not None
    assert recorded.workspace.verify().findings == ()


def test_a_folder_that_is_gone_is_accepted_in_part(recorded: Recorded) -> None:
    (recorded.root / "copy/main.py").unlink()
    (recorded.root / "copy").rmdir()
    assert accept_drift(recorded.workspace, ["copy/main.py"]) == 1
    assert differing(recorded) == {"copy"}
    assert accept_drift(recorded.workspace, ["copy"]) == 1
    assert differing(recorded) == set()


def test_what_changes_while_it_is_looked_at_is_said_to(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch, client: TestClient
) -> None:
    file = recorded.root / "notes.txt"
    file.write_text("first\n")
    read = type(recorded.workspace.attachment.on_disk.workspace).read

    def later(self: object, path: str, limit: int | None = None) -> bytes:
        if path == "notes.txt":
            file.write_text("other\n")
        return read(self, path, limit)  # type: ignore[arg-type]

    monkeypatch.setattr(type(recorded.workspace.attachment.on_disk.workspace), "read", later)
    text = client.get(f"{recorded.url}/status").text
    assert "notes.txt has changed since it was looked at" in text


def test_a_press_of_another_site_accepts_nothing(recorded: Recorded, client: TestClient) -> None:
    (recorded.root / "notes.txt").write_text("by hand\n")
    answer = client.post(f"{recorded.url}/status", headers={"sec-fetch-site": "cross-site"})
    assert answer.status_code == 403
    assert differing(recorded) == {"notes.txt"}


def test_every_page_says_first_that_the_end_of_the_log_is_gone(
    recorded: Recorded, client: TestClient
) -> None:
    pages = ("/", *(f"{recorded.url}/{page}" for page in ("", "calls", "needs", "proof")))
    for page in pages:
        assert "its end is gone" not in client.get(page).text
    cut_off(recorded.workspace, 1)
    for page in pages:
        answer = client.get(page)
        main = answer.text.partition("<main")[2]
        assert answer.status_code == 200
        assert main.count("Nothing is recorded") == main.count("its end is gone") == 1, page
        assert main.index("its end is gone") < main.index("<h1>") or page == "/"
    for page in ("status", "at/head/", "plan?verb=undo"):
        answer = client.get(f"{recorded.url}/{page}")
        assert answer.status_code == 500 and "its end is gone" in answer.text, page
    assert "its end is gone" in client.post(f"{recorded.url}/proof").text


def test_the_status_says_first_that_the_tables_are_not_what_the_log_makes(
    recorded: Recorded, client: TestClient
) -> None:
    assert "Nothing is recorded" not in client.get(f"{recorded.url}/status").text
    forge(recorded.workspace, "UPDATE tree_entry SET mode = mode - 4")
    answer = client.get(f"{recorded.url}/status")
    main = answer.text.partition("<main")[2]
    assert "the tables have another tree than the log makes" in main
    assert main.index("Nothing is recorded") < main.index("on disk")
