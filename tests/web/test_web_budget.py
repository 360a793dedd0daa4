"""Every page over stores that would drown a browser: what a first view and each part of it holds.

Nodes are counted by Python's own parser, bytes as they are sent.
"""

import asyncio
import html
import random
import re
from collections.abc import Iterator
from contextlib import ExitStack
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from loom_audit.api.face import AuditedWorkspace, open_store
from loom_audit.model.conversation import MessageReceived, PromptSubmitted
from loom_audit.model.plans.planning import Plan
from loom_audit.model.plans.request import PlanRequest
from loom_audit.web.shared.urls import address
from tests.web.conftest import Recorded, asking, in_thread, say

HX = {"hx-request": "true"}
FIRST_NODES, FIRST_BYTES, REQUESTS = 1_500, 50_000, 7
NODES, BYTES = 5_000, 300_000
MANY = 2_000
LINES = 12_000
CONFUSED = 120
"""Files of which a later call makes the way back unclear."""


class Shape(HTMLParser):
    """The elements of a page, the files it loads, and where its parts go on."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.nodes = 0
        self.loads: set[str] = set()
        self.parts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.nodes += 1
        found = dict(attrs)
        if tag == "script" or (tag == "link" and found.get("rel") in ("stylesheet", "icon")):
            self.loads.add(found.get("src") or found.get("href") or "")
        if part := found.get("data-hx-get"):
            self.parts.append(part)


def sent(answer: Any) -> int:
    """The bytes of an answer's body as they went over the wire."""
    return int(answer.headers["content-length"])


def noise(chance: random.Random, length: int) -> str:
    """Text that hardly compresses, all of which has to be escaped somewhere."""
    letters = [*map(chr, range(33, 127)), *map(chr, range(0x3B1, 0x3C9))]
    return "".join(chance.choices(letters, k=length))


def write_all(root: Path) -> None:
    """What the calls begin with."""
    chance = random.Random(5)
    for n in range(300):
        (root / f"src_{n:03}.txt").write_text("".join(f"{noise(chance, 30)}\n" for _ in range(6)))
    (root / "lines.txt").write_text("".join(f"line {n}\n" for n in range(LINES)))
    (root / "wide.txt").write_text("old\n")


CHANGE_300 = "for f in src_*.txt; do sed -i 's/^/<b>\"/' $f; done"
CHANGE_LINES = "sed -i 's/^/was /' lines.txt"
MAKE_MANY = (
    f"mkdir many; cd many; for i in $(seq {MANY}); do echo $i > a_name_of_a_file_$i.txt; done"
)
CONFUSE = f"for f in $(ls src_*.txt | head -{CONFUSED}); do echo 'by another call' > $f; done"


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    folder = tmp_path_factory.mktemp("hostile")
    root = folder / "work"
    root.mkdir()
    write_all(root)
    chance = random.Random(7)
    wide = "\n".join(noise(chance, 3_000) for _ in range(60))
    long = {"path": "wide.txt", "content": wide}
    with ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("LOOM_AUDIT_HOME", str(folder / "home"))
            store = stack.enter_context(open_store())
        workspace = store.attach(root)
        made = Recorded(store, workspace, root)
        with workspace.session("coder", title=noise(chance, 300)) as session:
            made.session = session.id

            async def run() -> None:
                for name, command in (
                    ("files", CHANGE_300),
                    ("lines", CHANGE_LINES),
                    ("many", MAKE_MANY),
                    ("confuse", CONFUSE),
                ):
                    done = await session.call("shell_execute", {"command": command})
                    assert done.success, done.output
                    made.numbers[name] = workspace.timeline.calls()[0].seq or 0
                for n in range(150):
                    prompt = PromptSubmitted(f"<b>{n}</b>\n{noise(chance, 3_000)}")
                    said = MessageReceived("assistant", noise(chance, 3_000))
                    for fact in (prompt, said) if n % 3 == 0 else ():
                        made.said[f"{n}"] = say(workspace, session.id, fact)
                    text = f"{n} {noise(chance, 200)}\n"
                    await session.call("write_file", {"path": "often.txt", "content": text})
                await session.call("write_file", long)
                made.numbers["wide"] = workspace.timeline.calls()[0].seq or 0

            in_thread(lambda: asyncio.run(run()))
        yield made


