"""Chains of undos, redos and reverts, of which each takes back what others took back."""

from collections.abc import Callable
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, ToolResult
from loom_audit.errors import Conflict

LINES = tuple(f"{word}\n\n\n\n" for word in ("one", "two", "three", "four"))


def write(workspace: AuditedWorkspace, root: Path, n: int, *names: str) -> int:
    """One call marks the line with this number in some files, or in "a"; its number."""
    with workspace.session("writer") as writer, writer.recording("work"):
        for name in names or ("a",):
            text = (root / name).read_text()
            text = text.replace(LINES[n], f"{LINES[n].strip()}: marked\n\n\n\n")
            (root / name).write_text(text)
    return workspace.timeline.calls()[0].seq or 0


def marked(root: Path, name: str = "a") -> list[str]:
    return [line.split(":")[0] for line in (root / name).read_text().split() if ":" in line]


def revert(workspace: AuditedWorkspace, *calls: int | str, paths: tuple[str, ...] = ()) -> int:
    done = workspace.carry_out(workspace.plan_revert(calls, paths=paths)).call
    assert done.seq
    return done.seq


def test_a_redo_leaves_taken_back_what_a_later_revert_took_back_too(
    workspace: AuditedWorkspace, root: Path
) -> None:
    (root / "a").write_text("".join(LINES))
    workspace.status()
    first = write(workspace, root, 0)
    taken = revert(workspace, first)
    revert(workspace, taken)
    workspace.carry_out(workspace.plan_undo())
    workspace.carry_out(workspace.plan_undo())
    assert marked(root) == ["one"]
    revert(workspace, first)
    for _ in range(2):
        workspace.carry_out(workspace.plan_redo())
        assert not marked(root)
        assert workspace.timeline.call(first).call.undone_by


def test_a_session_is_taken_back_where_a_revert_took_back_a_rollback_and_one_of_its_calls(
    workspace: AuditedWorkspace, root: Path
) -> None:
    (root / "a").write_text("".join(LINES))
    workspace.status()
    before = (root / "a").read_text()
    point = workspace.log.head()
    calls = [write(workspace, root, n) for n in range(3)]
    rollback = workspace.carry_out(workspace.plan_rollback(point)).call.seq
    assert rollback and (root / "a").read_text() == before
    calls.append(write(workspace, root, 3))
    revert(workspace, rollback, calls[0])
    assert marked(root) == ["two", "three", "four"]
    revert(workspace, *calls)
    assert (root / "a").read_text() == before
    assert all(workspace.timeline.call(number).call.undone_by for number in calls)


def test_an_undo_is_taken_back_where_a_revert_of_it_and_of_the_first_call_changed_no_line(
    workspace: AuditedWorkspace, root: Path
) -> None:
    for name in ("a", "b"):
        (root / name).write_text("".join(LINES))
    workspace.status()
    first = write(workspace, root, 0)
    revert(workspace, revert(workspace, first))
    undo = workspace.carry_out(workspace.plan_undo()).call.seq or 0
    revert(workspace, undo, write(workspace, root, 1, "b"), first)
    other = write(workspace, root, 2, "b")
    assert workspace.plan_revert([other, undo], paths=["a"]).is_empty
    revert(workspace, other, undo)
    assert not marked(root) and not marked(root, "b")


def test_what_others_took_back_at_an_old_name_of_a_file_stays_taken_back(
    workspace: AuditedWorkspace, root: Path, call: Callable[..., ToolResult]
) -> None:
    (root / "a").write_text("".join(LINES))
    workspace.status()
    taken = revert(workspace, write(workspace, root, 0))
    call("move_file", **{"from": "a", "to": "b"})
    revert(workspace, taken)
    workspace.carry_out(workspace.plan_undo())
    again = revert(workspace, taken)
    redo = workspace.carry_out(workspace.plan_redo()).call.seq or 0
    assert marked(root, "b") == ["one"]
    assert workspace.plan_revert([again, redo], paths=["b"]).is_empty, "the redo changed nothing"
    revert(workspace, again, redo)
    assert not marked(root, "b")


