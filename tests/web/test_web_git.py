"""What the pages say of calls that changed git."""

import asyncio
import re
import subprocess
from functools import partial

import pytest
from fastapi.testclient import TestClient

from loom_audit.api.face import Session
from loom_audit.mcp_server.resources import SCHEME, read_resource
from loom_audit.ports import CallFilter
from tests.web.conftest import Recorded, in_thread
from tests.web.test_web_undo import carry_out, fields, plan


def run(session: Session, command: str) -> None:
    asyncio.run(_run(session, command))


async def _run(session: Session, command: str) -> None:
    await session.call("shell_execute", {"command": command})


@pytest.fixture
def session(recorded: Recorded) -> str:
    """A session whose calls changed a branch, an ordinary file, and a hook and a setting of git."""
    for words in (
        ["init", "-q", "-b", "main"],
        ["config", "user.name", "ann"],
        ["config", "user.email", "ann@example.org"],
        ["commit", "-q", "--allow-empty", "-m", "first"],
    ):
        subprocess.run(["git", *words], cwd=recorded.root, check=True)
    with recorded.workspace.session("gitting") as made:
        for command in (
            "git branch '<i>feat'",
            "echo x > plain.txt",
            "echo true > .git/hooks/post-commit; git config alias.x '!sh'",
        ):
            in_thread(partial(run, made, command))
    return made.id


def test_pages_say_what_calls_changed_of_git(
    recorded: Recorded, client: TestClient, session: str
) -> None:
    code, plain, branch = (call.seq for call in recorded.workspace.timeline.calls()[:3])
    here = f"{recorded.url}/s/{session}"
    for address in (f"{recorded.url}/c/{branch}", f"{here}/steps", f"{here}/calls", recorded.url):
        text = client.get(f"{address}/" if address == recorded.url else address).text
        assert "branch &lt;i&gt;feat created at" in text, address
        assert "<i>feat" not in text
    assert "Git</h2>" not in client.get(f"{recorded.url}/c/{plain}").text
    text = client.get(f"{recorded.url}/c/{code}").text
    assert '<li class="err">hooks/post-commit changed: it can run code as you</li>' in text
    assert '<li class="err">config changed: it can run code as you</li>' in text


def test_pages_of_points_say_what_git_named_and_what_of_it_differs(
    recorded: Recorded, client: TestClient, session: str
) -> None:
    last, _, first = recorded.workspace.timeline.calls()[:3]
    code, old = last.seq, first.requested
    assert code is not None
    before, after = (client.get(f"{recorded.url}/at/{at}/").text for at in (old, first.seq))
    assert re.search(r"git: HEAD main [0-9a-f]{7}, 2 branches <a", after)
    assert "2 branches" not in before
    address = f"{recorded.url}/compare/{old}..{code}"
    text = client.get(address).text
    assert "<li>branch &lt;i&gt;feat created at" in text
    assert '<li class="err">config changed: it can run code as you</li>' in text
    back = client.get(f"{recorded.url}/compare/{code}..{old}").text
    assert "<li>branch &lt;i&gt;feat deleted (was" in back
    text = client.get(f"{recorded.url}/history/.git").text
    assert f'<li class="err">#{code - 1} config changed: it can run code as you</li>' in text
    assert 'id="git"' not in client.get(f"{recorded.url}/history/plain.txt").text


def test_what_one_session_changed_between_two_points_is_said_of_git_too(
    recorded: Recorded, client: TestClient, session: str
) -> None:
    calls = recorded.workspace.timeline.calls()
    first, last = calls[2].requested - 1, calls[0].seq
    with recorded.workspace.session("another") as other:
        in_thread(partial(run, other, "git branch others"))
    subprocess.run(["git", "branch", "by-hand"], cwd=recorded.root, check=True)
    with recorded.workspace.session("third", parent=session) as within:
        in_thread(partial(run, within, "git branch within"))
    address = f"{recorded.url}/compare/{first}..head?by="
    text = client.get(address + session).text
    assert "<li>branch &lt;i&gt;feat created at" in text and "Changed 1 path" in text
    assert '<li class="err">config changed: it can run code as you</li>' in text
    assert "branch within created" in text
    assert "branch others" not in text and "by-hand" not in text and "may have made" not in text
    text = client.get(address + other.id).text
    assert "branch others created at" in text and "It changed no file that differs" in text
    assert "feat created" not in text and "within" not in text
    text = client.get(f"{recorded.url}/compare/{last}..head?by={session}").text
    assert "feat created" not in text and "branch within created" in text


