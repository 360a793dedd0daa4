"""How many lines calls added and removed, beside their rows."""

import asyncio
import difflib
import re
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from playwright.sync_api import Browser, expect

from loom_audit.web.counts import Lines, count_lines
from tests.web.busy_store import Busy
from tests.web.conftest import Live, Recorded, in_thread


def run(recorded: Recorded, *calls: tuple[str, dict[str, Any]]) -> list[int]:
    """The requests of these calls."""
    with recorded.workspace.session("counted") as session:

        async def work() -> None:
            for tool, arguments in calls:
                assert (await session.call(tool, arguments)).success

        in_thread(lambda: asyncio.run(work()))
    return [call.requested for call in recorded.workspace.timeline.calls()[: len(calls)]][::-1]


def difference(old: str, new: str) -> tuple[int, int]:
    """What the standard library says, as a second opinion."""
    found = [*difflib.ndiff(old.splitlines(), new.splitlines())]
    return sum(line[0] == "+" for line in found), sum(line[0] == "-" for line in found)


def test_lines_are_those_of_the_net_change(recorded: Recorded) -> None:
    old = (recorded.root / "src/main.py").read_text()
    script = "sed -i 's/value/other/' src/main.py; sed -i '1,3d' src/main.py; echo x > new.txt"
    [edited, moved, binary, removed] = run(
        recorded,
        ("shell_execute", {"command": script}),
        ("move_file", {"from": "notes.txt", "to": "moved.txt"}),
        ("shell_execute", {"command": "printf 'a\\0b' > some.bin"}),
        ("delete_file", {"path": "moved.txt"}),
    )
    added, gone = difference(old, (recorded.root / "src/main.py").read_text())
    found = count_lines(recorded.workspace.timeline, [edited, moved, binary, removed])
    assert found == {edited: Lines(added + 1, gone, True), removed: Lines(0, 3, True)}


@pytest.mark.parametrize(
    ("limit", "value"), [("MOST_BYTES", 10), ("MOST_OF_ONE", 10), ("MOST_FILES", 0)]
)
def test_what_is_over_a_limit_is_not_counted_and_that_is_said(
    recorded: Recorded,
    client: TestClient,
    monkeypatch: pytest.MonkeyPatch,
    limit: str,
    value: int,
) -> None:
    monkeypatch.setattr(f"loom_audit.web.counts.{limit}", value)
    [one] = run(recorded, ("write_file", {"path": "w.txt", "content": "1\n" * 90}))
    assert count_lines(recorded.workspace.timeline, [one]) == {one: Lines(0, 0, False)}
    told = client.get(f"{recorded.url}/lines?of={one}").text
    assert "…" in told and "0" not in re.sub("<hx-partial[^>]*>", "", told)


def test_a_page_asks_for_the_counts_of_what_it_lists(
    recorded: Recorded, client: TestClient
) -> None:
    [one] = run(recorded, ("write_file", {"path": "w.txt", "content": "1\n" * 90}))
    page = client.get(f"{recorded.url}/calls").text
    where = re.search(r'data-hx-get="([^"]+/lines\?[^"]+)"', page)
    assert where is not None and f"of={one}" in where[1] and f'id="n{one}"' in page
    answer = client.get(where[1].replace("&amp;", "&"), headers={"hx-request": "true"})
    part = f'<hx-partial data-hx-target="#n{one}" data-hx-swap="innerHTML"><ins>+90</ins> <del>−0'
    assert part in answer.text
    listed = {int(n) for n in re.findall(r'id="n(\d+)"', page)}
    assert {int(n) for n in re.findall(r'"#n(\d+)"', answer.text)} <= listed


@pytest.mark.parametrize("query", ["of=x", "of=-1", "of=" + "9" * 50, "of=1&" * 300])
def test_what_is_not_a_list_of_calls_is_refused(
    standing: Recorded, reader: TestClient, query: str
) -> None:
    assert reader.get(f"{standing.url}/lines?{query}").status_code == 400


def test_calls_that_are_not_there_have_no_counts(standing: Recorded, reader: TestClient) -> None:
    answer = reader.get(f"{standing.url}/lines?of=99999999999")
    assert answer.status_code == 200 and "hx-partial" not in answer.text


def test_content_that_is_gone_is_not_counted(recorded: Recorded, tmp_path: Path) -> None:
    [one] = run(recorded, ("write_file", {"path": "w.txt", "content": "1\n" * 90}))

    def lost(state: object) -> bytes:
        from loom_audit.errors import Corrupt

        raise Corrupt("gone")

    class Lost:
        listed_changes = recorded.workspace.timeline.listed_changes
        content = staticmethod(lost)

    found = count_lines(Lost(), [one])  # type: ignore[arg-type]
    assert found == {one: Lines(0, 0, False)}


@pytest.mark.browser
def test_every_row_of_a_page_gets_its_counts(busy: Busy, busy_live: Live, browser: Browser) -> None:
    context = busy_live.visit(browser)
    page = context.new_page()
    page.goto(f"{busy_live.address}{busy.url}/calls")
    counted = [one for one in busy.done if one.ok and one.paths and one.tool == "write_file"]
    assert len(counted) > 20
    for one in counted[-20:]:
        cell = page.locator(f"#c{one.number} .f .stat")
        expect(cell).to_have_text(re.compile(r"^\+\d+ −\d+$"))
    expect(page.locator("tr[hidden]")).to_have_count(0)
    context.close()


@pytest.mark.browser
def test_a_first_page_fills_in_what_takes_longer(
    recorded: Recorded, live: Live, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loom_audit.web.overview.later.AT_ONCE", 1)
    monkeypatch.setattr("loom_audit.web.overview.memo.AT_ONCE", 0)
    run(recorded, ("write_file", {"path": "more.txt", "content": "1\n2\n"}))
    (recorded.root / "by-hand.txt").write_text("x")
    newest, oldest = recorded.workspace.timeline.sessions()
    context = live.visit(browser)
    page = context.new_page()
    problems: list[str] = []
    page.on("console", lambda message: problems.append(message.text))
    page.goto(f"{live.address}{recorded.url}/")
    expect(page.locator(f"#l{newest.started}")).to_have_text("+2 −0")
    expect(page.locator(f"#l{oldest.started} ins")).to_be_visible()
    expect(page.locator(".need", has_text="not as on record")).to_be_visible()
    expect(page.locator(".strip a", has_text="mode change")).to_have_text("1 mode change")
    expect(page.locator(".strip")).to_have_count(1)
    page.get_by_role("link", name="See what differs…").click()
    assert page.url.endswith("/status") and not problems
    context.close()
    context = live.visit(browser, java_script_enabled=False)
    page = context.new_page()
    monkeypatch.setattr("loom_audit.web.overview.memo.OverviewMemo.known_lines", lambda *_: {})
    page.goto(f"{live.address}{recorded.url}/")
    expect(page.locator(f"#l{newest.started} noscript")).to_be_visible()
    context.close()
