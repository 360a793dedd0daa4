"""Marking a review: parts and files viewed, how far was read, and what is unread."""

import re
from collections.abc import Collection, Mapping
from contextlib import closing
from html import unescape
from sqlite3 import connect

import pytest
from fastapi.testclient import TestClient
from msgspec.structs import replace

from loom_audit.api.lines import NetFile, lines_of
from loom_audit.api.review.marks import (
    last_read,
    mark_unread,
    mark_viewed,
    read_up_to,
    unread_sessions,
    viewed_among,
)
from loom_audit.errors import InvalidArguments, NotFound
from loom_audit.model.authorship.net_sums import decoded_sums, encoded_sums
from loom_audit.model.conversation import PromptSubmitted
from loom_audit.model.events import CallRequested, Draft, SessionStarted
from loom_audit.sql.store.marks import SqlMarks
from loom_audit.web.shared.urls import quoted, unquoted
from loom_audit.wiring.caches import FOLDER
from tests.web.conftest import Recorded, say
from tests.web.test_web_review import call, run, session, text_of
from tests.web.web_pages import HOSTILE

OURS = {"Sec-Fetch-Site": "same-origin"}
HTMX = {**OURS, "HX-Request": "true"}


def post(
    client: TestClient, address: str, form: Mapping[str, str], headers: Mapping[str, str] = OURS
) -> str:
    """Send a form as a browser does; the body of the answer after redirects."""
    answer = client.post(address, data={**form}, headers={**headers}, follow_redirects=True)
    assert answer.status_code == 200, answer.text[:2000]
    return answer.text


def progress(text: str) -> tuple[int, int]:
    found = re.search(r"<b>([\d,]+) of ([\d,]+) parts? viewed</b>", text)
    assert found, text[:3000]
    return int(found[1]), int(found[2])


def files(recorded: Recorded, id: str) -> dict[str, NetFile]:
    lines = lines_of(recorded.workspace)
    return {one.path: one for one in lines.net(lines.of_session(id)).files}


def hidden_fields(text: str) -> dict[str, str]:
    form = text[text.index('class="marks"') :]
    named = re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)">', form)
    return {name: unescape(value) for name, value in named}


def test_a_part_is_viewed_folded_and_unviewed_without_javascript(
    recorded: Recorded, client: TestClient
) -> None:
    with session(recorded) as made:
        call(made, "write_file", path="notes.txt", content="ONE\ntwo\nthree\n" + "x\n" * 9)
        call(made, "write_file", path="other.txt", content="x\n")
    where = f"{recorded.url}/s/{made.id}"
    text = text_of(client, where)
    assert progress(text) == (0, 3) and 'aria-pressed="true"' not in text
    file = files(recorded, made.id)["notes.txt"]
    first, second = file.named
    assert f'id="p-{first}" data-part="{first}"' in text and "viewed-toggle" in text
    answer = client.post(
        f"{where}/marks",
        data={**hidden_fields(text), "view": first},
        headers=OURS,
        follow_redirects=False,
    )
    assert (answer.status_code, answer.headers["location"]) == (303, f"{where}#p-{first}")
    text = text_of(client, where)
    assert progress(text) == (1, 3)
    part = text[text.index(f'id="p-{first}"') :].partition("</tbody>")[0]
    assert "<details><summary>Viewed" in part and "<details open" not in part
    assert f'name="unview" value="{first}"' in text and f'name="view" value="{second}"' in text
    assert progress(post(client, f"{where}/marks", {"unview": first})) == (0, 3)
    assert viewed_among(recorded.workspace, file.named) == frozenset()


