"""A rollback over moves of left-out folders: it does what taking back call by call does."""

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest

from loom_audit import AuditedWorkspace, Session, open_store
from loom_audit.errors import AuditUnavailable, Conflict
from loom_audit.history.undo.scope_moves import FolderPlan
from loom_audit.model.events import ChangeIntended, Draft
from loom_audit.model.files import FileChange, FileState
from loom_audit.model.plans.planning import Choice, Note, Plan
from loom_audit.model.plans.request import PlanRequest
from tests.history.scope.test_folders import PACKAGES, everything, make

Run = Callable[[Sequence[str]], list[int]]


@pytest.fixture
def root(root: Path) -> Path:
    """With left-out folders beside the recorded files."""
    make(root / "venv", PACKAGES)
    make(root / "node_modules", {"pad.js": "pad()\n"})
    make(root / "src" / ".parcel-cache", {"x": "x\n"})
    return root


@pytest.fixture
def run(session: Session, workspace: AuditedWorkspace, root: Path) -> Run:
    """Record shell commands, one a call; their numbers."""

    def run(commands: Sequence[str]) -> list[int]:
        numbers = []
        for command in commands:
            with session.recording("command"):
                subprocess.run(["sh", "-c", command], cwd=root, check=True)
            numbers.append(workspace.timeline.calls()[0].seq or 0)
        return numbers

    return run


INSIDE = [
    ["mv venv env; echo c > a.txt", "echo edited > env/lib/site.py"],
    ["mv venv env", "echo 1 > env/lib/site.py", "echo 2 > env/lib/site.py; chmod 700 env/bin"],
    ["mv venv env", "mkdir env/new; echo new > env/new/x; rm env/bin/python"],
    ["mv venv env", "rm -r env/bin; echo edited > env/lib/site.py"],
    ["echo edited > src/main.py", "mv src .tox; echo c > a.txt"],
    ["echo edited > src/main.py; echo new > src/new; chmod 700 src", "mv src .tox"],
    ["rm src/main.py; echo other > src/other", "mv src .tox"],
    ["echo 1 > src/main.py", "mv src .tox", "echo c > a.txt"],
    ["mkdir -p deep; echo x > deep/x", "mv venv deep/env", "echo edited > deep/env/lib/site.py"],
    ["mv venv env", "echo edited > env/lib/site.py", "mv src .tox"],
]
CHAINS = [
    ["mv venv env", "mv node_modules env/x"],
    ["mv src/.parcel-cache .tox", "mv src .nox"],
    ["mv venv .tox; mv node_modules venv"],
    ["mv venv .tox; mv node_modules venv; mv src node_modules"],
    ["mv venv .tox", "mv node_modules venv", "echo c > a.txt"],
    ["mv venv env; mv node_modules venv", "echo edited > env/lib/site.py"],
]


@pytest.mark.few(1)
@pytest.mark.parametrize("commands", [*INSIDE, *CHAINS], ids=" / ".join)
def test_a_rollback_takes_back_a_move_and_what_changed_inside_and_is_taken_back_itself(
    workspace: AuditedWorkspace, root: Path, run: Run, commands: list[str]
) -> None:
    before = everything(root)
    point = workspace.log.head()
    numbers = run(commands)
    after = everything(root)
    plans = (workspace.plan_rollback(point), workspace.plan_revert(numbers))
    for plan in plans:
        assert not plan.blocked, plan.blocked and len(
            {change.path for change in plan.changes}
        ) == len(plan.changes)
    assert plans[0].changes == plans[1].changes
    result = workspace.carry_out(plans[0])
    assert everything(root) == before
    assert set(result.changed) >= {change.path for change in plans[0].changes}
    assert workspace.status().drift == () and result.call.reverts == tuple(numbers)
    back = workspace.plan_undo(session=result.call.session)
    assert not back.blocked
    workspace.carry_out(back)
    assert everything(root) == after
    workspace.carry_out(workspace.plan_redo(session=result.call.session))
    assert everything(root) == before
    assert workspace.status().drift == () and workspace.verify().ok


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("commands", "then", "path", "why"),
    [
        (INSIDE[0], "echo mine > env/lib/site.py", "env", "env/lib/site.py changed since"),
        (INSIDE[0], "mkdir venv", "env", "something is at venv"),
        (INSIDE[2], "mkdir env/new/__pycache__", "env", "env/new holds __pycache__"),
        (["mv venv env", "mkdir env/.venv"], "true", "env", "env/.venv was changed by"),
        (["mkdir made; echo x > made/x", "mv made .tox"], "true", ".tox", "made was made by"),
    ],
)
def test_where_that_would_lose_something_the_folder_alone_is_blocked_and_the_rest_is_done(
    workspace: AuditedWorkspace,
    root: Path,
    run: Run,
    commands: list[str],
    then: str,
    path: str,
    why: str,
) -> None:
    point = workspace.log.head()
    run([*commands, "echo changed > a.txt"])
    subprocess.run(["sh", "-c", then], cwd=root, check=True)
    there = everything(root)
    plan = workspace.plan_rollback(point)
    assert [note.path for note in plan.blocked] == [path]
    assert why in plan.blocked[0].reason
    with pytest.raises(Conflict):
        workspace.carry_out(plan)
    assert everything(root) == there
    workspace.carry_out(workspace.plan_rollback(point, choices={path: "current"}))
    assert (root / "a.txt").read_bytes() == b"one\ntwo\nthree\n"
    now = everything(root)
    assert {p: e for p, e in now.items() if p != b"a.txt"} == {
        p: e for p, e in there.items() if p != b"a.txt"
    }