@pytest.fixture(scope="module")
def asker(hostile: Recorded) -> Iterator[TestClient]:
    with asking(hostile.store) as made:
        yield made


def pages(made: Recorded) -> dict[str, str]:
    """Every kind of page, by what makes it hostile."""
    url, numbers = made.url, made.numbers
    start = numbers["files"] - 4
    decided = [("verb", "revert"), ("target", str(numbers["files"]))]
    decided += [(f"choice:src_{n:03}.txt", "old") for n in range(40)]
    return {
        "workspaces": "/",
        "overview": f"{url}/",
        "calls": f"{url}/calls",
        "session": f"{url}/s/{made.session}",
        "a turn": f"{url}/s/{made.session}?turn={made.said['0'] - 1}",
        "one of 300 files": f"{url}/s/{made.session}?diff=src_000.txt",
        "steps": f"{url}/s/{made.session}/steps",
        "newest steps": f"{url}/s/{made.session}/steps?before=100000",
        "commands": f"{url}/s/{made.session}/commands",
        "taken back": f"{url}/s/{made.session}/taken-back",
        "mode changes": f"{url}/s/{made.session}/only/modes",
        "calls of a session": f"{url}/s/{made.session}/calls",
        "a long text": f"{url}/said/{made.said['3']}",
        "a call of 300 files": f"{url}/c/{numbers['files']}",
        "a call of 2,000 files": f"{url}/c/{numbers['many']}",
        "a diff of 24,000 lines": f"{url}/c/{numbers['lines']}",
        "a call of wide lines": f"{url}/c/{numbers['wide']}",
        "two points": f"{url}/compare/{start}..head",
        "two points of a session": f"{url}/compare/{start}..head?by={made.session}",
        "a folder of a call of 2,000 files": f"{url}/c/{numbers['many']}?of=files&in=many",
        "a whole file of 12,000 lines": f"{url}/c/{numbers['lines']}"
        "?diff=lines.txt&context=1000000",
        "a plan of 2,000 files": f"{url}/plan?verb=rollback&target={start}",
        "a plan of many questions": f"{url}/plan?verb=revert&target={numbers['files']}",
        "a plan with answers": address("w", made.workspace.id, "plan", query=decided),
        "a folder of 2,000 files": f"{url}/at/head/many",
        "a file of 12,000 lines": f"{url}/at/head/lines.txt",
        "a file of wide lines": f"{url}/at/head/wide.txt",
        "a file of many versions": f"{url}/history/often.txt",
        "the history of all": f"{url}/history/",
        "status": f"{url}/status",
        "proof": f"{url}/proof",
        "needs": f"{url}/needs",
        "find": f"{url}/find?q=json",
    }


@pytest.fixture(scope="module")
def first_views(hostile: Recorded, asker: TestClient) -> dict[str, Any]:
    """What is answered to who asks for a page, by what makes it hostile."""
    return {name: asker.get(path) for name, path in pages(hostile).items()}


@pytest.mark.few(0)
def test_the_first_view_of_every_page_is_small(
    first_views: dict[str, Any], asker: TestClient
) -> None:
    sizes = dict[str, int]()
    for name, answer in first_views.items():
        assert answer.status_code == 200, (name, answer.text[:300])
        shape = Shape(answer.text)
        for load in shape.loads - set(sizes):
            sizes[load] = sent(asker.get(load))
        total = sent(answer) + sum(sizes[load] for load in shape.loads)
        found = (name, shape.nodes, total, len(answer.content))
        assert shape.nodes <= FIRST_NODES, found
        assert total <= FIRST_BYTES, found
        assert len(answer.content) <= BYTES, found
        assert 1 + len(shape.loads) <= REQUESTS, found


