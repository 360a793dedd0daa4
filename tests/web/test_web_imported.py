"""Pages of a log that was imported: it is looked at like any other, and nothing is taken back."""

import re
from collections import Counter
from pathlib import Path

import pytest

from loom_audit import AuditStore, open_store
from loom_audit.api.agents.importing import import_file
from loom_audit.model.text.display import duration_text
from tests.web.conftest import asking

CLAUDE = Path(__file__).parent.parent / "data" / "clients" / "claude-code" / "session.jsonl"


OF_ONE_SHAPE = 6
"""So many pages are asked for whose addresses differ in numbers only."""


def pages_of(store: AuditStore, first: str) -> dict[str, int]:
    """The status of the pages that can be reached by links below an address."""
    found: dict[str, int] = {}
    shapes = Counter[str]()
    wanted = [first]
    with asking(store) as client:
        while wanted:
            page = wanted.pop()
            shape = re.sub(r"\d+", "N", page)
            if page in found or shapes[shape] == OF_ONE_SHAPE:
                continue
            shapes[shape] += 1
            answer = client.get(page)
            found[page] = answer.status_code
            links = re.findall(r'href="(/w/[^"#]+)', answer.text)
            wanted += [link.replace("&amp;", "&") for link in links if link.startswith(first)]
    return found


@pytest.mark.few(0)
def test_every_page_of_an_imported_log_is_there() -> None:
    with open_store() as store:
        done = import_file(store, CLAUDE)
        found = pages_of(store, f"/w/{done.workspace}/")
        assert len(found) > 30
        # what would change files, or look at them, says that there are none; so does the page of
        # a file at a point at which it was not there, and of a point before the first listing
        missing = {page for page, code in found.items() if code == 404}
        known = re.compile(r"/(plan\?|at/|compare/[01]\.\.)")
        assert not [page for page in missing if not known.search(page)]
        assert set(found.values()) <= {200, 303, 404}
        assert f"/w/{done.workspace}/" in found and found[f"/w/{done.workspace}/"] == 200
        with asking(store) as client:
            front = client.get("/").text
            assert "import:/home/dev/projects/claude" in front


def test_every_list_shows_when_it_was_by_the_clients_clock_beside_the_time_of_the_import() -> None:
    with open_store() as store:
        done = import_file(store, CLAUDE)
        workspace = store.workspace(done.workspace)
        call = next(one for one in workspace.timeline.calls() if one.changed)
        told = workspace.timeline.told_at(call.requested)
        assert told is not None and told != call.at
        session = workspace.timeline.session(call.session)
        path = call.paths[0]
        base = f"/w/{done.workspace}"
        shown = {
            f"{base}/": workspace.timeline.told_at(session.started),
            f"{base}/calls": told,
            f"{base}/s/{call.session}": workspace.timeline.told_at(session.started),
            f"{base}/s/{call.session}/calls": told,
            f"{base}/s/{call.session}/steps": told,
            f"{base}/c/{call.seq}": told,
            f"{base}/history/{path}": told,
        }
        with asking(store) as client:
            for page, at in shown.items():
                text = client.get(page).text
                assert at is not None and f"told {at:%Y-%m-%d %H:%M}" in text, page
                assert f"{call.at:%m-%d}" in text, f"{page}: the time of the import too"


def test_how_long_an_imported_session_took_is_said_by_its_client_s_clock_or_not_at_all() -> None:
    with open_store() as store:
        workspace = store.workspace(import_file(store, CLAUDE).workspace)
        [session] = workspace.timeline.sessions()
        told = workspace.timeline.told_at
        assert session.ended is not None and session.ended_at is not None
        began, ended = told(session.started), told(session.ended)
        assert began is not None and began != session.started_at
        with asking(store) as client:
            page = client.get(f"/w/{workspace.id}/s/{session.id}").text
        [span] = re.findall(r'<p class="faint"><time.*?calls?', page, re.DOTALL)
        took = [] if ended is None else [duration_text(int((ended - began).total_seconds() * 1e6))]
        assert re.findall(r"UTC, (.*?) ·", span) == took
