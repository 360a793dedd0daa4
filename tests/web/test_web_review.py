"""The review of a session: asked and said, what stands out, its changes, its steps, its calls."""

import asyncio
import html
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from fastapi.testclient import TestClient

from loom_audit.api.agents.connect import record_as_it_is
from loom_audit.api.face import Session
from loom_audit.api.upkeep.drift import accept_drift
from loom_audit.model.conversation import MessageReceived, PromptSubmitted
from loom_audit.model.events import Draft, SessionStarted
from loom_audit.tools.calls.gate import Decision
from tests.web.conftest import Recorded, in_thread, say


@contextmanager
def session(recorded: Recorded, agent: str = "reviewed") -> Iterator[Session]:
    with recorded.workspace.session(agent, title="a session to review") as made:
        yield made


def call(made: Session, tool: str, **arguments: Any) -> int:
    """Make a call; its number."""
    in_thread(lambda: asyncio.run(_call(made, tool, arguments)))
    return made.workspace.timeline.calls()[0].seq or 0


async def _call(made: Session, tool: str, arguments: dict[str, Any]) -> None:
    await made.call(tool, arguments)


def run(made: Session, command: str) -> int:
    return call(made, "shell_execute", command=command)


def text_of(client: TestClient, address: str) -> str:
    answer = client.get(address)
    assert answer.status_code == 200, answer.text[:2000]
    return answer.text


def strip_of(text: str) -> dict[str, int]:
    """What stands out, by its words."""
    found = re.findall(r'<li><a[^>]* href="[^"]+/only/\w+[^"]*"><b>([\d,]+)</b> ([^<]+)</a>', text)
    return {words: int(number) for number, words in found}


# --- the call -----------------------------------------------------------------------------


def test_a_call_says_what_was_asked_and_said_before_it(
    recorded: Recorded, client: TestClient
) -> None:
    with session(recorded) as made:
        say(recorded.workspace, made.id, PromptSubmitted("Rename the <b>thing</b>"))
        say(recorded.workspace, made.id, MessageReceived("assistant", "old words"))
        say(recorded.workspace, made.id, MessageReceived("assistant", "I rename it now"))
        first = call(made, "write_file", path="thing.txt", content="x")
        say(recorded.workspace, made.id, PromptSubmitted("And again"))
        second = call(made, "write_file", path="thing.txt", content="y")
    text = text_of(client, f"{recorded.url}/c/{first}")
    assert "Rename the &lt;b&gt;thing&lt;/b&gt;" in text and "I rename it now" in text
    assert "old words" not in text and "And again" not in text
    text = text_of(client, f"{recorded.url}/c/{second}")
    assert "And again" in text and "I rename it now" not in text, "that was said before the prompt"


def test_a_call_of_a_subagent_says_what_the_session_around_it_was_asked(
    recorded: Recorded, client: TestClient
) -> None:
    workspace = recorded.workspace
    with session(recorded) as made:
        say(workspace, made.id, PromptSubmitted("Send somebody"))
        with recorded.workspace.session("helper") as inner:
            begun = SessionStarted("helper", "sent", parent=made.id)
            workspace.log.append([Draft(begun, inner.id, "agent:helper")])
            number = call(inner, "write_file", path="sent.txt", content="x")
    text = text_of(client, f"{recorded.url}/c/{number}")
    assert "Send somebody" in text and f"/s/{made.id}" in text
    steps = text_of(client, f"{recorded.url}/s/{made.id}/steps")
    assert 'class="step part"' in steps and f"/s/{inner.id}" in steps and "sent.txt" in steps
    of_its_own = text_of(client, f"{recorded.url}/s/{inner.id}")
    assert "Send somebody" in of_its_own and f"/s/{made.id}" in of_its_own
    review = text_of(client, f"{recorded.url}/s/{made.id}")
    assert "with 1 subagent" in review and "sent.txt" in review


