"""The tree of changed files: what is joined, summed and closed, and the way into it."""

import asyncio
import html
import re

import pytest
from fastapi.testclient import TestClient

from loom_audit.errors import InvalidArguments
from loom_audit.web.shared.budget import Budget
from loom_audit.web.shared.tree import Folder, Leaf, Sums, Tree, grown, show_tree
from tests.web.conftest import Recorded, in_thread

LEAF = Leaf("modified", Sums(2, 1))


def show(paths: list[str], most: int = 8_000, *, fragment: bool = False, **query: str) -> Tree:
    fields = {name.removesuffix("_"): (value,) for name, value in query.items()}
    budget = Budget(fields, ("files",), fragment=fragment)
    return show_tree(paths, lambda path: LEAF, sums_of, fields, budget, most=most, link=10)


def sums_of(folder: Folder) -> Sums:
    return Sums(2 * folder.paths, folder.paths)


def drawn(tree: Tree) -> list[str]:
    """The rows as lines, indented."""
    return ["  " * row.depth + row.name + "…" * row.closed for row in tree.rows]


def test_folders_that_hold_one_folder_are_one_row() -> None:
    tree = show(["a/b/c/one.py", "a/b/c/two.py", "a/b/three.py", "z/y/x/only.py", "top.py"])
    assert drawn(tree) == [
        "  a/b/",
        "    c/",
        "      one.py",
        "      two.py",
        "    three.py",
        "  z/y/x/",
        "    only.py",
        "  top.py",
    ]
    assert all(row.above + row.name == row.path + "/" * bool(row.paths) for row in tree.rows)
    assert [(row.paths, row.sums.added) for row in tree.rows if row.paths] == [
        (3, 6),
        (2, 4),
        (1, 2),
    ]


def test_a_file_in_whose_place_a_folder_came_stands_beside_it() -> None:
    assert drawn(show(["a", "a/b"])) == ["  a", "  a/", "    b"]


def test_folders_that_do_not_fit_are_closed_and_lead_to_what_is_in_them() -> None:
    paths = [f"{folder}/file_{n:03}.txt" for folder in ("big", "huge") for n in range(400)]
    paths += ["small/one.txt"]
    tree = show(paths)
    assert drawn(tree) == ["  big/…", "  huge/…", "  small/", "    one.txt"]
    first = show(paths, of="files", in_="big")
    assert drawn(first)[:2] == ["  big/", "    file_000.txt"] and first.remaining
    seen = [row.path for row in first.rows if not row.paths]
    while tree.remaining or first.remaining:
        start = dict(first.fields)["from"]
        tree = first = show(paths, of="files", in_="big", from_=start)
        seen += [row.path for row in first.rows]
    assert seen == paths[:400]


def test_where_all_is_in_one_folder_the_tree_begins_in_it() -> None:
    paths = [f"src/mod_{n:02}/file_{m:02}.txt" for n in range(97) for m in range(50)]
    tree = show(paths)
    assert drawn(tree)[:2] == ["  src/", "    mod_00/…"] and tree.remaining
    assert dict(tree.fields)["in.q"] == "src"
    later = show(paths, of="files", in_="src", from_=dict(tree.fields)["from"])
    assert later.rows[0].path == f"src/mod_{tree.part.end:02}"


def test_a_fragment_of_any_folder_is_bounded() -> None:
    paths = [f"d/{n % 50:02}/{'long' * 20}_{n}.txt" for n in range(5_000)]
    for of, inside in (("", ""), ("files", "d"), ("files", "d/07")):
        tree = show(sorted(paths), fragment=True, of=of, in_=inside)
        assert 0 < len(tree.rows) <= 5_000 // 6
        assert sum(2 * len(row.path) + 6 * 18 for row in tree.rows) < 90_000


def test_a_folder_that_is_not_there_is_refused() -> None:
    with pytest.raises(InvalidArguments, match="no change lies in a folder b"):
        show(["a/one", "a/two"], of="files", in_="b")


def test_a_path_of_a_thousand_folders_is_one_row() -> None:
    root = grown(["/".join("d" * 1_000) + "/file", "other"])
    deep = root.children[0]
    assert isinstance(deep, Folder) and (deep.depth, deep.paths, len(deep.children)) == (1, 1, 1)


# --- on pages -----------------------------------------------------------------------------


def made(recorded: Recorded) -> tuple[str, int]:
    """A session that writes in folders, with lines and without; its id, and where it began."""
    commands = (
        "mkdir -p lib/a/b 'st <b>range/in' && for n in 1 2 3; do echo $n > lib/a/b/$n.txt; done",
        "echo x > 'st <b>range/in/%41 #?.txt'; chmod 755 notes.txt; head -c 9 /dev/zero > lib/z",
    )
    start = recorded.workspace.log.head()
    with recorded.workspace.session("treed") as session:

        async def run() -> None:
            for command in commands:
                assert (await session.call("shell_execute", {"command": command})).success

        in_thread(lambda: asyncio.run(run()))
    return session.id, start