def test_a_file_is_viewed_as_a_whole_also_one_of_odd_name(
    recorded: Recorded, client: TestClient
) -> None:
    odd = "<i>  two\nlines'\" & .txt"
    with session(recorded) as made:
        call(made, "write_file", path=odd, content="x\n")
        run(made, "chmod 755 notes.txt; echo >> notes.txt")
        run(made, "printf x > \"$(printf 'new\\376.txt')\"")
    where = f"{recorded.url}/s/{made.id}"
    text = text_of(client, where)
    done, count = progress(text)
    named = files(recorded, made.id)
    assert done == 0 and {odd, "new\udcfe.txt"} <= {*named}
    [button] = re.findall(r'name="view-file.q" value="([^"]+)"', text)
    assert unquoted(unescape(button)) == "notes.txt", "the others have one part, with its own"
    for path, file in named.items():
        form = {**hidden_fields(text), "view-file.q": quoted(path, safe="/")}
        text = post(client, f"{where}/marks", form)
        assert viewed_among(recorded.workspace, file.named) == {*file.named}
        done += len(file.named)
        assert progress(text) == (done, count)
    assert done == count and "<details" in text
    text = post(client, f"{where}/marks", {"unview-file": "notes.txt"})
    assert progress(text) == (count - len(named["notes.txt"].named), count)
    wrong = client.post(f"{where}/marks", data={"view-file": "nowhere"}, headers=OURS)
    assert wrong.status_code == 404


def test_a_file_is_viewed_by_its_lines_whatever_kept_sums_say(
    recorded: Recorded, client: TestClient
) -> None:
    with session(recorded) as made:
        for n in range(40):  # more than a page shows with its lines
            content = "".join(f"{n} {line}\n" for line in range(60))
            call(made, "write_file", path=f"f{n:02}", content=content)
    lines = lines_of(recorded.workspace)
    lines.net(lines.of_session(made.id), max_lines=0, by_sums=True)
    named = {path: file.named for path, file in files(recorded, made.id).items()}
    kept = recorded.store.adapters.settings.home / FOLDER / f"{recorded.workspace.id}.lines.db"
    with closing(connect(kept)) as raw, raw:
        for name, content in raw.execute("SELECT name, content FROM map").fetchall():
            sums = decoded_sums(content, name, lines.key)
            if sums and sums.named == named["f39"]:
                forged = encoded_sums(replace(sums, named=named["f38"]), name, lines.key)
                raw.execute("UPDATE map SET content = ? WHERE name = ?", (forged, name))
        assert raw.total_changes == 1
    where = f"{recorded.url}/s/{made.id}"
    form = {**hidden_fields(text_of(client, where)), "view-file": "f39"}
    post(client, f"{where}/marks", form)
    assert viewed_among(recorded.workspace, named["f38"]) == frozenset()
    assert viewed_among(recorded.workspace, named["f39"]) == {*named["f39"]}


def test_a_mark_holds_in_every_scope_where_the_part_is_the_same(
    recorded: Recorded, client: TestClient
) -> None:
    with session(recorded) as made:
        say(recorded.workspace, made.id, PromptSubmitted("one"))
        first = call(made, "write_file", path="one.txt", content="one\n")
        turn = say(recorded.workspace, made.id, PromptSubmitted("two"))
        call(made, "write_file", path="two.txt", content="two\n")
        call(made, "edit_file", path="one.txt", old_str="one", new_str="1")
    where = f"{recorded.url}/s/{made.id}"
    two = files(recorded, made.id)["two.txt"]
    text = post(client, f"{where}/marks", {"view-file": "two.txt", "turn": str(turn)})
    assert progress(text) == (1, 2), "the part of one.txt is another one in this turn"
    assert 'class="scopes"' in text and f'name="turn" value="{turn}"' in text
    assert progress(text_of(client, where)) == (1, 2)
    assert progress(text_of(client, f"{where}?since={first}")) == (1, 2)
    mark_viewed(recorded.workspace, files(recorded, made.id)["one.txt"].named)
    assert progress(text_of(client, where)) == (2, 2)
    assert progress(text_of(client, f"{where}?turn={turn}")) == (1, 2)
    assert two.named[0] in text_of(client, f"{where}?turn={turn}")


def test_what_changed_after_it_was_viewed_is_to_be_viewed_again(
    recorded: Recorded, client: TestClient
) -> None:
    with session(recorded) as made:
        call(made, "write_file", path="one.txt", content="one\n")
        call(made, "write_file", path="two.txt", content="two\n")
        where = f"{recorded.url}/s/{made.id}"
        text = text_of(client, where)
        asked = {**hidden_fields(text), "view-file": "one.txt"}
        call(made, "write_file", path="one.txt", content="one\nand more\n")
        text = post(client, f"{where}/marks", asked)
        assert progress(text) == (0, 2), "what was marked is what the page had shown"
        call(made, "write_file", path="one.txt", content="one\n")
        assert progress(text_of(client, where)) == (1, 2)


