"""A plan's page: both versions of each conflict, choices for folders and for all, in one round."""

import html
import re
from urllib.parse import urlencode

import pytest
from fastapi.testclient import TestClient

from loom_audit.api.upkeep.drift import accept_drift
from tests.web.conftest import Recorded
from tests.web.test_web_undo import HX, carry_out, fields, plan

LONG = "".join(f"line {n}\n" for n in range(40))
PATHS = ("docs/a.md", "docs/deep/b.md", "docs/deep/c.md", "lib/x.py")


@pytest.fixture
def clashing(recorded: Recorded) -> Recorded:
    """A call changed four files, one binary, and one that merges; a later one changed all again."""
    recorded.call("long", "write_file", {"path": "docs/merged.md", "content": LONG})
    made = "; ".join(f"mkdir -p $(dirname {path}); echo before > {path}" for path in PATHS)
    recorded.call("made", "shell_execute", {"command": f"{made}; printf '\\0a' > docs/logo.bin"})
    all = " ".join(PATHS)
    for name, binary, line in (("taken", "b", 3), ("since", "cc", 33)):
        edit = f"for f in {all}; do echo {name} > $f; done; printf '\\0{binary}' > docs/logo.bin"
        edit += f"; sed -i 's/^line {line}$/{name}/' docs/merged.md"
        recorded.call(name, "shell_execute", {"command": edit})
    return recorded


def texts(recorded: Recorded) -> dict[str, str]:
    return {path: (recorded.root / path).read_text() for path in PATHS}


def query(recorded: Recorded, *choices: tuple[str, str]) -> str:
    return urlencode([("verb", "revert"), ("target", recorded.numbers["taken"]), *choices])


def rows(text: str, kind: str) -> list[str]:
    """The lines of the differences that a page shows, which are added or removed."""
    found = re.findall(rf'<tr class="{kind}">.*?<td class="code">(.*?)</td></tr>', text)
    return [html.unescape(re.sub("<[^>]*>", "", one)) for one in found]


def test_each_conflict_shows_what_stood_before_what_the_call_left_and_what_stands_now(
    clashing: Recorded, client: TestClient
) -> None:
    text = plan(client, clashing, query(clashing))
    for path in PATHS:
        assert f'aria-label="What is to be taken back: {path}"' in text
        assert f'aria-label="What came later: {path}"' in text
    assert {"before", "taken"} <= {*rows(text, "remove")} and {"taken", "since"} <= {
        *rows(text, "add")
    }
    assert text.count("binary, 2 B") == 3 and text.count("binary, 3 B") == 1
    assert "will be merged" in text and "What stands now, and merged" in text
    # of what is merged there is one difference, in the list of it
    assert rows(text, "add").count("line 3") == 1


def test_what_is_kept_between_two_calls_that_are_taken_back_came_later(
    recorded: Recorded, client: TestClient
) -> None:
    point = recorded.workspace.log.head()
    for number, text in enumerate(("agent\n", "agent\nperson\n", "agent\nperson\nagain\n")):
        if number == 1:
            (recorded.root / "new.txt").write_text(text)
            accept_drift(recorded.workspace)
            continue
        with recorded.workspace.session("a") as session, session.recording("work"):
            (recorded.root / "new.txt").write_text(text)
    sent = [("verb", "rollback"), ("target", point)]
    text = plan(client, recorded, urlencode(sent))
    assert "Needs a decision" in text
    taken = text[text.index('aria-label="What is to be taken back: new.txt"') :]
    taken, later = taken.split('aria-label="What came later: new.txt"')
    assert (rows(taken, "add"), rows(later, "add")) == (["agent"], ["person", "again"])


def test_what_is_on_disk_only_stands_on_the_page_as_what_came_later(
    clashing: Recorded, client: TestClient
) -> None:
    (clashing.root / "docs/a.md").write_text("by hand <b>\n")
    text = plan(client, clashing, query(clashing))
    assert "by hand <b>" in rows(text, "add")


def test_the_rest_of_a_long_difference_of_a_conflict_comes_by_a_link(
    clashing: Recorded, client: TestClient
) -> None:
    for name in ("one", "two"):
        content = "".join(f"{name} {n}\n" for n in range(500))
        clashing.call(name, "write_file", {"path": "docs/long.md", "content": content})
    where = f"{clashing.url}/plan?verb=revert&target={clashing.numbers['one']}"
    text = client.get(where).text
    links = [html.unescape(one) for one in re.findall(r'href="([^"]*side=[^"]*line=[^"]*)"', text)]
    assert [one.partition("side=")[2].partition("&")[0] for one in links] == ["taken", "later"]
    shown = len(rows(text, "add"))
    more = client.get(links[1], headers=HX)
    assert more.status_code == 200 and len(rows(more.text, "add")) > shown
    whole = client.get(links[1]).text
    assert "<h2>What came later</h2>" in whole and "<main" in whole
    refused = client.get(where + "&side=other")
    assert refused.status_code == 400 and "taken, later" in refused.text


def test_one_round_decides_all_conflicts_and_shows_the_plan_that_is_carried_out(
    clashing: Recorded, client: TestClient
) -> None:
    chosen = [("choice:", "old"), ("choice:docs/deep", "current"), ("choice:docs/a.md", "merge")]
    text = plan(client, clashing, query(clashing, *chosen))
    assert "Needs a decision" not in text
    assert (
        "2 conflicts in <code>docs/deep/</code>" in text and "2 conflicts in the workspace" in text
    )
    assert carry_out(client, clashing, fields(text)).status_code == 303
    done = texts(clashing)
    assert "<<<<<<<" in done.pop("docs/a.md")
    assert done == {
        "docs/deep/b.md": "since\n",
        "docs/deep/c.md": "since\n",
        "lib/x.py": "before\n",
    }
    assert (clashing.root / "docs/logo.bin").read_bytes() == b"\0a"
    merged = (clashing.root / "docs/merged.md").read_text()
    assert merged == LONG.replace("line 33\n", "since\n")


def test_a_conflict_since_the_plan_was_shown_is_not_covered_by_the_choice_for_all(
    clashing: Recorded, client: TestClient
) -> None:
    text = plan(client, clashing, query(clashing, ("choice:", "old")))
    edit = {"path": "docs/merged.md", "old_str": "taken\n", "new_str": "mine\n"}
    clashing.call("after", "edit_file", edit)
    before = (clashing.root / "docs/merged.md").read_bytes()
    answer = carry_out(client, clashing, fields(text))
    assert answer.status_code == 409 and "moved on" in answer.text
    assert (clashing.root / "docs/merged.md").read_bytes() == before
    assert texts(clashing) == dict.fromkeys(PATHS, "since\n")


def test_the_page_counts_the_folders_among_what_changes(
    recorded: Recorded, client: TestClient
) -> None:
    recorded.call("deep", "shell_execute", {"command": "mkdir -p n/e/w && echo 1 > n/e/w/file"})
    text = plan(client, recorded, f"verb=revert&target={recorded.numbers['deep']}")
    assert "<b>4</b> will change, 3 folders among them" in text
    assert "change 4 paths" in text


def test_a_reason_names_its_call_once_and_as_a_link(clashing: Recorded, client: TestClient) -> None:
    text = plan(client, clashing, query(clashing))
    since = clashing.numbers["since"]
    [*reasons] = {
        " ".join(re.sub("<[^>]*>", "", found).split())
        for found in re.findall(r"</legend>\s*<p>(.*?)</p>", text, re.DOTALL)
    }
    assert f"same lines changed later by #{since}" in reasons
    assert f"by call {since}" not in text
