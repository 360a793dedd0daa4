"""Of a call that changed several files some can be taken back, and later the rest of it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, Session, ToolResult
from loom_audit.errors import Conflict, NotFound

Call = Callable[..., ToolResult]


@pytest.fixture
def number(workspace: AuditedWorkspace, root: Path, call: Call) -> int:
    """A call that changed two files."""
    call("write_file", path="a", content="a1\n")
    call("write_file", path="b", content="b1\n")
    call("shell_execute", command="echo a2 > a; echo b2 > b")
    return workspace.timeline.calls()[0].seq or 0


def before(workspace: AuditedWorkspace, number: int) -> int:
    return workspace.timeline.listed_call(number).requested - 1


def texts(root: Path) -> tuple[str, str]:
    return (root / "a").read_text().strip(), (root / "b").read_text().strip()


def test_a_rollback_of_one_path_takes_no_call_back_that_changed_another(
    workspace: AuditedWorkspace, session: Session, root: Path, number: int
) -> None:
    plan = workspace.plan_rollback(before(workspace, number), paths=["a"])
    assert (plan.reverts, dict(plan.partly)) == ((), {number: ("a",)})
    by = workspace.carry_out(plan).call.seq
    assert texts(root) == ("a1", "b2")
    detail = workspace.timeline.call(number)
    assert detail.call.undone_by is None and detail.taken_back_in_part == {"a": by}
    rest = workspace.plan_undo(session=session.id)
    assert rest.reverts == (number,) and [change.path for change in rest.changes] == ["b"]
    workspace.carry_out(rest)
    assert texts(root) == ("a1", "b1")
    assert workspace.timeline.call(number).taken_back_in_part == {}


def test_the_rest_is_taken_back_though_somebody_changed_the_part_since(
    workspace: AuditedWorkspace, session: Session, root: Path, number: int
) -> None:
    workspace.carry_out(workspace.plan_rollback(before(workspace, number), paths=["a"]))
    (root / "a").write_bytes(b"\0theirs")
    plan = workspace.plan_undo(session=session.id)
    assert not plan.blocked and [change.path for change in plan.changes] == ["b"]
    workspace.carry_out(plan)
    assert (root / "a").read_bytes() == b"\0theirs" and (root / "b").read_text() == "b1\n"


def test_what_took_the_last_part_back_took_the_call_back(
    workspace: AuditedWorkspace, root: Path, number: int
) -> None:
    point = before(workspace, number)
    workspace.carry_out(workspace.plan_rollback(point, paths=["a"]))
    last = workspace.carry_out(workspace.plan_rollback(point, paths=["b"])).call
    assert number in last.reverts and texts(root) == ("a1", "b1")


def test_of_an_undo_one_path_is_taken_back_and_there_the_call_is_in_effect_again(
    workspace: AuditedWorkspace, root: Path, number: int
) -> None:
    undo = workspace.carry_out(workspace.plan_undo()).call.seq or 0
    workspace.carry_out(workspace.plan_revert([undo], paths=["a"]))
    assert texts(root) == ("a2", "b1")
    detail = workspace.timeline.call(number)
    assert detail.call.undone_by is None and detail.taken_back_in_part == {"b": undo}
    workspace.carry_out(workspace.plan_revert([number]))
    assert texts(root) == ("a1", "b1")
    assert workspace.timeline.call(number).call.undone_by is not None


def test_undo_goes_back_to_the_first_tree_after_the_taking_back_of_a_part_is_taken_back_last(
    workspace: AuditedWorkspace, session: Session, root: Path, number: int
) -> None:
    part = workspace.carry_out(workspace.plan_revert([number], paths=["a"])).call.seq or 0
    rest = workspace.carry_out(workspace.plan_undo(session=session.id)).call
    assert texts(root) == ("a1", "b1") and rest.reverts == (number,)
    workspace.carry_out(workspace.plan_revert([part]))
    assert texts(root) == ("a2", "b1")
    detail = workspace.timeline.call(number)
    assert detail.call.undone_by is None and detail.taken_back_in_part == {"b": rest.seq}
    undone = workspace.carry_out(workspace.plan_undo(session=session.id)).call
    assert texts(root) == ("a1", "b1") and undone.reverts == (number,)
    assert workspace.timeline.call(number).call.undone_by == undone.seq


def test_a_redo_that_leaves_a_path_by_choice_leaves_the_call_taken_back_there_alone(
    workspace: AuditedWorkspace, root: Path, number: int
) -> None:
    undo = workspace.carry_out(workspace.plan_undo()).call.seq
    workspace.carry_out(workspace.plan_redo(choices={"a": "current"}))
    assert texts(root) == ("a1", "b2")
    assert workspace.timeline.call(number).taken_back_in_part == {"a": undo}
    workspace.carry_out(workspace.plan_redo())
    assert texts(root) == ("a2", "b2")
    assert workspace.timeline.call(number).taken_back_in_part == {}


def test_a_rollback_of_a_path_past_an_undo_leaves_what_that_took_back_taken_back(
    workspace: AuditedWorkspace, root: Path, call: Call, number: int
) -> None:
    call("write_file", path="a", content="a3\n")
    workspace.carry_out(workspace.plan_revert([number], choices={"a": "old"}))
    workspace.carry_out(workspace.plan_rollback(before(workspace, number), paths=["b", "a"]))
    assert texts(root) == ("a1", "b1")
    detail = workspace.timeline.call(number)
    assert detail.call.undone_by is not None or detail.taken_back_in_part.keys() == {"a", "b"}


def test_a_part_whose_taking_back_was_taken_back_is_the_calls_again(
    workspace: AuditedWorkspace, root: Path, number: int
) -> None:
    workspace.carry_out(workspace.plan_rollback(before(workspace, number), paths=["a"]))
    workspace.carry_out(workspace.plan_undo())
    assert texts(root) == ("a2", "b2")
    assert workspace.timeline.call(number).taken_back_in_part == {}
    plan = workspace.plan_revert([number])
    assert [change.path for change in plan.changes] == ["a", "b"]


def test_one_file_of_a_call_is_reverted(
    workspace: AuditedWorkspace, root: Path, number: int
) -> None:
    plan = workspace.plan_revert([number], paths=["a"])
    by = workspace.carry_out(plan).call
    assert texts(root) == ("a1", "b2") and by.reverts == ()
    assert workspace.timeline.call(number).taken_back_in_part == {"a": by.seq}
    rest = workspace.carry_out(workspace.plan_revert([number])).call
    assert texts(root) == ("a1", "b1") and rest.reverts == (number,)


def test_a_path_that_a_choice_keeps_is_what_is_left_of_the_call(
    workspace: AuditedWorkspace, session: Session, root: Path, number: int
) -> None:
    plan = workspace.plan_undo(session=session.id, choices={"a": "current"})
    by = workspace.carry_out(plan).call.seq
    assert texts(root) == ("a2", "b1")
    assert workspace.timeline.call(number).taken_back_in_part == {"b": by}
    workspace.carry_out(workspace.plan_redo(session=None))
    assert workspace.timeline.call(number).taken_back_in_part == {}


def test_a_path_that_the_call_did_not_change_is_refused(
    workspace: AuditedWorkspace, number: int
) -> None:
    head = workspace.log.head()
    with pytest.raises(NotFound, match="nothing that is to be reverted changed c"):
        workspace.plan_revert([number], paths=["c"])
    assert workspace.log.head() == head


def test_of_a_moved_file_both_names_are_taken_back(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    call("write_file", path="a", content="a1\n")
    call("shell_execute", command="mv a c; echo b2 > b")
    number = workspace.timeline.calls()[0].seq or 0
    workspace.carry_out(workspace.plan_revert([number], paths=["c"]))
    assert (root / "a").read_text() == "a1\n" and not (root / "c").exists()
    assert (root / "b").read_text() == "b2\n"


def test_a_file_of_a_removed_folder_comes_back_with_its_folder(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    call("write_file", path="d/e/f", content="f\n")
    call("write_file", path="d/g", content="g\n")
    call("shell_execute", command="rm -r d")
    number = workspace.timeline.calls()[0].seq or 0
    plan = workspace.plan_revert([number], paths=["d/e/f"])
    if plan.blocked:
        raise Conflict(str(plan.blocked))
    workspace.carry_out(plan)
    assert (root / "d/e/f").read_text() == "f\n" and not (root / "d/g").exists()


def test_a_choice_of_the_old_state_at_one_end_of_a_move_that_is_taken_back_takes_the_other_along(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    call("write_file", path="a", content="a1\n")
    call("write_file", path="b", content="b1\n")
    call("shell_execute", command="mv a b")
    number = workspace.timeline.calls()[0].seq or 0
    workspace.carry_out(workspace.plan_revert([number]))
    plan = workspace.plan_revert([number], choices={"b": "old"})
    assert plan.changes == () and texts(root) == ("a1", "b1")


def newest(workspace: AuditedWorkspace) -> int:
    return workspace.timeline.calls()[0].seq or 0


def taking_back(workspace: AuditedWorkspace, *numbers: int, paths: tuple[str, ...] = ()) -> int:
    """What takes these calls back; its number."""
    return workspace.carry_out(workspace.plan_revert(numbers, paths=paths)).call.seq or 0


def test_an_edit_that_was_taken_back_at_a_new_name_does_not_come_back_with_the_old_name(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    call("write_file", path="a", content="first\n")
    call("write_file", path="a", content="first\nmore\n")
    edit = newest(workspace)
    call("move_file", **{"from": "a", "to": "b"})
    both = taking_back(workspace, edit, newest(workspace))
    undo = taking_back(workspace, both)
    alone = taking_back(workspace, edit)
    plan = workspace.plan_revert([undo, edit])
    assert plan.reverts == (undo,), "the edit is taken back already"
    workspace.carry_out(plan)
    taking_back(workspace, both, paths=("b",))
    assert (root / "b").read_text() == "first\n" and not (root / "a").exists()
    assert workspace.timeline.call(edit).call.undone_by == alone


def test_of_what_took_back_a_file_that_had_been_moved_all_its_names_are_taken_back(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    call("write_file", path="a", content="first\n")
    call("move_file", **{"from": "a", "to": "b"})
    move = newest(workspace)
    call("shell_execute", command="echo more >> b; echo c > c")
    edit = newest(workspace)
    taking_back(workspace, move)
    back = workspace.carry_out(workspace.plan_rollback(before(workspace, move))).call.seq
    assert (root / "a").read_text() == "first\n" and not (root / "c").exists()
    taking_back(workspace, back or 0, paths=("a",))
    assert (root / "a").read_text() == "first\nmore\n" and not (root / "b").exists()
    assert workspace.timeline.call(edit).taken_back_in_part == {"c": back}


def test_a_rollback_of_a_path_beside_an_edit_from_outside_keeps_what_is_taken_back_there(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    call("write_file", path="a", content="a\n")
    point = workspace.log.head()
    (root / "b").write_text("first\n")
    call("shell_execute", command="echo more >> a; echo more >> b")
    edit = newest(workspace)
    by = taking_back(workspace, edit, paths=("b",))
    assert workspace.plan_rollback(point, paths=["b"]).is_empty
    assert workspace.timeline.call(edit).taken_back_in_part == {"b": by}


def test_a_rollback_of_which_no_change_is_left_is_taken_back_where_it_changed_nothing_too(
    workspace: AuditedWorkspace, root: Path, number: int
) -> None:
    point = before(workspace, number)
    part = workspace.carry_out(workspace.plan_rollback(point, paths=["a"])).call.seq
    whole = workspace.carry_out(workspace.plan_rollback(point)).call.seq or 0
    assert workspace.timeline.call(number).call.undone_by == whole
    workspace.carry_out(workspace.plan_revert([whole], paths=["b"]))
    assert texts(root) == ("a1", "b2")
    assert workspace.timeline.call(whole).call.undone_by
    assert workspace.timeline.call(number).taken_back_in_part == {"a": part}
