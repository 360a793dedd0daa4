"""Every page, every link, hostile content, names that are not text, errors that help."""

import asyncio
import html
import re
from html.parser import HTMLParser
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import pytest
from fastapi.testclient import TestClient
from jinja2 import Environment

from loom_audit.api.agents.connect import record_as_it_is
from loom_audit.api.face import open_store
from loom_audit.errors import AuditUnavailable
from loom_audit.web.shared.urls import address, quoted
from tests.web.conftest import Recorded, asking, in_thread
from tests.web.web_pages import HOSTILE, STRANGE, pages

HX = {"hx-request": "true"}


class Links(HTMLParser):
    """The addresses a page leads to, and every tag with its attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        for name in ("href", "src", "data-hx-get"):
            if (found := dict(attrs).get(name)) and not found.startswith("#"):
                self.addresses.append(found)


def test_every_link_on_every_page_answers(standing: Recorded, reader: TestClient) -> None:
    waiting, seen, shapes = ["/"], set[str](), dict[str, int]()
    while waiting:
        path = waiting.pop(0)
        shape = re.sub(r"\d+", "N", path.replace(standing.workspace.id, "ID"))
        shapes[shape] = shapes.get(shape, 0) + 1
        if path in seen or shapes[shape] > 6:
            continue
        seen.add(path)
        answer = reader.get(path, follow_redirects=True)
        assert answer.status_code in (200, 204), (path, answer.status_code, answer.text[:500])
        if answer.status_code == 204 or not answer.headers["content-type"].startswith("text/html"):
            continue
        for found in Links(answer.text).addresses:
            where = urlsplit(urljoin(str(answer.url), found))
            assert where.netloc == reader.base_url.netloc.decode(), (path, found)
            waiting.append(where.path + ("?" + where.query if where.query else ""))
    assert len(seen) > 60


def test_no_recorded_text_becomes_markup_or_steers_anything(
    standing: Recorded, reader: TestClient
) -> None:
    for name, path in pages(standing).items():
        answer = reader.get(path)
        assert answer.status_code == 200, (name, answer.text[:300])
        text = answer.text
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200b]", text)
        assert "49" not in re.findall(r"zero.{0,20}width.{0,10}", text)
        for tag, attributes in Links(text).tags:
            assert tag not in ("iframe", "object", "embed", "base", "i") or (
                tag == "i" and attributes == {"class": "eol"}
            ), (name, tag)
            assert tag != "img", name
            assert tag != "script" or "src" in attributes, name
            assert not any(key.startswith("on") or key == "style" for key in attributes), name
            assert not any(key.startswith("hx-") for key in attributes), name
            if any(key.startswith("data-hx-") for key in attributes):
                assert "data-hx-nonce" in attributes, name


def test_hostile_content_is_shown_in_full_as_text(standing: Recorded, reader: TestClient) -> None:
    path = quoted("docs/evil <i>.html", safe="/")
    text = html.unescape(reader.get(f"{standing.url}/at/head/{path}").text)
    assert "<script>window.hacked = 1</script>" in text
    assert "\\x1b[2J" in text
    assert "{{ 7 * 7 }}" in text
    raw = reader.get(f"{standing.url}/raw/head/{path}")
    assert raw.text == HOSTILE
    assert raw.headers["content-type"] == "application/octet-stream"
    assert raw.headers["content-disposition"].startswith("attachment;")
    assert raw.headers["content-security-policy"] == "sandbox; default-src 'none'"
    assert raw.headers["x-content-type-options"] == "nosniff"


def test_a_name_that_is_not_text_works_everywhere(standing: Recorded, reader: TestClient) -> None:
    name = quoted(STRANGE)
    assert "%FF%FE" in name
    url = standing.url
    assert reader.get(f"{url}/raw/head/{name}").content == b"bytes \xff\xfe\n"
    shown = reader.get(f"{url}/at/head/{name}")
    assert shown.status_code == 200
    assert "bytes \\xff\\xfe" in shown.text
    assert reader.get(f"{url}/history/{name}").status_code == 200
    assert reader.get(f"{url}/calls?path={name}").status_code == 200
    rollback = address(
        "w",
        standing.workspace.id,
        "plan",
        query=[("verb", "rollback"), ("target", standing.numbers["read"]), ("path", STRANGE)],
    )
    assert reader.get(rollback).status_code == 200


def test_the_raw_download_names_the_file_by_its_bytes(
    standing: Recorded, reader: TestClient
) -> None:
    raw = reader.get(f"{standing.url}/raw/head/{quoted(STRANGE)}")
    assert raw.headers["content-disposition"] == f"attachment; filename*=UTF-8''{quoted(STRANGE)}"


def test_filters_narrow_the_timeline(standing: Recorded, reader: TestClient) -> None:
    def numbers(query: str) -> set[str]:
        found = reader.get(f"{standing.url}/calls?{query}")
        assert found.status_code == 200
        return set(re.findall(r'<tr id="c(\d+)"', found.text))

    named = {name: str(number) for name, number in standing.numbers.items()}
    everything = numbers("")
    assert set(named.values()) <= everything
    assert numbers("tool=edit_file") == {named["notes"], named["first"], named["later"]}
    assert {named["failing"], named["unknown"]} <= numbers("status=error") < everything
    assert numbers("path=notes.txt") == {named["notes"]}
    assert numbers("path=build/") == {named["shell"]}
    assert numbers("path=big.txt") == {named["big"], named["shell"]}
    assert numbers("tool=edit_file&path=notes.txt") == {named["notes"]}
    assert numbers("tool=nothing") == set()


def test_an_empty_answer_says_what_to_do(standing: Recorded, reader: TestClient) -> None:
    text = reader.get(f"{standing.url}/calls?tool=nothing").text
    assert "No call matches" in text
    assert "Show all calls" in text


@pytest.mark.parametrize(("limit", "most"), [("ROWS", 3), ("SPACE", 1_000)])
def test_older_and_newer_walk_the_whole_timeline_without_gap_or_double(
    standing: Recorded, reader: TestClient, monkeypatch: pytest.MonkeyPatch, limit: str, most: int
) -> None:
    monkeypatch.setattr(f"loom_audit.web.shared.listing.{limit}", most)
    url = f"{standing.url}/calls"
    whole = [call.seq for call in standing.workspace.timeline.calls()]

    def walk(link: str, start: str) -> list[list[int]]:
        found, where = [], start
        while where:
            text = reader.get(where).text
            found.append([int(n) for n in re.findall(r'<tr id="c(\d+)"', text)])
            match = re.search(rf'<a href="([^"]+)"[^>]*>{link} calls', text)
            where = html.unescape(match.group(1)) if match else ""
        return found

    down = walk("Older", url)
    assert list(chain.from_iterable(down)) == whole
    oldest = standing.workspace.timeline.calls()[-1].requested
    up = walk("Newer", f"{url}?after={oldest - 1}")
    assert list(chain.from_iterable(reversed(up))) == whole


def test_what_came_from_outside_stands_once_between_the_calls(
    standing: Recorded, reader: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loom_audit.web.shared.listing.ROWS", 1)
    found, where = [], f"{standing.url}/calls"
    while where:
        text = reader.get(where).text
        found += re.findall(r'<tr id="([co]\d+)"', text)
        match = re.search(r'<a href="([^"]+)"[^>]*>Older calls', text)
        where = html.unescape(match.group(1)) if match else ""
    assert len([row for row in found if row.startswith("o")]) == 1
    assert len(found) == len(set(found))
    assert found[1].startswith("o"), "before the command that found it, after all others"
    only = reader.get(f"{standing.url}/calls?tool=shell_execute").text
    assert not re.search(r'id="o\d', only)


def test_a_fragment_is_a_part_of_the_page(standing: Recorded, reader: TestClient) -> None:
    rows = reader.get(f"{standing.url}/calls?before=1000000&more=1", headers=HX).text
    assert rows.lstrip().startswith("<tr")
    listing = reader.get(f"{standing.url}/calls?tool=read_file", headers=HX).text
    assert listing.lstrip().startswith('<div id="listing"')
    restored = {**HX, "hx-history-restore-request": "true"}
    assert reader.get(f"{standing.url}/calls", headers=restored).text.startswith("<!doctype")


@pytest.mark.parametrize("fragment", [True, False])
def test_a_large_diff_comes_in_parts_without_gap_or_double(
    standing: Recorded, reader: TestClient, fragment: bool
) -> None:
    where, seen, parts = f"{standing.url}/c/{standing.numbers['big']}", list[str](), 0
    while where:
        headers = HX if fragment and parts else None
        text = reader.get(where, headers=headers).text
        assert text.lstrip().startswith("<tbody" if headers else "<!doctype")
        seen += re.findall(r'<td class="code">(\d+)', text)
        match = re.search(r'<a href="([^"]+)"[^>]*>More lines', text)
        where, parts = html.unescape(match.group(1)) if match else "", parts + 1
    assert seen == [str(n) for n in range(900)]
    assert parts > 1


def test_a_content_of_one_long_line_is_compared_and_can_be_downloaded(
    standing: Recorded, reader: TestClient
) -> None:
    number = standing.numbers["huge"]
    page = reader.get(f"{standing.url}/c/{number}?diff=huge.txt")
    assert "cut, 1,048,577 bytes" in page.text
    raw = reader.get(f"{standing.url}/raw/{number}/huge.txt")
    assert len(raw.content) == 1024 * 1024 + 1


def test_a_call_page_answers_to_any_of_its_events(standing: Recorded, reader: TestClient) -> None:
    detail = standing.workspace.timeline.call(standing.numbers["notes"])
    assert len(detail.events) > 2
    for event in detail.events:
        text = reader.get(f"{standing.url}/c/{event.seq}").text
        assert f"#{standing.numbers['notes']}</span>" in text


def test_a_call_shows_its_own_diff_and_not_what_came_later(
    standing: Recorded, reader: TestClient
) -> None:
    text = html.unescape(reader.get(f"{standing.url}/c/{standing.numbers['first']}").text)
    plain = re.sub(r"</?(ins|del)>", "", text)
    assert "return value * 7" in plain
    assert "value ** 7" not in plain


def test_a_file_is_shown_as_it_was(standing: Recorded, reader: TestClient) -> None:
    call = standing.workspace.timeline.call(standing.numbers["notes"]).call
    assert ">TWO</td>" in reader.get(f"{standing.url}/at/{call.seq}/notes.txt").text
    assert ">two</td>" in reader.get(f"{standing.url}/at/{call.requested}/notes.txt").text
    checkpoint = reader.get(f"{standing.url}/at/{quoted('@v1/<b>')}/notes.txt")
    assert checkpoint.status_code == 200


def test_a_binary_file_is_dumped_and_never_rendered(standing: Recorded, reader: TestClient) -> None:
    text = reader.get(f"{standing.url}/at/{standing.numbers['big']}/build/out.o").text
    assert "7f 45 4c 46" in text
    assert "Download" in text


def test_a_file_recorded_by_hash_only_says_so_and_offers_no_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOOM_AUDIT_HOME", str(tmp_path / "home"))
    root = tmp_path / "work"
    root.mkdir()
    (root / "large.txt").write_text("0123456789\n")
    with open_store() as store:
        made = Recorded(store, store.attach(root, max_file_bytes=10), root)
        with asking(made.store) as client:
            page = client.get(f"{made.url}/at/head/large.txt")
            raw = client.get(f"{made.url}/raw/head/large.txt")
    assert page.status_code == 200 and "recorded by hash only" in page.text
    assert "/raw/" not in page.text and "0123456789" not in page.text
    assert raw.status_code == 413 and "recorded by hash only" in raw.text


ERRORS = [
    ("/nothing", 404, "start page"),
    ("/w/nothing/", 404, "start page"),
    ("/w/nothing/calls", 404, "start page"),
    ("{url}/c/999999", 404, ""),
    ("{url}/c/1", 404, ""),
    ("{url}/c/abc", 400, "numbers"),
    ("{url}/s/nobody", 404, ""),
    ("{url}/at/999999/", 404, "head"),
    ("{url}/at/@nothing/", 404, "checkpoint"),
    ("{url}/at/never/", 400, "RFC 3339"),
    ("{url}/at?point=never", 400, "RFC 3339"),
    ("{url}/at/head/nothing.txt", 404, "No change of that name"),
    ("{url}/at/head/build/out.o", 404, "history"),
    ("{url}/raw/head/nothing.txt", 404, ""),
    ("{url}/raw/head/src", 404, ""),
    ("{url}/history/nothing.txt", 404, "case-sensitive"),
    ("{url}/compare/1", 400, "A..B"),
    ("{url}/compare/1..zzz", 400, ""),
    ("{url}/calls?before=x", 400, "before"),
    ("{url}/calls?status=nice", 400, "interrupted"),
    ("{url}/plan", 400, "undo"),
    ("{url}/plan?verb=erase&target=1", 400, "rollback"),
    ("{url}/plan?verb=revert", 400, "ticked"),
    ("{url}/plan?verb=revert&target=999999", 404, ""),
    ("{url}/plan?verb=rollback&target=0", 404, ""),
    ("{url}/plan?verb=rollback&target=1&choice:notes.txt=eat", 400, "merge"),
    ("{url}/carry-out", 405, ""),
]


@pytest.mark.parametrize(("path", "status", "says"), ERRORS, ids=[path for path, *_ in ERRORS])
@pytest.mark.parametrize("fragment", [True, False], ids=["fragment", "page"])
def test_an_error_is_a_page_with_code_message_and_hint(
    standing: Recorded, reader: TestClient, path: str, status: int, says: str, fragment: bool
) -> None:
    answer = reader.get(path.format(url=standing.url), headers=HX if fragment else None)
    assert answer.status_code == status, answer.text
    assert re.search(r"<code>[A-Z_]+</code>", answer.text)
    assert says in answer.text and "`" not in answer.text
    assert answer.text.startswith("<!doctype") != fragment
    if not fragment:
        assert '<a href="/">All workspaces</a>' in answer.text
        there = path.startswith("{url}") and status != 405
        assert (f'<a href="{standing.url}/">To the workspace</a>' in answer.text) == there
        assert ('aria-label="Workspace"' in answer.text) == there


def test_an_error_of_the_store_leads_back_and_asks_the_store_nothing(
    standing: Recorded, reader: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> None:
        raise AuditUnavailable("the disk is gone")

    monkeypatch.setattr("loom_audit.web.calls.page_of_calls", failing)
    monkeypatch.setattr("loom_audit.web.shared.pages.is_waiting", failing)
    answer = reader.get(f"{standing.url}/calls")
    assert answer.status_code == 503 and "the disk is gone" in answer.text
    assert f'<a href="{standing.url}/">To the workspace</a>' in answer.text


def test_an_address_in_an_error_is_not_reflected_as_markup(reader: TestClient) -> None:
    for path in ("/<script>alert(1)</script>", "/w/<script>x</script>/", "//evil.example/"):
        answer = reader.get(str(reader.base_url).rstrip("/") + path)
        assert answer.status_code == 404, path
        assert "<script>" not in answer.text.replace("<script src=", "")
        assert "location" not in answer.headers


def test_a_path_that_was_deleted_leads_to_where_it_was(
    standing: Recorded, reader: TestClient
) -> None:
    text = reader.get(f"{standing.url}/at/head/build/out.o").text
    near = re.search(r'href="([^"]+)">As it was at', text)
    assert near
    assert reader.get(html.unescape(near.group(1))).status_code == 200


def test_a_store_without_workspaces_says_how_to_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOOM_AUDIT_HOME", str(tmp_path / "home"))
    url = f"sqlite:///{tmp_path / 'home' / 'audit.db'}"
    with open_store(url) as store, asking(store) as empty:
        text = empty.get("/").text
    assert "loom-audit init" in text


def test_the_pages_of_a_workspace_that_vanished_still_show_its_record(
    recorded: Recorded, client: TestClient
) -> None:
    recorded.root.rename(recorded.root.with_name("elsewhere"))
    assert client.get(f"{recorded.url}/").status_code == 200
    assert client.get(f"{recorded.url}/calls").status_code == 200
    assert client.get(f"{recorded.url}/at/head/notes.txt").status_code == 200
    gone = client.get(f"{recorded.url}/status")
    assert gone.status_code == 404
    assert "replay" in gone.text


def test_a_difference_that_waits_says_why(recorded: Recorded, client: TestClient) -> None:
    number = recorded.call("long", "shell_execute", {"command": "seq 900 > a; seq 3 > b"})
    text = client.get(f"{recorded.url}/c/{number}").text
    assert "900 lines added and removed" in text
    command = "yes wide lines of text | head -45000 > c; seq 3 > d"
    number = recorded.call("wide", "shell_execute", {"command": command})
    text = client.get(f"{recorded.url}/c/{number}").text
    assert "Not compared yet, 835" in text
    loaded = client.get(f"{recorded.url}/c/{number}?diff=c", headers=HX).text
    assert loaded.lstrip().startswith("<section")
    assert "More lines" in loaded


def test_verify_runs_on_post_and_shows_what_it_found(
    recorded: Recorded, client: TestClient
) -> None:
    before = client.get(f"{recorded.url}/proof").text
    assert "Verify now" in before
    for mode in ("full", "quick"):
        answer = client.post(f"{recorded.url}/proof", data={"mode": mode})
        assert answer.status_code == 200
        assert "Result" in answer.text


def test_status_names_what_differs_on_disk(recorded: Recorded, client: TestClient) -> None:
    assert "Everything on disk is as recorded" in client.get(f"{recorded.url}/status").text
    (recorded.root / "notes.txt").write_text("mine\n")
    text = client.get(f"{recorded.url}/status").text
    assert "notes.txt" in text
    assert "1 path differs" in text


@pytest.mark.parametrize(
    "page",
    [
        "/c/{}",
        "/calls?before={}",
        "/?before={}",
        "/history/notes.txt?before={}",
        "/at/{}/",
        "/compare/{}..head",
        "/plan?verb=revert&target={}",
        "/plan?verb=rollback&target={}",
    ],
)
def test_a_number_beyond_any_event_is_not_found(
    standing: Recorded, reader: TestClient, page: str
) -> None:
    answer = reader.get(standing.url + page.format("9" * 25))
    assert answer.status_code in (400, 404) and "Traceback" not in answer.text


def test_a_page_that_shows_times_says_in_which_zone(standing: Recorded, reader: TestClient) -> None:
    shown = 0
    for name, path in pages(standing).items():
        text = reader.get(path).text
        if re.search(r'<time datetime="[^"]+T', text):
            shown += 1
            assert 'class="zone">UTC<' in text, name
    assert shown > 12


def test_reads_that_follow_each_other_are_one_row(recorded: Recorded, client: TestClient) -> None:
    def rows(query: str = "") -> tuple[int, int]:
        text = client.get(f"{recorded.url}/calls{query}").text
        return text.count('class="reads"'), len(re.findall(r'<tr id="c\d+"', text))

    assert rows()[0] == 0
    whole = rows()[1]
    with recorded.workspace.session("looker") as session:

        def call(tool: str, **arguments: str) -> None:
            in_thread(lambda: asyncio.run(session.call(tool, arguments)))

        for _ in range(2):
            call("read_file", path="notes.txt")
        assert rows() == (0, whole + 2)
        call("write_file", path="x", content="")
        for _ in range(14):
            call("read_file", path="notes.txt")
        call("read_file", path="not there")
        call("read_file", path="notes.txt")
    assert rows() == (1, whole + 5)
    assert rows("?reads=1") == (0, whole + 19)
    assert rows("?tool=read_file")[0] == 0
    text = client.get(f"{recorded.url}/calls").text
    reads = text[text.index('class="reads"') :].partition("</tr>")[0]
    assert ">14 reads " in reads and len(set(re.findall(r"/c/(\d+)", reads))) == 14


def test_no_page_waits_for_a_template_once_all_are_compiled(
    standing: Recorded, reader: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    app: Any = reader.app
    app.state.pages.compile()

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a template was compiled")

    monkeypatch.setattr(Environment, "compile", refuse)
    for name in ("overview", "session", "call", "folder"):
        assert reader.get(pages(standing)[name]).status_code == 200


def test_what_is_not_recorded_has_no_size(recorded: Recorded, client: TestClient) -> None:
    (recorded.root / ".git").mkdir()
    record_as_it_is(recorded.workspace)
    (row,) = re.findall(
        r'<tr><th scope="row" class="k-opaque">.*?</tr>',
        client.get(f"{recorded.url}/at/head/").text,
        re.DOTALL,
    )
    assert "not recorded" in row and '<td class="r"></td>' in row
