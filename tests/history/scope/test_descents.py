"""A file's line of descent through moves that were taken back is taken back, too."""

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from loom_audit import AuditedWorkspace
from loom_audit.cli.shared.taking_back.plans import plan_lines
from loom_audit.errors import Conflict
from loom_audit.history.undo.planner import Planner
from loom_audit.model.plans.planning import Plan
from tests.history.scope.conftest import Run
from tests.oracles.trees import tree_of

TEXT = "one\ntwo\nthree\n"
LIKE = pytest.mark.parametrize(
    ("text", "mode"),
    [(TEXT, 0o644), (TEXT, 0o755), (TEXT + "four\n", 0o644), ("other\n", 0o600)],
)
BACK = pytest.mark.parametrize(
    "verbs", [["undo"], ["undo", "redo", "undo"], ["undo", "undo undo"], ["rollback"]]
)


def lay_out(root: Path, text: str, mode: int) -> None:
    (root / "a").write_text(TEXT)
    (root / "x").write_text(text)
    (root / "x").chmod(mode)


def carry_out(workspace: AuditedWorkspace, verb: str, point: int) -> None:
    newest = workspace.timeline.calls()[0].seq or 0
    plans: dict[str, Callable[[], Plan]] = {
        "undo": workspace.plan_undo,
        "redo": workspace.plan_redo,
        "undo undo": lambda: workspace.plan_revert([newest]),
        "rollback": lambda: workspace.plan_rollback(point),
    }
    workspace.carry_out(plans[verb]())


@pytest.mark.few(4)
@LIKE
@BACK
def test_what_a_person_adds_later_stays_where_they_added_it(
    workspace: AuditedWorkspace, root: Path, run: Run, text: str, mode: int, verbs: list[str]
) -> None:
    lay_out(root, text, mode)
    run("true")
    point = workspace.log.head()
    start = tree_of(root)
    run("mv -f a x")
    for verb in verbs:
        carry_out(workspace, verb, point)
    run("echo u > u")
    (root / "x").open("a").write("PERSON\n")
    before = tree_of(root)
    plan = workspace.plan_rollback(point)
    workspace.carry_out(plan)
    after = tree_of(root)
    named = {change.path.encode() for change in plan.changes}
    assert {p for p in before.keys() | after.keys() if before.get(p) != after.get(p)} <= named
    # a move that stands again is followed: then it is the file from `a` that they wrote
    theirs = b"a" if "undo undo" in verbs and (text, mode) != (TEXT, 0o644) else b"x"
    kind, bits, content = start[theirs]
    assert after == {**start, theirs: (kind, bits, content + b"PERSON\n")}


def test_a_file_that_another_took_the_place_of_is_listed_beside_its_merge(
    workspace: AuditedWorkspace, root: Path, run: Run
) -> None:
    """Both paths change: the one that was moved away from, and the one it comes back to."""
    lay_out(root, "other\n", 0o600)
    run("true")
    number = run("mv -f a x")
    (root / "x").open("a").write("PERSON\n")
    run("true")
    plan = workspace.plan_revert([number])
    assert {change.path for change in plan.changes} == {"a", "x"}
    lines = [
        "".join(part if isinstance(part, str) else part[0] for part in line)
        for line in plan_lines(plan)
    ]
    assert any(line.startswith("  M x") for line in lines), lines
    assert any("-> a" in line or line.startswith("  A a") for line in lines), lines


def test_a_plan_that_does_not_name_what_it_changes_is_refused(
    workspace: AuditedWorkspace, root: Path, run: Run
) -> None:
    run("mkdir n; echo x > n/x; echo y > n/y")
    plan = workspace.plan_undo()
    changes = tuple(change for change in plan.changes if change.path != "n/x")
    before = tree_of(root)
    doctored = replace(plan, changes=changes)
    with pytest.raises(Conflict):
        workspace.carry_out(doctored)
    with pytest.raises(Conflict, match="n/x would change"):
        Planner(workspace.attachment, workspace.timeline).check_named(doctored)
    assert tree_of(root) == before
