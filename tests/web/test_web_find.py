"""One search over all that was asked, said, answered and changed."""

import html
import re

import pytest
from fastapi.testclient import TestClient

from loom_audit.api.agents.connect import record_as_it_is
from loom_audit.api.agents.said import tell_message, tell_prompt
from loom_audit.model.events import CallFinished, CallRequested, Draft
from loom_audit.web.finding import INDEXED
from tests.web.conftest import Recorded
from tests.web.web_pages import HOSTILE

HIT = re.compile(r"<li>\n<p class=\"line\">(.*?)</li>", re.S)


def hits(client: TestClient, recorded: Recorded, **query: str) -> list[str]:
    answer = client.get(f"{recorded.url}/find", params=query)
    assert answer.status_code == 200, answer.text[-2000:]
    return HIT.findall(answer.text)


def plain(markup: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]+>", "", markup)).split())


def say(recorded: Recorded, prompt: str, *messages: str, agent: str = "talker") -> str:
    with recorded.workspace.session(agent) as session:
        tell_prompt(session, prompt)
        for text in messages:
            tell_message(session, text)
    return session.id


def test_prompts_words_commands_outputs_paths_and_outside_changes_are_found(
    recorded: Recorded, client: TestClient
) -> None:
    say(recorded, "Build the zeppelin, please", "The zeppelin is built.")
    recorded.call("made", "write_file", {"path": "zeppelin.txt", "content": "hydrogen"})
    recorded.call("said", "shell_execute", {"command": "echo a zeppe''lin flies"})
    (recorded.root / "zeppelin-by-hand.txt").write_text("x")
    record_as_it_is(recorded.workspace)
    found = hits(client, recorded, q="zeppelin")
    assert len(found) == 5
    outside, output, written, message, prompt = found
    assert "<mark>zeppelin</mark>-by-hand.txt" in outside and "outside" in plain(outside)
    assert "a <mark>zeppelin</mark> flies" in output and "output" in plain(output)
    assert "<mark>zeppelin</mark>.txt" in written
    assert "The <mark>zeppelin</mark> is built." in message and "agent said" in plain(message)
    assert "Build the <mark>zeppelin</mark>, please" in prompt and "prompt" in plain(prompt)
    assert len(hits(client, recorded, q="hydrogen zeppelin")) == 1


def test_every_hit_leads_to_its_place_in_the_timeline(
    recorded: Recorded, client: TestClient
) -> None:
    number = recorded.call("made", "write_file", {"path": "zeppelin.txt", "content": "x"})
    for n in range(30):
        recorded.call(f"later{n}", "read_file", {"path": "notes.txt"})
    [hit] = hits(client, recorded, q="zeppelin")
    link = re.search(r'href="([^"]+)">in the timeline', hit)
    assert link is not None
    where, _, anchor = html.unescape(link[1]).partition("#")
    page = client.get(where).text
    assert anchor == f"c{number}" and f'<tr id="{anchor}"' in page
    assert f'id="c{recorded.numbers["later0"]}"' in page  # among what came after it


def test_what_was_said_is_found_among_the_steps_and_what_came_from_outside_in_the_timeline(
    recorded: Recorded, client: TestClient
) -> None:
    say(recorded, "Build the zeppelin", *(f"word {n}" for n in range(30)), "The zeppelin is built.")
    (recorded.root / "zeppelin.txt").write_text("x")
    record_as_it_is(recorded.workspace)
    for n in range(70):
        recorded.workspace.checkpoint(f"later {n}")
    outside, message, prompt = hits(client, recorded, q="zeppelin")
    for hit, words, tag in (
        (outside, "in the timeline", "tr"),
        (message, "in its session", "li"),
        (prompt, "in its session", "li"),
    ):
        link = re.search(rf'href="([^"]+)">{words}', hit)
        assert link is not None, words
        where, _, anchor = html.unescape(link[1]).partition("#")
        answer = client.get(where)
        assert answer.status_code == 200 and re.search(rf'<{tag} [^>]*id="{anchor}"', answer.text)
        assert "zeppelin" in answer.text.partition(f'id="{anchor}"')[2][:600]


def test_values_on_pages_lead_to_all_that_has_them(recorded: Recorded, client: TestClient) -> None:
    page = client.get(f"{recorded.url}/calls").text
    links = {html.unescape(one) for one in re.findall(r'href="([^"]+/calls\?[^"]+)"', page)}
    for field in ("actor=agent:coder", "status=error", "path=notes.txt", "tool=write_file"):
        where = f"{recorded.url}/calls?{field}"
        assert where in links, field
        rows = re.findall(r'<tr id="c(\d+)"', client.get(where).text)
        assert rows and (field != "path=notes.txt" or str(recorded.numbers["notes"]) in rows)
    recorded.call("other", "read_file", {"path": "notes.txt"})
    by_one = client.get(f"{recorded.url}/calls?actor=agent:second").text
    assert re.findall(r'<tr id="c(\d+)"', by_one) == [str(recorded.numbers["other"])]
    assert "Who <code>agent:second</code>" in by_one and 'name="actor.q"' in by_one
    failed = client.get(f"{recorded.url}/c/{recorded.numbers['failing']}").text
    steps = client.get(f"{recorded.url}/s/{recorded.session}/steps").text
    assert "calls?status=error" in failed and "calls?tool=shell_execute" in failed
    assert f"/s/{recorded.session}/calls?status=error" in steps


