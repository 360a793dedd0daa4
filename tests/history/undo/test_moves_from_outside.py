"""What a person moved is kept where it is, and listed; a plan follows it only when chosen."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, ToolResult
from loom_audit.model.plans.planning import Plan

Call = Callable[..., ToolResult]


@pytest.fixture(params=["unseen", "on record"])
def seen(request: pytest.FixtureRequest, workspace: AuditedWorkspace) -> Callable[[], None]:
    """Whether what a person did is on record before the plan is made."""

    def look() -> None:
        if request.param == "on record":
            with workspace.session("looks") as session, session.recording("look"):
                pass

    return look


def kept(plan: Plan) -> dict[str, str]:
    return {note.path: note.reason for note in plan.kept}


def test_a_rollback_keeps_a_file_that_a_person_renamed(
    workspace: AuditedWorkspace, call: Call, root: Path, seen: Callable[[], None]
) -> None:
    point = workspace.log.head()
    call("write_file", path="draft.md", content="chapter one\n")
    (root / "draft.md").rename(root / "MY-thesis.md")
    seen()
    plan = workspace.plan_rollback(point)
    assert plan.changes == () and plan.already == ("draft.md",)
    assert kept(plan) == {"MY-thesis.md": "moved here from draft.md outside, kept"}
    workspace.carry_out(plan)
    assert (root / "MY-thesis.md").read_text() == "chapter one\n"


@pytest.mark.parametrize("outside", [False, True], ids=["chosen", "all of outside"])
def test_a_rollback_takes_a_renamed_file_back_when_told_to(
    workspace: AuditedWorkspace, call: Call, root: Path, seen: Callable[[], None], outside: bool
) -> None:
    point = workspace.log.head()
    call("write_file", path="draft.md", content="chapter one\n")
    (root / "draft.md").rename(root / "MY-thesis.md")
    seen()
    if outside:
        plan = workspace.plan_rollback(point, outside=True)
    else:
        plan = workspace.plan_rollback(point, choices={"MY-thesis.md": "old"})
    assert [change.path for change in plan.changes] == ["MY-thesis.md"]
    workspace.carry_out(plan)
    assert not (root / "MY-thesis.md").exists()


def test_an_undo_of_an_edit_leaves_the_file_that_a_person_moved_then(
    workspace: AuditedWorkspace, call: Call, root: Path, seen: Callable[[], None]
) -> None:
    call("edit_file", path="a.txt", old_str="one", new_str="ONE")
    (root / "a.txt").rename(root / "mine.txt")
    seen()
    plan = workspace.plan_undo()
    assert plan.changes == () and not plan.blocked
    assert kept(plan) == {
        "a.txt": "moved outside to mine.txt, kept",
        "mine.txt": "moved here from a.txt outside, kept",
    }
    merged = workspace.plan_undo(choices={"mine.txt": "merge"})
    assert [change.path for change in merged.changes] == ["mine.txt"]
    workspace.carry_out(merged)
    assert (root / "mine.txt").read_bytes() == b"one\ntwo\nthree\n"
    assert not (root / "a.txt").exists()


def test_a_person_who_moves_one_file_over_another_loses_neither_name_nor_content(
    workspace: AuditedWorkspace, call: Call, root: Path, seen: Callable[[], None]
) -> None:
    point = workspace.log.head()
    call("write_file", path="new.txt", content="new\n")
    call("edit_file", path="a.txt", old_str="one", new_str="ONE")
    os.replace(root / "new.txt", root / "a.txt")
    seen()
    plan = workspace.plan_rollback(point)
    assert plan.changes == () and not plan.blocked
    assert "moved here from new.txt outside, kept" in kept(plan)["a.txt"]
    workspace.carry_out(plan)
    assert (root / "a.txt").read_text() == "new\n"


def test_a_folder_that_a_person_renamed_is_kept_with_what_a_call_made_in_it(
    workspace: AuditedWorkspace, call: Call, root: Path, seen: Callable[[], None]
) -> None:
    point = workspace.log.head()
    call("write_file", path="src/made.py", content="1\n")
    (root / "src").rename(root / "lib")
    seen()
    plan = workspace.plan_rollback(point)
    assert plan.changes == () and not plan.blocked
    assert kept(plan)["lib/made.py"] == "moved here from src/made.py outside, kept"
    workspace.carry_out(plan)
    assert sorted(path.name for path in (root / "lib").iterdir()) == ["made.py", "main.py"]


def test_another_file_of_the_same_content_is_not_taken_for_a_moved_one(
    workspace: AuditedWorkspace, call: Call, root: Path, seen: Callable[[], None]
) -> None:
    call("write_file", path="b.txt", content="same\n")
    (root / "b.txt").unlink()
    (root / "c.txt").write_text("same\n")
    seen()
    plan = workspace.plan_undo(choices={"b.txt": "old"})
    assert plan.changes == () and "c.txt" not in kept(plan)


def test_a_call_that_moves_on_what_a_person_moved_is_taken_back_to_there(
    workspace: AuditedWorkspace, call: Call, root: Path
) -> None:
    point = workspace.log.head()
    call("write_file", path="draft.md", content="chapter one\n")
    (root / "draft.md").rename(root / "thesis.md")
    call("move_file", **{"from": "thesis.md", "to": "final.md"})
    plan = workspace.plan_rollback(point)
    assert [change.path for change in plan.changes] == ["final.md", "thesis.md"]
    workspace.carry_out(plan)
    assert (root / "thesis.md").read_text() == "chapter one\n"
    assert not (root / "final.md").exists()


def test_files_whose_names_a_person_exchanged_are_both_kept(
    workspace: AuditedWorkspace, call: Call, root: Path, seen: Callable[[], None]
) -> None:
    point = workspace.log.head()
    call("edit_file", path="a.txt", old_str="one", new_str="ONE")
    call("write_file", path="b.txt", content="new\n")
    (root / "a.txt").rename(root / "t")
    (root / "b.txt").rename(root / "a.txt")
    (root / "t").rename(root / "b.txt")
    seen()
    plan = workspace.plan_rollback(point)
    assert plan.changes == () and not plan.blocked
    assert {*kept(plan)} == {"a.txt", "b.txt"}
    workspace.carry_out(workspace.plan_rollback(point, outside=True))
    assert (root / "a.txt").read_bytes() == b"one\ntwo\nthree\n"
    assert not (root / "b.txt").exists()


def test_a_rollback_of_a_file_that_a_person_renamed_is_the_same_by_either_of_its_names(
    workspace: AuditedWorkspace, call: Call, root: Path, seen: Callable[[], None]
) -> None:
    call("write_file", path="draft.md", content="one\n\n\n\ntwo\n")
    point = workspace.log.head()
    call("write_file", path="draft.md", content="one\n\n\n\nTWO\n")
    (root / "draft.md").rename(root / "MY-thesis.md")
    seen()
    all_of_it = workspace.plan_rollback(point)
    for name in ("draft.md", "MY-thesis.md"):
        plan = workspace.plan_rollback(point, paths=[name])
        assert (plan.changes, plan.kept) == (all_of_it.changes, all_of_it.kept)
        assert (plan.reverts, plan.partly) == (all_of_it.reverts, all_of_it.partly)
        back = workspace.plan_rollback(point, paths=[name], outside=True)
        assert {one.path for one in back.changes} == {"draft.md", "MY-thesis.md"}
    workspace.carry_out(back)
    assert (root / "draft.md").read_text() == "one\n\n\n\ntwo\n"
    assert not (root / "MY-thesis.md").exists()
