"""What people lost by git under each real client is on record in git's words, and what is lost of
files as files.
"""

from collections.abc import Iterator, Mapping, Sequence

import pytest

from tests.real_clients.clients import CLIENTS
from tests.real_clients.runs import Run, running
from tests.real_clients.script import Step
from tests.real_clients.sessions import Hands
from tests.real_clients.workspaces import git

pytestmark = pytest.mark.timeout(600)

ADA = "git -c user.name=Ada -c user.email=ada@example.org"
LOSSES: Mapping[str, tuple[str, Sequence[str], Sequence[str]]] = {
    "a reset": ("git reset -q --hard HEAD~1", ["HEAD main ", "(1 commit back)"], ["notes.txt"]),
    "work again": ("echo work >> notes.txt; echo n > new.txt", [], ["new.txt", "notes.txt"]),
    "a checkout": ("git checkout -q -- .", [], ["notes.txt"]),
    "a clean": ("git clean -qfdx -e .claude", [], ["new.txt", "secret.env"]),
    "a stash": ("git stash drop -q", ['stash dropped: "WIP on main: '], []),
    "a worktree": (
        "git worktree remove --force tree",
        ["tree: linked worktree gone: HEAD side"],
        ["tree/work.txt"],
    ),
    "a branch": ("git branch -qD feat", ["branch feat deleted (was ", "on no other ref)"], []),
    "a rebase": (f"{ADA} rebase -q other", ["rebase in progress"], ["notes.txt"]),
    "the end of it": ("rm -r .git/rebase-merge", ["rebase ended"], []),
    "all": ("rm -r .git", ["git repository gone: HEAD "], [".git"]),
}
"""What is done, what is said of git, and which files change at least."""


def losing(hands: Hands) -> list[Step]:
    commands = [(name, command) for name, (command, _, _) in LOSSES.items()]
    calls = [
        Step(name, [hands.shell(f"call_{n:02}", command)])
        for n, (name, command) in enumerate(commands)
    ]
    return [*calls, Step("end", text="It is done.")]


@pytest.fixture(scope="module", params=CLIENTS)
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    """A session that has ended; before it there was work of all kinds that is nowhere else."""
    client = CLIENTS[request.param]
    with running(client, losing) as run:
        here = run.workspace
        for name, text in (("other", "theirs\n"), ("feat", "only here\n"), ("main", "ours\n")):
            if name != "main":
                git(here, "checkout", "-q", "-b", name)
            (here / "notes.txt").write_text(text)
            git(here, "commit", "-q", "-a", "-m", name)
            git(here, "checkout", "-q", "main")
        (here / "notes.txt").write_text("stashed\n")
        git(here, "stash", "-q")
        git(here, "commit", "-q", "--allow-empty", "-m", "pushed nowhere")
        git(here, "worktree", "add", "-q", "-b", "side", "tree")
        (here / "tree/work.txt").write_text("not committed\n")
        (here / "notes.txt").write_text("not committed\n")
        run.ours("connect", client.name)
        run.work(client.once("please do all of it"))
        yield run


def test_each_loss_is_on_record_with_its_call_in_git_s_words(run: Run) -> None:
    calls = run.calls()
    said: dict[str, tuple[str, list[str]]] = {}
    for step in run.model.steps[:-1]:
        [call] = step.calls
        seq = calls[run.client.id_of(call)]["seq"]
        shown = run.ours("show", str(seq), "--no-diff").stdout
        [record] = run.listed("show", str(seq), "--no-diff")
        said[step.name] = shown, [one["path"] for one in record["changes"]]
    for name, (_, words, paths) in LOSSES.items():
        shown, changed = said[name]
        assert [one for one in words if one not in shown] == [], (name, shown)
        assert {*paths} <= {*changed}, (name, changed)


def test_what_was_lost_is_read_from_what_is_kept(run: Run) -> None:
    calls = run.calls()
    before = {
        step.name: str(calls[run.client.id_of(step.calls[0])]["requested"])
        for step in run.model.steps[:-1]
    }
    assert run.ours("cat", "feat:notes.txt", "--at", before["a branch"]).stdout == "only here\n"
    assert run.ours("cat", "stash@{0}:notes.txt", "--at", before["a stash"]).stdout == "stashed\n"
    log = run.ours("git", "--at", before["a reset"], ".", "--", "log", "--all").stdout
    assert "pushed nowhere" in log
