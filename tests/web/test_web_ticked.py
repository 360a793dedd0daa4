"""Calls ticked on a page are taken back by one plan, held against the trees that stood before."""

import html
import re
from urllib.parse import urlencode

import pytest
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st

from loom_audit.model.plans.request import PlanRequest
from loom_audit.web.plans.requests import fields_of, read_request
from loom_audit.web.shared.urls import encoded, quoted
from loom_audit.web.shared.urls import fields as read_fields
from tests.web.conftest import Recorded
from tests.web.test_web_undo import carry_out, fields, plan


def ticks(text: str) -> list[int]:
    """What the boxes of a page stand for."""
    found = re.findall(
        r'<input type="checkbox" class="tick" form="ticked" name="target" value="(\d+)"', text
    )
    return [int(one) for one in found]


def ticked(*numbers: int) -> str:
    """The query that the form of the boxes sends."""
    return urlencode([("verb", "revert"), *(("target", number) for number in numbers)])


def test_every_page_with_calls_has_boxes_for_what_can_be_undone_and_one_button(
    recorded: Recorded, client: TestClient
) -> None:
    n, session = recorded.numbers, f"{recorded.url}/s/{recorded.session}"
    undone = n["notes"]
    carry_out(client, recorded, {"verb": "revert", "target": str(undone), "quick": "1"})
    for where in (
        f"{recorded.url}/calls",
        f"{recorded.url}/",
        f"{session}/calls",
        f"{session}/steps",
    ):
        text = client.get(where).text
        boxes = ticks(text)
        assert {n["first"], n["later"]} <= {*boxes}, where
        assert undone not in boxes and n["read"] not in boxes and n["failing"] not in boxes
        assert text.count('<form id="ticked"') == 1 and text.count("undo-ticked") == 1
    assert ticks(client.get(f"{session}/only/modes").text) == [n["shell"]]


def test_ticked_calls_and_a_change_from_outside_are_one_plan_and_one_call(
    recorded: Recorded, client: TestClient
) -> None:
    n = recorded.numbers
    before = (recorded.root / "src/main.py").read_text().replace("value ** 7", "value + 7")
    (outside,) = {one.seq for one in recorded.workspace.timeline.outside(limit=9)}
    text = plan(client, recorded, ticked(n["first"], n["later"], n["notes"], outside))
    assert "Needs a decision" not in text, "the later call is taken back with the earlier one"
    answer = carry_out(client, recorded, fields(text))
    assert answer.status_code == 303
    assert (recorded.root / "src/main.py").read_text() == before
    assert (recorded.root / "notes.txt").read_text() == "one\ntwo\nthree\n"
    newest = recorded.workspace.timeline.calls()[0]
    assert {*newest.reverts} == {n["first"], n["later"], n["notes"], outside}


def test_ticked_files_of_a_review_are_taken_back_and_what_else_its_calls_did_stays(
    recorded: Recorded, client: TestClient
) -> None:
    text = client.get(f"{recorded.url}/s/{recorded.session}").text
    boxes = re.findall(r'form="ticked" name="path.q" value="([^"]*)"', text)
    assert {"notes.txt", "src/main.py"} <= {*boxes}
    form = text[text.index('<form id="ticked"') :]
    sent = re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)">', form)
    nothing = client.get(f"{recorded.url}/plan?{urlencode(sent)}")
    assert nothing.status_code == 400 and "no file is ticked" in nothing.text
    files = [("path.q", "notes.txt"), ("path.q", "build/out.o")]
    text = plan(client, recorded, urlencode([*sent, *files]))
    assert "Only <code>notes.txt</code> <code>build/out.o</code>" in text
    assert "Takes back in part (1)" in text
    assert carry_out(client, recorded, fields(text)).status_code == 303
    assert (recorded.root / "notes.txt").read_text() == "one\ntwo\nthree\n"
    assert (recorded.root / "build/out.o").exists()
    assert "value ** 7" in (recorded.root / "src/main.py").read_text()
    newest = recorded.workspace.timeline.calls()[0]
    # the command that deleted the object made a folder, too, which is still there
    assert newest.reverts == (recorded.numbers["notes"],)
    assert newest.seq
    (number,) = recorded.workspace.timeline.call(newest.seq).result["in_part"]
    told = client.get(f"{recorded.url}/c/{number}").text
    assert "Taken back in part: <code>build/out.o</code>" in told
    assert (recorded.root / "empty").is_dir()


def sent_with(text: str, button: str, boxes: list[tuple[str, str]]) -> str:
    """The address that a button of the form of boxes leads to, with what else is ticked there."""
    form = text[text.index('<form id="ticked"') :].partition("</form>")[0]
    hidden = re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)">', form)
    along = re.findall(r'class="tick" name="([^"]*)" value="([^"]*)" checked', form)
    found = re.search(rf'name="go" value="([^"]*)" formaction="([^"]*)">{re.escape(button)}<', form)
    action = re.search(r'action="([^"]*)"', form)
    assert action and (found or button == "Undo")
    go = [("go", html.unescape(found[1]))] if found else []
    where = html.unescape(found[2] if found else action[1])
    pairs = [(name, html.unescape(value)) for name, value in (*hidden, *boxes, *along)]
    return f"{where}?{urlencode([*pairs, *go])}"


