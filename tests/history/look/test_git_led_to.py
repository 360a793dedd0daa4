"""What settings of a repository lead to within its git folder is on record, and marked."""

from collections.abc import Callable
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, AuditStore, ToolResult
from loom_audit.model.git.words import git_words
from tests.history.look.test_git_nested import facts, repository
from tests.places.git_person import as_ann, git

Call = Callable[..., ToolResult]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace that is a repository."""
    as_ann(monkeypatch)
    root = tmp_path / "workspace"
    repository(root)
    return root


LED = [
    ("core.hooksPath", ".git/other", "other/post-commit"),
    ("core.hooksPath", "{root}/.git/deep/er", "deep/er/post-commit"),
    ("core.hooksPath", ".git", "post-commit"),
    ("include.path", "more", "more"),
    ("includeIf.onbranch:x=y.path", "../.git/lfs/more", "lfs/more"),
    ("core.attributesFile", ".git/attributes", "attributes"),
    ("alias.x", "!sh .git/objects/run.sh", "objects/run.sh"),
    ("", "", "remotes/origin"),
    ("", "", "branches/origin"),
]


@pytest.mark.few(3)
@pytest.mark.parametrize(("setting", "value", "path"), LED)
def test_what_settings_lead_to_is_marked_when_it_changes(
    workspace: AuditedWorkspace, root: Path, call: Call, setting: str, value: str, path: str
) -> None:
    if setting:
        git(root, "config", setting, value.format(root=root))
    file = f".git/{path}"
    for text in ("made", "written anew"):
        call("shell_execute", command="true")
        call("shell_execute", command=f"mkdir -p $(dirname {file}); echo {text} > {file}")
        said = [*git_words(facts(workspace)[-1])]
        assert said == [f"{path} changed: it can run code as you"]
        call("shell_execute", command="sleep 0.1")
    assert len(facts(workspace)) == 3
    call("shell_execute", command=f"rm {file}")
    assert [*git_words(facts(workspace)[-1])] == said
    assert workspace.verify().findings == ()


def test_settings_that_are_included_lead_on(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    quoted = '[include] path = "mo"re # so\n'
    (root / ".git/config").write_text((root / ".git/config").read_text() + quoted)
    call("shell_execute", command="true")
    call("shell_execute", command="echo '[core]\thooksPath = .git/x' > .git/more")
    call("shell_execute", command="mkdir .git/x; echo true > .git/x/post-commit")
    *_, led, hook = facts(workspace)
    assert [one.path for one in led.changes] == ["more"]
    assert [one.path for one in hook.changes] == ["x/post-commit"]


def test_what_settings_do_not_lead_to_is_not_on_record(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    git(root, "config", "core.hooksPath", "hooks-of-ours")
    call("shell_execute", command="true")
    call("shell_execute", command="mkdir .git/x; echo true > .git/x/post-commit; touch .git/y")
    assert len(facts(workspace)) == 1


def test_the_settings_of_a_linked_worktree_elsewhere_are_marked(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    git(root, "worktree", "add", "-q", "../linked", "feat")
    call("shell_execute", command="true")
    call("shell_execute", command="echo '[alias]' > .git/worktrees/linked/config.worktree")
    [said] = git_words(facts(workspace)[-1])
    assert said == "worktrees/linked/config.worktree changed: it can run code as you"


def test_a_repository_that_comes_back_has_nothing_that_settings_led_to(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    git(root, "config", "include.path", "more")
    (root / ".git/more").write_text("[alias]\n")
    call("shell_execute", command="true")
    call("shell_execute", command="rm -rf .git")
    workspace.carry_out(workspace.plan_undo())
    assert not (root / ".git/more").exists()
    assert git(root, "rev-parse", "main")
    assert workspace.verify().findings == ()


def test_where_else_objects_are_is_on_record(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    call("shell_execute", command="true")
    call("shell_execute", command="echo /nowhere > .git/objects/info/alternates")
    [said] = git_words(facts(workspace)[-1])
    assert said == "changed in .git: objects/info/alternates"


def test_among_too_many_hooks_none_is_changed_in_silence(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    call("shell_execute", command="for n in $(seq 1100); do : > .git/hooks/a$n; done")
    for command in ("sleep 0.1", "echo true > .git/hooks/pre-commit", "true"):
        call("shell_execute", command=command)
        newest, *_ = workspace.timeline.calls()
        said = "git cannot be told: too many files in .git/hooks"
        assert said in newest.coverage.reasons
    named = {one.path for one in facts(workspace)[-1].changes}
    assert {"hooks/a1", "hooks/a500"} < named


@pytest.mark.parametrize("is_inside", [True, False])
def test_what_settings_of_a_linked_worktree_lead_to_is_marked(
    workspace: AuditedWorkspace, root: Path, call: Call, is_inside: bool
) -> None:
    linked = root / "linked" if is_inside else root.parent / "linked"
    git(root, "worktree", "add", "-q", str(linked), "feat")
    git(root, "config", "extensions.worktreeConfig", "true")
    git(linked, "config", "--worktree", "core.hooksPath", f"{root}/.git/own")
    git(linked, "config", "--worktree", "include.path", "more")
    call("shell_execute", command="true")
    for path in ("own/pre-push", "worktrees/linked/more"):
        call("shell_execute", command=f"mkdir -p .git/own; echo > .git/{path}")
        newest, *_ = workspace.timeline.calls()
        [found] = facts(workspace)[-1:]
        assert [*git_words(found)] == [f"{path} changed: it can run code as you"]
        assert (found.call_id, found.causes) == (newest.call_id, ())
    git(linked, "config", "--worktree", "core.hooksPath", ".hooks")
    call("write_file", path="linked/.hooks/pre-push", content="true\n")
    newest, *_ = workspace.timeline.calls()
    led = [fact.led_to for fact in workspace.timeline.call(newest.seq or 0).git]
    assert {path for one in led for path in one} == (
        {"linked/.hooks/pre-push"} if is_inside else set()
    )
    assert workspace.verify().findings == ()


def test_what_settings_of_a_linked_worktree_of_a_repository_elsewhere_lead_to_is_marked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: AuditStore
) -> None:
    as_ann(monkeypatch)
    repository(tmp_path / "elsewhere")
    root, entry = tmp_path / "linked", tmp_path / "elsewhere/.git/worktrees/linked"
    git(tmp_path / "elsewhere", "worktree", "add", "-q", str(root), "feat")
    git(root, "config", "extensions.worktreeConfig", "true")
    git(root, "config", "--worktree", "core.hooksPath", str(entry / "own"))
    git(root, "config", "--worktree", "include.path", "more")
    workspace = store.attach(root)
    with workspace.session("linked") as session:
        session.run(("true",))
        for path in ("more", "own/pre-push"):
            (entry / path).parent.mkdir(exist_ok=True)
            (entry / path).write_text("true\n")
            session.run(("true",))
            said = f"worktrees/linked/{path} changed: it can run code as you"
            assert [*git_words(facts(workspace)[-1])] == [said]
        (entry / "more").write_text("[core]\nhooksPath = .hooks\n")
        ran = session.run(("sh", "-c", "mkdir .hooks; echo > .hooks/pre-push"))
        said = ".hooks/pre-push changed, and settings of git lead to it: it can run code as you"
        assert said in ran.git_changed
    assert workspace.verify().findings == ()
