"""What a rebase would run as the person when it goes on does not come back, nor do links; and what
an undo brought back is not removed again.
"""

from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, Session
from loom_audit.api.upkeep.git_mirror import write_kept_git
from loom_audit.model.plans.git_settings import run_lines
from tests.history.undo.test_git_taken_back import act, as_git_says, differences, root
from tests.places.git_person import git

__all__ = ["root"]

LEFT = "rebase-merge/git-rebase-todo"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("pick 1 a\nexec rm -rf /\n", 1),
        ("x  true", 1),
        (" \texec\ttrue\nx\n", 2),
        ("pick 1 exec x\nxyz\nlabel x\nupdate-ref refs/heads/x\n# exec no\nbreak\n", 0),
        ("exectrue\r\n", 1),
    ],
)
def test_lines_that_run_programs_are_known(text: str, found: int) -> None:
    assert len(run_lines(LEFT, text.encode())) == found
    assert len(run_lines("sequencer/todo", text.encode())) == found
    assert not run_lines("MERGE_MSG", text.encode())


@pytest.mark.parametrize("how", ["abort", "removed", "beside"])
def test_a_rebase_that_would_run_a_program_comes_back_without(
    workspace: AuditedWorkspace, root: Path, session: Session, tmp_path: Path, how: str
) -> None:
    ran = tmp_path / "ran"
    clean = as_git_says(root)
    act(session, f"git rebase -q -x 'touch {ran}; false' HEAD~2")
    ran.unlink()
    begun, point = as_git_says(root), workspace.log.head()
    assert str(ran) in (root / ".git" / LEFT).read_text()
    act(session, "git rebase --abort" if how == "abort" else "rm -rf .git")
    git_folder = root / ".git"
    if how == "beside":
        git_folder, _, [said] = write_kept_git(workspace, point, "", tmp_path / "beside")
        assert said.startswith(f"{LEFT} is left out")
    else:
        plan = workspace.plan_undo()
        [note] = [one for one in plan.irreversible if LEFT in one.reason]
        assert f"touch {ran}" in note.reason
        workspace.carry_out(plan)
        assert not differences(begun, as_git_says(root)), "all but that file"
    assert not (git_folder / LEFT).exists()
    assert (git_folder / "rebase-merge" / "onto").exists()
    act(session, "git rebase --continue")
    assert not ran.exists()
    if how == "abort":
        workspace.carry_out(workspace.plan_undo())
        assert not differences(clean, as_git_says(root))


def test_a_rebase_that_runs_none_comes_back_and_goes_on(
    workspace: AuditedWorkspace, root: Path, session: Session
) -> None:
    act(
        session,
        "git checkout -q -b side HEAD~1; echo s > f0; git commit -qam side;"
        "echo t > f1; git add f1; git commit -qm t; git rebase main",
    )
    text = (root / ".git" / LEFT).read_text()
    begun = as_git_says(root)
    act(session, "git rebase --abort")
    workspace.carry_out(workspace.plan_undo())
    assert (root / ".git" / LEFT).read_text() == text
    assert not differences(begun, as_git_says(root))
    git(root, "checkout", "-q", "--ours", "f0")
    git(root, "add", "f0")
    git(root, "-c", "core.editor=true", "rebase", "--skip")
    assert git(root, "log", "-1", "--format=%s").strip() == "t"


def test_a_step_of_one_that_runs_programs_leaves_none_to_go_on_from(
    workspace: AuditedWorkspace, root: Path, session: Session
) -> None:
    git(root, "config", "sequence.editor", "true")
    act(session, "git rebase -q -i -x false HEAD~2")
    act(session, "git rebase --continue")
    assert (root / ".git" / LEFT).exists()
    workspace.carry_out(workspace.plan_undo())
    assert not (root / ".git" / LEFT).exists()


def test_a_link_among_state_files_is_not_written(
    workspace: AuditedWorkspace, root: Path, session: Session, tmp_path: Path
) -> None:
    persons = tmp_path / "persons"
    persons.mkdir()
    (persons / "todo").write_text("mine")
    link = root / ".git" / "sequencer"
    act(session, f"ln -s {persons} .git/sequencer; git commit -q --allow-empty -m x")
    act(session, "rm .git/sequencer; git commit -q --allow-empty -m y")
    plan = workspace.plan_undo()
    assert any(
        "symbolic link" in one.reason and "sequencer" in one.reason for one in plan.irreversible
    )
    workspace.carry_out(plan)
    assert not link.is_symlink()
    assert git(root, "log", "-1", "--format=%s").strip() == "x"
    assert (persons / "todo").read_text() == "mine"
    workspace.carry_out(workspace.plan_undo())
    assert git(root, "log", "-1", "--format=%s").strip() == "c2"


def test_a_redo_offers_no_choice_of_what_an_undo_brought_back(
    workspace: AuditedWorkspace, root: Path, session: Session
) -> None:
    act(session, "rm -rf .git; echo more > more")
    workspace.carry_out(workspace.plan_undo())
    plan = workspace.plan_redo()
    assert not [one for one in plan.kept if one.path == ".git"]
    assert any("is not removed again" in one.reason for one in plan.irreversible)
    workspace.carry_out(plan)
    assert (root / "more").exists() and (root / ".git" / "HEAD").exists()