def test_htmx_is_answered_with_the_file_alone(recorded: Recorded, client: TestClient) -> None:
    with session(recorded) as made:
        call(made, "write_file", path="one.txt", content="one\n")
        call(made, "write_file", path=f"<i>{HOSTILE[:40]}.txt".replace("\n", " "), content=HOSTILE)
        call(made, "write_file", path="big.txt", content="\n".join(map(str, range(1_200))))
    where = f"{recorded.url}/s/{made.id}"
    fields = hidden_fields(text_of(client, where))
    for n, (path, file) in enumerate(files(recorded, made.id).items(), 1):
        name = file.named[0]
        text = post(client, f"{where}/marks", {**fields, "view": name}, HTMX)
        assert "<html" not in text and text.count('<section class="file"') == 1, path
        assert f'name="unview" value="{name}"' in text or "unview-file" in text
        assert 'data-hx-swap-oob="true"' in text and progress(text)[0] == n
        assert "<script>" not in text and "<i>" not in text
    answer = client.post(f"{where}/marks", data={**fields, "view": "0" * 32}, headers=HTMX)
    assert answer.status_code == 404


def test_read_up_to_leaves_what_came_since(recorded: Recorded, client: TestClient) -> None:
    with session(recorded) as made:
        call(made, "write_file", path="one.txt", content="one\n")
        where = f"{recorded.url}/s/{made.id}"
        text = text_of(client, where)
        [read] = re.findall(r'name="read" value="(\d+)"', text)
        assert "Since" not in text and f"Read up to #{read}" in text
        call(made, "write_file", path="two.txt", content="two\n")
        text = post(client, f"{where}/marks", {**hidden_fields(text), "read": read})
        assert f"?since={read}" in text and f"Since I read #{read}" in text
        text = text_of(client, f"{where}?since={read}")
        assert 'id="f-two.txt"' in text and 'id="f-one.txt"' not in text
        assert f'<a href="{where}/steps?since={read}"' in text, "the tabs keep the scope"
        assert f'<a href="{where}?since={read}" aria-current="page">Changes</a>' in text
        steps = text_of(client, f"{where}/steps?since={read}")
        assert "two.txt" in steps and ">one.txt<" not in steps
        assert f"{where}?since={read}" in steps
        calls = text_of(client, f"{where}/commands?since={read}")
        assert f"came after #{read} only" in calls
        text = post(client, f"{where}/marks", {"since": read, "unread": "1"})
        assert f"Since #{read}" in text and "Since I read" not in text
        assert last_read(recorded.workspace, made.id) is None
    text = text_of(client, f"{where}?since=99999999")
    assert "it changed nothing that still differs" in text
    assert client.get(f"{where}?since=<b>").status_code == 400


def test_a_call_that_is_open_is_read_with_what_it_will_have_changed(recorded: Recorded) -> None:
    workspace = recorded.workspace
    with session(recorded) as made:
        before = call(made, "write_file", path="one.txt", content="one\n")
        [asked] = workspace.log.append(
            [Draft(CallRequested("open", "Bash", {}, "execute"), made.id, "agent:a")]
        )
        last = call(made, "write_file", path="two.txt", content="two\n")
        assert read_up_to(workspace, made.id, last) == asked.seq - 1 >= before
        assert last_read(workspace, made.id) == asked.seq - 1
        assert read_up_to(workspace, made.id, before) == before
        for wrong in (0, -1, workspace.log.head() + 1):
            with pytest.raises(InvalidArguments):
                read_up_to(workspace, made.id, wrong)
        with pytest.raises(NotFound):
            read_up_to(workspace, "nobody", 1)
        assert last_read(workspace, made.id) == before


