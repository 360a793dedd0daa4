"""An undo or a redo that was left half done: what counts as taken back, and what comes next.

Every tree is compared with a plain one: a list of the trees after each thing that was done.
"""

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest

from loom_audit import AuditedWorkspace
from loom_audit.errors import NotFound
from loom_audit.model.plans.planning import Plan
from tests.oracles.trees import Entry, tree_of
from tests.processes.stopped import killed_after

Tree = dict[bytes, Entry]
DEEP = pytest.mark.deep
FIRST = "for n in 0 1 2 3; do echo first $n > f$n; done"
SECOND = "for n in 0 1 2 3; do echo second $n > f$n; done; rm src/main.py"


@pytest.fixture
def twice(workspace: AuditedWorkspace) -> AuditedWorkspace:
    """A workspace in which two calls changed the same files."""
    with workspace.session("agent") as session:
        session.run(["sh", "-c", FIRST])
        session.run(["sh", "-c", SECOND])
    return workspace


def take_back(workspace: AuditedWorkspace, verb: Literal["undo", "redo"]) -> int:
    """The number of the call that the newest undo or redo took back."""
    done = workspace.carry_out(plan_of(workspace, verb))
    return done.plan.calls[0]


def plan_of(workspace: AuditedWorkspace, verb: Literal["undo", "redo"]) -> Plan:
    return workspace.plan_undo() if verb == "undo" else workspace.plan_redo()


def leave_half(
    workspace: AuditedWorkspace, root: Path, verb: Literal["undo", "redo"], written: int = 2
) -> int:
    """Kill an undo or a redo after so many paths, and leave it so; its number."""
    killed_after(written, root, lambda one: one.carry_out(plan_of(one, verb)))
    [left] = workspace.recover("abandon")
    return left.call.seq or 0


def numbers(workspace: AuditedWorkspace) -> list[int]:
    return [call.seq or 0 for call in reversed(workspace.timeline.calls())]


def standing(workspace: AuditedWorkspace) -> list[int]:
    calls = reversed(workspace.timeline.calls())
    return [call.seq or 0 for call in calls if call.undone_by is None]


def test_undo_takes_back_first_what_a_half_undo_did(twice: AuditedWorkspace, root: Path) -> None:
    first, second = numbers(twice)
    whole = tree_of(root)
    half = leave_half(twice, root, "undo")
    left = tree_of(root)
    assert left != whole
    assert standing(twice) == [first, second, half], "it took no call back as a whole"
    assert take_back(twice, "undo") == half and tree_of(root) == whole
    assert take_back(twice, "redo") != half and tree_of(root) == left
    assert take_back(twice, "undo") == half and tree_of(root) == whole
    assert take_back(twice, "undo") == second
    assert (root / "f0").read_text() == "first 0\n" and (root / "src" / "main.py").exists()
    assert take_back(twice, "undo") == first and not (root / "f0").exists()
    with pytest.raises(NotFound):
        twice.plan_undo()
    assert twice.status().drift == () and twice.verify().ok


def test_a_half_undo_is_none_that_redo_brings_back(twice: AuditedWorkspace, root: Path) -> None:
    leave_half(twice, root, "undo")
    with pytest.raises(NotFound, match="nothing to redo"):
        twice.plan_redo()


def test_a_redo_that_was_left_half_done_is_finished_by_the_next_one(
    twice: AuditedWorkspace, root: Path
) -> None:
    _, second = numbers(twice)
    whole = tree_of(root)
    take_back(twice, "undo")
    undone = tree_of(root)
    half = leave_half(twice, root, "redo")
    assert tree_of(root) not in (whole, undone)
    plan = twice.plan_redo()
    assert half in plan.reverts
    twice.carry_out(plan)
    assert tree_of(root) == whole and second in standing(twice)
    assert half not in standing(twice)
    assert take_back(twice, "undo") == second and tree_of(root) == undone


def test_a_redo_that_was_left_half_done_is_taken_back_as_any_call(
    twice: AuditedWorkspace, root: Path
) -> None:
    first, _ = numbers(twice)
    take_back(twice, "undo")
    undone = tree_of(root)
    half = leave_half(twice, root, "redo")
    assert take_back(twice, "undo") == half and tree_of(root) == undone
    assert take_back(twice, "undo") == first
    take_back(twice, "redo")
    assert tree_of(root) == undone


@pytest.mark.parametrize("verb", ["undo", "redo"])
def test_a_file_that_was_moved_by_half_is_not_said_to_be_taken_back_while_it_is_gone(
    workspace: AuditedWorkspace, root: Path, verb: Literal["undo", "redo"]
) -> None:
    content = (root / "a.txt").read_bytes()
    with workspace.session("agent") as session:
        session.run(["sh", "-c", "echo one > older"])
        asyncio.run(session.call("move_file", {"from": "a.txt", "to": "moved.txt"}))
    _, move = numbers(workspace)
    trees = {"undo": tree_of(root)}
    if verb == "redo":
        take_back(workspace, "undo")
        trees["redo"] = tree_of(root)
    half = leave_half(workspace, root, verb, 1)
    assert not {"a.txt", "moved.txt"} & {path.name for path in root.iterdir()}
    assert half in standing(workspace)
    if verb == "redo":
        workspace.carry_out(workspace.plan_redo())
        assert tree_of(root) == trees["undo"] and {move, half} & {*standing(workspace)} == {move}
    else:
        assert take_back(workspace, "undo") == half and tree_of(root) == trees["undo"]
        assert take_back(workspace, "undo") == move
        assert (root / "a.txt").read_bytes() == content and (root / "older").exists()
    assert workspace.verify().ok


