"""Undo, redo, revert and rollback, one after the other and over later changes."""

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from loom_audit import (
    AuditedWorkspace,
    AuditStore,
    Session,
    ToolResult,
    tool,
)
from loom_audit.api.registry import builtin_registry
from loom_audit.errors import (
    Conflict,
    PermissionDenied,
)
from loom_audit.history.record.call import OpenCall
from loom_audit.model.plans.request import PlanRequest, Verb
from loom_audit.ports import CallFilter
from tests.oracles.trees import tree_of

Call = Callable[..., ToolResult]


def number(workspace: AuditedWorkspace) -> int:
    return workspace.timeline.calls()[0].seq or 0


def rollback(workspace: AuditedWorkspace, point: int | str, **options: object) -> None:
    workspace.carry_out(workspace.plan_rollback(point, **options))  # type: ignore[arg-type]


def undo(workspace: AuditedWorkspace) -> None:
    workspace.carry_out(workspace.plan_undo())


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
    with pytest.raises(Conflict, match="nothing left to take back"):
        workspace.carry_out(plan)
    assert workspace.timeline.calls()[1].tool == "undo"


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


def test_an_undo_that_stops_half_way_says_what_is_changed_already(
    workspace: AuditedWorkspace,
    root: Path,
    call: Callable[..., ToolResult],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    call("shell_execute", command="echo 2 > a.txt; echo 2 > src/main.py")
    before = tree_of(root)
    kind = type(workspace.attachment.on_disk.workspace)
    real = kind.replace

    def replace(self: Any, change: Any, content: Any, *more: Any) -> Any:
        if change.path == "src/main.py":
            raise PermissionDenied("permission denied: src/main.py", hint="Check its mode.")
        return real(self, change, content, *more)

    with monkeypatch.context() as patch, pytest.raises(PermissionDenied) as caught:
        patch.setattr(kind, "replace", replace)
        workspace.carry_out(workspace.plan_undo())
    assert caught.value.details["changed"] == ["a.txt"]
    assert "1 of 2 paths" in caught.value.hint
    assert tree_of(root) != before
    (stopped, *_) = workspace.timeline.calls(CallFilter(tool="undo"))
    workspace.carry_out(workspace.plan_revert([stopped.seq or 0]))
    assert tree_of(root) == before


def test_undo_in_one_session_leaves_other_sessions_and_my_own_edits_alone(
    workspace: AuditedWorkspace, root: Path
) -> None:
    with workspace.session("one") as one, workspace.session("two") as two:
        anyio.run(lambda: one.call("write_file", {"path": "one.txt", "content": "1"}))
        anyio.run(lambda: two.call("write_file", {"path": "two.txt", "content": "2"}))
        (root / "a.txt").write_bytes(b"my own edit\n")
        workspace.carry_out(workspace.plan_undo(session=one.id))
    assert not (root / "one.txt").exists()
    assert (root / "two.txt").read_bytes() == b"2"
    assert (root / "a.txt").read_bytes() == b"my own edit\n"


def test_an_undo_can_be_undone(workspace: AuditedWorkspace, root: Path, call: Call) -> None:
    call("write_file", path="a.txt", content="changed")
    after = tree_of(root)
    undo(workspace)
    workspace.carry_out(workspace.plan_redo())
    assert tree_of(root) == after


def test_an_undo_that_says_success_has_changed_the_files(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    call("write_file", path="a.txt", content="changed")
    done = workspace.carry_out(workspace.plan_undo())
    assert done.changed == ("a.txt",)
    assert (root / "a.txt").read_bytes() == b"one\ntwo\nthree\n"
    assert workspace.status().drift == ()


def test_undo_works_without_a_screen(
    workspace: AuditedWorkspace, root: Path, call: Call, home: Path
) -> None:
    import sys

    call("write_file", path="a.txt", content="changed")
    command = [sys.executable, "-m", "loom_audit", "undo"]
    subprocess.run(command, cwd=root, check=True, stdin=subprocess.DEVNULL, capture_output=True)
    assert (root / "a.txt").read_bytes() == b"one\ntwo\nthree\n"


def test_modes_links_and_times_survive_a_rollback(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    script, private = root / "run.sh", root / "key"
    script.write_bytes(b"#!/bin/sh\n")
    script.chmod(0o755)
    private.write_bytes(b"k")
    private.chmod(0o600)
    (root / "link").symlink_to("a.txt")
    old = time.time() - 10_000
    os.utime(root / "src" / "main.py", (old, old))
    call("shell_execute", command="true")
    point, before = workspace.log.head(), tree_of(root)
    stamp = (root / "src" / "main.py").stat().st_mtime_ns
    call("shell_execute", command="chmod 644 run.sh key; ln -sf b link; echo x > run.sh")
    rollback(workspace, point)
    assert tree_of(root) == before
    assert (root / "src" / "main.py").stat().st_mtime_ns == stamp


def test_reverting_one_session_keeps_another_sessions_later_edit_of_the_same_file(
    workspace: AuditedWorkspace, root: Path
) -> None:
    text = "".join(f"{n}\n" for n in range(20))
    (root / "t").write_text(text)
    with workspace.session("a") as a:
        edit = {"path": "t", "old_str": "\n3\n", "new_str": "\nthree\n"}
        anyio.run(lambda: a.call("edit_file", edit))
    with workspace.session("b") as b:
        other = {"path": "t", "old_str": "\n15\n", "new_str": "\nfifteen\n"}
        anyio.run(lambda: b.call("edit_file", other))
    workspace.carry_out(workspace.plan_revert([f"session:{a.id}"]))
    assert (root / "t").read_text() == text.replace("\n15\n", "\nfifteen\n")


def test_a_move_onto_a_file_brings_the_overwritten_file_back(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    before = tree_of(root)
    call("move_file", **{"from": "src/main.py", "to": "a.txt", "overwrite": True})
    undo(workspace)
    assert tree_of(root) == before


def test_undoing_a_creation_does_not_delete_the_users_later_edit(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    call("write_file", path="n", content="agent\n")
    (root / "n").write_bytes(b"agent\nand my own line\n")
    plan = workspace.plan_undo()
    if not plan.blocked:
        workspace.carry_out(plan)
    assert b"my own line" in (root / "n").read_bytes()


def test_a_deleted_symlink_comes_back_as_a_symlink(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    (root / "link").symlink_to("a.txt")
    call("shell_execute", command="true")
    call("delete_file", path="link")
    assert (root / "a.txt").exists()
    undo(workspace)
    assert (root / "link").is_symlink()
    assert os.readlink(root / "link") == "a.txt"


def test_folders_that_a_call_created_go_with_it(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    before = tree_of(root)
    call("write_file", path="x/y/z.txt", content="deep")
    undo(workspace)
    assert tree_of(root) == before


def test_a_second_revert_of_the_same_call_does_not_clobber_later_work(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    call("write_file", path="a.txt", content="agent\n")
    number = workspace.log.head()
    workspace.carry_out(workspace.plan_revert([number]))
    (root / "a.txt").write_bytes(b"my work\n")
    plan = workspace.plan_revert([number])
    assert plan.is_empty or plan.blocked
    assert (root / "a.txt").read_bytes() == b"my work\n"


def test_an_agents_unknown_tool_named_redo_is_not_a_redo(
    workspace: AuditedWorkspace, call: Call
) -> None:
    call("write_file", path="a.txt", content="new\n")
    workspace.carry_out(workspace.plan_undo())
    call("redo", fails="UNKNOWN_TOOL")
    assert [change.path for change in workspace.plan_redo().changes] == ["a.txt"]


def test_an_agents_function_named_rollback_is_not_a_rollback_of_ours(
    store: AuditStore, workspace: AuditedWorkspace, root: Path, session: Session
) -> None:
    @session.tool
    def rollback() -> None:
        with store.workspace(workspace.id).session("another"):
            (root / "b.txt").write_text("b")

    rollback()
    assert [call.status for call in workspace.timeline.calls()] == ["ok"]
    assert [change.path for change in workspace.plan_undo(session=session.id).changes] == ["b.txt"]


@pytest.mark.parametrize("name", ["undo", "redo", "revert", "rollback"])
def test_no_tool_that_writes_can_be_registered_under_the_name_of_an_undo(name: str) -> None:
    @tool(name=name, description="something else", effect="write")
    def pretender() -> None:
        """Do something else."""

    with pytest.raises(Exception, match="is kept for"):
        builtin_registry().register(pretender)


def test_an_undo_waits_for_a_call_of_several_steps(
    workspace: AuditedWorkspace, session: Session, call: Call
) -> None:
    call("write_file", path="a.txt", content="1\n")
    plan = workspace.plan_undo()
    several = OpenCall(session.writer, "several", {}, "write", call_id="m")
    several.edit("b.txt", b"2\n")
    number = workspace.timeline.open_calls()[0].requested
    with pytest.raises(Conflict, match="still running") as refused:
        workspace.carry_out(plan)
    assert f"(call {number}, open since 20" in refused.value.message
    assert "stop the program" in refused.value.hint
    with pytest.raises(Conflict, match=r"several of session \w+ is still running"):
        workspace.plan_revert([number])
    several.finish("ok", {})


def test_an_undo_refused_by_a_client_names_its_call_and_how_to_end_its_session(
    workspace: AuditedWorkspace, call: Call, root: Path
) -> None:
    call("write_file", path="b.txt", content="1\n")
    plan = workspace.plan_undo()
    client = workspace.start_foreign_session("client", id="theirs", pid=os.getpid())
    client.begin_call("1", "Bash")
    number = workspace.timeline.open_calls()[0].requested
    with pytest.raises(Conflict, match="has not reported its end") as refused:
        workspace.carry_out(plan)
    assert f"(call {number}, open since 20" in refused.value.message
    assert "`loom-audit session end theirs`" in refused.value.hint
    workspace.end_session("theirs")
    workspace.carry_out(workspace.plan_undo())
    assert not (root / "b.txt").exists()


def test_an_undo_of_what_is_all_shared_asks_for_a_choice_and_then_goes_on(
    workspace: AuditedWorkspace, call: Call, root: Path
) -> None:
    call("write_file", path="first.txt", content="first\n")
    client = workspace.start_foreign_session("client", id="client", pid=os.getpid())
    client.begin_call("one", "Bash", effect="execute")
    client.begin_call("two", "Bash", effect="execute")
    (root / "shared.txt").write_text("by one of them\n")
    client.end_call("one")
    client.end_call("two")
    head = workspace.log.head()
    with pytest.raises(Conflict, match=r"nothing would be taken back: shared\.txt") as raised:
        workspace.carry_out(workspace.plan_undo())
    assert "current keeps it" in raised.value.hint and workspace.log.head() == head
    workspace.carry_out(workspace.plan_undo(choices={"shared.txt": "current"}))
    workspace.carry_out(workspace.plan_undo())
    assert not (root / "first.txt").exists() and (root / "shared.txt").exists()


@pytest.mark.parametrize("verb", ["undo", "revert"])
def test_a_call_of_which_all_is_kept_unasked_can_be_taken_back_later(
    workspace: AuditedWorkspace, call: Call, root: Path, verb: Verb
) -> None:
    call("shell_execute", command="mkdir made")
    number = workspace.timeline.calls()[0].seq or 0
    (root / "made" / "mine.txt").write_text("mine\n")
    request = PlanRequest(verb, () if verb == "undo" else (number,))
    plan = workspace.plan(request)
    assert plan.reverts == () and [note.path for note in plan.kept] == ["made"]
    head = workspace.log.head()
    with pytest.raises(Conflict, match=r"nothing would be taken back: made: holds mine\.txt"):
        workspace.carry_out(plan)
    (root / "made" / "mine.txt").rename(root / "mine.txt")
    assert workspace.log.head() == head
    done = workspace.carry_out(workspace.plan(request))
    assert done.call.reverts == (number,) and not (root / "made").exists()
    assert workspace.verify().findings == ()


@pytest.mark.parametrize(
    "command",
    ["mv src e; mkdir src", "mv src e && mkdir src && echo > src/new", "mv src a && mkdir src"],
)
def test_a_folder_that_was_moved_away_and_made_again_leaves_no_empty_one_behind(
    workspace: AuditedWorkspace, call: Call, root: Path, command: str
) -> None:
    before = tree_of(root)
    call("shell_execute", command=command)
    workspace.carry_out(workspace.plan_undo())
    assert tree_of(root) == before


def test_a_plan_says_only_of_calls_that_stand_that_they_changed_a_file_later(
    workspace: AuditedWorkspace, call: Call, root: Path
) -> None:
    (root / "a.txt").write_text("".join(f"{n}\n" for n in range(20)))
    call("edit_file", path="a.txt", old_str="\n3\n", new_str="\nfirst\n")
    first = number(workspace)
    call("edit_file", path="a.txt", old_str="\n9\n", new_str="\nsecond\n")
    second = number(workspace)
    for verb in (workspace.plan_undo, workspace.plan_redo) * 2:
        workspace.carry_out(verb())
    call("edit_file", path="a.txt", old_str="\n15\n", new_str="\nthird\n")
    undo(workspace)
    [kept] = workspace.plan_revert([first]).merged
    assert (kept.reason, kept.calls) == ("changed later, kept", (second,))