def test_a_call_says_what_became_of_what_it_changed(recorded: Recorded, client: TestClient) -> None:
    with session(recorded) as made:
        own = run(made, "echo a > one.txt; echo a > two.txt; echo a > three.txt")
        later = call(made, "write_file", path="two.txt", content="b")
        again = call(made, "write_file", path="three.txt", content="b")
        call(made, "write_file", path="three.txt", content="a\n")
    text = text_of(client, f"{recorded.url}/c/{own}")
    assert "2 of 3 paths are as it left them" in text
    assert re.search(rf"two.txt</code></a> changed again by <a[^>]+>#{later}<", text)
    assert f">#{again}<" not in text, "it stands again as it was left"
    (recorded.root / "one.txt").write_text("by hand\n")
    record_as_it_is(recorded.workspace)
    text = text_of(client, f"{recorded.url}/c/{own}")
    assert "1 of 3 paths is as it left them" in text and "from outside" in text
    taken = client.post(
        f"{recorded.url}/carry-out", data={"verb": "revert", "target": str(later), "quick": "1"}
    )
    assert taken.status_code == 303
    undone = recorded.workspace.timeline.calls()[0].seq
    text = text_of(client, f"{recorded.url}/c/{later}")
    assert "The file is not as it left it" in text
    assert re.search(rf"two.txt</code></a> taken back by <a[^>]+>#{undone}<", text)


def test_any_event_of_a_call_leads_to_it(recorded: Recorded, client: TestClient) -> None:
    number = recorded.numbers["notes"]
    detail = recorded.workspace.timeline.call(number)
    titles = set()
    for event in detail.events:
        text = text_of(client, f"{recorded.url}/c/{event.seq}")
        titles.add(re.findall("<title>([^<]+)</title>", text)[0])
    assert len(detail.events) > 2 and len(titles) == 1 and f"#{number} " in titles.pop()


# --- the steps ----------------------------------------------------------------------------


def test_an_event_that_is_not_a_call_s_has_a_page_that_leads_to_what_it_is(
    recorded: Recorded, client: TestClient
) -> None:
    with session(recorded) as made:
        said = say(recorded.workspace, made.id, PromptSubmitted("Do it."))
    (recorded.root / "by-hand.txt").write_text("by hand\n")
    accept_drift(recorded.workspace)
    [outside, *_] = recorded.workspace.timeline.outside(limit=1)
    own = f"{recorded.url}/s/{made.id}"
    beyond = recorded.workspace.log.head() + 9
    for number, ways in (
        (said, [f"{recorded.url}/said/{said}", own]),
        (outside.seq, [f"{recorded.url}/compare/{outside.seq - 1}..{outside.seq}"]),
        (recorded.workspace.timeline.session(made.id).started, [own]),
        (beyond, []),
    ):
        answer = client.get(f"{recorded.url}/c/{number}")
        assert answer.status_code == 404
        found = re.findall(r'<p class="actions">(.*?)</p>', answer.text)[0]
        links = re.findall(r'href="([^"]+)"', found)
        assert links == [*ways, f"{recorded.url}/calls"]
        assert all(client.get(one).status_code == 200 for one in links)
        assert answer.text.index(found) < answer.text.index("loom-audit log")


def test_the_steps_are_one_conversation_oldest_first(
    recorded: Recorded, client: TestClient
) -> None:
    with session(recorded) as made:
        say(recorded.workspace, made.id, PromptSubmitted("First, look."))
        for name in ("notes.txt", "src/main.py", "big.txt", "huge.txt"):
            call(made, "read_file", path=name)
        say(recorded.workspace, made.id, MessageReceived("assistant", "Then I write."))
        number = call(made, "write_file", path="new.txt", content="x")
        failed = run(made, "echo one; echo the last line >&2; exit 3")
        (recorded.root / "notes.txt").write_text("by hand\n")
        record_as_it_is(recorded.workspace)
    text = text_of(client, f"{recorded.url}/s/{made.id}/steps")
    order = ["First, look.", "read 4 files", "Then I write.", f'id="c{number}"', f'id="c{failed}"']
    order += ["the last line", "changed without a call: notes.txt"]
    places = [text.index(part) for part in order]
    assert places == sorted(places)


