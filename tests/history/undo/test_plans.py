"""What a plan holds, keeps and is blocked by, and what happens between it and its carrying out."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest

from loom_audit import (
    AuditedWorkspace,
    AuditStore,
    Session,
    ToolResult,
)
from loom_audit.errors import Conflict
from loom_audit.history.record.call import OpenCall
from loom_audit.history.undo.planner import Planner
from loom_audit.model.plans.planning import Plan
from loom_audit.ports import CallFilter, Command
from tests.oracles.trees import everything, tree_of

Call = Callable[..., ToolResult]


def never(*_: object) -> Plan:
    raise AssertionError("the plan is made again")


@pytest.fixture
def changed_workspace(store: AuditStore, root: Path) -> AuditedWorkspace:
    """A call has made `new/x`, deleted `gone` and changed `a.txt`; `*.o` is out of scope."""
    (root / "gone").write_text("gone\n")
    workspace = store.attach(root, ignore="*.o\n")
    with workspace.session("tester") as session, session.recording("work"):
        (root / "new").mkdir()
        (root / "new" / "x").write_text("1\n")
        (root / "gone").unlink()
        (root / "a.txt").write_text("changed\n")
    return workspace


def a_recorded_file_is_edited(root: Path, _: AuditedWorkspace) -> None:
    (root / "a.txt").write_text("mine\n")


def a_call_writes_it(_: Path, workspace: AuditedWorkspace) -> None:
    with workspace.session("other") as session:
        anyio.run(session.call, "write_file", {"path": "a.txt", "content": "theirs\n"})


def something_unrecorded_comes_into_the_folder_that_goes(root: Path, _: AuditedWorkspace) -> None:
    (root / "new" / "x.o").write_text("mine\n")


def something_comes_where_a_file_comes_back(root: Path, _: AuditedWorkspace) -> None:
    (root / "gone").write_text("mine\n")


def the_scope_changes(root: Path, workspace: AuditedWorkspace) -> None:
    (root / ".loomignore").write_text("new/\n")
    workspace.accept_scope()


def overlap(workspace: AuditedWorkspace, root: Path) -> int:
    """One command runs while another does; the number of the one that ended last."""
    with workspace.session("one") as one, workspace.session("two") as two:
        outer = OpenCall(one.writer, "run", {}, "execute", call_id="outer")
        with outer.capture(final=True):
            inner = OpenCall(two.writer, "run", {}, "execute", call_id="inner")
            runner = workspace.attachment.on_disk.runner
            assert runner
            inner.run(runner, Command(("sh", "-c", "echo new > made; echo x > a.txt")), final=True)
            inner.finish("ok", {"success": True})
        return outer.finish("ok", {"success": True}).seq


def run(session: Session, command: str, call_id: str | None = None) -> ToolResult:
    return anyio.run(lambda: session.call("shell_execute", {"command": command}, call_id=call_id))


def rollback(workspace: AuditedWorkspace, point: int | str, **options: object) -> None:
    workspace.carry_out(workspace.plan_rollback(point, **options))  # type: ignore[arg-type]


def test_where_nothing_has_happened_the_plan_is_not_made_again(
    changed_workspace: AuditedWorkspace, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = changed_workspace.plan_undo()
    monkeypatch.setattr(Planner, "plan", never)
    assert set(changed_workspace.carry_out(plan).changed) == {"a.txt", "gone", "new", "new/x"}
    assert (root / "gone").read_text() == "gone\n"
    assert not (root / "new").exists()


@pytest.mark.parametrize(
    "happens",
    [
        a_recorded_file_is_edited,
        a_call_writes_it,
        something_unrecorded_comes_into_the_folder_that_goes,
        something_comes_where_a_file_comes_back,
        the_scope_changes,
    ],
)
def test_what_has_happened_since_stops_a_plan_that_it_makes_another(
    changed_workspace: AuditedWorkspace,
    root: Path,
    happens: Callable[[Path, AuditedWorkspace], None],
) -> None:
    plan = changed_workspace.plan_undo()
    assert plan.changes
    assert not plan.blocked
    happens(root, changed_workspace)
    before = tree_of(root)
    with pytest.raises(Conflict):
        changed_workspace.carry_out(plan)
    assert tree_of(root) == before


def test_an_unrecorded_file_where_one_comes_back_stops_the_plan(
    store: AuditStore, root: Path
) -> None:
    (root / "build").write_text("a file")
    workspace = store.attach(root, ignore="build/\n")
    with workspace.session("tester") as session:
        anyio.run(session.call, "delete_file", {"path": "build"})
    plan = workspace.plan_undo()
    assert not plan.blocked
    (root / "build").mkdir()
    (root / "build" / "x").write_text("mine")
    before = tree_of(root)
    with pytest.raises(Conflict):
        workspace.carry_out(plan)
    assert tree_of(root) == before
    tools = [call.tool for call in workspace.attachment.stored.tables.calls(CallFilter(limit=None))]
    assert tools == ["delete_file"]


def test_what_came_from_outside_and_has_gone_again_makes_another_plan(
    changed_workspace: AuditedWorkspace, root: Path
) -> None:
    (root / "new" / "mine").write_text("mine\n")
    plan = changed_workspace.plan_rollback("head~1")
    assert [note.path for note in plan.kept if note.path == "new"]
    (root / "new" / "mine").unlink()
    before = tree_of(root)
    with pytest.raises(Conflict, match="since this plan was made"):
        changed_workspace.carry_out(plan)
    assert tree_of(root) == before


def test_what_two_commands_may_have_done_is_kept_and_the_call_not_said_to_be_taken_back(
    workspace: AuditedWorkspace, root: Path
) -> None:
    overlap(workspace, root)
    plan = workspace.plan_undo()
    assert plan.changes == ()
    assert {note.path for note in plan.kept} == {"a.txt", "made"}
    assert plan.reverts == ()


def test_what_two_commands_may_have_done_is_taken_back_where_it_is_chosen(
    workspace: AuditedWorkspace, root: Path
) -> None:
    overlap(workspace, root)
    plan = workspace.plan_undo(choices={"made": "old", "a.txt": "old"})
    workspace.carry_out(plan)
    assert not (root / "made").exists()
    assert (root / "a.txt").read_bytes() == b"one\ntwo\nthree\n"
    assert workspace.status().drift == ()


def test_what_commands_share_is_listed_when_one_of_them_is_taken_back(
    workspace: AuditedWorkspace, root: Path, session: Session
) -> None:
    async def both() -> None:
        wait = "while [ ! -e go ]; do sleep 0.01; done"
        async with anyio.create_task_group() as group:
            slow = {"command": f"echo > one; {wait}"}
            group.start_soon(session.call, "shell_execute", slow)
            while not (root / "one").exists():
                await anyio.sleep(0.01)
            await session.call("shell_execute", {"command": "F=$(echo two); echo > $F; touch go"})

    anyio.run(both)
    first = min(call.seq or 0 for call in workspace.timeline.calls())
    kept = {note.path: note.reason for note in workspace.plan_revert([first]).kept}
    assert kept["two"] == "something else ran at the same time and may have done it"


def test_a_rollback_to_the_head_stays_at_that_head(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    call("write_file", path="a.txt", content="1\n")
    (root / "a.txt").write_text("mine\n")
    plan = workspace.plan_rollback("head", outside=True)
    assert [change.path for change in plan.changes] == ["a.txt"]
    workspace.carry_out(plan)
    assert (root / "a.txt").read_text() == "1\n"


def test_a_folder_that_holds_what_is_not_recorded_cannot_become_a_file(
    workspace: AuditedWorkspace, root: Path, session: Session
) -> None:
    command = "rm a.txt; mkdir -p a.txt/node_modules; echo 1 > a.txt/node_modules/x; echo > b"
    run(session, command)
    before = everything(root)
    plan = workspace.plan_undo()
    assert [note.path for note in plan.blocked] == ["a.txt"]
    with pytest.raises(Conflict):
        workspace.carry_out(plan)
    assert everything(root) == before
    workspace.carry_out(workspace.plan_undo(choices={"a.txt": "current"}))
    assert not (root / "b").exists()
    assert (root / "a.txt" / "node_modules" / "x").read_text() == "1\n"


def test_what_is_not_recorded_is_in_the_way_of_what_comes_back(
    store: AuditStore, root: Path
) -> None:
    (root / "build").write_text("a file")
    workspace = store.attach(root, ignore="build/\n")
    with workspace.session("tester") as session:
        anyio.run(session.call, "delete_file", {"path": "build"})
    (root / "build").mkdir()
    (root / "build" / "x").write_text("mine")
    before = everything(root)
    assert [note.path for note in workspace.plan_undo().blocked] == ["build"]
    assert everything(root) == before


def test_a_folder_made_outside_does_not_stop_an_undo(
    workspace: AuditedWorkspace, root: Path, session: Session
) -> None:
    run(session, "rm -r src; echo > b")
    (root / "src").mkdir(mode=0o700)
    (root / "src" / "mine").write_text("mine")
    workspace.carry_out(workspace.plan_undo())
    assert (root / "src" / "main.py").read_text() == "print('hello')\n"
    assert (root / "src" / "mine").read_text() == "mine"


def test_what_has_left_the_scope_is_left_alone(
    workspace: AuditedWorkspace, root: Path, session: Session
) -> None:
    before = workspace.log.head()
    run(session, "mkdir gen; echo 1 > gen/x; echo > b")
    (root / ".loomignore").write_text("gen/\n")
    workspace.accept_scope()
    (root / "gen" / "x").write_text("mine")
    plan = workspace.plan_rollback(before)
    assert {note.path for note in plan.kept if note.reason == "out of scope now"} == {"gen"}
    workspace.carry_out(plan)
    assert (root / "gen" / "x").read_text() == "mine"
    assert not (root / "b").exists()


def test_a_moved_file_stays_when_the_place_it_came_from_is_out_of_scope_now(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    call("write_file", path="a.log", content="1\n")
    call("move_file", **{"from": "a.log", "to": "x"})
    (root / ".loomignore").write_text("*.log\n")
    workspace.accept_scope()
    plan = workspace.plan_undo()
    assert plan.changes == () and not plan.blocked
    assert [note.path for note in plan.kept if "out of scope now" in note.reason] == ["x"]
    workspace.carry_out(plan)
    assert (root / "x").read_text() == "1\n"


def test_a_restore_deletes_nothing_it_never_captured(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    point = workspace.log.head()
    call("write_file", path="new.txt", content="by the agent")
    (root / "untracked.txt").write_bytes(b"mine")
    (root / "node_modules").mkdir()
    (root / "node_modules" / "x.js").write_bytes(b"heavy")
    rollback(workspace, point)
    assert (root / "untracked.txt").read_bytes() == b"mine"
    assert (root / "node_modules" / "x.js").read_bytes() == b"heavy"
    assert not (root / "new.txt").exists()


def test_one_change_is_taken_back_and_later_ones_are_kept_after_a_look_at_the_plan(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    text = "".join(f"line {n}\n" for n in range(20))
    call("write_file", path="t", content=text)
    call("edit_file", path="t", old_str="line 3\n", new_str="bad\n")
    bad = workspace.log.head()
    call("edit_file", path="t", old_str="line 15\n", new_str="good\n")
    plan = workspace.plan_revert([bad])
    assert [change.path for change in plan.changes] == ["t"]
    workspace.carry_out(plan)
    assert (root / "t").read_text() == text.replace("line 15\n", "good\n")


def test_missing_content_is_not_counted_as_reverted(store: AuditStore, tmp_path: Path) -> None:
    root = tmp_path / "small"
    root.mkdir()
    (root / "big").write_bytes(b"x" * 5000)
    workspace = store.attach(root, max_file_bytes=1000)
    with workspace.session("tester") as session:
        anyio.run(lambda: session.call("shell_execute", {"command": "echo y > big"}))
    plan = workspace.plan_undo()
    assert [note.path for note in plan.irreversible if note.path] == ["big"]
    assert plan.changes == ()


def test_a_folder_goes_whose_other_files_a_person_moved_away_unseen(
    workspace: AuditedWorkspace, call: Call, root: Path
) -> None:
    call("write_file", path="made/one.txt", content="one\n")
    made = workspace.timeline.calls()[0].seq or 0
    call("write_file", path="made/two.txt", content="two\n")
    (root / "made" / "two.txt").rename(root / "two.txt")
    plan = workspace.plan_revert([made])
    assert [change.path for change in plan.changes] == ["made", "made/one.txt"]
    workspace.carry_out(plan)
    assert (root / "two.txt").read_bytes() == b"two\n" and not (root / "made").exists()


def test_a_file_comes_back_whose_folder_a_person_moved_away_unseen(
    workspace: AuditedWorkspace, call: Call, root: Path
) -> None:
    call("delete_file", path="src/main.py")
    deleted = workspace.timeline.calls()[0].seq or 0
    call("write_file", path="src/other.py", content="other\n")
    (root / "src").rename(root / "elsewhere")
    plan = workspace.plan_revert([deleted])
    assert [change.path for change in plan.changes] == ["src", "src/main.py"]
    workspace.carry_out(plan)
    assert (root / "src" / "main.py").read_bytes() == b"print('hello')\n"
    assert (root / "elsewhere" / "other.py").read_bytes() == b"other\n"


@pytest.mark.parametrize("paths", [2, 20])
def test_a_call_that_may_have_changed_many_paths_is_read_once_for_a_plan(
    workspace: AuditedWorkspace, root: Path, monkeypatch: pytest.MonkeyPatch, paths: int
) -> None:
    with workspace.session("tester") as session, ExitStack() as calls:
        for _ in range(3):
            calls.enter_context(session.recording("work"))
        for n in range(paths):
            (root / f"made{n}").touch()
    numbers = [call.seq or 0 for call in workspace.timeline.calls()]
    kind = type(workspace.attachment.stored.tables)
    read, asked = kind.call_at, list[int]()

    def call_at(self: Any, seq: int) -> Any:
        asked.append(seq)
        return read(self, seq)

    monkeypatch.setattr(kind, "call_at", call_at)
    plan = workspace.plan_revert([numbers[0]])
    assert len(plan.kept) == paths and all(len(note.calls) == 2 for note in plan.kept)
    assert len(asked) <= 2 * len(numbers)