def test_the_review_of_a_session_marks_what_changed_git_and_what_git_runs(
    recorded: Recorded, client: TestClient, session: str
) -> None:
    here = f"{recorded.url}/s/{session}"
    text = client.get(here).text
    assert re.search(r'class="stop" href="[^"]+/only/code"><b>1</b> changed what git runs', text)
    assert re.search(r'href="[^"]+/only/git"><b>2</b> changed git', text)
    listed = client.get(f"{here}/only/code").text
    assert "it can run code as you" in listed and "feat created" not in listed


def test_a_plan_takes_git_along_as_its_box_says(
    recorded: Recorded, client: TestClient, session: str
) -> None:
    number = recorded.workspace.timeline.calls()[2].seq
    asked = f"verb=revert&target={number}"
    gone = "branch &lt;i&gt;feat deleted"
    without = plan(client, recorded, asked)
    assert gone not in without
    assert 'name="git" value="1">' in without
    text = plan(client, recorded, f"{asked}&git=1")
    assert gone in text
    assert "Carry out: change git" in text
    answer = carry_out(client, recorded, fields(text))
    assert answer.status_code == 303, answer.text
    said = subprocess.run(["git", "branch"], cwd=recorded.root, capture_output=True, text=True)
    assert "feat" not in said.stdout
    text = plan(client, recorded, "verb=undo")
    assert 'name="no-git" value="1">' in text
    assert "Carry out: change git" not in plan(client, recorded, "verb=undo&no-git=1")


def test_a_plan_says_the_commits_that_it_brings_back_and_those_on_no_ref_then(
    recorded: Recorded, client: TestClient, session: str
) -> None:
    with recorded.workspace.session("resetting") as made:
        in_thread(partial(run, made, "git commit -q --allow-empty -m '<i>mine'"))
    text = plan(client, recorded, "verb=undo")
    assert re.search(r"<li>HEAD main \w+ → \w+: takes back 1 commit &#34;&lt;i&gt;mine", text)
    assert re.search(r"<li>[0-9a-f]{7} ann: &lt;i&gt;mine</li>", text)
    assert carry_out(client, recorded, fields(text)).status_code == 303
    text = plan(client, recorded, "verb=redo")
    assert re.search(r"brings back 1 commit &#34;&lt;i&gt;mine&#34; by ann</li>", text)


def test_a_plan_shows_hooks_and_settings_escaped_and_takes_them_back_as_its_box_says(
    recorded: Recorded, client: TestClient, session: str
) -> None:
    hook = recorded.root / ".git" / "hooks" / "post-commit"
    with recorded.workspace.session("hooking") as made:
        in_thread(partial(run, made, "echo '<i>evil' > .git/hooks/post-commit; git branch along"))
    text = plan(client, recorded, "verb=undo")
    assert "-&lt;i&gt;evil" in text and "<i>evil" not in text
    assert 'name="git-config" value="1">' in text
    text = plan(client, recorded, "verb=undo&git-config=1")
    assert "hooks/post-commit comes back as it was: it can run code as you" in text
    assert carry_out(client, recorded, fields(text)).status_code == 303
    assert hook.read_text() == "true\n"


def test_a_plan_of_what_left_git_alone_offers_nothing_of_git(
    recorded: Recorded, client: TestClient, session: str
) -> None:
    changed = recorded.workspace.timeline.calls(CallFilter(limit=None))[-1].seq
    left = recorded.call("beside", "write_file", {"path": "beside", "content": "x"})
    for asked in ("verb=undo", f"verb=revert&target={left}", f"verb=rollback&target={left - 1}"):
        assert 'git" value="1">' not in plan(client, recorded, asked), asked
    assert 'name="no-git" value="1">' in plan(client, recorded, f"verb=rollback&target={changed}")


def test_resources_say_what_calls_changed_of_git(recorded: Recorded, session: str) -> None:
    code, plain, _ = (call.seq for call in recorded.workspace.timeline.calls()[:3])
    told = {
        name: getattr(read_resource(recorded.workspace, f"{SCHEME}{name}"), "text", "")
        for name in ("timeline", f"event/{code}", f"event/{plain}")
    }
    assert "hooks/post-commit changed: it can run code as you" in told[f"event/{code}"]
    assert "feat created at" in told["timeline"] and "git_changed" not in told[f"event/{plain}"]
