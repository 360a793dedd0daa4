"""Pages of points at which nobody knows what was there."""

from fastapi.testclient import TestClient

from loom_audit.history.attribution import OUTSIDE
from loom_audit.model.events import Draft, FilesChanged
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
