"""A HEAD, or a branch, that names one which leads on is on record as what it itself names."""

from collections.abc import Callable
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, ToolResult
from loom_audit.model.git.words import git_words
from tests.history.look.test_git_nested import facts, repository
from tests.history.look.test_git_untold import on_record, reasons
from tests.places.git_person import as_ann, git

Call = Callable[..., ToolResult]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace that is a repository in which `alias` leads to `main`."""
    as_ann(monkeypatch)
    root = tmp_path / "workspace"
    repository(root)
    git(root, "symbolic-ref", "refs/heads/alias", "refs/heads/main")
    return root


@pytest.mark.parametrize("to", ["refs/heads/alias", "refs/heads/gone", "refs/heads/nothing"])
def test_head_is_on_record_as_the_branch_that_it_names(
    workspace: AuditedWorkspace, root: Path, call: Call, to: str
) -> None:
    git(root, "symbolic-ref", "refs/heads/gone", "refs/heads/nowhere")
    call("shell_execute", command="true")
    call("shell_execute", command=f"echo 'ref: {to}' > .git/HEAD")
    [_, found] = facts(workspace)
    [head] = (one for one in found.names if one.name == "HEAD")
    assert (head.before, head.after, found.head) == ("ref: refs/heads/main", *2 * (f"ref: {to}",))
    assert next(git_words(found)) == f"HEAD main → {to.removeprefix('refs/heads/')}"


def test_a_branch_is_on_record_as_the_one_that_it_names(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    call("shell_execute", command="true")
    head = git(root, "rev-parse", "HEAD").strip()
    call("shell_execute", command="git symbolic-ref refs/heads/second refs/heads/alias")
    [made] = facts(workspace)[-1].names
    assert (made.name, made.after) == ("refs/heads/second", f"ref: refs/heads/alias {head}")
    call("shell_execute", command="git symbolic-ref refs/heads/second refs/heads/main")
    [led] = facts(workspace)[-1].names
    assert (led.before, led.after) == (made.after, f"ref: refs/heads/main {head}")


def test_a_head_that_leads_through_others_comes_back_with_an_undo(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    call("shell_execute", command="true")
    call("shell_execute", command="echo 'ref: refs/heads/alias' > .git/HEAD")
    workspace.carry_out(workspace.plan_undo())
    assert (root / ".git/HEAD").read_text() == "ref: refs/heads/main\n"
    assert workspace.verify().findings == ()


def test_a_branch_that_leads_to_none_is_broken_and_not_gone(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    call(
        "shell_execute",
        command="git branch second; git symbolic-ref refs/heads/led refs/heads/second",
    )
    call("shell_execute", command="git update-ref --no-deref -d refs/heads/second")
    named = {one.name: one.after for one in facts(workspace)[-1].names}
    assert named == {"refs/heads/second": None, "refs/heads/led": "broken"}
    call("shell_execute", command="git symbolic-ref refs/heads/dangling refs/heads/nowhere")
    assert [(one.name, one.after) for one in facts(workspace)[-1].names] == [
        ("refs/heads/dangling", "broken")
    ]
    call("shell_execute", command="git symbolic-ref -d refs/heads/dangling")
    assert [(one.name, one.after) for one in facts(workspace)[-1].names] == [
        ("refs/heads/dangling", None)
    ]


def test_of_many_branches_that_lead_to_one_each_is_told_as_what_it_names(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    call("shell_execute", command="true")
    made = "for n in $(seq 10 40); do git symbolic-ref refs/heads/z$n refs/heads/alias; done"
    call("shell_execute", command=made)
    named = {one.name: one.after for one in facts(workspace)[-1].names}
    head = git(root, "rev-parse", "HEAD").strip()
    assert named == {f"refs/heads/z{n}": f"ref: refs/heads/alias {head}" for n in range(10, 41)}


def test_of_too_many_branches_that_lead_to_one_none_is_told_wrong_or_gone(
    workspace: AuditedWorkspace, root: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loom_audit.sandbox.git.program_git.MOST_LEADING", 2)
    call("shell_execute", command="true")
    for n in range(3):
        call("shell_execute", command=f"git symbolic-ref refs/heads/z{n} refs/heads/alias")
    names = on_record(workspace).names
    assert "refs/heads/z0" in names and not {"refs/heads/z1", "refs/heads/z2"} & names.keys()
    for _ in range(2):
        [said] = reasons(workspace)
        assert said.endswith("more refs lead to the same ones than are asked for")
        call("shell_execute", command="git tag -f more")
    assert on_record(workspace).names.keys() == names.keys() | {"refs/tags/more"}


def test_head_of_a_worktree_elsewhere_is_told_as_what_it_itself_names(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    linked = root.parent / "linked"
    git(root, "worktree", "add", "-q", str(linked), "feat")
    call("shell_execute", command="true")
    git(linked, "symbolic-ref", "HEAD", "refs/heads/alias")
    git(linked, "worktree", "lock", str(linked))
    call("shell_execute", command="true")
    named = {one.name: one.after for one in facts(workspace)[-1].names}
    head = git(root, "rev-parse", "HEAD").strip()
    assert named == {f"worktree {linked}": f"ref: refs/heads/alias {head} locked"}
