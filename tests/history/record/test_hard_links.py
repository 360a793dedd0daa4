"""Names of one file: they change together, are taken back together, and stay one file."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, Session, ToolResult
from loom_audit.model.events import ChangeIntended
from tests.oracles.trees import names_together

Call = Callable[..., ToolResult]


@pytest.fixture
def root(root: Path) -> Path:
    """A file with two names in the workspace, and one without."""
    os.link(root / "a.txt", root / "src" / "b.txt")
    (root / "c.txt").write_text("see\n")
    return root


def on_record(workspace: AuditedWorkspace) -> set[frozenset[str]]:
    """The names that are one file, as the log says it."""
    names: dict[int, set[str]] = {}
    for path, state in workspace.attachment.stored.tables.tree().items():
        if state.group is not None:
            names.setdefault(state.group, set()).add(path)
    return {frozenset(paths) for paths in names.values()}


def check(workspace: AuditedWorkspace, root: Path) -> None:
    assert on_record(workspace) == names_together(root)
    assert workspace.status().drift == ()
    assert workspace.leftovers() == []


PAIR = frozenset({"a.txt", "src/b.txt"})
TWO = "one\ntwo\nthree\n"


def test_a_write_of_one_name_replaces_all_and_the_intention_lists_them(
    root: Path, workspace: AuditedWorkspace, call: Call
) -> None:
    call("write_file", path="a.txt", content="new\n")
    assert (root / "src/b.txt").read_text() == "new\n"
    assert names_together(root) == {PAIR}
    (intended,) = [e.fact for e in workspace.log.read() if isinstance(e.fact, ChangeIntended)]
    assert {change.path for change in intended.changes} == PAIR
    newest = workspace.timeline.calls()[0]
    assert (newest.coverage.level, newest.changed) == ("full", 2)
    check(workspace, root)
    workspace.carry_out(workspace.plan_undo())
    assert (root / "src/b.txt").read_text() == TWO
    assert names_together(root) == {PAIR}
    check(workspace, root)
    workspace.carry_out(workspace.plan_redo())
    assert (root / "a.txt").read_text() == "new\n"
    assert names_together(root) == {PAIR}
    check(workspace, root)


def test_an_append_through_one_name_is_taken_back_and_leaves_one_file(
    root: Path, workspace: AuditedWorkspace, session: Session
) -> None:
    with session.recording("append"), (root / "a.txt").open("a") as file:
        file.write("four\n")
    workspace.carry_out(workspace.plan_undo())
    assert (root / "src/b.txt").read_text() == TWO
    assert names_together(root) == {PAIR}
    check(workspace, root)


def test_links_that_a_command_makes_and_breaks_are_on_record_and_taken_back(
    root: Path, workspace: AuditedWorkspace, session: Session
) -> None:
    inode = (root / "a.txt").stat().st_ino
    with session.recording("ln"):
        os.link(root / "a.txt", root / "more.txt")
        os.link(root / "c.txt", root / "src" / "d.txt")
    check(workspace, root)
    workspace.carry_out(workspace.plan_undo())
    assert names_together(root) == {PAIR}
    assert (root / "a.txt").stat().st_ino == inode, "nothing was written"
    check(workspace, root)
    workspace.carry_out(workspace.plan_redo())
    assert names_together(root) == {PAIR | {"more.txt"}, frozenset({"c.txt", "src/d.txt"})}
    assert (root / "a.txt").stat().st_ino == inode, "nothing was written"
    check(workspace, root)
    with session.recording("break"):
        (root / "src/b.txt").unlink()
        (root / "src/b.txt").write_text("apart\n")
    check(workspace, root)
    workspace.carry_out(workspace.plan_undo())
    assert names_together(root) == {PAIR | {"more.txt"}, frozenset({"c.txt", "src/d.txt"})}
    check(workspace, root)


def test_a_link_in_the_place_of_an_equal_file_is_taken_back_to_two_files(
    root: Path, workspace: AuditedWorkspace, session: Session
) -> None:
    with session.recording("copy"):
        (root / "same.txt").write_text("see\n")
    with session.recording("ln -f"):
        (root / "same.txt").unlink()
        os.link(root / "c.txt", root / "same.txt")
    workspace.carry_out(workspace.plan_undo())
    assert names_together(root) == {PAIR}
    assert (root / "same.txt").read_text() == "see\n"
    check(workspace, root)
    workspace.carry_out(workspace.plan_redo())
    assert names_together(root) == {PAIR, frozenset({"c.txt", "same.txt"})}
    check(workspace, root)


def test_a_name_that_is_deleted_or_moved_leaves_the_others_one_file(
    root: Path, workspace: AuditedWorkspace, call: Call
) -> None:
    call("move_file", **{"from": "a.txt", "to": "src/moved.txt"})
    assert names_together(root) == {frozenset({"src/moved.txt", "src/b.txt"})}
    check(workspace, root)
    call("delete_file", path="src/b.txt")
    assert names_together(root) == set()
    check(workspace, root)
    for _ in range(2):
        workspace.carry_out(workspace.plan_undo())
        check(workspace, root)
    assert names_together(root) == {PAIR}


def test_a_name_outside_is_broken_and_named_in_plan_and_result(
    root: Path, workspace: AuditedWorkspace, call: Call, tmp_path: Path
) -> None:
    os.link(root / "a.txt", tmp_path / "outside")
    call("write_file", path="src/b.txt", content="new\n")
    assert (tmp_path / "outside").read_text() == TWO
    assert names_together(root) == {PAIR}
    reasons = workspace.timeline.calls()[0].coverage.reasons
    assert reasons and all("1 name outside the workspace" in reason for reason in reasons)
    os.link(root / "a.txt", tmp_path / "again")
    plan = workspace.plan_undo()
    assert {note.path for note in plan.inexact} == PAIR
    assert "1 name outside the workspace" in plan.inexact[0].reason
    result = workspace.carry_out(plan)
    assert "1 name outside" in " ".join(result.call.coverage.reasons)
    assert (tmp_path / "again").read_text() == "new\n"
    assert names_together(root) == {PAIR}
    check(workspace, root)


def test_a_name_that_somebody_has_just_made_is_replaced_too(
    root: Path, workspace: AuditedWorkspace, call: Call
) -> None:
    os.link(root / "c.txt", root / "src" / "just-made.txt")
    call("write_file", path="c.txt", content="new\n")
    assert (root / "src/just-made.txt").read_text() == "new\n"
    assert names_together(root) == {PAIR, frozenset({"c.txt", "src/just-made.txt"})}
    check(workspace, root)


def test_a_mode_belongs_to_all_names(
    root: Path, workspace: AuditedWorkspace, session: Session
) -> None:
    with session.recording("chmod"):
        (root / "a.txt").chmod(0o700)
    workspace.carry_out(workspace.plan_undo())
    assert stat.S_IMODE((root / "src/b.txt").stat().st_mode) == 0o644
    assert names_together(root) == {PAIR}
    check(workspace, root)


def test_a_choice_holds_for_the_whole_group(
    root: Path, workspace: AuditedWorkspace, session: Session
) -> None:
    with session.recording("ours"), (root / "a.txt").open("w") as file:
        file.write("ours\n")
    point = workspace.log.head()
    (root / "src/b.txt").write_bytes(b"a person's\n")
    plan = workspace.plan_revert([workspace.timeline.calls()[0].seq or 0])
    assert {note.path for note in plan.blocked} == PAIR
    for path in PAIR:
        kept = workspace.plan_revert([point], choices={path: "current"})
        assert not kept.changes
        assert {note.path for note in kept.kept} == PAIR
        old = workspace.plan_revert([point], choices={path: "old"})
        assert {change.path for change in old.changes} == PAIR
    workspace.carry_out(old)
    assert (root / "a.txt").read_text() == TWO
    assert names_together(root) == {PAIR}
    check(workspace, root)


def test_a_name_that_came_later_changes_with_the_file_that_is_taken_back(
    root: Path, workspace: AuditedWorkspace, call: Call
) -> None:
    call("write_file", path="c.txt", content="ours\n")
    os.link(root / "c.txt", root / "later.txt")
    plan = workspace.plan_undo()
    assert {change.path for change in plan.changes} == {"c.txt", "later.txt"}
    workspace.carry_out(workspace.plan_undo())
    assert (root / "later.txt").read_text() == "see\n"
    assert names_together(root) == {PAIR, frozenset({"c.txt", "later.txt"})}
    check(workspace, root)


@pytest.mark.parametrize("seen", [False, True], ids=["unseen", "on record"])
@pytest.mark.parametrize("verb", ["undo", "revert", "rollback"])
def test_a_name_that_a_person_renamed_changes_with_the_file_and_the_plan_says_so(
    root: Path, workspace: AuditedWorkspace, session: Session, verb: str, seen: bool
) -> None:
    point = workspace.log.head()
    with session.recording("append"), (root / "a.txt").open("a") as file:
        file.write("four\n")
    number = workspace.timeline.calls()[0].seq or 0
    (root / "src/b.txt").rename(root / "mine.txt")
    if seen:
        with session.recording("look"):
            pass
    plan = {
        "undo": lambda: workspace.plan_undo(),
        "revert": lambda: workspace.plan_revert([number]),
        "rollback": lambda: workspace.plan_rollback(point),
    }[verb]()
    together = {"a.txt", "mine.txt"}
    assert {change.path for change in plan.changes} == together and not plan.blocked
    assert {note.path: note.reason for note in plan.kept} == {
        "src/b.txt": "moved outside to mine.txt, which changes with a.txt"
    }
    assert {note.path: note.reason for note in plan.merged} == {
        "mine.txt": "moved here from src/b.txt outside, kept; a hard link of a.txt, changes with it"
    }
    result = workspace.carry_out(plan)
    assert set(result.changed) == together
    *_, intended = [e.fact for e in workspace.log.read() if isinstance(e.fact, ChangeIntended)]
    assert {change.path for change in intended.changes} == together
    assert (root / "mine.txt").read_text() == TWO and not (root / "src/b.txt").exists()
    assert names_together(root) == {frozenset(together)}
    check(workspace, root)
    again = workspace.plan_redo if verb == "undo" else workspace.plan_undo
    workspace.carry_out(again(session=result.call.session))
    assert (root / "mine.txt").read_text() == TWO + "four\n"
    assert names_together(root) == {frozenset(together)}


def test_a_name_that_a_person_renamed_is_kept_with_the_file_by_choice(
    root: Path, workspace: AuditedWorkspace, session: Session
) -> None:
    with session.recording("append"), (root / "a.txt").open("a") as file:
        file.write("four\n")
    (root / "src/b.txt").rename(root / "mine.txt")
    plan = workspace.plan_undo(choices={"mine.txt": "current"})
    assert not plan.changes and not plan.blocked
    assert {"a.txt", "mine.txt"} <= {note.path for note in plan.kept}


def test_a_name_that_a_person_renamed_stays_when_the_others_are_deleted(
    root: Path, workspace: AuditedWorkspace, session: Session
) -> None:
    with session.recording("make"):
        (root / "x").write_text("made\n")
        os.link(root / "x", root / "y")
    (root / "y").rename(root / "mine.txt")
    plan = workspace.plan_undo()
    notes = {note.path: note.reason for note in (*plan.kept, *plan.merged)}
    assert notes["mine.txt"] == "moved here from y outside, kept"
    workspace.carry_out(plan)
    assert (root / "mine.txt").read_text() == "made\n" and not (root / "x").exists()
    check(workspace, root)
