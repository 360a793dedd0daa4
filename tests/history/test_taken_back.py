"""Taking back what is taken back, hidden or moved already, each as the situation it was in."""

from collections.abc import Callable
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, ToolResult
from loom_audit.errors import InvalidArguments
from tests.trees import tree_of

Call = Callable[..., ToolResult]


def number(workspace: AuditedWorkspace) -> int:
    return workspace.timeline.calls()[0].seq or 0


def test_a_call_that_is_taken_back_already_leaves_what_was_made_again_later(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    call("write_file", path="b.txt", content="same\n")
    first = number(workspace)
    undo = workspace.carry_out(workspace.plan_undo()).call.seq
    call("write_file", path="b.txt", content="same\n")
    plan = workspace.plan_revert([first])
    assert (plan.changes, plan.reverts) == ((), ())
    assert [note.reason for note in plan.irreversible] == [
        f"{first} is taken back already, by call {undo}"
    ]
    workspace.carry_out(plan)
    assert (root / "b.txt").read_text() == "same\n"
    assert workspace.timeline.calls()[1].undone_by is None


def test_a_call_that_is_taken_back_already_goes_by_choice(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    call("write_file", path="b.txt", content="same\n")
    first = number(workspace)
    workspace.carry_out(workspace.plan_undo())
    call("write_file", path="b.txt", content="same\n")
    workspace.carry_out(workspace.plan_revert([first], choices={"b.txt": "old"}))
    assert not (root / "b.txt").exists()


def test_a_call_named_with_what_took_it_back_is_neither_there_nor_gone(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    call("write_file", path="b.txt", content="1\n")
    first = number(workspace)
    undo = workspace.carry_out(workspace.plan_undo()).call.seq or 0
    assert workspace.plan_revert([first, undo]).changes == ()
    assert [change.path for change in workspace.plan_revert([undo]).changes] == ["b.txt"]


def test_what_a_later_call_hides_is_still_to_be_taken_back_when_it_shows_again(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    call("write_file", path="b.txt", content="1\n")
    first = number(workspace)
    call("delete_file", path="b.txt")
    plan = workspace.plan_revert([first])
    assert (plan.changes, plan.reverts) == ((), ())
    workspace.carry_out(workspace.plan_undo())
    assert (root / "b.txt").exists()
    workspace.carry_out(workspace.plan_undo())
    assert not (root / "b.txt").exists()


def test_a_rollback_makes_an_undo_that_had_nothing_to_do_unsaid(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    call("write_file", path="b.txt", content="1\n")
    first = number(workspace)
    (root / "b.txt").unlink()
    with workspace.session("looks") as session, session.recording("look"):
        pass
    hidden = workspace.log.head()
    assert workspace.carry_out(workspace.plan_undo()).changed == ()
    call("write_file", path="c.txt", content="2\n")
    workspace.carry_out(workspace.plan_rollback(hidden))
    assert workspace.timeline.call(first).call.undone_by is None


def test_a_rename_and_a_new_file_at_the_old_name_go_and_come_back_step_by_step(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    trees = [tree_of(root)]
    call("move_file", **{"from": "a.txt", "to": "b.txt"})
    trees.append(tree_of(root))
    call("write_file", path="a.txt", content="another\n")
    trees.append(tree_of(root))
    for tree in (trees[1], trees[0]):
        workspace.carry_out(workspace.plan_undo())
        assert tree_of(root) == tree
    for tree in (trees[1], trees[2]):
        workspace.carry_out(workspace.plan_redo())
        assert tree_of(root) == tree


def test_a_file_that_somebody_renamed_is_followed_before_anything_is_on_record(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    call("write_file", path="b.txt", content="new\n")
    (root / "b.txt").rename(root / "c.txt")
    plan = workspace.plan_undo(choices={"b.txt": "old"})
    assert [change.path for change in plan.changes] == ["c.txt"]
    workspace.carry_out(plan)
    assert not (root / "c.txt").exists()


def test_a_plan_sees_what_somebody_wrote_where_a_later_call_had_moved_the_file(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    call("write_file", path="a.txt", content="ONE\ntwo\nthree\n")
    edit = number(workspace)
    call("move_file", **{"from": "a.txt", "to": "b.txt"})
    (root / "b.txt").write_text("ONE\ntwo\nTHREE\n")
    plan = workspace.plan_revert([edit])
    assert plan.drifted
    workspace.carry_out(plan)
    assert (root / "b.txt").read_text() == "one\ntwo\nTHREE\n"


@pytest.mark.parametrize("target", ["²", "٣", "-1", "1.0", "", "9" * 5000])
def test_what_only_looks_like_a_number_names_no_call(
    workspace: AuditedWorkspace, target: str
) -> None:
    with pytest.raises(InvalidArguments, match="names no call"):
        workspace.plan_revert([target])


@pytest.mark.parametrize(
    "point",
    ["9" * 5000, "head~" + "9" * 5000, "٣", "0001-01-01T00:00:00+14:00", "9999-12-31T23:00-14:00"],
)
def test_what_no_clock_or_count_can_mean_is_no_point(
    workspace: AuditedWorkspace, point: str
) -> None:
    with pytest.raises(InvalidArguments, match="is not a point"):
        workspace.plan_rollback(point)
