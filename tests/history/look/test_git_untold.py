"""What git cannot tell of a repository is named, and all the rest of it is on record."""

from collections.abc import Callable
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, ToolResult
from loom_audit.history.look.doers import UNKNOWN
from loom_audit.model.git.record import GitState
from loom_audit.model.git.words import git_words
from tests.history.look.test_git_nested import facts, repository
from tests.places.git_person import as_ann

Call = Callable[..., ToolResult]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace that is a repository with a branch `feat` and a stash."""
    as_ann(monkeypatch)
    root = tmp_path / "workspace"
    repository(root)
    return root


def on_record(workspace: AuditedWorkspace) -> GitState:
    """The state that the log has."""
    state = GitState()
    for fact in facts(workspace):
        state.follow(fact)
    return state


def reasons(workspace: AuditedWorkspace) -> list[str]:
    """What the newest call says of git that could not be told."""
    newest, *_ = workspace.timeline.calls()
    return [one for one in newest.coverage.reasons if one.startswith("git cannot be told: ")]


STASH = "$(git rev-parse refs/stash | sed 's,^..,.git/objects/&/,')"


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("echo garbage > .git/refs/stash", ""),
        (f"rm -f {STASH}", ""),
        ("git config log.diffMerges bogus", ""),
        ("echo garbage > .git/index", "the index: git cannot read the repository"),
        ("rm -f .git/MERGE_MSG; mkfifo .git/MERGE_MSG", ".git/MERGE_MSG is not a file"),
    ],
)
def test_what_git_cannot_tell_hides_nothing_else(
    workspace: AuditedWorkspace, root: Path, call: Call, damage: str, said: str
) -> None:
    call("shell_execute", command="true")
    before = on_record(workspace)
    call("shell_execute", command=f"{damage}; rm .git/refs/heads/feat; echo x > .git/hooks/h")
    words = [*git_words(facts(workspace)[-1])]
    assert any(one.startswith("branch feat deleted") for one in words)
    assert "hooks/h changed: it can run code as you" in words
    assert on_record(workspace).names["stashes"] == before.names["stashes"]
    assert on_record(workspace).names["index"] == before.names["index"]
    for _ in range(2):
        assert [said in one for one in reasons(workspace)] == [True] * bool(said)
        call("shell_execute", command="true")
    assert workspace.verify().findings == ()


def test_that_the_ref_of_stashes_is_broken_is_said(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    call("shell_execute", command="true")
    call("shell_execute", command="echo garbage > .git/refs/stash")
    [said] = git_words(facts(workspace)[-1])
    assert said.startswith("refs/stash ") and said.endswith(" → broken")


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("damage", "repair", "said"),
    [
        (
            "echo garbage > .git/index",
            "rm .git/index; echo z > z; git add f.txt z",
            "the index: git cannot read the repository",
        ),
        (
            "echo garbage > .git/packed-refs",
            "rm .git/packed-refs",
            "the refs: git cannot read the repository",
        ),
        (
            "git config core.quotePath bogus",
            "git config --file .git/config --unset core.quotePath",
            "git cannot read the repository (exit 128)",
        ),
    ],
)
def test_what_is_told_again_is_no_call_s_alone_and_the_rest_is(
    workspace: AuditedWorkspace, root: Path, call: Call, damage: str, repair: str, said: str
) -> None:
    call("shell_execute", command="true")
    call("shell_execute", command=f"{damage}; echo x > .git/hooks/h")
    assert any(one.path == "hooks/h" for one in facts(workspace)[-1].changes)
    assert facts(workspace)[-1].causes == ()
    [reason] = reasons(workspace)
    assert said in reason
    call("shell_execute", command=f"echo y > .git/hooks/h; {repair}; git update-ref -d refs/x")
    call("shell_execute", command="git tag told; echo x > b; git add b")
    assert reasons(workspace) == []
    state = on_record(workspace)
    assert state.names["refs/tags/told"] == state.names["refs/heads/main"]
    assert facts(workspace)[-1].causes == ()
    named = [one for fact in facts(workspace) if UNKNOWN in fact.causes for one in fact.names]
    assert named or "index" not in damage
    assert workspace.verify().findings == ()


def test_refs_that_are_not_told_are_not_deleted_on_record(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    call("shell_execute", command="true")
    before = on_record(workspace)
    call("shell_execute", command="git tag more; echo garbage > .git/packed-refs")
    refs = {k: v for k, v in on_record(workspace).names.items() if k.startswith("refs/")}
    assert refs == {k: v for k, v in before.names.items() if k.startswith("refs/")}
    assert not any("moved and came back" in one for one in git_words(facts(workspace)[-1]))
    call("shell_execute", command="rm .git/packed-refs")
    found = facts(workspace)[-1]
    assert "refs/tags/more" in {one.name for one in found.names} and UNKNOWN in found.causes