def rows_of(text: str) -> list[str]:
    """The rows of the tree as a person reads them."""
    shown = text.partition('<ul class="index">')[2].partition("</ul>")[0]
    return [
        html.unescape(re.sub(r"\s+", " ", re.sub("<[^>]+>", "", row))).strip()
        for row in re.findall(r"<li class=\"d\d[^>]*>(.*?)</li>", shown, re.DOTALL)
    ]


def test_the_review_and_two_points_have_the_same_tree(
    recorded: Recorded, client: TestClient
) -> None:
    session, start = made(recorded)
    for page in (f"s/{session}", f"compare/{start}..head"):
        text = client.get(f"{recorded.url}/{page}").text
        assert rows_of(text) == [
            "lib/ 4 paths" + (" +3 −0" if page.startswith("s/") else ""),
            "a/b/ 3 paths +3 −0",
            *(f"lib/a/b/{n}.txt +1 −0" for n in (1, 2, 3)),
            "lib/z",
            "notes.txt",
            "st <b>range/in/ 1 path +1 −0",
            "st <b>range/in/%41 #?.txt +1 −0",
        ], page
        assert "mode 0644 → 0755" in text


def test_a_row_leads_to_the_difference_on_its_page(recorded: Recorded, client: TestClient) -> None:
    session, _ = made(recorded)
    text = client.get(f"{recorded.url}/s/{session}").text
    anchors = re.findall(
        r'<li class="d\d">(?:<input[^>]*>)?<a class="act-\w+" href="#([^"]+)"', text
    )
    assert len(anchors) == 6
    assert all(f'<section class="file" id="{one}">' in text for one in anchors)


def test_a_folder_is_asked_for_by_its_path(recorded: Recorded, client: TestClient) -> None:
    session, _ = made(recorded)
    where = f"{recorded.url}/s/{session}?of=files&in.q=lib/a/b"
    assert rows_of(client.get(where).text)[0] == "a/b/ 3 paths +3 −0"
    part = client.get(where, headers={"hx-request": "true"}).text
    assert part.lstrip().startswith('<li class="d2"><b class="folder"') and part.count("<li") == 4
    assert client.get(f"{recorded.url}/s/{session}?of=files&in=none").status_code == 400


@pytest.mark.parametrize("scripted", [True, False])
def test_a_file_is_shown_with_more_context_and_then_whole(
    recorded: Recorded, client: TestClient, scripted: bool
) -> None:
    number = recorded.numbers["first"]
    for page in (f"c/{number}", f"s/{recorded.session}?diff=src/main.py"):
        text = client.get(f"{recorded.url}/{page}").text
        counts = []
        for words in ("more context", "whole file"):
            section = text[text.index('id="f-src%2Fmain.py"') :].partition("</section>")[0]
            counts.append(section.count('<tr class="context"'))
            links = re.findall(r'<a href="([^"]+)"[^>]*>' + words, section)
            assert len(links) == 1, (page, words)
            headers = {"hx-request": "true"} if scripted else {}
            text = client.get(html.unescape(links[0]), headers=headers).text
        assert "more context" not in text and "whole file" not in text
        counts.append(text.count('<tr class="context"'))
        assert counts[0] == 6 and counts[0] < counts[1] < counts[2] == 82


def test_permission_bits_that_others_changed_are_not_a_sessions(
    recorded: Recorded, client: TestClient
) -> None:
    with recorded.workspace.session("own") as session:
        in_thread(
            lambda: asyncio.run(
                session.call("shell_execute", {"command": "echo more >> notes.txt"})
            )
        )
        recorded.call("other", "shell_execute", {"command": "chmod 700 notes.txt"})
    text = client.get(f"{recorded.url}/s/{session.id}").text
    section = text[text.index('id="f-notes.txt"') :].partition("</h3>")[0]
    assert "mode 0" not in section and "also changed by" in section


def test_a_folder_that_was_made_in_another_counts_as_a_path_and_not_as_a_file(
    recorded: Recorded, client: TestClient
) -> None:
    with recorded.workspace.session("folders") as made:
        made_here = "mkdir -p build/lib; touch 1 2 3 4 5 6"
        in_thread(lambda: asyncio.run(made.call("shell_execute", {"command": made_here})))
    page = client.get(f"{recorded.url}/s/{made.id}").text
    assert any(row.startswith("build/ 1 path") for row in rows_of(page)) and "1 file" not in page