def test_the_half_undo_of_another_session_is_left_alone(
    twice: AuditedWorkspace, root: Path
) -> None:
    with twice.session("other") as session:
        session.run(["sh", "-c", "echo other > other"])
        other = session.id
    [*_, newest] = numbers(twice)
    mine = twice.timeline.calls()[1].session
    killed_after(1, root, lambda one: one.carry_out(one.plan_undo(session=mine)))
    [left] = twice.recover("abandon")
    assert twice.plan_undo().calls == (left.call.seq,)
    assert twice.plan_undo(session=mine).calls == (left.call.seq,)
    assert twice.plan_undo(session=other).calls == (newest,)


class Done:
    """What one call did: the trees before and after it; a half redo is `of` another one.

    `depth` is how many stood below it when it was undone.
    """

    def __init__(self, before: Tree, after: Tree, of: "Done | None" = None) -> None:
        self.before, self.after, self.of = before, after, of
        self.depth = 0


def changed(one: Tree, other: Tree) -> int:
    """How many paths differ."""
    return sum(one.get(path) != other.get(path) for path in one.keys() | other.keys())


class Stack:
    """What is to be on disk after each thing that is done, by plain trees alone."""

    def __init__(self, workspace: AuditedWorkspace, root: Path) -> None:
        self.workspace, self.root = workspace, root
        self.done: list[Done] = []
        self.undone: list[Done] = []

    def call(self, chosen: random.Random) -> None:
        before, name, word = tree_of(self.root), chosen.choice("abc"), chosen.random()
        with self.workspace.session("agent") as session:
            rest = f"for n in 0 1 2; do echo {word} $n > {name}$n; done"
            session.run(["sh", "-c", rest])
        self.done.append(Done(before, tree_of(self.root)))

    def undo(self) -> None:
        if not self.done:
            with pytest.raises(NotFound):
                self.workspace.plan_undo()
            return
        one = self.done.pop()
        assert tree_of(self.root) == one.after
        self.workspace.carry_out(self.workspace.plan_undo())
        assert tree_of(self.root) == one.before
        one.depth = len(self.done)
        self.undone.append(one)

    def redo(self) -> None:
        if not self.undone:
            with pytest.raises(NotFound):
                self.workspace.plan_redo()
            return
        if self.is_followed():
            return  # by something else, which would be kept
        while self.is_half_redone():
            self.done.pop()  # it is finished
        one = self.undone.pop()
        self.workspace.carry_out(self.workspace.plan_redo())
        assert tree_of(self.root) == one.after
        self.done.append(one)

    def half_undo(self, written: int) -> None:
        if self.done:
            before, one = tree_of(self.root), self.done[-1]
            leave_half(self.workspace, self.root, "undo", min(written, changed(before, one.before)))
            assert tree_of(self.root) != before
            self.done.append(Done(before, tree_of(self.root)))

    def half_redo(self, written: int) -> None:
        if not self.undone or self.is_followed():
            return
        before, one = tree_of(self.root), self.undone[-1]
        if left := changed(before, one.after):
            leave_half(self.workspace, self.root, "redo", min(written, left))
            self.done.append(Done(before, tree_of(self.root), one))

    def is_followed(self) -> bool:
        """Whether something else than half redos of it was done since the newest undo."""
        kept = len([one for one in self.done if one.of is not self.undone[-1]])
        return kept != self.undone[-1].depth

    def is_half_redone(self) -> bool:
        return bool(self.done and self.undone) and self.done[-1].of is self.undone[-1]


@pytest.mark.parametrize("n", [0, *(pytest.param(n, marks=DEEP) for n in range(1, 60))])
def test_chains_of_undo_and_redo_with_halves_between_follow_plain_trees(
    workspace: AuditedWorkspace, root: Path, seed: str, n: int
) -> None:
    chosen = random.Random(f"{seed} {n}")
    stack = Stack(workspace, root)
    does: list[Callable[[], None]] = [
        lambda: stack.call(chosen),
        stack.undo,
        stack.redo,
        lambda: stack.half_undo(chosen.choice([1, 2])),
        lambda: stack.half_redo(chosen.choice([1, 2])),
    ]
    stack.call(chosen)
    for _ in range(14):
        chosen.choice(does)()
    while stack.done:
        stack.undo()
    stack.undo()
    assert workspace.status().drift == () and workspace.verify().ok
