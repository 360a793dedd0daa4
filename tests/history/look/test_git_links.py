"""A symbolic link in a git folder is named, nothing behind it is read, the rest is on record."""

from collections.abc import Callable
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, ToolResult
from loom_audit.model.git.words import words_of
from tests.history.look.test_git_nested import facts, repository
from tests.history.look.test_git_untold import on_record, reasons
from tests.places.git_person import as_ann, git

Call = Callable[..., ToolResult]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace that is a repository with a hook and a branch `feat`."""
    as_ann(monkeypatch)
    root = tmp_path / "workspace"
    repository(root)
    (root / ".git/hooks").mkdir(exist_ok=True)
    (root / ".git/hooks/pre-push").write_text("true\n")
    return root


def test_hooks_that_become_a_link_are_named_and_what_is_done_next_is_on_record(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    call("shell_execute", command="true")
    call("shell_execute", command="mv .git/hooks hooks; ln -s ../hooks .git/hooks")
    assert {*words_of(facts(workspace)[1:])} == {
        "hooks/pre-push changed, and settings of git lead to it: it can run code as you",
        "hooks changed: it can run code as you",
        "hooks/pre-push changed: it can run code as you",
    }
    call("shell_execute", command="git branch -qD feat; sleep 0.1")
    newest, *_ = workspace.timeline.calls()
    assert (facts(workspace)[-1].call_id, facts(workspace)[-1].causes) == (newest.call_id, ())
    assert "refs/heads/feat" not in on_record(workspace).names
    for _ in range(2):
        assert reasons(workspace) == ["git cannot be told: .git/hooks is a symbolic link"]
        call("shell_execute", command="true")
    call("shell_execute", command="rm .git/hooks; mv hooks .git/hooks")
    newest, *_ = workspace.timeline.calls()
    assert (facts(workspace)[-1].call_id, facts(workspace)[-1].causes) == (newest.call_id, ())
    call("shell_execute", command="true")
    assert reasons(workspace) == []
    assert workspace.verify().findings == ()


def test_objects_that_become_a_link_are_named_and_what_is_done_next_is_on_record(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    call("shell_execute", command="true")
    call("shell_execute", command="mv .git/objects o; ln -s ../o .git/objects")
    call("shell_execute", command="git branch -qD feat; git tag here")
    state = on_record(workspace)
    assert "refs/heads/feat" not in state.names and "refs/tags/here" in state.names
    call("shell_execute", command="git commit -q --allow-empty -m more")
    assert on_record(workspace).names["refs/heads/main"] == git(root, "rev-parse", "main").strip()
    assert reasons(workspace) == ["git cannot be told: .git/objects is a symbolic link"]
    newest, *_ = workspace.timeline.calls()
    assert "git: 1 object that git names not kept" in newest.coverage.reasons
    assert workspace.verify().findings == ()


def test_in_a_repository_whose_hooks_are_a_link_git_and_they_are_taken_back(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    call("shell_execute", command="true")
    call("shell_execute", command="mv .git/hooks hooks; ln -s ../hooks .git/hooks")
    head = git(root, "rev-parse", "HEAD")
    call("shell_execute", command="git commit -q --allow-empty -m more")
    workspace.carry_out(workspace.plan_undo())
    assert git(root, "rev-parse", "HEAD") == head and (root / ".git/hooks").is_symlink()
    workspace.carry_out(workspace.plan_undo(git_config=True))
    assert not (root / ".git/hooks").is_symlink()
    assert (root / ".git/hooks/pre-push").read_text() == "true\n"
    assert workspace.verify().findings == ()


@pytest.mark.parametrize("path", ["HEAD", "config"])
def test_where_all_that_git_reads_is_behind_a_link_it_is_said_and_files_are_on_record(
    workspace: AuditedWorkspace, root: Path, call: Call, path: str
) -> None:
    call("shell_execute", command="true")
    linked = f"mv .git/{path} there; ln -s ../there .git/{path}"
    call(
        "shell_execute", command=f"{linked}; rm .git/refs/heads/feat; echo x > .git/hooks/pre-push"
    )
    assert reasons(workspace) == [f"git cannot be told: .git/{path} is a symbolic link"]
    state = on_record(workspace)
    assert workspace.timeline.content(state.files["hooks/pre-push"]) == b"x\n"
    assert "refs/heads/feat" in state.names
    call("shell_execute", command="true")
    assert reasons(workspace) == [f"git cannot be told: .git/{path} is a symbolic link"]
    call("shell_execute", command=f"rm .git/{path}; mv there .git/{path}")
    assert "refs/heads/feat" not in on_record(workspace).names
    [late] = (one for one in facts(workspace)[1:] if any(n.after is None for n in one.names))
    assert 0 in late.causes
