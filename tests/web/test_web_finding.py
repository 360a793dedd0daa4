"""Finding what happened: by a path that is typed, by words, by failure, by who approved."""

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient

from loom_audit.api.agents.connect import record_as_it_is
from loom_audit.tools.calls.gate import Decision
from tests.web.busy_store import LONG_FILE, Busy
from tests.web.conftest import Recorded, asking, in_thread

ROW = re.compile(r'<tr id="(c|o)(\d+)"')


@pytest.fixture(scope="module")
def asked(busy: Busy) -> Iterator[TestClient]:
    with asking(busy.store) as made:
        yield made


def numbers(client: TestClient, url: str, **query: str) -> tuple[set[int], set[int]]:
    """The calls and the changes from outside that all pages of a timeline list."""
    calls, outside = set[int](), set[int]()
    where = f"{url}/calls"
    for _ in range(50):
        answer = client.get(where, params=query or None)
        assert answer.status_code == 200, answer.text[-2000:]
        for kind, number in ROW.findall(answer.text):
            (calls if kind == "c" else outside).add(int(number))
        older = re.search(r'<a href="([^"]+)"[^>]*>Older calls', answer.text)
        if older is None:
            return calls, outside
        where, query = older[1].replace("&amp;", "&"), {}
    raise AssertionError("no last page")


def meant(busy: Busy, *paths: str) -> set[int]:
    """The calls that changed one of the paths or have it among their arguments."""
    return {one.number for one in busy.done if not {*one.paths, *one.named}.isdisjoint(paths)}


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "typed", ["src/mod_03.py", "mod_03.py", "*mod_03.p?", "{root}/src/mod_03.py"]
)
def test_a_file_is_found_by_its_path_its_name_and_a_pattern(
    busy: Busy, asked: TestClient, typed: str
) -> None:
    modules = {path for one in busy.done for path in one.named if path.endswith(".py")}
    module = max(modules, key=lambda path: len(meant(busy, path)))
    typed = typed.replace("mod_03", module[4:10]).replace("{root}", str(busy.root))
    found, _ = numbers(asked, busy.url, path=typed)
    wanted = meant(busy, module)
    assert len(wanted) > 1
    assert found == wanted


def test_what_was_only_read_is_found(busy: Busy, asked: TestClient) -> None:
    [read, *_] = [one for one in busy.done if one.tool == "read_file"]
    assert read.number in numbers(asked, busy.url, path=read.named[0])[0]


def test_a_pattern_finds_commands_that_changed_or_name_such_files(
    busy: Busy, asked: TestClient
) -> None:
    assert numbers(asked, busy.url, path="*.json")[0] == meant(busy, "data.json")
    assert numbers(asked, busy.url, path="*.png")[0] == meant(
        busy, "copy.png", "broken.png", "logo.png"
    )


def test_a_change_from_outside_is_found_also_where_no_call_is(
    recorded: Recorded, client: TestClient
) -> None:
    (recorded.root / "only-by-hand.cfg").write_text("x")
    record_as_it_is(recorded.workspace)
    calls, outside = numbers(client, recorded.url, path="only-by-hand.cfg")
    assert (calls, len(outside)) == (set(), 1)
    assert numbers(client, recorded.url, path="*.cfg") == (set(), outside)
    assert numbers(client, recorded.url, path="*.cfg", tool="read_file") == (set(), set())


def test_nothing_is_said_only_where_there_is_nothing(busy: Busy, asked: TestClient) -> None:
    text = asked.get(f"{busy.url}/calls", params={"path": "no-such-name"}).text
    assert "No call and no change from outside matches" in text
    for typed in ("mod_", LONG_FILE[:100], "notes/"):
        assert ROW.search(asked.get(f"{busy.url}/calls", params={"path": typed}).text), typed


def test_pages_together_list_everything_once(
    busy: Busy, asked: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = numbers(asked, busy.url, reads="1"), numbers(asked, busy.url, path="src")
    with monkeypatch.context() as patch:
        patch.setattr("loom_audit.web.shared.listing.ROWS", 7)
        patch.setattr("loom_audit.web.shared.listing.OUTSIDE_ROWS", 2)
        assert (numbers(asked, busy.url, reads="1"), numbers(asked, busy.url, path="src")) == whole
    assert {one.number for one in busy.done} <= whole[0][0]


@pytest.mark.parametrize(
    "typed",
    ["[", "[" * 900, "*" * 900, "*a" * 400 + "b", "?" * 900, "\x00", "../..", "%", "\\", "_", "'"],
)
def test_hostile_texts_are_looked_for_and_answered(
    busy: Busy, asked: TestClient, typed: str
) -> None:
    answer = asked.get(f"{busy.url}/calls", params={"path": typed})
    assert answer.status_code == 200
    answer = asked.get(f"{busy.url}/calls", params={"search": typed})
    assert answer.status_code == 200


@pytest.mark.parametrize("typed", ["x" * 10_000, "*" * 10_000])
def test_texts_over_the_limit_are_an_error_that_says_so(
    busy: Busy, asked: TestClient, typed: str
) -> None:
    answer = asked.get(f"{busy.url}/calls", params={"path": typed})
    assert answer.status_code == 400
    assert "at most" in answer.text


def test_lone_surrogates_find_nothing_or_what_is_called_so(busy: Busy, asked: TestClient) -> None:
    assert asked.get(f"{busy.url}/calls?path=%ED%A0%80").status_code == 200
    assert asked.get(f"{busy.url}/calls?path.q=%2525ED%2525A0").status_code == 200
    # of STRANGE, which was written before the first session
    assert not ROW.search(asked.get(f"{busy.url}/calls?path=%FF%FE").text)


def test_words_have_a_box_and_failures_a_link(busy: Busy, asked: TestClient) -> None:
    page = asked.get(f"{busy.url}/calls").text
    assert 'name="search"' in page
    link = re.search(r'href="([^"]+)">Failures<', page)
    assert link is not None and link[1] == f"{busy.url}/calls?status=failed"
    failed, outside = numbers(asked, busy.url, status="failed")
    assert failed == {one.number for one in busy.done if not one.ok} and failed
    assert outside == set()
    found, _ = numbers(asked, busy.url, search="printf json")
    assert found == {one.number for one in busy.done if one.paths == ("data.json",)}


class Person:
    """A gate that a person answers at."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    async def decide(self, tool: Any, args: Any, ctx: Any, *, asked: str = "") -> Decision:
        return Decision(self.answer, f"person:ada <b>{self.answer}</b>", "they asked")


@pytest.mark.parametrize("answer", ["allowed", "denied"])
def test_who_approved_is_in_the_row(recorded: Recorded, client: TestClient, answer: str) -> None:
    with recorded.workspace.session("asker", gate=Person(answer)) as session:
        in_thread(lambda: asyncio.run(_write(session)))
    number = recorded.workspace.timeline.calls()[0].seq
    page = client.get(f"{recorded.url}/calls").text
    row = page[page.index(f'<tr id="c{number}"') :]
    row = row[: row.index("</tr>")]
    assert f"{answer} by <bdi>person:ada &lt;b&gt;{answer}&lt;/b&gt;</bdi>" in row
    assert page.count("person:ada") == 1
    assert f"{answer} by <bdi>person:ada" in client.get(f"{recorded.url}/").text


async def _write(session: Any) -> None:
    await session.call("write_file", {"path": "asked.txt", "content": "x"})
