"""What the dashboard shows of a workspace that is forgotten."""

from pathlib import Path

from loom_audit import open_store
from loom_audit.api.agents.importing import import_file
from loom_audit.api.upkeep.forgetting import forget_workspace
from tests.web.conftest import asking

CLAUDE = Path(__file__).parent.parent / "data" / "clients" / "claude-code" / "session.jsonl"


def test_the_first_page_lists_it_and_nothing_of_it_is_served() -> None:
    with open_store() as store:
        done = import_file(store, CLAUDE)
        with asking(store) as client:
            calls = client.get(f"/w/{done.workspace}/calls").text
            forget_workspace(store, done.workspace, reason="<b>why</b>")
            front = client.get("/")
            assert (front.status_code, "&lt;b&gt;why" in front.text) == (200, True)
            assert f"Log {done.workspace}" in front.text and "not finished" not in front.text
            assert f'href="/w/{done.workspace}' not in front.text
            for page in ("", "calls", "at/head/"):
                answer = client.get(f"/w/{done.workspace}/{page}")
                assert answer.status_code == 404 and "forgotten ones too" in answer.text
                assert answer.text != calls
