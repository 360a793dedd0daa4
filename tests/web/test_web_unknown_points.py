"""Pages of points at which nobody knows what was there."""

from fastapi.testclient import TestClient

from loom_audit.model.actors import OUTSIDE
from loom_audit.model.events import Draft, FilesChanged, PathsUntracked, Untracked
from loom_audit.model.files import FileChange, FileState
from tests.web.conftest import Recorded


def test_a_folder_before_the_first_listing_is_unknown(
    standing: Recorded, reader: TestClient
) -> None:
    listed = standing.workspace.timeline.first_listing()
    page = reader.get(f"{standing.url}/at/1/").text
    assert f"unknown: nothing was on record before event {listed}" in page
    assert "was empty" not in page and "An empty folder" not in page
    assert "unknown" not in reader.get(f"{standing.url}/at/{listed}/").text


def test_a_file_before_the_first_listing_is_unknown(standing: Recorded, reader: TestClient) -> None:
    listed = standing.workspace.timeline.first_listing()
    path = next(path for path, state in standing.workspace.timeline.tree().items() if state.blob)
    answer = reader.get(f"{standing.url}/at/1/{path}")
    assert answer.status_code == 404
    assert "It is unknown whether" in answer.text
    assert f"nothing was on record before event {listed}" in answer.text
    assert "was not in the workspace" not in answer.text


def test_nothing_is_compared_with_a_point_before_the_first_listing(
    standing: Recorded, reader: TestClient
) -> None:
    answer = reader.get(f"{standing.url}/compare/1..head")
    assert answer.status_code == 404 and "nothing was on record before" in answer.text


def test_a_left_out_folder_is_unknown_before_it_was_first_listed(
    recorded: Recorded, client: TestClient
) -> None:
    log = recorded.workspace.log
    before = log.head()
    late = FileChange("late", None, FileState("opaque", None, 0, 0))
    log.append([Draft(FilesChanged((late,), "baseline"), "", OUTSIDE)])
    page = client.get(f"{recorded.url}/at/{before}/").text
    assert "Unknown whether it was here at this point: <code>late</code>" in page
    own = client.get(f"{recorded.url}/at/{before}/late").text
    assert "It is unknown whether late was in the workspace" in own
    now = client.get(f"{recorded.url}/at/head/").text
    assert "Unknown whether" not in now and ">late<" in now


def test_pages_say_of_what_could_not_be_read_that_it_is_not_known(
    recorded: Recorded, client: TestClient
) -> None:
    log, timeline = recorded.workspace.log, recorded.workspace.timeline
    path = next(path for path, state in timeline.tree().items() if state.blob and "/" in path)
    folder, before = path.rpartition("/")[0], log.head()
    log.append([Draft(PathsUntracked((Untracked(path, "<b>unreadable"),)), "", OUTSIDE)])
    during = log.head()
    change = FileChange(path, None, timeline.state(path, before))
    log.append([Draft(FilesChanged((change,), "baseline"), "", OUTSIDE)])
    named = f"<code>{path}</code> &lt;b&gt;unreadable"
    for page in (f"at/{during}/", f"at/{during}/{folder}", f"compare/{before}..{during}"):
        text = client.get(f"{recorded.url}/{page}").text
        assert "not known what was there:" in text and named in text, page
    text = client.get(f"{recorded.url}/compare/{during}..head").text
    assert named in text and "Every path that is known" in text
    for page in (f"at/{before}/", "at/head/", f"compare/{before}..head"):
        assert "not known" not in client.get(f"{recorded.url}/{page}").text
    raw = client.get(f"{recorded.url}/raw/{during}/{path}")
    assert raw.status_code == 404 and "not known what was at" in raw.text
