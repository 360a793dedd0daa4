"""What a hostile look at recording and taking back has found, each as the situation it was in."""

import os
import shutil
import stat
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from loom_audit import AuditedWorkspace, AuditStore, Session, ToolResult, open_store, tool
from loom_audit.api import builtin_registry
from loom_audit.errors import Conflict, InvalidArguments, NoWorkspace

Call = Callable[..., ToolResult]


def everything(root: Path) -> dict[str, tuple[int, bytes]]:
    """Every path below the root with its mode and content."""
    found = {}
    for folder, folders, files in os.walk(root):
        for path in (Path(folder, name) for name in folders + files):
            seen = path.lstat()
            content = b""
            if stat.S_ISREG(seen.st_mode):
                content = path.read_bytes()
            elif stat.S_ISLNK(seen.st_mode):
                content = os.fsencode(path.readlink())
            found[str(path.relative_to(root))] = (seen.st_mode, content)
    return found


def run(session: Session, command: str, call_id: str | None = None) -> ToolResult:
    return anyio.run(lambda: session.call("shell_execute", {"command": command}, call_id=call_id))


# --- changes that fail half-way -----------------------------------------------------------


@pytest.mark.parametrize("target", [".git/a.txt", ".loom-audit-tmp-x", "src/.git/hooks/post"])
def test_a_move_to_where_nothing_may_be_written_leaves_the_source(
    root: Path, call: Call, target: str
) -> None:
    before = everything(root)
    call("move_file", **{"from": "a.txt", "to": target}, fails="INVALID_PATH")
    assert everything(root) == before


# --- which call did it --------------------------------------------------------------------


def test_two_sessions_whose_calls_have_the_same_id_are_told_apart(
    workspace: AuditedWorkspace,
) -> None:
    with workspace.session("a") as one, workspace.session("b") as other:
        assert run(one, "echo > one", "1").files_changed == ["one"]
        assert run(other, "echo > two", "1").files_changed == ["two"]
    first, second = workspace.timeline.calls()[::-1]
    assert [change.path for change in workspace.timeline.changes_of(first)] == ["one"]
    assert [change.path for change in workspace.timeline.changes_of(second)] == ["two"]
    assert (first.paths, second.paths) == (("one",), ("two",))


def test_commands_at_once_with_the_same_id_in_two_sessions_share_what_changed(
    workspace: AuditedWorkspace, root: Path
) -> None:
    async def both(one: Session, other: Session) -> None:
        wait = "while [ ! -e go ]; do sleep 0.01; done"
        async with anyio.create_task_group() as group:
            slow = {"command": f"echo > one; {wait}"}
            group.start_soon(lambda: one.call("shell_execute", slow, call_id="1"))
            while not (root / "one").exists():
                await anyio.sleep(0.01)
            await other.call("shell_execute", {"command": "echo > two"}, call_id="1")
            (root / "go").touch()

    with workspace.session("a") as one, workspace.session("b") as other:
        anyio.run(both, one, other)
        assert [c.coverage.level for c in workspace.timeline.calls()] == ["partial", "partial"]
        plan = workspace.plan_undo(session=other.id)
    assert plan.changes == ()


def test_an_agents_unknown_tool_named_undo_is_no_undo(
    workspace: AuditedWorkspace, call: Call
) -> None:
    call("write_file", path="a.txt", content="new\n")
    workspace.carry_out(workspace.plan_undo())
    call("undo", fails="UNKNOWN_TOOL")
    assert [change.path for change in workspace.plan_redo().changes] == ["a.txt"]


