"""Between a plan and its carrying out: the same plan is not made twice, another one is refused."""

from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from loom_audit import AuditedWorkspace, AuditStore
from loom_audit.errors import Conflict
from loom_audit.history.planner import Planner
from loom_audit.model.planning import Plan
from loom_audit.ports import CallFilter
from tests.trees import tree_of


def never(*_: object) -> Plan:
    raise AssertionError("the plan is made again")


@pytest.fixture
def workspace(store: AuditStore, root: Path) -> AuditedWorkspace:
    """A call has made `new/x`, deleted `gone` and changed `a.txt`; `*.o` is out of scope."""
    (root / "gone").write_text("gone\n")
    workspace = store.attach(root, ignore="*.o\n")
    with workspace.session("tester") as session, session.recording("work"):
        (root / "new").mkdir()
        (root / "new" / "x").write_text("1\n")
        (root / "gone").unlink()
        (root / "a.txt").write_text("changed\n")
    return workspace


def test_where_nothing_has_happened_the_plan_is_not_made_again(
    workspace: AuditedWorkspace, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = workspace.plan_undo()
    monkeypatch.setattr(Planner, "plan", never)
    assert set(workspace.carry_out(plan).changed) == {"a.txt", "gone", "new", "new/x"}
    assert (root / "gone").read_text() == "gone\n"
    assert not (root / "new").exists()


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
    workspace: AuditedWorkspace,
    root: Path,
    happens: Callable[[Path, AuditedWorkspace], None],
) -> None:
    plan = workspace.plan_undo()
    assert plan.changes
    assert not plan.blocked
    happens(root, workspace)
    before = tree_of(root)
    with pytest.raises(Conflict):
        workspace.carry_out(plan)
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
    tools = [call.tool for call in workspace.attachment.projections.calls(CallFilter(limit=None))]
    assert tools == ["delete_file"]


def test_what_came_from_outside_and_has_gone_again_makes_another_plan(
    workspace: AuditedWorkspace, root: Path
) -> None:
    (root / "new" / "mine").write_text("mine\n")
    plan = workspace.plan_rollback("head~1")
    assert [note.path for note in plan.kept if note.path == "new"]
    (root / "new" / "mine").unlink()
    before = tree_of(root)
    with pytest.raises(Conflict, match="since this plan was made"):
        workspace.carry_out(plan)
    assert tree_of(root) == before