@pytest.mark.few(1)
@pytest.mark.parametrize("place", ["calls", "s/{}/calls", "s/{}/steps"])
def test_calls_ticked_on_several_pages_are_one_plan_without_a_script(
    place: str, recorded: Recorded, client: TestClient
) -> None:
    with recorded.workspace.session("many") as session:
        for number in range(230):
            with session.recording("work"):
                (recorded.root / f"many-{number}.txt").write_text(f"{number}\n")
    button = "Newer steps" if "steps" in place else "Older calls"
    address, wanted, pages = f"{recorded.url}/{place.format(session.id)}", list[int](), 0
    while True:
        text = client.get(address).text
        pages += 1
        assert text.count("Ticked before:") == (pages > 1)
        boxes = ticks(text)
        assert boxes and not {*boxes} & {*wanted}
        wanted += [boxes[0], boxes[-1]]
        pairs = [("target", str(one)) for one in (boxes[0], boxes[-1])]
        if pages == 3:
            break
        address = sent_with(text, button, pairs)
    answer = client.get(sent_with(text, "Undo", pairs))
    request = read_request(read_fields(str(answer.url).partition("?")[2].encode()))
    assert {*request.targets} == {*wanted} and len(wanted) == 6
    assert answer.status_code == 200 and "<b>6</b> will change" in answer.text


def test_of_many_calls_that_were_ticked_before_the_first_have_boxes_of_their_own(
    recorded: Recorded, client: TestClient
) -> None:
    n = recorded.numbers
    text = client.get(f"{recorded.url}/calls?along={n['first']}.{n['notes']}&tool=edit_file").text
    assert f'name="target" value="{n["notes"]}" checked' in text
    many = ".".join(map(str, range(1, 400)))
    text = client.get(f"{recorded.url}/calls?along={many}&along=%3Cb%3E.x&target=7").text
    assert "and 359 more" in text and text.count('class="tick" name="target"') == 40
    assert "<b>.x" not in text


def test_files_ticked_in_several_folders_of_a_review_are_one_plan(
    recorded: Recorded, client: TestClient
) -> None:
    with recorded.workspace.session("many") as session, session.recording("work"):
        for number in range(400):
            folder = recorded.root / f"folder-{number % 7}"
            folder.mkdir(exist_ok=True)
            (folder / f"many of them {number}.txt").write_text(f"{number}\n")
    address = f"{recorded.url}/s/{session.id}"
    ticked = list[str]()
    for count in range(3):
        text = client.get(address).text
        [link] = re.findall(rf'<a class="folder" href="([^"]*folder-{count}[^"]*)"', text)
        text = client.get(html.unescape(link)).text
        assert text.count("Ticked before:") == bool(count)
        [new, *_] = re.findall(r'form="ticked" name="path.q" value="([^"]*)"', text)
        ticked.append(new)
        address = sent_with(text, "All files", [("path.q", new)])
    wanted = sent_with(text, "Undo", [("path.q", new)])
    request = read_request(read_fields(wanted.partition("?")[2].encode()))
    assert {*map(quoted_path, request.paths)} == {*ticked} and len({*ticked}) == 3
    assert client.get(wanted).status_code == 200


def quoted_path(path: str) -> str:
    return quoted(path, safe="/")


@pytest.mark.deep
def test_three_hundred_ticked_calls_are_one_address_that_every_part_of_the_page_keeps(
    recorded: Recorded, client: TestClient
) -> None:
    with recorded.workspace.session("many") as session:
        for number in range(300):
            with session.recording("work"):
                (recorded.root / f"many-{number}.txt").write_text(f"{number}\n")
    every = recorded.workspace.plan_revert([f"session:{session.id}"]).reverts
    assert len(every) == 300
    query = ticked(*every)
    assert len(query) < 6_000
    text = plan(client, recorded, query)
    assert "<b>300</b> will change" in text and "and 290 more" in text
    assert len(text) < 300_000
    links = [html.unescape(one) for one in re.findall(r'data-hx-get="([^"]*)"', text)]
    (files,) = [one for one in links if "of=files" in one]
    assert len(files) < 2_500
    assert client.get(files, headers={"hx-request": "true"}).status_code == 200
    answer = carry_out(client, recorded, fields(text))
    assert answer.status_code == 303
    assert not [*recorded.root.glob("many-*")]


def test_nothing_ticked_says_so(recorded: Recorded, client: TestClient) -> None:
    answer = client.get(f"{recorded.url}/plan?verb=revert")
    assert answer.status_code == 400 and "nothing is ticked" in answer.text


def test_a_plan_of_what_there_is_not_leads_to_the_calls_before_it_names_a_command(
    recorded: Recorded, client: TestClient
) -> None:
    answer = client.get(f"{recorded.url}/plan?verb=revert&target=999999")
    assert answer.status_code == 404
    way, command = (
        answer.text.index(f'href="{recorded.url}/calls">All calls'),
        answer.text.index("<code>loom-audit"),
    )
    assert way < command


targets = st.lists(
    st.integers(1, 10**7) | st.from_regex("session:[a-z.:]{1,9}", fullmatch=True), min_size=1
)


@given(targets=targets)
def test_an_address_keeps_every_target(targets: list[int | str]) -> None:
    sent = encoded([("verb", "revert"), *(("target", str(one)) for one in targets)])
    request = read_request(read_fields(sent.encode()))
    assert {*request.targets} == {*targets} and len(request.targets) == len({*targets})
    again = read_request(read_fields(encoded(fields_of(request)).encode()))
    assert again == request == PlanRequest("revert", request.targets)
