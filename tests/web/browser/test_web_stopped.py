"""A server killed while it wrote a rollback: what Status says, and how it is ended there."""

from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from loom_audit.model.events import FilesChanged
from tests.processes.stopped import killed_after, roll_back
from tests.web.browser.following import follow
from tests.web.browser.test_web_browser import AXE, RUN_AXE, Watch
from tests.web.browser.test_web_browser import scripted as scripted
from tests.web.browser.test_web_browser import watch as watch
from tests.web.conftest import Recorded, in_thread

FILES = 6
WRITTEN = 2


def stop(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change some files in a call, and be killed while that is taken back."""
    monkeypatch.setenv("LOOM_AUDIT_HOME", str(recorded.store.home))

    def change() -> None:
        with recorded.workspace.session("changer") as session:
            session.run(["sh", "-c", "for n in 0 1 2 3 4 5; do echo new > made$n; done"])
            recorded.workspace.checkpoint("made")
            session.run(["sh", "-c", "for n in 0 1 2 3 4 5; do echo newer > made$n; done"])

    in_thread(change)
    killed_after(WRITTEN, recorded.root, roll_back("@made"))


def taken_back(root: Path) -> int:
    return sum((root / f"made{n}").read_text() == "new\n" for n in range(FILES))


def test_status_says_what_was_begun_and_accepts_nothing_meanwhile(
    recorded: Recorded, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop(recorded, monkeypatch)
    (recorded.root / "notes.txt").write_text("by a person\n")
    text = client.get(f"{recorded.url}/status").text
    assert "A rollback did not come to its end." in text
    assert "1 path differs" in text and f"{WRITTEN} paths are as it left them" in text
    assert text.index("notes.txt") < text.index("Changed by what was interrupted")
    assert "Accept" not in text and "as recorded" not in text
    head = recorded.workspace.log.head()
    for form in ({}, {"path": "notes.txt"}):
        answer = client.post(f"{recorded.url}/status", data=form)
        assert answer.status_code == 409 and "interrupted rollback" in answer.text
    later = [event.fact for event in recorded.workspace.log.read() if event.seq > head]
    assert not any(isinstance(fact, FilesChanged) for fact in later)
    assert client.post(f"{recorded.url}/recover", data={"mode": "x"}).status_code == 400
    assert client.get(f"{recorded.url}/recover").status_code in (404, 405)


@pytest.mark.few(1)
@pytest.mark.parametrize("mode", ["continue", "abandon"])
def test_it_is_finished_or_left_on_the_page(
    recorded: Recorded, client: TestClient, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    stop(recorded, monkeypatch)
    answer = client.post(f"{recorded.url}/recover", data={"mode": mode})
    assert answer.status_code == 303 and answer.headers["location"] == f"{recorded.url}/status"
    assert "as recorded" in client.get(f"{recorded.url}/status").text
    assert taken_back(recorded.root) == (FILES if mode == "continue" else WRITTEN)
    again = client.post(f"{recorded.url}/recover", data={"mode": mode})
    assert again.status_code == 303, "pressed twice"
    assert recorded.workspace.verify().ok


def test_what_a_person_wrote_there_stays_and_the_rest_is_finished(
    recorded: Recorded, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop(recorded, monkeypatch)
    (recorded.root / "made0").write_text("by a person\n")
    text = client.get(f"{recorded.url}/status").text
    assert "Kept as it is when that is finished (1)" in text
    why = "it was changed since the rollback stopped"
    assert why in text
    answer = client.post(f"{recorded.url}/recover", data={"mode": "continue"})
    assert answer.status_code == 303 and "/c/" in answer.headers["location"]
    text = client.get(answer.headers["location"]).text
    assert "Not all of it was done" in text and "made0" in text and why in text
    assert (recorded.root / "made0").read_text() == "by a person\n"
    assert taken_back(recorded.root) == FILES - 1
    assert "as recorded" in client.get(f"{recorded.url}/status").text


def test_where_all_was_changed_nothing_is_finished_and_the_page_says_so(
    recorded: Recorded, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop(recorded, monkeypatch)
    for n in range(FILES):
        (recorded.root / f"made{n}").write_text("by a person\n")
    answer = client.post(f"{recorded.url}/recover", data={"mode": "continue"})
    assert answer.status_code == 303
    assert "nothing was taken back" in client.get(answer.headers["location"]).text
    assert taken_back(recorded.root) == 0


@pytest.mark.few(1)
@pytest.mark.browser
def test_it_is_finished_by_a_press_in_a_browser(
    recorded: Recorded,
    watch: Watch,
    scripted: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stop(recorded, monkeypatch)
    (recorded.root / "notes.txt").write_text("by a person\n")
    watch.go(f"{recorded.url}/status")
    if scripted:
        watch.page.evaluate(AXE)
        assert watch.page.evaluate(RUN_AXE, {}) == []
    follow(watch.page.get_by_role("button", name="Finish it"))
    assert "did not come to its end" not in watch.page.content()
    assert watch.page.get_by_role("button", name="Accept all").is_visible()
    assert taken_back(recorded.root) == FILES