@pytest.mark.few(1)
@pytest.mark.parametrize(("files", "lines"), [(1, 240), (12, 20), (40, 8)])
def test_a_review_of_which_all_was_changed_again_is_small(
    recorded: Recorded, client: TestClient, files: int, lines: int
) -> None:
    make = f"for f in $(seq {files}); do seq {lines} > again_$f.txt; done"
    recorded.call("made", "shell_execute", {"command": make})
    change = "for f in again_*.txt; do sed -i '0~2s/$/ %s/' $f; done"
    recorded.call("changed", "shell_execute", {"command": change % "by"})
    page = f"{recorded.url}/s/{recorded.workspace.timeline.calls()[0].session}"
    for n in range(4):
        recorded.call(f"later {n}", "shell_execute", {"command": change % n})
    answer = client.get(page)
    assert answer.text.count("Changed again by") > 10
    assert Shape(answer.text).nodes <= FIRST_NODES
    more = next(one for one in Shape(answer.text).parts if "diff" in one)
    assert Shape(client.get(more, headers=HX).text).nodes <= NODES


@pytest.mark.few(0)
def test_every_part_that_a_page_goes_on_with_is_bounded(
    first_views: dict[str, Any], asker: TestClient
) -> None:
    for name, first in first_views.items():
        seen = set[str]()
        waiting = Shape(first.text).parts
        while waiting and len(seen) < 2:
            part = waiting.pop()
            if part in seen:
                continue
            seen.add(part)
            for headers in (HX, {}):
                answer = asker.get(part, headers=headers)
                assert answer.status_code in (200, 204), (name, part, answer.text[:300])
                shape = Shape(answer.text)
                found = (name, part[:200], shape.nodes, len(answer.content))
                assert shape.nodes <= (NODES if headers else FIRST_NODES), found
                assert len(answer.content) <= BYTES, found
                waiting += shape.parts if headers else []


def follow(asker: TestClient, path: str, link: str, what: str, *, scripted: bool) -> list[str]:
    """What is listed on a page and on all that its links of a text lead to."""
    found, where, first = list[str](), path, True
    while where:
        text = asker.get(where, headers=HX if scripted and not first else None).text
        found += re.findall(what, text)
        match = re.search(rf'<a [^>]*?href="([^"]+)"[^>]*>{link}', text)
        where, first = html.unescape(match[1]) if match else "", False
    return found


@pytest.mark.few(1)
@pytest.mark.parametrize("scripted", [True, False])
def test_all_files_of_a_call_are_listed_once_with_their_counts(
    hostile: Recorded, asker: TestClient, scripted: bool
) -> None:
    path = f"{hostile.url}/c/{hostile.numbers['files']}"
    row = r'<a class="act-modified"[^>]*>(src_\d+.txt)</a> <ins>\+6</ins> <del>−6</del></li>'
    found = follow(asker, path, "More files", row, scripted=scripted)
    assert found == [f"src_{n:03}.txt" for n in range(300)]


@pytest.mark.parametrize("scripted", [True, False])
def test_a_difference_of_24_000_lines_can_be_read_to_its_end(
    hostile: Recorded, asker: TestClient, scripted: bool
) -> None:
    path = f"{hostile.url}/c/{hostile.numbers['lines']}"
    last = 2 * LINES - 100
    where = address("w", hostile.workspace.id, "c", hostile.numbers["lines"])
    where += f"?diff=lines.txt&line={last}"
    text = asker.get(where, headers=HX if scripted else None).text
    shown = re.findall(r'<td class="code">(?:<ins>)?was', text)
    assert len(shown) == 100 and "More lines" not in text
    assert "More lines" in asker.get(path).text