def test_facets_narrow_and_a_chosen_value_is_taken_off_again(
    recorded: Recorded, client: TestClient
) -> None:
    say(recorded, "zeppelin one", agent="pilot")
    recorded.call("made", "write_file", {"path": "zeppelin.txt", "content": "x"})
    recorded.call("bad", "shell_execute", {"command": "echo zeppelin; exit 3"})
    page = client.get(f"{recorded.url}/find?q=zeppelin").text
    links = {
        plain(label): html.unescape(link)
        for link, label in re.findall(r'<li><a href="([^"]+)">(<bdi>.*?</bdi>)', page)
    }
    assert {"calls", "prompts", "write_file", "shell_execute", "ok", "error", "agent:pilot"} <= set(
        links
    )
    narrowed = client.get(links["shell_execute"]).text
    assert len(HIT.findall(narrowed)) == 1
    back = re.search(r'<a class="chip" href="([^"]+)">shell_execute', narrowed)
    assert back is not None
    assert len(HIT.findall(client.get(html.unescape(back[1])).text)) == 3
    assert len(hits(client, recorded, q="zeppelin", kind="prompt")) == 1
    assert len(hits(client, recorded, q="zeppelin", status="failed")) == 1


def test_hostile_text_is_marked_and_stays_text(recorded: Recorded, client: TestClient) -> None:
    say(recorded, HOSTILE, "\x1b[31mred\x1b[0m \u202ehacked\u202c </mark><script>hacked()</script>")
    for query in ("hacked", "script", "onerror", '<script>"&', "%ED%A0%80", "\x1b[2J", "zero"):
        answer = client.get(f"{recorded.url}/find", params={"q": query})
        assert answer.status_code == 200
        body = answer.text.partition("<body>")[2]
        assert "<script" not in body and "<img" not in body
        assert "\x1b" not in body and "\u202e" not in body
    page = client.get(f"{recorded.url}/find?q=hacked").text
    assert "&lt;script&gt;window.<mark>hacked</mark>" in page


@pytest.mark.parametrize(
    "query",
    ["q=%ED%A0%80", "q=x&tool=%ED%A0%80", "q=x&session=%ED%A0%80", "q=x&actor=%FF", "q=%00", "q="],
)
def test_what_cannot_be_a_word_or_a_name_finds_nothing(
    standing: Recorded, reader: TestClient, query: str
) -> None:
    answer = reader.get(f"{standing.url}/find?{query}")
    assert answer.status_code == 200 and not HIT.findall(answer.text)


@pytest.mark.parametrize("query", ["q=x&kind=nothing", "q=x&status=fine", "q=x&before=x"])
def test_a_choice_that_there_is_not_is_refused(
    standing: Recorded, reader: TestClient, query: str
) -> None:
    assert reader.get(f"{standing.url}/find?{query}").status_code == 400


def many_calls(recorded: Recorded, count: int) -> None:
    drafts = []
    for n in range(count):
        request = CallRequested(f"m{n}", "tool", {"of": "zeppelin"}, "read")
        finish = CallFinished(f"m{n}", "tool", "read", "ok", {"output": f"number{n}"})
        drafts += [Draft(fact, recorded.session, "agent:coder") for fact in (request, finish)]
    recorded.workspace.log.append(drafts)


def test_hits_come_a_page_at_a_time_and_counts_stop(recorded: Recorded, client: TestClient) -> None:
    many_calls(recorded, 1_010)
    where, seen = f"{recorded.url}/find?q=zeppelin", list[str]()
    page = client.get(where).text
    assert "1,000+ hits" in page
    for _ in range(3):
        page = client.get(where).text
        seen += re.findall(r'<a class="sum" href="([^"]+)"', page)
        older = re.search(r'<a href="([^"]+)">Older hits', page)
        assert older is not None
        where = html.unescape(older[1])
    assert len(seen) == len(set(seen)) == 75
    assert "1 hit <" in client.get(f"{recorded.url}/find?q=number7+tool").text


def test_the_first_search_says_how_far_the_index_is_and_goes_on_by_itself(
    recorded: Recorded, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loom_audit.web.finding.INDEXED", 10)
    many_calls(recorded, 800)
    where, shown = f"{recorded.url}/find?q=notes", list[int]()
    for _ in range(100):
        page = client.get(where).text
        again = re.search(r'http-equiv="refresh" content="0; url=([^"]+)"', page)
        if again is None:
            break
        where = html.unescape(again[1])
        done = re.search(r'<progress max="\d+" value="(\d+)"', page)
        assert done is not None and not HIT.findall(page)
        shown.append(int(done[1]))
    assert len(shown) > 2 and shown == sorted(shown)
    assert HIT.findall(page)


def test_looking_for_something_puts_nothing_on_record(
    recorded: Recorded, client: TestClient
) -> None:
    head = recorded.workspace.log.head()
    hits(client, recorded, q="notes")
    assert recorded.workspace.log.head() == head
    assert INDEXED > 1_000
