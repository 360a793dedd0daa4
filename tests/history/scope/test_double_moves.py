"""What arrived by a move is deleted by no plan, however often it moved."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from loom_audit import AuditedWorkspace, AuditStore, ToolResult, open_store
from loom_audit.disk.access.system import probe
from loom_audit.errors import Conflict
from loom_audit.model.plans.planning import Plan
from tests.given.cases import some
from tests.given.ticks import wait_a_tick
from tests.history.scope.conftest import Run
from tests.history.scope.test_folders import OBJECTS, PACKAGES, everything, make
from tests.processes.clients import client as client

MOVES = pytest.mark.parametrize(
    "commands",
    [
        ["mv .git git-backup", "mv git-backup gb2"],
        ["mv .git a", "mv a b", "mv b c", "mkdir e; mv c e/d"],
        ["mv .git a", "mv a b", "mv b a"],
        ["mv .git a", "mv a b", "mv b .git", "mv .git c", "mv c d"],
        ["mv venv env", "mv env env2"],
        ["mv venv env", "mkdir deep; mv env deep/er", "mv deep deeper"],
        ["mv venv env", "mv env env2; rm -rf node_modules"],
    ],
)


@pytest.fixture
def root(root: Path) -> Path:
    """With a repository and packages that are not recorded."""
    make(root / ".git", OBJECTS)
    (root / ".nox" / "x" / "y").mkdir(parents=True)
    make(root / "venv", {**PACKAGES, "node_modules/x": "unrecorded\n", "empty/.keep": ""})
    return root


@pytest.mark.few(2)
@MOVES
def test_a_folder_that_moved_more_than_once_comes_back_in_one_step_and_is_not_lost_step_by_step(
    workspace: AuditedWorkspace, root: Path, run: Run, commands: list[str]
) -> None:
    run("true")
    point, before = workspace.log.head(), everything(root)
    for command in commands:
        run(command)
    after = everything(root)
    done = workspace.carry_out(workspace.plan_rollback(point)).call.seq
    assert everything(root) == before
    workspace.carry_out(workspace.plan_revert([done or 0]))
    assert everything(root) == after
    for tree in (before, after):
        workspace.carry_out(workspace.plan_undo())
        assert everything(root) == tree
    for _ in commands:
        plan = workspace.plan_undo()
        if plan.blocked:
            break
        workspace.carry_out(plan)
    contents = {entry[2] for entry in everything(root).values() if entry[0] == "file"}
    assert {entry[2] for entry in before.values() if entry[0] == "file"} <= contents


OUT_OF_REACH = [
    # a folder was moved into one that moved, or was changed before nothing of it was on record
    ["mv venv env", "mv env/node_modules out", "mv env env2", "mv out env2/other"],
    ["mv venv a", "rm a/bin/python", "mv a b", "mv b venv"],
]
"""One rollback cannot take these back, which single undos can."""

CHAINS = pytest.mark.parametrize(
    "commands",
    some(
        [
            ["mv .git a", "mv a b"],
            ["mv .git a", "mv a b", "mv b c"],
            ["mv .git a", "mv a b", "echo ref: refs/heads/other > b/HEAD", "mv b c"],
            ["mv .git a", "mv a b; echo ref: refs/heads/other > b/HEAD", "mv b c; rm c/config"],
            ["mv .git a", "mkdir deep; mv a deep/b", "mv deep deeper", "mv deeper/b ."],
            ["mv venv env", "mv env env2", "mv env2 env3"],
            *OUT_OF_REACH,
            ["mv .git a; mv venv env", "mv a b", "mv env a", "mv a c"],
            ["mv .nox a", "mv a b", "mv b c"],
            ["mv src .tox", "mv .tox lib", "mv lib lib2"],
            ["mv .nox a", "rmdir a/x/y; mkdir a/z", "mv a b", "mv b c"],
            ["mv .git a", "mv a b; echo file > a", "mv b c; echo file > b"],
        ],
        4,
    ),
    ids=" / ".join,
)


@pytest.mark.few(1)
@CHAINS
def test_single_undos_and_redos_of_a_chain_of_moves_give_each_tree_again(
    workspace: AuditedWorkspace, root: Path, run: Run, commands: list[str]
) -> None:
    run("true")
    point, trees = workspace.log.head(), [everything(root)]
    for command in commands:
        run(command)
        trees.append(everything(root))
    for _ in range(2):
        for tree in reversed(trees[:-1]):
            workspace.carry_out(workspace.plan_undo())
            assert everything(root) == tree
        for tree in trees[1:]:
            workspace.carry_out(workspace.plan_redo())
            assert everything(root) == tree
    workspace.carry_out(workspace.plan_undo())
    plan = workspace.plan_rollback(point)
    assert bool(plan.blocked) == (commands in OUT_OF_REACH)
    if not plan.blocked:
        rolled_back = workspace.carry_out(plan).call.seq or 0
        assert everything(root) == trees[0]
        workspace.carry_out(workspace.plan_revert([rolled_back]))
        assert everything(root) == trees[-2]
    assert workspace.status().drift == () and workspace.verify().ok


PLANS: dict[str, Callable[[AuditedWorkspace, int, list[int]], Plan]] = {
    "rollback of a path": lambda w, point, _: w.plan_rollback(point, paths=["gb2"]),
    "rollback of the other": lambda w, point, _: w.plan_rollback(point, paths=["git-backup"]),
    "revert of both": lambda w, _, numbers: w.plan_revert(numbers),
    "revert of the first": lambda w, _, numbers: w.plan_revert(numbers[:1]),
    "revert of the last": lambda w, _, numbers: w.plan_revert(numbers[1:]),
    "rollback": lambda w, point, _: w.plan_rollback(point),
}


@pytest.mark.few(3)
@pytest.mark.parametrize("asked", PLANS)
@pytest.mark.parametrize("proof", ["there", "gone"])
def test_no_plan_deletes_a_repository_that_moved_twice(
    workspace: AuditedWorkspace, root: Path, run: Run, asked: str, proof: str
) -> None:
    run("true")
    point, before = workspace.log.head(), everything(root)
    numbers = [run("mv .git git-backup"), run("mv git-backup gb2")]
    if proof == "gone":  # a copy of the same is not the folder that was there
        run("cp -a gb2 t; rm -r gb2; mv t gb2")
    plan = PLANS[asked](workspace, point, numbers)
    if not (plan.blocked or plan.is_empty):
        workspace.carry_out(plan)
    after = everything(root)
    kept = {entry[2] for entry in after.values() if entry[0] == "file"}
    assert {entry[2] for entry in before.values() if entry[0] == "file"} <= kept
    homes = {path.removesuffix(b"/HEAD") for path in after if path.endswith(b"/HEAD")}
    assert len(homes) == 1
    assert sum(path.startswith(homes.copy().pop() + b"/") for path in after) == 5
    if proof == "there" and asked in ("rollback", "revert of both"):
        assert everything(root) == before
    elif asked == "rollback":
        assert plan.blocked, "it is not proven to be the same folder"


@pytest.mark.parametrize("name", ["gb2", "gb2.log"])
def test_a_file_that_was_left_out_and_moved_twice_stays(
    workspace: AuditedWorkspace, root: Path, run: Run, name: str
) -> None:
    """It lay outside the workspace, came in by a move, and went on from there."""
    mine = root.parent / "mine.txt"
    mine.write_text("only here\n")
    wait_a_tick()
    run("true")
    point = workspace.log.head()
    run("mv ../mine.txt came.txt")
    run(f"mv came.txt {name}")
    for paths in ([name], ["came.txt"], []):
        plan = workspace.plan_rollback(point, paths=paths)
        if not (plan.blocked or plan.is_empty):
            workspace.carry_out(plan)
        texts = [p.read_text() for p in (root / name, root / "came.txt") if p.exists()]
        assert texts == ["only here\n"]


def test_a_file_comes_back_to_where_a_folder_is_now(
    workspace: AuditedWorkspace, root: Path, run: Run
) -> None:
    run("true")
    point, before = workspace.log.head(), everything(root)
    run("mv a.txt b.txt")
    run("mv venv a.txt")
    workspace.carry_out(workspace.plan_rollback(point))
    assert everything(root) == before


@pytest.mark.parametrize("there", ["echo two > node_modules/f", "rm node_modules/f"])
def test_what_was_changed_in_a_folder_while_it_was_not_recorded_is_said_to_stay(
    workspace: AuditedWorkspace, root: Path, run: Run, there: str
) -> None:
    run("mkdir src; echo one > src/f; echo same > src/g")
    point = workspace.log.head()
    for command in ("mv src node_modules", there, "mv node_modules src"):
        wait_a_tick()
        run(command)
    before = everything(root)
    plan = workspace.plan_rollback(point)
    assert [note.path for note in plan.irreversible] == ["src/f"] and not plan.changes
    workspace.carry_out(plan)
    assert everything(root) == before
    assert not workspace.plan_rollback(point, paths=["src/g"]).irreversible


@pytest.mark.parametrize(
    "commands", [["mv .git a", "mv a b", "echo file > a"], ["mv .git a", "mv a b; echo file > a"]]
)
def test_what_was_made_where_a_folder_had_been_goes_too(
    workspace: AuditedWorkspace, root: Path, run: Run, commands: list[str]
) -> None:
    run("true")
    point, before = workspace.log.head(), everything(root)
    for command in commands:
        run(command)
    after = everything(root)
    plan = workspace.plan_rollback(point)
    assert "a" in {change.path for change in plan.changes}
    number = workspace.carry_out(plan).call.seq or 0
    assert everything(root) == before
    workspace.carry_out(workspace.plan_revert([number]))
    assert everything(root) == after


def test_a_folder_whose_mode_was_changed_where_it_is_not_recorded_is_blocked_by_name(
    workspace: AuditedWorkspace, root: Path, run: Run
) -> None:
    run("mkdir -p src; echo one > src/f; chmod 755 src")
    point = workspace.log.head()
    run("mv src .tox")
    (root / ".tox").chmod(0o700)
    for plan in (workspace.plan_undo(), workspace.plan_rollback(point)):
        assert any("the mode of .tox changed" in note.reason for note in plan.blocked)
    (root / ".tox").chmod(0o755)
    workspace.carry_out(workspace.plan_rollback(point))
    assert (root / "src").stat().st_mode & 0o777 == 0o755 and (root / "src/f").exists()


@pytest.mark.parametrize("then", [[], ["mv lib lib2"], ["mv lib lib2", "mv lib2 src"]])
def test_what_was_changed_in_a_folder_before_it_came_back_into_scope_is_said_to_stay(
    workspace: AuditedWorkspace, root: Path, run: Run, then: list[str]
) -> None:
    run("echo one > src/f; echo same > src/g")
    point = workspace.log.head()
    for command in ("mv src .tox", "echo changed > .tox/f", "mv .tox lib", *then):
        wait_a_tick()
        run(command)
    plan = workspace.plan_rollback(point)
    [told] = plan.irreversible
    assert told.path == "src/f" or told.reason.startswith("src/f: ")
    if plan.changes:
        workspace.carry_out(plan)
    assert (root / "src" / "f").read_text() == "changed\n"
    for path, state in workspace.timeline.tree().items():
        assert (
            state.kind != "file" or workspace.timeline.content(state) == (root / path).read_bytes()
        )


def test_what_was_changed_in_a_folder_on_its_way_back_is_taken_back(
    workspace: AuditedWorkspace, root: Path, run: Run
) -> None:
    run("echo one > src/f; echo two > src/g")
    point, before = workspace.log.head(), everything(root)
    for command in (
        "mv src .tox",
        "mv .tox lib",
        "echo changed > lib/f; rm lib/g; echo new > lib/h",
        "mv lib src; echo more > src/main.py; echo new > src/i",
    ):
        run(command)
    after = everything(root)
    number = workspace.carry_out(workspace.plan_rollback(point)).call.seq or 0
    assert everything(root) == before
    workspace.carry_out(workspace.plan_revert([number]))
    assert everything(root) == after


TOOL_MOVES = pytest.mark.parametrize(
    "moves",
    [
        [("a", "b")],
        [("a", "b"), ("b", "deep/er/c")],
        [("a", "d/a"), ("d", "e")],
        [("src", "a/src"), ("a", "b")],
    ],
)


@pytest.mark.few(2)
@TOOL_MOVES
def test_what_our_own_tool_moves_after_it_arrived_comes_back_step_by_step(
    workspace: AuditedWorkspace,
    root: Path,
    run: Run,
    call: Callable[..., ToolResult],
    moves: list[tuple[str, str]],
) -> None:
    run("true")
    point, trees = workspace.log.head(), [everything(root)]
    run("mv .git a")
    trees.append(everything(root))
    for source, target in moves:
        call("move_file", **{"from": source, "to": target})
        trees.append(everything(root))
        assert workspace.timeline.calls()[0].coverage.level == "full"
    for tree in reversed(trees[:-1]):
        workspace.carry_out(workspace.plan_undo())
        assert everything(root) == tree
    for tree in trees[1:]:
        workspace.carry_out(workspace.plan_redo())
        assert everything(root) == tree
    workspace.carry_out(workspace.plan_rollback(point))
    assert everything(root) == trees[0]
    assert workspace.status().drift == () and workspace.verify().ok


def test_what_a_client_s_calls_moved_comes_back_step_by_step(
    store: AuditStore, root: Path, client: subprocess.Popen[bytes]
) -> None:
    trees = [everything(root)]
    workspace = store.attach(root)
    session = workspace.start_foreign_session("client", id="s", pid=client.pid)
    for number, command in enumerate(["mv .git a", "mv a b", "mv b c; echo x > c/config"]):
        arguments = {"command": command}
        with open_store() as other:  # each hook may be answered by a process of its own
            there = other.attach(root)
            hook = there.start_foreign_session("client", id="s", pid=client.pid)
            hook.begin_call(str(number), "Bash", arguments)
            subprocess.run(["sh", "-c", command], cwd=root, check=True)
            hook.end_call(str(number), "ok", "")
        trees.append(everything(root))
    for tree in reversed(trees[:-1]):
        workspace.carry_out(workspace.plan_undo())
        assert everything(root) == tree
    for tree in trees[1:]:
        workspace.carry_out(workspace.plan_redo())
        assert everything(root) == tree
    session.end()
    assert workspace.status().drift == () and workspace.verify().ok


def test_where_no_folder_can_be_renamed_files_are_moved_one_by_one_and_the_rest_is_refused(
    store: AuditStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without = replace(probe(), renameat2=False)
    monkeypatch.setattr("loom_audit.disk.access.system.probe", lambda: without)
    workspace = store.attach(root)
    trees = [everything(root)]
    with workspace.session("tester") as session:
        for command in ("mv .git a", "mv a b"):
            with session.recording("command"):
                subprocess.run(["sh", "-c", command], cwd=root, check=True)
            trees.append(everything(root))
        moved = anyio.run(session.call, "move_file", {"from": "b", "to": "c"})
        assert moved.success
    for tree in trees[:0:-1]:
        workspace.carry_out(workspace.plan_undo())
        assert everything(root) == tree
    with pytest.raises(Conflict):
        workspace.carry_out(workspace.plan_undo())
    assert everything(root) == trees[1]