def test_an_agents_function_named_rollback_is_no_rollback_of_ours(
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


# --- scope --------------------------------------------------------------------------------


def test_what_a_person_takes_out_of_scope_is_neither_drift_nor_deleted(
    workspace: AuditedWorkspace, root: Path, session: Session
) -> None:
    run(session, "mkdir gen; echo 1 > gen/x")
    (root / ".loomignore").write_text("gen/\n")
    run(session, "true")
    workspace.accept_scope()
    (root / "gen" / "x").write_text("2")
    (root / "gen" / "y").write_text("3")
    assert workspace.status().drift == ()
    with workspace.session("later") as later:
        assert run(later, "rm gen/x; echo 4 > gen/z").files_changed == []
    assert "gen/x" in workspace.timeline.tree()


@pytest.mark.parametrize("line", ["!", "a[z-a]"])
def test_a_line_that_is_no_pattern_is_refused_and_excludes_nothing(
    store: AuditStore, root: Path, line: str
) -> None:
    (root / ".loomignore").write_text(f"{line}\n*.log\n")
    workspace = store.attach(root)
    (root / "b.log").write_text("not recorded")
    assert workspace.status().drift == ()
    assert "a.txt" in workspace.timeline.tree()
    with pytest.raises(InvalidArguments, match="no pattern"):
        workspace.accept_scope()
    assert workspace.status().drift == ()


def test_a_link_that_becomes_a_heavy_folder_does_not_bring_it_into_scope(
    workspace: AuditedWorkspace, root: Path, session: Session, tmp_path: Path
) -> None:
    run(session, "ln -s src venv")
    assert run(session, "rm venv; mkdir -p venv/lib; echo 1 > venv/lib/x").files_changed == ["venv"]
    assert workspace.status().drift == ()
    assert workspace.plan_undo().blocked
    assert workspace.replay("head", tmp_path / "again") == 3


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("delete_file", {"path": "node_modules", "recursive": True}),
        ("delete_file", {"path": "node_modules/a.js"}),
        ("move_file", {"from": "node_modules/a.js", "to": "a.js"}),
    ],
)
def test_a_tool_does_not_take_away_what_is_not_recorded(
    root: Path, call: Call, name: str, arguments: dict[str, Any]
) -> None:
    (root / "node_modules").mkdir()
    (root / "node_modules" / "a.js").write_text("1")
    before = everything(root)
    call(name, **arguments, fails="CONFLICT")
    assert everything(root) == before


# --- stores and indexes of another time ---------------------------------------------------


@pytest.mark.parametrize("reads", [0, 40])
def test_an_older_copy_of_the_store_is_not_believed_to_have_seen_later_changes(
    home: Path, root: Path, tmp_path: Path, reads: int
) -> None:
    with open_store() as store, store.attach(root).session("first") as session:
        run(session, "true")
    shutil.copytree(home, tmp_path / "copy")
    with open_store() as store, store.workspace(root).session("second") as session:
        run(session, "echo 2 > src/main.py")
        run(session, "true")
    for file in home.glob("audit.db*"):
        file.unlink()
    for file in (tmp_path / "copy").glob("audit.db*"):
        shutil.copy(file, home)
    with open_store() as store:
        workspace = store.workspace(root)
        with workspace.session("third") as session:
            for _ in range(reads):
                anyio.run(session.call, "read_file", {"path": "a.txt"})
            if not reads:
                anyio.run(session.call, "write_file", {"path": "a.txt", "content": "3"})
        assert [change.path for change in workspace.status().drift] == ["src/main.py"]


# --- taking back --------------------------------------------------------------------------


def test_an_undo_waits_for_a_call_of_several_steps(
    workspace: AuditedWorkspace, session: Session, call: Call
) -> None:
    call("write_file", path="a.txt", content="1\n")
    plan = workspace.plan_undo()
    several = session.recorder.begin("several", {}, "write", call_id="m")
    several.write("b.txt", b"2\n")
    with pytest.raises(Conflict, match="still running"):
        workspace.carry_out(plan)
    several.finish("ok", {})


def test_overwriting_a_large_file_does_not_read_it_into_memory(
    store: AuditStore, root: Path
) -> None:
    with (root / "large").open("wb") as file:
        file.truncate(100 * 1024 * 1024)
    with store.attach(root).session("tester") as session:
        tracemalloc.start()
        anyio.run(session.call, "write_file", {"path": "large", "content": "small"})
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert (root / "large").read_text() == "small"
    assert peak < 64 * 1024 * 1024


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
            await session.call("shell_execute", {"command": "echo > two; touch go"})

    anyio.run(both)
    first = min(call.seq or 0 for call in workspace.timeline.calls())
    kept = {note.path: note.reason for note in workspace.plan_revert([first]).kept}
    assert kept["two"] == "other commands were running and may have done it"


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


def test_a_folder_made_outside_is_no_surprise_to_an_undo(
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
    assert {note.path for note in plan.kept if note.reason == "out of scope now"} == {
        "gen",
        "gen/x",
    }
    workspace.carry_out(plan)
    assert (root / "gen" / "x").read_text() == "mine"
    assert not (root / "b").exists()


def test_a_folder_named_like_the_start_of_an_id_is_a_folder(
    store: AuditStore, workspace: AuditedWorkspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / workspace.id[:2]).mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NoWorkspace):
        store.workspace(workspace.id[:2])
    assert store.workspace(workspace.id[:3]).id == workspace.id