def test_sessions_with_unread_changes_wait_until_they_are_marked_as_read(
    recorded: Recorded, client: TestClient
) -> None:
    workspace = recorded.workspace
    waiting = {one.session.id for one in unread_sessions(workspace)}
    assert waiting == {recorded.session}
    with session(recorded) as made, session(recorded, "helper") as inner:
        begun = SessionStarted("helper", "sent", parent=made.id)
        workspace.log.append([Draft(begun, inner.id, "agent:helper")])
        call(inner, "write_file", path="sent.txt", content="x")
    assert [one.session.id for one in unread_sessions(workspace)] == [made.id, recorded.session]
    for page, back in (("", ""), ("needs", "needs")):
        text = text_of(client, f"{recorded.url}/{page}")
        assert text.count("Mark as read") == 2
        head = workspace.log.head()
        assert f'name="next" value="{back}"' in text and f'name="read" value="{head}"' in text
    form = {"next": "", "read": str(head)}
    text = post(client, f"{recorded.url}/s/{made.id}/marks", form)
    assert text.count("Mark as read") == 1 and "Sessions</h2>" in text
    form = {"next": "needs", "read": str(head)}
    text = post(client, f"{recorded.url}/s/{recorded.session}/marks", form)
    assert "Mark as read" not in text and "Needs you" in text
    call_number = recorded.call("again", "write_file", {"path": "again.txt", "content": "x"})
    assert call_number and text_of(client, f"{recorded.url}/").count("Mark as read") == 1
    mark_unread(workspace, made.id)
    assert text_of(client, f"{recorded.url}/").count("Mark as read") == 2
    wrong = client.post(
        f"{recorded.url}/s/{made.id}/marks",
        data={"next": "//evil.example", "read": str(head)},
        headers=OURS,
        follow_redirects=False,
    )
    assert wrong.status_code == 400


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "same-origin", "Origin": "https://evil.example"},
    ],
)
def test_a_foreign_origin_marks_nothing(
    recorded: Recorded, client: TestClient, headers: dict[str, str]
) -> None:
    names = next(iter(files(recorded, recorded.session).values())).named
    for form in ({"view": names[0]}, {"read": "9"}, {"unread": "1"}):
        client.headers.pop("Sec-Fetch-Site", None)
        client.headers.pop("Origin", None)
        answer = client.post(
            f"{recorded.url}/s/{recorded.session}/marks", data=form, headers=headers
        )
        assert answer.status_code == 403, form
    assert viewed_among(recorded.workspace, names) == frozenset()
    assert last_read(recorded.workspace, recorded.session) is None


def test_a_get_marks_nothing(recorded: Recorded, client: TestClient) -> None:
    names = [name for one in files(recorded, recorded.session).values() for name in one.named]
    where = f"{recorded.url}/s/{recorded.session}"
    before = tables(recorded)
    for address in (
        where,
        f"{where}?since=9",
        f"{where}?view={names[0]}&read=9",
        f"{recorded.url}/",
        f"{recorded.url}/needs",
    ):
        text_of(client, address)
    assert client.get(f"{where}/marks?view={names[0]}").status_code == 405
    assert tables(recorded) == before


def tables(recorded: Recorded) -> list[object]:
    connections = recorded.store.adapters.database.connections
    with connections.reading() as connection:
        return [
            sorted(map(tuple, connection.execute(f"SELECT * FROM {table}").fetchall()))
            for table in ("marks", "viewed", "read_to")
        ]


def test_a_form_that_is_not_ours_marks_nothing(recorded: Recorded, client: TestClient) -> None:
    before = tables(recorded)
    wrong = {
        "": 400,
        "view=x": 400,
        "view=" + "A" * 32: 400,
        "view=" + "a" * 31 + "%0A": 400,
        "view=%3Cscript%3E": 400,
        "view=%FF": 400,
        "view=" + "0" * 32 + "&read=3": 400,
        "view=" + "&view=".join(["0" * 32] * 2): 400,
        "read=0": 400,
        "read=": 400,
        "read=x": 400,
        "read=999999999": 400,
        "view-file=notes.txt&until=999999999": 400,
        "view-file=notes.txt&until=1": 400,
        "view-file=notes.txt&turn=3": 400,
        "view-file.q=%25ED%25A0%2580": 404,
        "view-file=%ED%A0%80": 404,
    }
    for body, status in wrong.items():
        answer = client.post(
            f"{recorded.url}/s/{recorded.session}/marks",
            content=body,
            headers={**OURS, "Content-Type": "application/x-www-form-urlencoded"},
        )
        assert answer.status_code == status, (body, answer.text[:500])
    unknown = client.post(f"{recorded.url}/s/nobody/marks", data={"read": "1"}, headers=OURS)
    assert unknown.status_code == 404
    assert tables(recorded) == before