def test_a_file_that_another_call_moved_counts_at_all_its_names(
    workspace: AuditedWorkspace, root: Path, call: Callable[..., ToolResult]
) -> None:
    for name in ("a", "c"):
        (root / name).write_text("".join(LINES))
    workspace.status()
    first = write(workspace, root, 0)
    call("move_file", **{"from": "a", "to": "b"})
    other = revert(workspace, write(workspace, root, 1, "c"))
    taken = revert(workspace, first)
    both = revert(workspace, other, taken)
    assert marked(root, "b") == ["one"]
    revert(workspace, both, paths=("b",))
    assert not marked(root, "b") and marked(root, "c") == ["two"]
    assert workspace.timeline.call(first).call.undone_by == taken


def test_what_a_later_revert_took_back_at_a_file_that_it_left_as_it_was_stays_taken_back(
    workspace: AuditedWorkspace, root: Path
) -> None:
    for name in ("a", "b"):
        (root / name).write_text("".join(LINES))
    workspace.status()
    first = write(workspace, root, 0)
    taken = revert(workspace, first)
    undo = revert(workspace, revert(workspace, taken))
    assert not marked(root)
    revert(workspace, taken, write(workspace, root, 1, "b"), first)
    write(workspace, root, 2)
    assert workspace.plan_revert([undo]).is_empty
    assert marked(root) == ["three"] and workspace.timeline.call(first).call.undone_by


def test_lines_of_a_file_that_was_moved_back_since_come_back_from_under_its_names(
    workspace: AuditedWorkspace, root: Path, call: Callable[..., ToolResult]
) -> None:
    (root / "a").write_text("".join(LINES))
    workspace.status()
    taken = revert(workspace, write(workspace, root, 0))
    call("move_file", **{"from": "a", "to": "b"})
    move = workspace.timeline.calls()[0].seq or 0
    brought = revert(workspace, taken)
    later = write(workspace, root, 1, "b")
    both = revert(workspace, later, brought)
    assert not marked(root, "b")
    revert(workspace, move)
    revert(workspace, both, move)
    assert marked(root) == ["one", "two"]


def test_the_rest_of_a_rollback_has_the_files_that_it_left_as_they_were(
    workspace: AuditedWorkspace, root: Path
) -> None:
    for name in ("a", "b", "c"):
        (root / name).write_text("".join(LINES))
    workspace.status()
    point = workspace.log.head()
    first = write(workspace, root, 0, "a", "b", "c")
    taken = revert(workspace, first, paths=("c",))
    rollback = workspace.carry_out(workspace.plan_rollback(point)).call.seq or 0
    revert(workspace, rollback, paths=("b",))
    revert(workspace, rollback)
    assert [marked(root, name) for name in ("a", "b", "c")] == [["one"], ["one"], []]
    assert workspace.timeline.call(first).taken_back_in_part == {"c": taken}


def test_a_file_stays_where_a_rollback_took_back_both_what_moved_it_back_and_what_moved_it_on(
    workspace: AuditedWorkspace, root: Path, call: Callable[..., ToolResult]
) -> None:
    (root / "a").write_text("".join(LINES))
    workspace.status()
    call("move_file", **{"from": "a", "to": "b"})
    point = workspace.log.head()
    back = revert(workspace, workspace.timeline.calls()[0].seq or 0)
    call("move_file", **{"from": "a", "to": "c"})
    workspace.carry_out(workspace.plan_rollback(point))
    assert workspace.plan_revert([back]).is_empty
    assert (root / "b").read_text() == "".join(LINES)


def test_all_that_a_revert_of_one_moved_file_names_is_taken_back_by_whichever_name(
    workspace: AuditedWorkspace, root: Path, call: Callable[..., ToolResult]
) -> None:
    (root / "a").write_text("".join(LINES))
    workspace.status()
    first = write(workspace, root, 0)
    call("move_file", **{"from": "a", "to": "b"})
    move = workspace.timeline.calls()[0].seq or 0
    taken = revert(workspace, first)
    revert(workspace, taken, move, first, paths=("b",))
    assert not marked(root)


def test_a_rollback_of_a_file_brings_its_lines_back_from_before_a_move_before_the_point(
    workspace: AuditedWorkspace, root: Path, call: Callable[..., ToolResult]
) -> None:
    for name in ("a", "c"):
        (root / name).write_text("".join(LINES))
    workspace.status()
    first = write(workspace, root, 0, "a", "c")
    call("move_file", **{"from": "a", "to": "b"})
    point = workspace.log.head()
    taken = revert(workspace, first)
    workspace.carry_out(workspace.plan_rollback(point, paths=["b"]))
    assert marked(root, "b") == ["one"]
    assert workspace.timeline.call(first).taken_back_in_part == {"c": taken}


