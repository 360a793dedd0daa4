"""`kill -9` at every step of undos and redos that rename folders which moved more than once."""

import subprocess
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, open_store
from loom_audit.history.record.drift import record_drift
from loom_audit.model.events import FilesChanged
from tests.crash.test_closed_folders import is_killed
from tests.history.conftest import home as home
from tests.history.scope.test_folders import OBJECTS, everything, make
from tests.places.on_disk import tmp_path_factory as tmp_path_factory

CHAINS = {
    "renamed": ["mv .git a", "mv a b"],
    "renamed in a folder": ["mv .git a", "mkdir d; mv a d/a", "mv d e"],
    "renamed and changed": [
        "mv .git a",
        "mv a b; echo changed > b/HEAD; rm b/config; mkdir b/new",
    ],
    "empty": ["mv .nox a", "mv a b"],
}


IN_ONE_STEP = ("renamed", "empty")


@pytest.mark.few(0)
@pytest.mark.parametrize(("chain", "verb"), [("renamed and changed", "undo"), ("empty", "redo")])
def test_a_kill_at_a_sampled_step_leaves_what_can_be_taken_back(
    tmp_path: Path, home: Path, chain: str, verb: str
) -> None:
    assert kills(tmp_path, chain, verb, every=4) > 0


@pytest.mark.deep
@pytest.mark.parametrize("verb", ["undo", "redo"])
@pytest.mark.parametrize("chain", CHAINS)
def test_a_kill_at_any_step_leaves_what_can_be_taken_back(
    tmp_path: Path, home: Path, chain: str, verb: str
) -> None:
    assert kills(tmp_path, chain, verb, every=1) > 5


def kills(folder: Path, chain: str, verb: str, *, every: int) -> int:
    """How many kills an undo of the last command, or a redo of it, was brought through."""
    for seen, nth in enumerate(range(every, 200, every)):
        root = folder / f"killed at {nth}"
        try:
            if not is_brought_through(root, chain, verb, nth):
                return seen
        except BaseException as error:
            error.add_note(f"killed at step {nth}")
            raise
    raise AssertionError("it does not end")


def is_brought_through(root: Path, chain: str, verb: str, nth: int) -> bool:
    """Whether it was killed at that step, in a workspace of its own; else it has fewer."""
    make(root / ".git", OBJECTS)
    (root / ".nox" / "x" / "y").mkdir(parents=True)
    (root / "a.txt").write_text("a\n")
    trees = [everything(root)]
    with open_store() as store:
        workspace = store.attach(root)
        points = [workspace.log.head()]
        with workspace.session("agent") as session:
            for command in CHAINS[chain]:
                with session.recording("command"):
                    subprocess.run(["sh", "-e", "-c", command], cwd=root, check=True)
                points.append(workspace.log.head())
                trees.append(everything(root))
        if verb == "redo":
            act(workspace, "undo")
    if not is_killed(root, lambda workspace: act(workspace, verb), nth):
        return False
    with open_store() as store:
        workspace = store.workspace(root)
        recovered(workspace, nth, verb)
        assert everything(root) in trees[-2:] or chain not in IN_ONE_STEP
        check_on_record(workspace, points[0])
        for at in (0, -1, 1):
            plan = workspace.plan_rollback(points[at])
            if not plan.is_empty:
                workspace.carry_out(plan)
            assert everything(root) == trees[at]
        check_on_record(workspace, points[0])
    return True


def act(workspace: AuditedWorkspace, verb: str) -> object:
    plan = workspace.plan_undo() if verb == "undo" else workspace.plan_redo()
    return workspace.carry_out(plan)


def recovered(workspace: AuditedWorkspace, nth: int, verb: str) -> None:
    """What the interrupted call did is its own, whoever looks first, and is finished or left."""
    assert not workspace.status().drift
    if nth % 3 == 0:  # somebody looks first
        with workspace.attachment.exclusive():
            record_drift(workspace.attachment)
    waiting = [one.call for one in workspace.recover() if one.waiting]
    assert [call.tool for call in waiting] in ([], [verb])
    if waiting:
        [done] = workspace.recover("continue" if nth % 2 else "abandon")
        assert done.call.tool == verb
    assert workspace.leftovers() == []


def check_on_record(workspace: AuditedWorkspace, start: int) -> None:
    """Nothing is from outside, and the log is whole."""
    for event in workspace.log.read():
        if event.seq > start and isinstance(event.fact, FilesChanged):
            assert event.fact.origin in ("command", "undo"), event
    assert not workspace.status().drift
    assert workspace.verify().ok