def test_a_store_that_cannot_be_written_is_shown_and_marks_are_refused(
    recorded: Recorded, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = f"{recorded.url}/s/{recorded.session}"
    before = tables(recorded)
    monkeypatch.setattr(recorded.store.adapters.database.connections, "writable", False)
    [name, *_] = next(iter(files(recorded, recorded.session).values())).named
    for form in ({"view": name}, {"read": "9"}):
        answer = client.post(f"{where}/marks", data=form, headers=OURS)
        assert answer.status_code == 503 and "reading only" in answer.text
    assert progress(text_of(client, where))[0] == 0 and tables(recorded) == before


def test_where_the_key_is_gone_nothing_can_be_marked_and_all_is_shown(
    recorded: Recorded, client: TestClient
) -> None:
    with recorded.store.adapters.database.connections.writing() as connection:
        connection.execute("DELETE FROM marks")
    text = text_of(client, f"{recorded.url}/s/{recorded.session}")
    assert "viewed-toggle" not in text and "parts viewed" not in text and 'id="f-big.txt"' in text
    assert "Mark as read" not in text_of(client, f"{recorded.url}/")


def test_a_page_asks_once_for_its_marks_and_stays_small_with_many_parts_folded(
    recorded: Recorded, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    (recorded.root / "long.txt").write_text("".join(f"{n}\n" for n in range(900)))
    with session(recorded) as made:
        lines = [f"{n}{' changed' * (n % 8 == 0)}\n" for n in range(900)]
        call(made, "write_file", path="long.txt", content="".join(lines))
        for n in range(5):
            call(made, "write_file", path=f"{n}.txt", content="x\n")
    names = files(recorded, made.id)["long.txt"].named
    assert len(names) == 113
    mark_viewed(recorded.workspace, names[:-1])
    asked: list[int] = []
    ask = SqlMarks.viewed

    def counted(self: SqlMarks, person: str, wanted: Collection[str]) -> frozenset[str]:
        asked.append(len(wanted))
        return ask(self, person, wanted)

    monkeypatch.setattr(SqlMarks, "viewed", counted)
    where = f"{recorded.url}/s/{made.id}"
    for address in (where, f"{where}?diff=long.txt"):
        text = text_of(client, address)
        assert progress(text) == (112, 118)
        assert len(re.findall(r"<[a-z]", text)) <= 1_500
    assert re.findall("<details><summary>[^<]*", text)[:1] == [
        "<details><summary>Viewed, line 1: +1 −1"
    ]
    assert asked == [118, 118], "the parts of files that are not loaded are counted too"


def test_what_the_reader_took_back_is_not_unread(recorded: Recorded, client: TestClient) -> None:
    read_up_to(recorded.workspace, recorded.session)
    number = recorded.call("again", "write_file", {"path": "again.txt", "content": "x"})
    [unread] = unread_sessions(recorded.workspace)
    read_up_to(recorded.workspace, unread.session.id)
    form = {"verb": "revert", "target": str(number), "quick": "1"}
    post(client, f"{recorded.url}/carry-out", form)
    assert not (recorded.root / "again.txt").exists()
    assert unread_sessions(recorded.workspace) == []
    assert "Mark as read" not in text_of(client, f"{recorded.url}/")


def test_notes_that_somebody_made_something_else_of_break_no_page(
    recorded: Recorded, client: TestClient
) -> None:
    names = [name for one in files(recorded, recorded.session).values() for name in one.named]
    mark_viewed(recorded.workspace, names)
    read_up_to(recorded.workspace, recorded.session)
    where = f"{recorded.url}/s/{recorded.session}"
    for change in (
        "UPDATE read_to SET seq = 'x'",
        "UPDATE read_to SET seq = x'00'",
        "UPDATE viewed SET part = CAST('x' AS TEXT) WHERE part = (SELECT min(part) FROM viewed)",
        "UPDATE marks SET since = '<b>'",
        "UPDATE marks SET key = 'text'",
        "UPDATE marks SET key = 7",
    ):
        with recorded.store.adapters.database.connections.writing() as connection:
            connection.execute(change)
        recorded.call("more", "write_file", {"path": "more.txt", "content": change})
        for address in (where, f"{recorded.url}/", f"{recorded.url}/needs"):
            assert "<b>" not in text_of(client, address).partition("<nav")[0], change
    assert "viewed-toggle" not in text_of(client, where)
    assert recorded.workspace.verify().findings == ()