def test_long_steps_come_in_pages_that_miss_and_repeat_nothing(
    recorded: Recorded, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loom_audit.web.review.steps.STEPS", 4)
    with session(recorded) as made:
        for n in range(5):
            say(recorded.workspace, made.id, PromptSubmitted(f"prompt {n}"))
            call(made, "write_file", path=f"n{n}.txt", content="x")
            say(recorded.workspace, made.id, MessageReceived("assistant", f"words {n}"))
    base = f"{recorded.url}/s/{made.id}/steps"
    expected = [f"{what} {n}" for n in range(5) for what in ("prompt", "words")]
    forwards, where = list[str](), base
    while where:
        text = text_of(client, where)
        forwards += re.findall(r"(?:prompt|words) \d", text)
        found = re.search(r'rel="next" href="([^"]+)"', text)
        where = found[1] if found else ""
    assert forwards == expected
    backwards, where = list[str](), f"{base}?before={recorded.workspace.log.head() + 1}"
    while where:
        text = text_of(client, where)
        backwards = re.findall(r"(?:prompt|words) \d", text) + backwards
        found = re.search(r'rel="prev" href="([^"]+)"', text)
        where = found[1] if found else ""
    assert backwards == expected


def test_a_notice_of_the_client_is_shown_as_one_and_begins_no_turn(
    recorded: Recorded, client: TestClient
) -> None:
    fact = MessageReceived("system", "<task-notification>the work ended</task-notification>")
    seq = say(recorded.workspace, recorded.session, fact)
    review = f"{recorded.url}/s/{recorded.session}"
    assert client.get(review).text.count(">Turn ") == 2
    for path in (f"{review}/steps?before={seq + 1}", f"{recorded.url}/said/{seq}"):
        text = client.get(path).text
        assert "Notice of the client" in text and "&lt;task-notification&gt;the work" in text
    text = client.get(f"{recorded.url}/find", params={"q": "the work ended"}).text
    assert ">notice of the client</span>" in text and "agent said" not in text


def test_a_whole_prompt_has_a_page(recorded: Recorded, client: TestClient) -> None:
    text = "\n".join(f"line {n} \u202e" for n in range(3_000))
    with session(recorded) as made:
        seq = say(recorded.workspace, made.id, PromptSubmitted(text))
    review = text_of(client, f"{recorded.url}/s/{made.id}")
    assert f'href="{recorded.url}/said/{seq}"' in review and "line 40" not in review
    page = text_of(client, f"{recorded.url}/said/{seq}")
    assert "line 40 \\u202e" in page and "\u202e" not in page
    more = re.findall(r'data-hx-get="([^"]+/said/[^"]+)"', page)
    assert more, "it goes on"
    answer = client.get(more[0].replace("&amp;", "&"), headers={"hx-request": "true"})
    assert answer.status_code == 200 and "line 2" in answer.text
    assert client.get(f"{recorded.url}/said/{recorded.numbers['notes']}").status_code == 404


# --- the review ---------------------------------------------------------------------------


def test_a_session_shows_what_it_was_asked_and_said_and_changed(
    recorded: Recorded, client: TestClient
) -> None:
    with session(recorded) as made:
        say(recorded.workspace, made.id, PromptSubmitted("Write <i>two</i> files"))
        one = call(made, "write_file", path="one.txt", content="first\n")
        say(recorded.workspace, made.id, PromptSubmitted("One more"))
        two = call(made, "write_file", path="two.txt", content="second\n")
        say(recorded.workspace, made.id, MessageReceived("assistant", "Both are there."))
    base = f"{recorded.url}/s/{made.id}"
    text = text_of(client, base)
    assert "Write &lt;i&gt;two&lt;/i&gt; files" in text and "One more" in text
    assert "Both are there." in text and "Changed 2 paths" in text
    for path, number in (("one.txt", one), ("two.txt", two)):
        section = text[text.index(f'id="f-{path}"') :].partition("</h3>")[0]
        assert f">#{number}</a>" in section
    turns = re.findall(r'href="([^"]+\?turn=\d+)"[^>]*>Turn', text)
    assert len(turns) == 2
    second = text_of(client, turns[1])
    assert "Changed 1 path" in second and 'id="f-two.txt"' in second
    assert 'id="f-one.txt"' not in second
    assert client.get(f"{base}?turn=1").status_code == 400
    assert strip_of(text) == {}, "nothing stands out"


def test_a_file_that_others_made_is_modified_and_one_that_they_deleted_is_deleted_since(
    recorded: Recorded, client: TestClient
) -> None:
    with session(recorded) as made, recorded.workspace.session("other") as other:
        call(made, "shell_execute", command="true")
        (recorded.root / "theirs.txt").write_text("theirs\n")
        call(made, "shell_execute", command="echo mine >> theirs.txt; echo x > gone.txt")
        call(other, "shell_execute", command="rm gone.txt")
    text = text_of(client, f"{recorded.url}/s/{made.id}")
    headings = dict(re.findall(r'class="act-(\w+)">\w+</span>\s+<code>([^<]+)</code>', text))
    assert headings == {"modified": "theirs.txt", "created": "gone.txt"}
    assert "deleted since by others" in text


def test_each_line_of_the_changes_names_its_call_and_others_lines_are_none(
    recorded: Recorded, client: TestClient
) -> None:
    with session(recorded) as made:
        one = call(made, "write_file", path="own.txt", content="a\nb\nc\n")
        (recorded.root / "own.txt").write_text("a\nby hand\nb\nc\n")
        record_as_it_is(recorded.workspace)
        two = call(made, "edit_file", path="own.txt", old_str="c\n", new_str="C\n")
        call(made, "write_file", path="gone.txt", content="x")
        call(made, "delete_file", path="gone.txt")
    text = text_of(client, f"{recorded.url}/s/{made.id}")
    section = text[text.index('id="f-own.txt"') :].partition("</section>")[0]
    section = re.sub(r'<td class="mark".*?</td>', "", section, flags=re.S)
    rows = re.findall(r'<tr class="(\w+)">(.*?)</tr>', section, re.S)
    added = [re.sub("<[^>]+>", " ", row).split() for kind, row in rows if kind == "add"]
    assert [row[-1] for row in added] == ["a", "b", "C"]
    assert added[0][0] == f"#{one}" and added[2][0] == f"#{two}"
    assert any(kind == "context" and "by hand" in row for kind, row in rows)
    assert "<ins>+3</ins> <del>−0</del>" in section and "also changed by outside" in section
    assert "1 path was changed and changed back" in text and 'id="f-gone.txt"' not in text
    assert "changed later" not in text
    with session(recorded, "another") as other:
        later = call(other, "write_file", path="own.txt", content="new\n")
    text = text_of(client, f"{recorded.url}/s/{made.id}")
    assert re.search(rf"changed later</span> by <a[^>]+>#{later}<", text)
    gone = recorded.call("gone", "delete_file", {"path": "own.txt"})
    text = text_of(client, f"{recorded.url}/s/{made.id}")
    assert re.search(
        rf"changed later</span> by <a[^>]+>#{later}<.* · deleted by <a[^>]+>#{gone}<", text
    )


def test_every_turn_of_a_long_session_can_be_reached(
    recorded: Recorded, client: TestClient
) -> None:
    with session(recorded) as made:
        prompts = [
            say(recorded.workspace, made.id, PromptSubmitted(f"prompt {n}")) for n in range(65)
        ]
    page = f"{recorded.url}/s/{made.id}"
    reached, where = list[int](), page
    while where:
        scopes = text_of(client, where).partition('aria-label="Scope"')[2].partition("</nav>")[0]
        reached += map(int, re.findall(r'turn=(\d+)" title', scopes))
        after = re.search(r'rel="next" href="([^"]+)"', scopes)
        where = after[1] if after else ""
    assert reached == prompts
    last = text_of(client, f"{page}?turn={prompts[-1]}")
    assert "prompt 64" in last and f'rel="prev" href="{page}?turn={prompts[59]}"' in last
    assert client.get(f"{page}?turn={prompts[-1] + 1}").status_code == 400


def test_a_turn_shows_what_was_asked_said_and_stood_out_in_it_alone(
    recorded: Recorded, client: TestClient
) -> None:
    with session(recorded) as made:
        early = run(made, "false")
        turns, tests = list[int](), list[int]()
        for n in (1, 2):
            turns.append(say(recorded.workspace, made.id, PromptSubmitted(f"Ask {n}.")))
            call(made, "write_file", path=f"{n}.txt", content="x\n")
            tests.append(run(made, f"python3 -m unittest no_such_test_{n}"))
            (recorded.root / f"by-hand-{n}").write_text("by hand\n")
            accept_drift(recorded.workspace)
            say(recorded.workspace, made.id, MessageReceived("assistant", f"Done {n}."))
    page = f"{recorded.url}/s/{made.id}"
    assert strip_of(text_of(client, page))["failed"] == 3
    for n, (turn, test) in enumerate(zip(turns, tests, strict=True), 1):
        text = text_of(client, f"{page}?turn={turn}")
        assert f"Ask {n}." in text and f"Done {n}." in text and f"Done {3 - n}." not in text
        assert f"no_such_test_{n}" in text and f"no_such_test_{3 - n}" not in text
        strip = strip_of(text)
        assert (strip["failed"], strip["change from outside"]) == (1, 1)
        for name in ("failed", "outside"):
            [listed] = re.findall(rf'href="([^"]+/only/{name}[^"]*)"', text)
            rows = text_of(client, listed)
            assert (f"by-hand-{n}" if name == "outside" else f"#{test}<") in rows
            assert f"by-hand-{3 - n}" not in rows and f"#{tests[2 - n]}<" not in rows
    before = text_of(client, f"{page}?turn={recorded.workspace.timeline.session(made.id).started}")
    assert strip_of(before) == {"failed": 1} and f"/c/{early}" not in before
    assert "Ask 1." not in before.partition('aria-label="Scope"')[0]


def test_a_long_change_comes_in_parts(recorded: Recorded, client: TestClient) -> None:
    with session(recorded) as made:
        long = "".join(f"line {n}\n" for n in range(4_000))
        call(made, "write_file", path="long.txt", content=long)
        call(made, "write_file", path="a.txt", content="short\n")
    base = f"{recorded.url}/s/{made.id}"
    text = text_of(client, base)
    assert 'id="f-long.txt"' in text and "4,000 lines added and removed." in text
    found, where = list[str](), f"{base}?diff.q=long.txt"
    while where:
        answer = client.get(where, headers={"hx-request": "true"})
        assert answer.status_code == 200
        found += re.findall(r"line \d+(?=<)", answer.text)
        more = re.search(r'data-hx-get="([^"]+line=\d+)"', answer.text)
        where = more[1].replace("&amp;", "&") if more else ""
    assert found == [f"line {n}" for n in range(4_000)]
    assert client.get(f"{base}?diff=nothing.txt").status_code == 400


@pytest.mark.parametrize("of", ["review", "call"])
def test_a_gap_between_changes_is_opened_by_its_link_and_no_other_is(
    recorded: Recorded, client: TestClient, of: str
) -> None:
    lines = [f"line {n}\n" for n in range(1, 101)]
    (recorded.root / "long").write_text("".join(lines))
    record_as_it_is(recorded.workspace)
    changed = [f"{one[:-1]} new\n" if one[5:-1] in ("20", "50", "80") else one for one in lines]
    with session(recorded) as made:
        number = call(made, "write_file", path="long", content="".join(changed))
    page = f"s/{made.id}" if of == "review" else f"c/{number}"
    text = text_of(client, f"{recorded.url}/{page}")
    links = re.findall(r'<td colspan="\d">line (\d+) <a href="([^"]+)"', text)
    assert [line for line, _ in links] == ["17", "47", "77"]
    around = {*range(17, 24), *range(47, 54), *range(77, 84)}
    assert shown_lines(text) == sorted(around)
    text = text_of(client, html.unescape(links[1][1]))
    assert shown_lines(text) == sorted(around | {*range(24, 47)})
    links = re.findall(r'<td colspan="\d">line (\d+) <a href="([^"]+)"', text)
    assert [line for line, _ in links] == ["17", "77"]
    text = text_of(client, html.unescape(links[0][1]))
    assert shown_lines(text) == [*range(1, 54), *range(77, 84)]


def shown_lines(text: str) -> list[int]:
    """The numbers, on the side after, of the lines that a page shows."""
    return [int(one) for one in re.findall(r'<td class="ln">(\d+)</td><td class="sign">[^−]', text)]


def test_what_stands_out_is_counted_and_led_to(recorded: Recorded, client: TestClient) -> None:
    with session(recorded) as made:
        run(made, "for n in 1 2 3 4 5 6 7 8 9 10 11 12; do echo $n > d$n.txt; done")
        call(made, "delete_file", path="notes.txt")
        many = run(made, "rm d*.txt && chmod 600 big.txt")
        failed = run(made, "curl --version-that-is-not; exit 4")
        call(made, "read_file", path="big.txt")
        (recorded.root / "src" / "main.py").write_text("by hand\n")
        record_as_it_is(recorded.workspace)
    base = f"{recorded.url}/s/{made.id}"
    found = strip_of(text_of(client, base))
    found.pop("network was allowed", None)  # where there is no sandbox
    assert found == {
        "failed": 1,
        "mass deletion": 1,
        "mode change": 1,
        "names a network program": 1,
        "change from outside": 1,
    }
    for what, number in (("deletions", many), ("modes", many), ("failed", failed)):
        listed = text_of(client, f"{base}/only/{what}")
        assert re.findall(r'<tr id="c(\d+)"', listed) == [str(number)]
    assert f'<tr id="c{failed}"' in text_of(client, f"{base}/only/programs")
    assert "changed without a call: src/main.py" in text_of(client, f"{base}/only/outside")
    assert client.get(f"{base}/only/nothing").status_code == 404
    assert len(re.findall(r'<tr id="c', text_of(client, f"{base}/commands"))) == 3


def test_tests_are_shown_with_whose_exit_code_is_known(
    recorded: Recorded, client: TestClient
) -> None:
    (recorded.root / "Makefile").write_text("test:\n\t@exit 2\nlint:\n\t@true\n")
    with session(recorded) as made:
        run(made, "make lint")
        last = run(made, "make test || true")
        text = text_of(client, f"{recorded.url}/s/{made.id}")
        assert (
            "exit 0" in text and "of the whole line, perhaps not of <code>make test</code>" in text
        )
        assert "older than the last edit" not in text
        edit = call(made, "write_file", path="src/main.py", content="x\n")
        run(made, "make test")
    text = text_of(client, f"{recorded.url}/s/{made.id}")
    rows = re.findall(
        r"<li>.*?</li>", text[text.index('id="checks"') :].partition("</ul>")[0], re.S
    )
    assert len(rows) == 3 and "exit 2" in rows[0] and "older" not in rows[0]
    assert f">#{last}</a>" in rows[1]
    assert "older than the last edit" in rows[1] and "src/main.py" in rows[1]
    assert f">#{edit}</a>" in rows[1]


def test_what_was_taken_back_has_a_list(recorded: Recorded, client: TestClient) -> None:
    with session(recorded) as made:
        number = call(made, "write_file", path="one.txt", content="x")
        call(made, "write_file", path="two.txt", content="x")
    form = {"verb": "revert", "target": str(number), "quick": "1"}
    assert client.post(f"{recorded.url}/carry-out", data=form).status_code == 303
    text = text_of(client, f"{recorded.url}/s/{made.id}/taken-back")
    assert re.findall(r'<tr id="c(\d+)"', text) == [str(number)]


@pytest.mark.parametrize("query", ["status=failed", "search=x", "before=30", "path.q=a%2520b"])
def test_the_old_address_of_a_sessions_calls_leads_to_them(
    standing: Recorded, reader: TestClient, query: str
) -> None:
    base = f"{standing.url}/s/{standing.session}"
    answer = reader.get(f"{base}?{query}")
    assert answer.status_code == 307
    assert answer.headers["location"].startswith(f"{base}/calls?{query.partition('=')[0][:4]}")
    assert reader.get(answer.headers["location"]).status_code == 200


def test_a_session_of_too_many_calls_says_so(
    standing: Recorded, reader: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loom_audit.history.read.review.MOST_CALLS", 2)
    monkeypatch.setattr("loom_audit.api.review.sessions.KEPT", 0)
    base = f"{standing.url}/s/{standing.session}"
    reader.app.state.reviews = type(reader.app.state.reviews)()  # type: ignore[attr-defined]
    assert "too many to be reviewed together" in text_of(reader, base)
    for tab in ("commands", "taken-back", "only/failed", "only/outside"):
        text = text_of(reader, f"{base}/{tab}")
        assert "over 2 calls" in text and f'href="{base}/calls"' in text, tab
        assert "None." not in text and "<h2" not in text.partition("<footer")[0], "it is not known"
    assert "over 2 calls" not in text_of(reader, f"{base}/steps")


def test_a_session_with_too_many_sessions_within_it_says_so(
    recorded: Recorded, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loom_audit.history.read.review.MOST_SESSIONS", 2)
    workspace = recorded.workspace
    with session(recorded) as made:
        call(made, "write_file", path="own.txt", content="x")
        for _ in range(3):
            text = text_of(client, f"{recorded.url}/s/{made.id}")
            with recorded.workspace.session("inner") as inner:
                begun = SessionStarted("inner", "sent", parent=made.id)
                workspace.log.append([Draft(begun, inner.id, "agent:inner")])
    assert "too many" not in text and "with 2 subagents" in text and "own.txt" in text
    text = text_of(client, f"{recorded.url}/s/{made.id}")
    assert "over 2 sessions within it" in text and "too many to be reviewed together" in text
    assert "own.txt" not in text


# --- two points, of one session -----------------------------------------------------------


def test_two_points_show_only_what_one_session_changed_between_them(
    recorded: Recorded, client: TestClient
) -> None:
    start = recorded.workspace.log.head()
    with session(recorded, "first <b>") as made:
        call(made, "write_file", path="own.txt", content="one\n")
        middle = recorded.workspace.log.head()
        call(made, "write_file", path="both.txt", content="a\nb\n")
        run(made, "rm notes.txt")
        with session(recorded, "second") as other:
            call(other, "edit_file", path="both.txt", old_str="a", new_str="A")
            call(other, "write_file", path="others.txt", content="x\n")
    (recorded.root / "by_hand.txt").write_text("y\n")
    record_as_it_is(recorded.workspace)
    text = text_of(client, f"{recorded.url}/compare/{start}..head?by={made.id}")
    assert {*re.findall(r'<section class="file" id="f-([^"]+)"', text)} == {
        "own.txt",
        "both.txt",
        "notes.txt",
    }
    assert "Changed 3 paths" in text and "a session to review" in text
    section = text[text.index('id="f-both.txt"') :].partition("</section>")[0]
    assert "+1</ins>" in section and "also changed by" in section
    text = text_of(client, f"{recorded.url}/compare/{middle}..head?by={made.id}")
    assert 'id="f-own.txt"' not in text and 'id="f-both.txt"' in text
    text = text_of(client, f"{recorded.url}/compare/{middle}..head?by={other.id}&diff=both.txt")
    assert re.search(rf'href="[^"]+by={other.id}">All 2 paths', text), "the way back keeps it"
    text = text_of(client, f"{recorded.url}/compare/{start}..{start + 1}?by={made.id}")
    assert "It changed nothing that differs" in text


def test_two_points_of_a_session_are_chosen_by_a_form_and_refused_backwards(
    recorded: Recorded, client: TestClient
) -> None:
    where = f"{recorded.url}/compare"
    answer = client.get(f"{where}?a=3&b=head&by={recorded.session}")
    head = recorded.workspace.log.head()
    assert answer.headers["location"] == f"{where}/3..{head}?by={recorded.session}"
    text = text_of(client, answer.headers["location"])
    assert re.search(rf'<option value="{recorded.session}" selected>', text)
    answer = client.get(f"{where}/head..3?by={recorded.session}")
    assert answer.status_code == 400 and "earlier point first" in answer.text
    assert client.get(f"{where}/3..head?by=nobody").status_code == 404


def test_a_call_that_is_taken_back_in_part_is_marked_so_in_each_list(
    recorded: Recorded, client: TestClient
) -> None:
    workspace = recorded.workspace
    with workspace.session("halves") as made:
        call(made, "shell_execute", command="echo > one.txt; echo > two.txt")
    number = workspace.timeline.calls()[0].seq or 0
    by = workspace.carry_out(workspace.plan_revert([number], paths=["one.txt"])).call.seq
    for page in ("calls", f"s/{made.id}/steps", f"s/{made.id}/taken-back"):
        text = text_of(client, f"{recorded.url}/{page}")
        [badge] = re.findall(r"undone in part by .*?</span>", text)
        assert f"/c/{by}" in badge, page


class Ada:
    """A gate at which somebody lets every call run, without a word."""

    async def decide(self, tool: Any, args: Any, ctx: Any, *, asked: str = "") -> Decision:
        return Decision("allowed", "person:ada")


def test_a_person_s_plain_yes_is_on_the_call_s_page_in_the_strip_and_in_python(
    recorded: Recorded, client: TestClient
) -> None:
    with recorded.workspace.session("let", gate=Ada()) as made:
        number = run(made, "true")
    decision = recorded.workspace.timeline.call(number).decision
    assert decision is not None and decision.by == "person:ada"
    assert "allowed by person:ada" in text_of(client, f"{recorded.url}/c/{number}")
    strip = strip_of(text_of(client, f"{recorded.url}/s/{made.id}"))
    assert strip["allowed by a person"] == 1


# --- what became of a part since ----------------------------------------------------------


def test_a_part_that_was_changed_again_says_by_whom_and_that_taking_it_back_would_ask(
    recorded: Recorded, client: TestClient
) -> None:
    base = f"{recorded.url}/s/{recorded.session}"
    assert "Changed again" not in text_of(client, base)
    edit = {"path": "src/main.py", "old_str": "value + 15\n", "new_str": "value + 150\n"}
    recorded.call("elsewhere", "edit_file", edit)
    page = text_of(client, f"{base}?diff=src/main.py")
    assert "changed later" in page and "Changed again" not in page
    assert "taking it back would ask" not in page
    edit = {"path": "src/main.py", "old_str": "value ** 7\n", "new_str": "value + 70\n"}
    number = recorded.call("again", "edit_file", edit)
    page = text_of(client, f"{base}?diff=src/main.py")
    again = rf"Changed again by <a [^>]*>#{number}</a>.*: taking it back would ask which lines"
    assert re.search(again, page)
    plan = text_of(client, f"{recorded.url}/plan?verb=revert&target={recorded.numbers['later']}")
    assert "conflict" in plan
    (recorded.root / "src/main.py").write_text("")
    record_as_it_is(recorded.workspace)
    page = text_of(client, f"{base}?diff=src/main.py")
    assert re.search(rf"Changed again by <a [^>]*>#{number}</a>.*, <a .*from outside: ", page)


def test_no_sums_stand_where_no_line_changed(recorded: Recorded, client: TestClient) -> None:
    mode = recorded.call("mode", "shell_execute", {"command": "chmod 700 notes.txt"})
    text = text_of(client, f"{recorded.url}/c/{mode}")
    assert "Changed 1 path" in text and "<ins>" not in text and "<del>" not in text