def test_a_redo_brings_the_lines_of_a_file_that_was_moved_there_and_back_in_between(
    workspace: AuditedWorkspace, root: Path, call: Callable[..., ToolResult]
) -> None:
    (root / "a").write_text("".join(LINES))
    workspace.status()
    first = write(workspace, root, 0)
    taken = revert(workspace, first)
    call("move_file", **{"from": "a", "to": "b"})
    move = workspace.timeline.calls()[0].seq or 0
    revert(workspace, taken)
    revert(workspace, move)
    again = revert(workspace, first)
    revert(workspace, again)
    assert marked(root) == ["one"]


def test_a_revert_that_would_leave_a_file_otherwise_than_the_log_counts_it_is_blocked(
    workspace: AuditedWorkspace, root: Path
) -> None:
    for name in ("a", "c"):
        (root / name).write_text("".join(LINES))
    workspace.status()
    first = write(workspace, root, 0, "a")
    undo = revert(workspace, first)
    both = revert(workspace, undo, first, write(workspace, root, 1, "c"))
    brought = revert(workspace, both, paths=("c",))
    revert(workspace, undo)
    assert (marked(root), marked(root, "c")) == (["one"], ["two"])
    plan = workspace.plan_revert([brought])
    assert [(note.path, note.calls) for note in plan.blocked] == [("a", (first,))]
    assert "revert the call by itself first" in plan.blocked[0].reason
    with pytest.raises(Conflict):
        workspace.carry_out(plan)
    assert (marked(root), marked(root, "c")) == (["one"], ["two"])
    assert not workspace.timeline.call(first).call.undone_by
    revert(workspace, first)
    revert(workspace, brought)
    assert (marked(root), marked(root, "c")) == ([], [])
    assert workspace.timeline.call(first).call.undone_by


def test_a_redo_makes_a_file_again_that_was_moved_on_twice_before_all_of_it_was_undone(
    workspace: AuditedWorkspace, root: Path, call: Callable[..., ToolResult]
) -> None:
    call("write_file", path="a", content="one\n")
    call("move_file", **{"from": "a", "to": "b"})
    call("edit_file", path="b", old_str="one", new_str="two")
    call("move_file", **{"from": "b", "to": "c"})
    for _ in range(4):
        workspace.carry_out(workspace.plan_undo())
    assert not (root / "a").exists()
    for name, text in (("a", "one\n"), ("b", "one\n"), ("b", "two\n"), ("c", "two\n")):
        workspace.carry_out(workspace.plan_redo())
        assert {one: (root / one).read_text() for one in "abc" if (root / one).exists()} == {
            name: text
        }


def test_an_undo_takes_away_what_a_revert_brought_back_after_a_rollback_to_before_it_was_made(
    workspace: AuditedWorkspace, root: Path, call: Callable[..., ToolResult]
) -> None:
    point = workspace.log.head()
    (root / "a").write_text("by a person\n")
    workspace.status()
    call("delete_file", path="a")
    deletion = workspace.timeline.calls()[0].seq or 0
    call("write_file", path="b", content="made\n")
    workspace.carry_out(workspace.plan_rollback(point, outside=True))
    assert not (root / "a").exists()
    assert workspace.timeline.call(deletion).call.undone_by
    call("write_file", path="c", content="made\n")
    revert(workspace, deletion, workspace.timeline.calls()[0].seq or 0)
    assert (root / "a").read_text() == "by a person\n"
    workspace.carry_out(workspace.plan_undo())
    assert not (root / "a").exists()
    workspace.carry_out(workspace.plan_redo())
    assert (root / "a").read_text() == "by a person\n"


def test_a_rollback_is_undone_where_a_person_had_made_a_file_again_as_it_was_at_the_point(
    workspace: AuditedWorkspace, root: Path
) -> None:
    for name in ("a", "c"):
        (root / name).write_text("".join(LINES))
    workspace.status()
    first = write(workspace, root, 0, "a", "c")
    point, made = workspace.log.head(), (root / "a").read_text()
    taken = revert(workspace, first)
    (root / "a").write_text(made)
    workspace.carry_out(workspace.plan_rollback(point, outside=True))
    assert workspace.timeline.call(taken).call.undone_by
    assert (marked(root), marked(root, "c")) == (["one"], ["one"])
    workspace.carry_out(workspace.plan_undo())
    assert (marked(root), marked(root, "c")) == (["one"], [])
    assert workspace.timeline.call(first).call.undone_by
    workspace.carry_out(workspace.plan_redo())
    assert (marked(root), marked(root, "c")) == (["one"], ["one"])