@pytest.mark.few(1)
@pytest.mark.parametrize("scripted", [True, False])
def test_the_names_of_a_folder_come_in_parts_without_gap_or_double(
    hostile: Recorded, asker: TestClient, scripted: bool
) -> None:
    row = r'<tr><th scope="row"[^>]*><a href="[^"]*" title="([^"]*)"'
    names = sorted(f"a_name_of_a_file_{n}.txt" for n in range(1, MANY + 1))
    first = re.findall(row, asker.get(f"{hostile.url}/at/head/many").text)
    assert first == names[: len(first)] and len(first) > 20
    path = f"{hostile.url}/at/head/many?of=entries&from={MANY - 200}"
    assert follow(asker, path, "More names", row, scripted=scripted) == names[-200:]


@pytest.mark.parametrize("scripted", [True, False])
def test_the_history_of_a_folder_has_each_change_once(
    hostile: Recorded, asker: TestClient, scripted: bool
) -> None:
    row = r'<td class="what" title="([^"]*)"'
    seq = hostile.numbers["many"] - 1
    end = f"{hostile.url}/history/many?before={seq + 1}&skip={MANY - 150}"
    found = follow(asker, end, "More changes", row, scripted=scripted)
    changes = hostile.workspace.timeline.history("many", below=True, limit=MANY + 1)
    assert found == [one.change.path for one in changes[-151:]]
    path = f"{hostile.url}/history/often.txt"
    assert len(follow(asker, path, "More changes", row, scripted=scripted)) == 150


def test_choices_on_other_parts_of_a_plan_are_kept(hostile: Recorded, asker: TestClient) -> None:
    text = asker.get(pages(hostile)["a plan with answers"]).text
    form = text.split('class="choices"')[1].split("</form>")[0]
    fields = re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)">', form)
    sent_on = {name: html.unescape(value) for name, value in fields}
    again = asker.get(f"{hostile.url}/plan", params=sent_on).text
    assert html.unescape(again).count("choice:src_") >= 40
    overridden = asker.get(
        f"{hostile.url}/plan", params={**sent_on, "choice:src_000.txt": "current"}
    )
    assert "choice:src_000.txt=current" in html.unescape(overridden.text)


@pytest.mark.few(0)
def test_the_parts_of_a_plan_are_of_the_plan_that_was_shown(
    hostile: Recorded, asker: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = list[object]()

    original = AuditedWorkspace.plan

    def counted(workspace: AuditedWorkspace, asked: PlanRequest) -> Plan:
        made.append(asked)
        return original(workspace, asked)

    monkeypatch.setattr(AuditedWorkspace, "plan", counted)
    path = pages(hostile)["a plan of 2,000 files"]
    part = next(one for one in Shape(asker.get(path).text).parts if "of=files" in one)
    assert asker.get(part, headers=HX).status_code == 200
    assert len(made) == 1
    asker.get(path)
    assert len(made) == 2
    hostile.workspace.checkpoint("something happened")
    assert asker.get(part, headers=HX).status_code == 200
    assert len(made) == 3


def test_a_list_that_a_page_does_not_have_is_refused(hostile: Recorded, asker: TestClient) -> None:
    answer = asker.get(f"{hostile.url}/c/{hostile.numbers['wide']}?of=nothing&from=3")
    assert answer.status_code == 400
    assert "files" in answer.text


def test_a_text_is_shown_to_its_end(hostile: Recorded, asker: TestClient) -> None:
    path = f"{hostile.url}/c/{hostile.numbers['wide']}"
    shown = asker.get(path).text.split("<h2>Arguments</h2>")[1].split("</pre>")[0]
    parts = [re.split(r'<span class="more">', shown.split("<code>")[1])[0]]
    match = re.search(r'<a href="([^"]+of=arguments[^"]+)"', shown)
    while match:
        where = html.unescape(match[1])
        text = asker.get(where, headers=HX).text
        parts.append(re.split(r'<span class="more">', text)[0])
        match = re.search(r'<a href="([^"]+)"', text)
    whole = html.unescape("".join(parts))
    detail = hostile.workspace.timeline.call(hostile.numbers["wide"])
    assert detail.arguments["content"].replace("\n", "\\n").replace('"', '\\"') in (
        whole.replace("\\\\", "\\")
    )
