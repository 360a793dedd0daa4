"""The first page of a workspace: what needs a person, the week, the sessions; and the queue."""

import asyncio
import html
import re
from collections import Counter
from functools import partial
from typing import Any

import pytest
from fastapi.testclient import TestClient

from loom_audit.api.agents.connect import Change, record_as_it_is, record_written
from loom_audit.api.agents.said import tell_message, tell_prompt
from loom_audit.api.control.holding import hold
from loom_audit.api.review.marks import read_up_to
from loom_audit.model.coverage import Coverage
from loom_audit.model.events import CallRequested, CoverageLowered, Draft
from loom_audit.tools.calls.gate import Decision
from tests.web.conftest import Recorded, asking, in_thread
from tests.web.web_pages import HOSTILE


def strip(page: str) -> dict[str, str]:
    """The numbers of the last week by what they count, with where each leads."""
    found = re.search(r'<ul class="strip".*?</ul>', page, re.S)
    links = re.findall(r'href="([^"]+)"><b>([^<]+)</b> ([^<]+)<', found[0] if found else "")
    return {f"{count} {what}": html.unescape(link) for link, count, what in links}


class Person:
    async def decide(self, tool: Any, args: Any, ctx: Any, *, asked: str = "") -> Decision:
        return Decision("allowed" if args.path == "yes.txt" else "denied", "person:ada", "asked")


def test_what_connect_wrote_is_named_as_such_and_not_counted_as_from_outside(
    recorded: Recorded, client: TestClient
) -> None:
    before, head = strip(client.get(f"{recorded.url}/").text), recorded.workspace.log.head()
    settings = recorded.root / "settings.local.json"
    settings.write_text("{}")
    record_written(recorded.workspace, Change("claude-code", settings, None, b"{}"))
    [listed] = recorded.workspace.timeline.outside(after=head)
    assert strip(client.get(f"{recorded.url}/").text) == before
    fresh = client.get(f"{recorded.url}/fresh?since={head}").text
    assert "1 new change by loom-audit connect" in fresh and "from outside" not in fresh
    badges = []
    for page in ("calls", "history/settings.local.json"):
        found = client.get(f"{recorded.url}/{page}").text
        row = re.search(r"<tr[^>]*>(?:(?!</tr>).)*settings\.local\.json.*?</tr>", found, re.S)
        badges += re.findall(r'<span class="badge[^"]*"[^>]*>(\w+)</span>', row[0] if row else "")
    assert badges == ["connect", "connect"]
    lately = client.get(f"{recorded.url}/status").text.partition("Last put on record")[2]
    assert "settings.local.json" not in lately and f">#{listed.seq}<" not in lately


def test_a_session_with_many_subagents_is_one_row(recorded: Recorded, client: TestClient) -> None:
    workspace = recorded.workspace
    with workspace.session("lead", title="Split it") as lead:
        for n in range(20):
            with workspace.session(f"part{n}", parent=lead.id) as part:
                write = part.call("write_file", {"path": f"part/{n}.txt", "content": "one\n"})
                in_thread(partial(asyncio.run, write))
    page = client.get(f"{recorded.url}/").text
    rows = re.findall(r"<li>\s*<p class=\"line\">.*?</li>", page, re.S)
    [row] = [one for one in rows if f"/s/{lead.id}" in one]
    assert "0 calls, with" in row and ">20 subagents</a>" in row and "Take back" in row
    assert not [one for one in rows if "part1" in one]
    started = workspace.timeline.session(lead.id).started
    assert "+20" in client.get(f"{recorded.url}/session-lines?of={started}").text


def test_the_week_in_numbers_each_a_link_to_what_it_counts(
    recorded: Recorded, client: TestClient
) -> None:
    before = strip(client.get(f"{recorded.url}/").text)
    assert not [one for one in before if "full" in one or "person" in one]
    assert "1 change from outside" in before
    (recorded.root / "by-hand.txt").write_text("x")
    record_as_it_is(recorded.workspace)

    async def write(session: Any) -> None:
        for path in ("yes.txt", "no.txt"):
            await session.call("write_file", {"path": path, "content": "x"})

    with recorded.workspace.session("asker", gate=Person()) as session:
        in_thread(lambda: asyncio.run(write(session)))
    number = recorded.numbers["notes"]
    lowered = CoverageLowered((number,), Coverage("partial", ("looked at late",)))
    recorded.workspace.log.append([Draft(lowered, "", "outside")])
    found = strip(client.get(f"{recorded.url}/").text)
    assert {"1 of them denied", "1 allowed by a person"} <= set(found)
    assert "2 changes from outside" in found and "1 not fully covered" in found
    rows = {
        what: re.findall(r'<tr id="([co]\d+)"', client.get(link).text)
        for what, link in found.items()
    }
    for what, listed in rows.items():
        assert len(listed) == int(what.split()[0]), what
    assert rows["1 not fully covered"] == [f"c{number}"]
    assert rows["2 changes from outside"][0].startswith("o")