def test_a_rollback_of_a_rollback_has_all_names_at_which_both_took_a_revert_back(
    workspace: AuditedWorkspace, root: Path, call: Callable[..., ToolResult]
) -> None:
    for name in ("a", "c"):
        (root / name).write_text("".join(LINES))
    workspace.status()
    first = write(workspace, root, 0)
    points = [workspace.log.head()]
    write(workspace, root, 1, "c")
    points.append(workspace.log.head())
    call("move_file", **{"from": "a", "to": "b"})
    move = workspace.timeline.calls()[0].seq or 0
    revert(workspace, first)
    revert(workspace, move)
    for point in points:
        workspace.carry_out(workspace.plan_rollback(point))
        assert marked(root) == ["one"]
        assert not workspace.timeline.call(first).call.undone_by
    revert(workspace, first)
    assert not marked(root)


def test_a_rollback_takes_back_each_undo_that_changed_no_file_and_what_took_it_back(
    workspace: AuditedWorkspace, root: Path
) -> None:
    (root / "a").write_text("".join(LINES))
    workspace.status()
    first = write(workspace, root, 0)
    undone = revert(workspace, first)
    redone = revert(workspace, undone)
    again = revert(workspace, redone)
    revert(workspace, undone)
    point = workspace.log.head()
    assert workspace.timeline.call(redone).call.undone_by == again
    session = workspace.timeline.call(again).call.session
    assert not workspace.carry_out(workspace.plan_undo(session=session)).changed
    assert not workspace.carry_out(workspace.plan_redo()).changed
    revert(workspace, first)
    workspace.carry_out(workspace.plan_rollback(point))
    assert marked(root) == ["one"]
    assert workspace.timeline.call(redone).call.undone_by == again


def test_of_a_redo_that_changed_no_file_each_file_is_taken_back_and_brought_again_by_itself(
    workspace: AuditedWorkspace, root: Path
) -> None:
    for name in ("a", "b"):
        (root / name).write_text("".join(LINES))
    workspace.status()
    first, second = (write(workspace, root, n, "a", "b") for n in range(2))
    revert(workspace, second)
    point = workspace.log.head()
    workspace.carry_out(workspace.plan_undo())
    revert(workspace, first, second)
    done = workspace.carry_out(workspace.plan_redo())
    redo = done.call.seq or 0
    assert not done.changed
    taken = workspace.carry_out(workspace.plan_rollback(point, paths=["a"])).call.seq or 0
    assert (marked(root), marked(root, "b")) == (["one"], [])
    assert not workspace.timeline.call(redo).call.undone_by
    rest = workspace.carry_out(workspace.plan_rollback(point, paths=["b"])).call.seq or 0
    assert (marked(root), marked(root, "b")) == (["one"], ["one"])
    assert workspace.timeline.call(redo).call.undone_by == rest
    revert(workspace, taken)
    assert not workspace.timeline.call(redo).call.undone_by


def test_a_rollback_of_one_file_leaves_another_that_a_revert_of_a_revert_left_as_it_was(
    workspace: AuditedWorkspace, root: Path, call: Callable[..., ToolResult]
) -> None:
    for name in ("a", "b"):
        (root / name).write_text("".join(LINES))
    workspace.status()
    point = workspace.log.head()
    first = write(workspace, root, 0, "a", "b")
    call("move_file", **{"from": "a", "to": "c"})
    move = workspace.timeline.calls()[0].seq or 0
    taken = revert(workspace, first)
    both = revert(workspace, first, move, taken)
    assert (marked(root), marked(root, "b")) == ([], [])
    assert workspace.plan_rollback(point, paths=["a"]).is_empty
    write(workspace, root, 1)
    workspace.carry_out(workspace.plan_rollback(point, paths=["a"]))
    assert (marked(root), marked(root, "b")) == ([], [])
    assert workspace.timeline.call(first).call.undone_by
    said = workspace.timeline.call(taken)
    assert said.call.undone_by is None and "b" not in dict(said.taken_back_in_part)
    assert workspace.timeline.call(both).call.undone_by