def test_a_folder_that_was_moved_in_one_that_was_moved_then_comes_back_by_two_rollbacks(
    workspace: AuditedWorkspace, root: Path, run: Run
) -> None:
    before = everything(root)
    point = workspace.log.head()
    run(["mv src/.parcel-cache src/.tox", "mv src .nox; echo changed > a.txt"])
    [blocked] = workspace.plan_rollback(point).blocked
    assert blocked.path == "src/.tox" and "is in .nox now" in blocked.reason
    workspace.carry_out(workspace.plan_rollback(point, choices={"src/.tox": "current"}))
    assert (root / "src" / ".tox" / "x").read_text() == "x\n"
    workspace.carry_out(workspace.plan_rollback(point))
    assert everything(root) == before


def test_a_folder_is_not_renamed_into_one_that_stays_away_by_choice(
    workspace: AuditedWorkspace, root: Path, run: Run
) -> None:
    point = workspace.log.head()
    run(["mv src/.parcel-cache .tox", "rm -r src; echo changed > a.txt"])
    choices: dict[str, Choice] = {"src": "current", "src/main.py": "current"}
    [blocked] = workspace.plan_rollback(point, choices=choices).blocked
    assert blocked.path == ".tox" and "does not come back" in blocked.reason
    workspace.carry_out(workspace.plan_rollback(point, choices={**choices, ".tox": "current"}))
    assert (root / ".tox" / "x").read_text() == "x\n" and not (root / "src").exists()
    assert (root / "a.txt").read_bytes() == b"one\ntwo\nthree\n"


def test_folders_that_swapped_names_are_blocked_and_the_rest_is_done(
    workspace: AuditedWorkspace, root: Path, run: Run
) -> None:
    point = workspace.log.head()
    run(["mv venv t; mv node_modules venv; mv t node_modules; echo changed > a.txt"])
    plan = workspace.plan_rollback(point)
    assert {note.path for note in plan.blocked} == {"venv", "node_modules"}
    assert all("changed places" in note.reason for note in plan.blocked)
    there = everything(root)
    choices: dict[str, Choice] = dict.fromkeys(("venv", "node_modules"), "current")
    workspace.carry_out(workspace.plan_rollback(point, choices=choices))
    now = everything(root)
    assert now.pop(b"a.txt")[2] == b"one\ntwo\nthree\n"
    assert now == {p: e for p, e in there.items() if p != b"a.txt"}


@pytest.mark.few(3)
@pytest.mark.parametrize(
    "commands",
    [
        INSIDE[9],
        CHAINS[1],
        *(pytest.param(one, marks=pytest.mark.deep) for one in (INSIDE[0], INSIDE[4], CHAINS[4])),
    ],
)
@pytest.mark.parametrize("nth", [1, 2, 3])
@pytest.mark.parametrize("decision", ["continue", "abandon"])
def test_a_rollback_that_is_interrupted_between_its_stages_can_be_made_again(
    workspace: AuditedWorkspace,
    root: Path,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    commands: list[str],
    nth: int,
    decision: Literal["continue", "abandon"],
) -> None:
    before = everything(root)
    point = workspace.log.head()
    run(commands)
    plan = workspace.plan_rollback(point)
    log, intended = type(workspace.attachment.stored.log), 0
    real = log.append

    def append(self: Any, drafts: Sequence[Draft], **options: Any) -> Any:
        nonlocal intended
        intended += any(isinstance(draft.fact, ChangeIntended) for draft in drafts)
        if intended > nth:
            raise AuditUnavailable("the log cannot be written")
        return real(self, drafts, **options)

    with monkeypatch.context() as patch:
        patch.setattr(log, "append", append)
        if len(plan.stages) > nth:
            with pytest.raises(AuditUnavailable):
                workspace.carry_out(plan)
        else:
            workspace.carry_out(plan)
    with open_store() as store:
        again = store.attach(root)
        again.recover(decision)
        last = again.timeline.calls()[0]
        assert last.tool == "rollback" and bool(last.reverts) == (len(plan.stages) <= nth)
        assert again.status().drift == ()
        if len(plan.stages) > nth:
            again.carry_out(again.plan_rollback(point))
        assert everything(root) == before
        assert again.status().drift == () and again.verify().ok


def test_a_folder_that_is_gone_for_good_is_not_said_to_be_already_as_it_was() -> None:
    gone = Note("b/.git", "a/.git became b/.git, and is not there any more")
    plan = Plan(PlanRequest("rollback"), 9, "point 2", already=("b/.git", "c.txt"))
    made = FolderPlan((), {}, irreversible=(gone,)).added_to(plan)
    assert (made.already, made.irreversible) == (("c.txt",), (gone,))


def test_a_folder_that_is_gone_for_good_is_told_beside_the_one_that_takes_its_place() -> None:
    gone = Note("b/.git", "a/.git became b/.git, and is not there any more")
    comes = FileChange("b/.git", None, FileState("opaque", None, 0, 0))
    plan = Plan(PlanRequest("rollback"), 9, "point 2", changes=(comes,))
    made = FolderPlan((), {}, irreversible=(gone,)).added_to(plan)
    assert made.irreversible == (Note("", f"b/.git: {gone.reason}"),)