@pytest.mark.few(0)
def test_the_week_is_the_sum_of_its_sessions_and_of_what_came_between_them(
    recorded: Recorded, client: TestClient
) -> None:
    workspace, root = recorded.workspace, recorded.root

    class Fickle:
        async def decide(self, tool: Any, args: Any, ctx: Any, *, asked: str = "") -> Decision:
            who = "person:ada" if "x" in args.command else "gate"
            return Decision("denied" if "rm" in args.command else "allowed", who, "asked")

    async def run(session: Any, n: int) -> None:
        many = " ".join(f"m{n}-{one}" for one in range(10))
        for command in (
            f"echo x > x{n}",
            "rm notes.txt",
            "rm x0",
            "echo y",
            f"exit {n + 1}",
            f"touch {many} && chmod 600 m{n}-1",
            f"chmod 640 m{n}-1; curl --version",
            f"find . -name 'm{n}-*' -delete",
        ):
            await session.call("shell_execute", {"command": command})

    for n in range(3):
        with workspace.session(f"agent-{n}", gate=Fickle()) as session:
            in_thread(partial(asyncio.run, run(session, n)))
            (root / f"by-hand-{n}.txt").write_text("x")
            record_as_it_is(workspace)
        lowered = CoverageLowered(
            (workspace.timeline.calls()[0].seq or 0,), Coverage("partial", ("late",))
        )
        workspace.log.append([Draft(lowered, "", "outside")])
    (root / "between.txt").write_text("x")
    record_as_it_is(workspace)
    week, sessions = Counter[str](), Counter[str]({"change from outside": 1})
    for what in strip(client.get(f"{recorded.url}/").text):
        week.update(counted(what))
    for one in workspace.timeline.sessions():
        page = client.get(f"{recorded.url}/s/{one.id}").text
        for what in strip(page):
            sessions.update(counted(what))
    assert {"failed", "of them denied", "allowed by a person", "not fully covered"} <= {*week}
    assert {"mass deletion", "mode change", "name a network program"} <= {*week}
    assert week == sessions
    assert week["of them denied"] == 6 and week["allowed by a person"] == 6


