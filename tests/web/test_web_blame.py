"""Who wrote each line, on a page: runs of one call each, with the prompts at the foot."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any

import pytest
from fastapi.testclient import TestClient

from loom_audit.api.lines import Lines
from loom_audit.errors import NotFound
from loom_audit.history.read.lines import followed
from loom_audit.model.conversation import PromptSubmitted
from loom_audit.web.review import blame
from tests.web.conftest import Recorded, say
from tests.web.test_web_review import call, run, session, text_of
from tests.web.web_pages import HOSTILE, STRANGE

ROW = re.compile(
    r'<tr id="L(\d+)">\s*<td class="by"[^>]*>(.*?)</td>\s*<td class="ln">(.*?)</td>', re.S
)


def rows_of(text: str) -> list[tuple[str, str, str]]:
    """Of each row its first line, who wrote it in words, and the numbers of its lines."""
    found = []
    for first, by, numbers in ROW.findall(text):
        words = " ".join(re.sub(r"<span class=\"hidden\">.*?</span>|<[^>]+>", " ", by).split())
        found.append((first, words, numbers.replace("\n", " ")))
    return found


def of(recorded: Recorded, path: str, point: int | str = "head", **asked: Any) -> str:
    more = "".join(f"&{name}={value}" for name, value in asked.items())
    return f"{recorded.url}/at/{point}/{path}?view=blame{more}"


def test_each_run_names_its_call_agent_and_prompt_and_leads_to_what_was_there_before(
    recorded: Recorded, client: TestClient
) -> None:
    with session(recorded) as made:
        say(recorded.workspace, made.id, PromptSubmitted("Write <b>three</b> lines"))
        first = call(made, "write_file", path="lines", content="one\ntwo\nthree\n")
        say(recorded.workspace, made.id, PromptSubmitted("Change the second"))
        second = run(made, r"printf 'one\n2\nthree\n' > lines")
    text = text_of(client, of(recorded, "lines"))
    assert rows_of(text) == [
        ("1", f"#{first} agent:reviewed why", "1"),
        ("2", f"#{second} agent:reviewed why before", "2"),
        ("3", f"#{first} agent:reviewed why", "3"),
    ]
    assert text.count("Write &lt;b&gt;three&lt;/b&gt; lines</blockquote>") == 1
    assert text.count("Change the second</blockquote>") == 1
    [before] = re.findall(r'href="([^"]+)">before', text)
    then = text_of(client, before.replace("&amp;", "&"))
    assert [words for _, words, _ in rows_of(then)] == [f"#{first} agent:reviewed why"]
    assert f'href="{of(recorded, "lines").partition("?")[0]}">The file alone' in text
    plain = text_of(client, f"{recorded.url}/at/head/lines")
    assert f'href="{of(recorded, "lines")}">Who wrote each line' in plain


def test_what_no_call_wrote_is_said(recorded: Recorded, client: TestClient) -> None:
    (recorded.root / "mine").write_text("outside\n")
    with session(recorded) as made:
        run(made, "true")
        written = run(made, "echo added >> mine; printf 'new\\n' >> notes.txt")
        undone = call(made, "undo")
        back = recorded.workspace.carry_out(recorded.workspace.plan_revert([undone])).call.seq
    [added] = [words for _, words, _ in rows_of(text_of(client, of(recorded, "mine")))][1:]
    assert (
        added
        == f"#{written} agent:reviewed brought back by #{back} person:{_person(recorded)} before"
    )
    [outside, *_] = rows_of(text_of(client, of(recorded, "mine")))
    assert re.fullmatch(r"#\d+ from outside", outside[1])
    with session(recorded) as made:
        run(made, "head -c 100 /dev/zero > odd")
        run(made, "echo text > odd")
    [row] = rows_of(text_of(client, of(recorded, "odd")))
    event = recorded.workspace.timeline.history("odd")[0].seq
    assert row[1] == f"not known before #{event} – binary before"


def test_changes_on_disk_that_are_not_on_record_are_said(
    recorded: Recorded, client: TestClient
) -> None:
    with session(recorded) as made:
        call(made, "write_file", path="lines", content="one\n")
    workspace = recorded.workspace
    head, page = workspace.log.head(), of(recorded, "lines")
    assert "not on record" not in text_of(client, page)
    (recorded.root / "lines").write_text("one\nby hand\n")
    text = text_of(client, page)
    assert text.count("changes on disk that are not on record") == 1 and "by hand" not in text
    [differs] = re.findall(r'href="([^"]+)">what differs', text)
    assert "by hand" in text_of(client, differs.replace("&amp;", "&"))
    assert "not on record" not in text_of(client, of(recorded, "lines", head - 1))
    (recorded.root / "lines").unlink()
    assert "changes on disk that are not on record" in text_of(client, page)
    assert workspace.log.head() == head


def _person(recorded: Recorded) -> str:
    return recorded.workspace.actor.removeprefix("person:")


def test_what_may_be_of_several_calls_names_them_all(
    recorded: Recorded, client: TestClient
) -> None:
    with session(recorded) as made, made.recording("one"), made.recording("other"):
        (recorded.root / "both").write_text("both\n")
    numbers = sorted(one.seq or 0 for one in recorded.workspace.timeline.calls()[:2])
    [row] = rows_of(text_of(client, of(recorded, "both")))
    assert row[1].replace(" ,", ",") == f"one of #{numbers[0]}, #{numbers[1]}"


def test_hostile_lines_and_names_are_text_and_a_carriage_return_is_seen(
    recorded: Recorded, client: TestClient
) -> None:
    with session(recorded, "<b>agent</b>") as made:
        say(recorded.workspace, made.id, PromptSubmitted(HOSTILE))
        call(made, "write_file", path="evil <i>", content=HOSTILE + "cr\r\nlast")
    text = text_of(client, of(recorded, "evil%20%3Ci%3E"))
    assert "<script>window" not in text and "<i>" not in text and "<b>agent" not in text
    assert r"cr\r" in text and "No newline at the end." in text
    assert "long  …" in text  # cut
    assert client.get(of(recorded, "strange%20%FF")).status_code == 404
    assert STRANGE  # its page is among those that every test of pages asks for


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("head -c 100 /dev/zero > odd", "Its lines cannot be told: binary."),
        ("head -c 8388609 /dev/zero | tr '\\0' x > odd", "Its lines cannot be told: over 8 MiB."),
        ("touch odd", "An empty file."),
    ],
)
def test_a_file_without_lines_says_why(
    command: str, said: str, recorded: Recorded, client: TestClient
) -> None:
    with session(recorded) as made:
        run(made, command)
    assert said in text_of(client, of(recorded, "odd"))


def test_a_long_file_comes_in_windows_that_lead_to_each_other(
    recorded: Recorded, client: TestClient
) -> None:
    with session(recorded) as made:
        call(made, "write_file", path="long", content="".join(f"{n}\n" for n in range(1, 701)))
    text = text_of(client, of(recorded, "long"))
    assert "Lines 1 to 300 of 700" in text and "line=301" in text and "← lines" not in text
    text = text_of(client, of(recorded, "long", line=301))
    assert "Lines 301 to 600 of 700" in text and 'line=1"' in text and "line=601" in text
    assert [first for first, _, _ in rows_of(text)] == ["301"]
    last = text_of(client, of(recorded, "long", line=601))
    assert "Lines 601 to 700 of 700" in last and "on →" not in last
    assert "Lines 401 to 700 of 700" in text_of(client, of(recorded, "long", line=99999))
    assert client.get(of(recorded, "long", line="x")).status_code == 400


def test_a_page_of_as_many_runs_as_lines_stays_within_its_budget(
    recorded: Recorded, client: TestClient
) -> None:
    lines = [f"{'x' * 40} {n}\n" for n in range(120)]
    with session(recorded) as made:
        for n in range(0, 120, 2):
            lines[n] = f"{'y' * 900} {n}\n"
            call(made, "write_file", path="long", content="".join(lines))
    text = text_of(client, of(recorded, "long"))
    assert len(rows_of(text)) > 10
    assert len(re.findall(r"<[a-z]", text)) < 1500 and len(text) < 50_000
    [following] = re.findall(r"line=(\d+)\">lines", text)
    assert rows_of(text_of(client, of(recorded, "long", line=following)))[0][0] == following


@contextmanager
def as_if_long(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setattr(followed, "FROM_BYTES", 0)
        patch.setattr(blame, "AT_ONCE", 0)
        yield


def test_what_takes_long_is_found_out_in_the_background_and_then_known(
    recorded: Recorded, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    with session(recorded) as made:
        number = call(made, "write_file", path="long", content="one\n")
    head = recorded.workspace.log.head()
    begun: list[Any] = []

    class Later(Thread):
        def start(self) -> None:
            begun.append(self)

    monkeypatch.setattr(blame, "Thread", Later)
    with as_if_long(monkeypatch):
        text = text_of(client, of(recorded, "long"))
        assert "0 of 1 versions" in text and "Look again" in text
        assert "0 of 1 versions" in text_of(client, of(recorded, "long"))
        assert len(begun) == 1  # it is done once
        begun[0].run()
        [row] = rows_of(text_of(client, of(recorded, "long")))
    assert row[1] == f"#{number} agent:reviewed"
    assert recorded.workspace.log.head() == head


def test_what_goes_wrong_in_the_background_is_said_once_and_tried_again(
    recorded: Recorded, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    with session(recorded) as made:
        call(made, "write_file", path="long", content="one\n")

    class AtOnce(Thread):
        def start(self) -> None:
            self.run()

    monkeypatch.setattr(blame, "Thread", AtOnce)

    def fail(*_: Any) -> None:
        raise NotFound("the content went away")

    with as_if_long(monkeypatch):
        with monkeypatch.context() as patch:
            patch.setattr(Lines, "follow", fail)
            client.get(of(recorded, "long"))
            assert "the content went away" in client.get(of(recorded, "long")).text
        client.get(of(recorded, "long"))
        assert rows_of(text_of(client, of(recorded, "long")))


def test_a_point_that_is_chosen_keeps_the_view(recorded: Recorded, client: TestClient) -> None:
    assert 'name="view" value="blame"' in text_of(client, of(recorded, "notes.txt"))
    answer = client.get(
        f"{recorded.url}/at?point=head&path=notes.txt&view=blame", follow_redirects=False
    )
    assert answer.headers["location"].endswith("/at/head/notes.txt?view=blame")
    assert client.get(of(recorded, "src")).status_code == 200  # a folder has no lines
