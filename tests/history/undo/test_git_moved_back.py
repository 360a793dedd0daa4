"""A `.git` that was moved inside the workspace and changed there is not renamed back silently."""

from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, Session
from loom_audit.errors import Conflict
from loom_audit.model.plans.request import PlanRequest
from tests.history.undo.test_git_taken_back import act, as_git_says, differences, root
from tests.places.git_person import git

__all__ = ["root"]

PLANTED = {
    "a setting": ("git -C old config core.fsmonitor evil", "config changed"),
    "a hook": ("echo evil > old/.git/hooks/post-commit", "hooks/post-commit changed"),
    "a commit": ("git -C old commit -q --allow-empty -m agent", "main"),
    "all of it": ("echo evil > old/.git/hooks/x; git -C old tag t", "hooks/x changed"),
    "no repository": ("rm old/.git/HEAD", "not on record"),
}


@pytest.mark.few(3)
@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("what", PLANTED)
def test_what_changed_in_a_moved_git_folder_blocks(
    workspace: AuditedWorkspace, root: Path, session: Session, what: str, later: bool
) -> None:
    session.run(["true"])
    point = workspace.log.head()
    command, said = PLANTED[what]
    moved = "mkdir old; mv .git old/.git"
    act(session, moved if later else f"{moved}; {command}")
    if later:
        act(session, command)
    for no_git in (False, True):
        plan = workspace.plan(PlanRequest("rollback", (point,), no_git=no_git))
        [note] = [one for one in plan.blocked if one.path == ".git"]
        assert said in note.reason
        with pytest.raises(Conflict):
            workspace.carry_out(plan)
    assert not (root / ".git").exists()
    kept = PlanRequest("rollback", (point,), choices={".git": "current"})
    workspace.carry_out(workspace.plan(kept))
    assert not (root / ".git").exists()
    assert (root / "old" / ".git").exists()


def test_it_comes_as_it_is_where_that_was_chosen(
    workspace: AuditedWorkspace, root: Path, session: Session
) -> None:
    act(session, "mkdir old; mv .git old/.git; git -C old commit -q --allow-empty -m agent")
    plan = workspace.plan(PlanRequest("undo", choices={".git": "merge"}))
    assert [one.path for one in plan.blocked] == [".git"]  # nothing of git is merged
    workspace.carry_out(workspace.plan(PlanRequest("undo", choices={".git": "old"})))
    assert git(root, "log", "-1", "--format=%s").strip() == "agent"
    assert not (root / "old").exists()


def test_a_revert_of_the_move_alone_is_blocked(
    workspace: AuditedWorkspace, root: Path, session: Session
) -> None:
    act(session, "mkdir old; mv .git old/.git")
    moved = workspace.log.head()
    act(session, "git -C old config core.pager evil")
    plan = workspace.plan(PlanRequest("revert", (moved,)))
    assert [one.path for one in plan.blocked] == [".git"]


@pytest.mark.parametrize("name", ["g", "old/.git", "node_modules"])
def test_one_under_another_name_comes_back_unless_its_settings_changed(
    workspace: AuditedWorkspace, root: Path, session: Session, name: str
) -> None:
    before = as_git_says(root)
    act(session, f"mkdir -p old; mv .git {name}")
    plan = workspace.plan_undo()
    if name == "node_modules":
        assert "not on record" in plan.blocked[0].reason
    else:
        assert not plan.blocked
        workspace.carry_out(plan)
        assert not differences(before, as_git_says(root))
        act(session, f"mkdir -p old; mv .git {name}; echo '[core]pager=evil' >> {name}/config")
        [note] = workspace.plan_undo().blocked
        assert "config" in note.reason


def test_what_a_setting_leads_to_is_compared(
    workspace: AuditedWorkspace, root: Path, session: Session
) -> None:
    (root / ".git" / "my").mkdir()
    (root / ".git" / "my" / "pre-commit").write_text("mine\n")
    git(root, "config", "core.hooksPath", ".git/my")
    session.run(["true"])
    act(session, "mv .git old; echo evil >> old/my/pre-commit; cp -p /bin/true old/my/post-commit")
    [note] = [one for one in workspace.plan(PlanRequest("undo")).blocked if one.path == ".git"]
    assert "my/post-commit, my/pre-commit" in note.reason


@pytest.mark.parametrize(
    ("setting", "value", "planted"),
    [
        ("core.hooksPath", ".git/my", "my/post-commit"),
        ("core.hooksPath", "{root}/.git/my", "my/post-commit"),
        ("core.hooksPath", ".git", "post-commit"),
        ("include.path", "more", "more"),
        ("include.path", "{root}/.git/some/more", "some/more"),
    ],
)
@pytest.mark.parametrize("name", ["g", "old/.git"])
def test_what_is_new_where_a_setting_leads_to_is_compared(
    workspace: AuditedWorkspace,
    root: Path,
    session: Session,
    setting: str,
    value: str,
    planted: str,
    name: str,
) -> None:
    (root / ".git" / "my").mkdir()
    git(root, "config", setting, value.format(root=root))
    session.run(["true"])
    plant = f"cp /bin/true {name}/{planted}"
    if setting.rpartition(".")[2] == "path":
        plant = f"mkdir -p {name}/some; echo '[core]pager=evil' > {name}/{planted}"
    act(session, f"mkdir old; mv .git {name}; {plant}")
    plan = workspace.plan(PlanRequest("undo"))
    assert [one.path for one in plan.blocked] == [".git"], plan.blocked


def test_what_a_setting_leads_to_blocks_nothing_while_it_is_as_it_was(
    workspace: AuditedWorkspace, root: Path, session: Session
) -> None:
    (root / ".git" / "my").mkdir()
    (root / ".git" / "my" / "pre-commit").write_text("mine\n")
    git(root, "config", "core.hooksPath", ".git/my")
    session.run(["true"])
    act(session, "mkdir old; mv .git old/.git")
    workspace.carry_out(workspace.plan_undo())
    assert (root / ".git" / "my" / "pre-commit").read_text() == "mine\n"


def test_the_command_of_a_choice_is_quoted(
    workspace: AuditedWorkspace, root: Path, session: Session
) -> None:
    act(session, "mkdir '$(id)'; git init -q '$(id)'; git -C '$(id)' commit -q --allow-empty -m c")
    act(session, "mkdir old; mv '$(id)/.git' old/.git; git -C old tag t")
    [note] = [one for one in workspace.plan(PlanRequest("undo")).blocked if ".git" in one.path]
    assert "--choose '$(id)/.git'=old" in note.reason