def test_what_takes_long_to_count_is_asked_for_once_the_page_is_shown(
    recorded: Recorded, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loom_audit.web.overview.memo.AT_ONCE", 0)
    page = client.get(f"{recorded.url}/").text
    assert not [what for what in strip(page) if "mode change" in what]
    assert f'data-hx-get="{recorded.url}/lately"' in page and "?count=1" in page
    later = client.get(f"{recorded.url}/lately", headers={"hx-request": "true"}).text
    assert "1 mode change" in strip(later) and "/lately" not in later
    assert strip(client.get(f"{recorded.url}/").text) == strip(later)
    shell = recorded.call("shell", "shell_execute", {"command": "chmod 600 notes.txt"})
    found = strip(client.get(f"{recorded.url}/?count=1").text)
    listed = client.get(found["2 mode changes"]).text
    rows = re.findall(r'<tr id="c(\d+)"', listed)
    assert len(rows) == 2 and rows[0] == f"{shell}"


def test_a_call_that_was_open_is_counted_for_what_it_does_later(
    recorded: Recorded, client: TestClient
) -> None:
    with recorded.workspace.session("slow") as session:

        async def write() -> None:
            call = asyncio.ensure_future(
                session.call("shell_execute", {"command": "sleep 1; chmod 600 notes.txt"})
            )
            while not recorded.workspace.timeline.open_calls():
                await asyncio.sleep(0.01)
            assert "1 mode change" in strip(client.get(f"{recorded.url}/").text)
            await call

        in_thread(lambda: asyncio.run(write()))
    assert "2 mode changes" in strip(client.get(f"{recorded.url}/").text)


def test_the_lines_of_sessions_are_those_of_their_reviews(
    recorded: Recorded, client: TestClient
) -> None:
    recorded.call("more", "write_file", {"path": "more.txt", "content": "1\n2\n"})
    sessions = recorded.workspace.timeline.sessions()
    page = client.get(f"{recorded.url}/").text
    asked = "&".join(f"of={one.started}" for one in sessions)
    assert f'data-hx-get="{recorded.url}/session-lines?{html.escape(asked)}"' in page
    assert page.count("<noscript>lines in its review</noscript>") == len(sessions)
    found = client.get(f"{recorded.url}/session-lines?{asked}").text
    review = r"<ins>\+[\d,]+</ins> <del>−[\d,]+</del>"
    for one in sessions:
        told = re.search(rf'"#l{one.started}"[^>]*>({review})<', found)
        shown = client.get(f"{recorded.url}/s/{one.id}").text.partition('id="changes"')[2]
        assert told and re.search(review, shown)[0] == told[1], one
        assert told[1] in client.get(f"{recorded.url}/").text
    assert "session-lines" not in client.get(f"{recorded.url}/").text
    assert client.get(f"{recorded.url}/session-lines?of=x").status_code == 400


def test_lines_of_many_calls_come_after_each_other_and_not_of_the_largest_session(
    recorded: Recorded, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded.call("more", "write_file", {"path": "more.txt", "content": "1\n2\n"})
    newest, oldest = recorded.workspace.timeline.sessions()
    monkeypatch.setattr("loom_audit.web.overview.later.AT_ONCE", 1)
    asked = f"{recorded.url}/session-lines?of={newest.started}&of={oldest.started}"
    found = client.get(asked).text
    assert f'"#l{newest.started}"' in found and f'"#l{oldest.started}"' not in found
    assert f'data-hx-get="{recorded.url}/session-lines?of={oldest.started}"' in found
    monkeypatch.setattr("loom_audit.web.overview.memo.MOST_CALLS", 1)
    monkeypatch.setattr("loom_audit.web.overview.first_page.MOST_CALLS", 1)
    assert f'"#l{oldest.started}"' in client.get(found.split('hx-get="')[1].split('"')[0]).text
    page = client.get(f"{recorded.url}/").text
    assert f'id="l{oldest.started}">lines in its review<' in page


def test_the_first_page_says_once_it_is_shown_that_the_disk_differs(
    recorded: Recorded, client: TestClient
) -> None:
    assert f'data-hx-get="{recorded.url}/drift' in client.get(f"{recorded.url}/").text
    assert client.get(f"{recorded.url}/drift").status_code == 204
    (recorded.root / "by-hand.txt").write_text("x")
    head = recorded.workspace.log.head()
    found = client.get(f"{recorded.url}/drift").text
    assert "1 path on disk is not as on record" in found and f"{recorded.url}/status" in found
    assert "<h2" not in found
    assert "Needs you</h2>" in client.get(f"{recorded.url}/drift?alone=1").text
    assert recorded.workspace.log.head() == head


def counted(what: str) -> Counter[str]:
    number, words = what.split(" ", 1)
    words = words.replace("changes", "change").replace("deletions", "deletion")
    return Counter({words.replace("names", "name"): int(number)})


def test_what_was_asked_and_said_stands_below_its_session(
    recorded: Recorded, client: TestClient
) -> None:
    with recorded.workspace.session("talker", title="") as session:
        tell_prompt(session, "Mend <b>it</b>")
        tell_message(session, "First words")
        tell_message(session, "Last words \u202e" + HOSTILE)
    page = client.get(f"{recorded.url}/").text
    row = page[page.index('<ol class="sessions">') :]
    row = row[: row.index("</li>")]
    assert "Mend &lt;b&gt;it&lt;/b&gt;" in row and "Last words \\u202e" in row
    assert "First words" not in row and "Take back" not in row


def test_a_held_session_is_released_from_the_first_page_and_the_queue(
    recorded: Recorded, client: TestClient
) -> None:
    with recorded.workspace.session("worker") as session:
        hold(recorded.workspace, session.id, "look <i>first</i>")
        for page in ("", "needs"):
            text = client.get(f"{recorded.url}/{page}").text
            assert "look &lt;i&gt;first&lt;/i&gt;" in text and "Release" in text
        assert "held</span>" in client.get(f"{recorded.url}/").text
        client.post(f"{recorded.url}/s/{session.id}/hold", data={"hold": "0"})
        assert "Release" not in client.get(f"{recorded.url}/needs").text


@pytest.mark.parametrize("page", ["", "needs"])
def test_a_call_whose_process_is_gone_is_closed_where_it_is_listed(
    recorded: Recorded, client: TestClient, page: str
) -> None:
    lost = Draft(CallRequested("lost", "tool", {}, "write"), recorded.session, "agent:a")
    recorded.workspace.log.append([lost])
    text = client.get(f"{recorded.url}/{page}").text
    form = re.search(r"The process of .*? is gone.*?<form([^>]+)><button ([^>]+)>Close", text, re.S)
    assert form and f'action="{recorded.url}/recover"' in form[1]
    assert form[2] == 'name="mode" value="auto"'
    client.post(f"{recorded.url}/recover", data={"mode": "auto"})
    assert "The process of" not in client.get(f"{recorded.url}/{page}").text
    assert recorded.workspace.timeline.calls()[0].status == "interrupted"


def test_the_queue_says_what_differs_on_disk(recorded: Recorded, client: TestClient) -> None:
    read_up_to(recorded.workspace, recorded.session)
    assert "Nothing waits for you" in client.get(f"{recorded.url}/needs").text
    (recorded.root / "a  b.txt").write_text("x")
    head = recorded.workspace.log.head()
    page = client.get(f"{recorded.url}/needs").text
    assert "1 path on disk is not as on record" in page and r"a\x20\x20b.txt" in page
    assert recorded.workspace.log.head() == head


def test_a_call_that_the_agent_took_back_itself_says_so(
    recorded: Recorded, client: TestClient
) -> None:
    async def both(session: Any) -> None:
        await session.call("write_file", {"path": "oops.txt", "content": "x"})
        await session.call("undo", {})

    with recorded.workspace.session("careful") as session:
        in_thread(lambda: asyncio.run(both(session)))
    for page in ("", "calls"):
        text = client.get(f"{recorded.url}/{page}").text
        assert "taken back by the agent" in text and "undone by" not in text
    client.post(
        f"{recorded.url}/carry-out",
        data={"verb": "revert", "target": str(recorded.numbers["notes"]), "quick": "1"},
    )
    assert "undone by" in client.get(f"{recorded.url}/calls").text


def test_two_points_are_picked_and_become_numbers(recorded: Recorded, client: TestClient) -> None:
    [session] = [one for one in recorded.workspace.timeline.sessions() if one.title]
    [checkpoint] = recorded.workspace.timeline.checkpoints()
    answer = client.get(f"{recorded.url}/compare?a_of={session.started}&b=@{'v1%2F%3Cb%3E'}")
    wanted = f"{recorded.url}/compare/{session.started}..{checkpoint.point}"
    assert answer.status_code == 303 and answer.headers["location"] == wanted
    page = client.get(wanted).text
    for heading in ("Checkpoints", "Before a session", "After a session"):
        assert f'<optgroup label="{heading}">' in page
    assert client.get(f"{recorded.url}/compare?a=1&b=99999").status_code == 404
    assert client.get(f"{recorded.url}/compare?a=nothing").status_code == 400


def test_what_was_at_an_old_address_is_found(standing: Recorded, reader: TestClient) -> None:
    assert reader.get(f"{standing.url}/verify").headers["location"] == f"{standing.url}/proof"
    assert reader.post(f"{standing.url}/verify").status_code == 308


def test_who_signs_out_is_let_in_no_more(recorded: Recorded) -> None:
    with asking(recorded.store) as leaving:
        assert "Sign out" in leaving.get("/").text
        cookies = dict(leaving.cookies)
        answer = leaving.post("/sign-out")
        assert answer.status_code == 403 and "Token" in answer.text
        assert not leaving.cookies
        for name, value in cookies.items():
            leaving.cookies.set(name, value)
        assert leaving.get("/").status_code == 403


SURROGATE = "%ED%A0%80"
ODD = (
    f"calls?tool={SURROGATE}",
    f"calls?search={SURROGATE}",
    f"calls?path={SURROGATE}",
    f"calls?session={SURROGATE}",
    f"fresh?since=0&tool={SURROGATE}&session={SURROGATE}",
    f"s/{SURROGATE}",
    f"compare?a={SURROGATE}",
    f"compare?a=@{SURROGATE}&b=session:{SURROGATE}",
    f"compare/{SURROGATE}..head",
    f"at?point=@{SURROGATE}",
    f"at/head/{SURROGATE}",
    f"history/{SURROGATE}",
    f"plan?verb=revert&target={SURROGATE}",
    f"plan?verb=revert&target=session:{SURROGATE}",
    f"plan?verb=rollback&target=@{SURROGATE}",
    f"plan?verb={SURROGATE}&target=1",
    f"plan?verb=rollback&target=5&path={SURROGATE}",
    f"plan?verb=rollback&target=5&choice:{SURROGATE}=old",
    f"plan?verb=rollback&target=5&choice:notes.txt={SURROGATE}",
    f"plan?verb=undo&session={SURROGATE}",
)


@pytest.mark.parametrize("where", ODD)
def test_a_lone_surrogate_in_a_choice_breaks_no_page(
    standing: Recorded, reader: TestClient, where: str
) -> None:
    assert reader.get(f"{standing.url}/{where}").status_code in (200, 204, 303, 400, 404)
