"""What a plan would change and does not list is found by doing its steps."""

import pytest

from loom_audit.model.files import BlobId, FileChange, FileState, Move
from loom_audit.model.plans.planning import Plan
from loom_audit.model.plans.request import PlanRequest
from loom_audit.model.plans.unnamed import unnamed_changes

FILE = FileState("file", BlobId("1" * 64), 0o644, 1)
OTHER = FileState("file", BlobId("2" * 64), 0o644, 1)
FOLDER = FileState("directory", None, 0o755, 0)
OPAQUE = FileState("opaque", None, 0, 0, identity="a" * 32)
TREE = {"a": FILE, "d": FOLDER, "d/x": FILE, "d/y": FILE, ".git": OPAQUE}


def plan(*changes: FileChange, moves: tuple[Move, ...] = ()) -> Plan:
    return Plan(PlanRequest("undo"), 1, "call 1", changes=changes, moves=moves)


GONE = tuple(FileChange(path, TREE[path], None) for path in ("d", "d/x", "d/y"))


@pytest.mark.parametrize(
    "whole",
    [
        plan(FileChange("a", FILE, OTHER), FileChange("n", None, FOLDER)),
        plan(*GONE),
        plan(*GONE, FileChange("n", None, FOLDER), FileChange("n/x", None, FILE)),
        plan(
            FileChange(".git", OPAQUE, None),
            FileChange("g", None, OPAQUE),
            moves=(Move(".git", "g"),),
        ),
        plan(),
    ],
)
def test_a_plan_that_says_all_changes_nothing_else(whole: Plan) -> None:
    assert unnamed_changes(whole, TREE) == ()


@pytest.mark.parametrize(
    ("partial", "unnamed"),
    [
        (plan(*GONE[:2]), ("d/y",)),
        (plan(FileChange("d", FOLDER, FILE)), ("d/x", "d/y")),
        (plan(FileChange("n/m/x", None, FILE)), ("n", "n/m")),
        (plan(FileChange("a/x", None, FILE)), ("a",)),
        (
            plan(
                FileChange("d", FOLDER, None),
                FileChange("d/x", FILE, None),
                FileChange(".git", None, OPAQUE),
                moves=(Move("d", ".git"),),
            ),
            ("d/y",),
        ),
    ],
)
def test_what_goes_with_something_else_is_found(partial: Plan, unnamed: tuple[str, ...]) -> None:
    assert unnamed_changes(partial, TREE) == unnamed


def test_what_one_stage_does_and_the_list_of_all_does_not_name_is_found() -> None:
    stages = ((FileChange("a", FILE, OTHER),), (FileChange("d/x", FILE, OTHER),))
    staged = Plan(PlanRequest("rollback"), 1, "", changes=stages[0], stages=stages)
    assert unnamed_changes(staged, TREE) == ("d/x",)
