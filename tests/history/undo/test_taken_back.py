"""What counts as taken back, and which plans are carried out for it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, ToolResult
from loom_audit.errors import Conflict
from loom_audit.model.plans.taking_back.taken_back import (
    TakenBack,
    TakingBack,
    UndoneBy,
    takes_anything_back,
)
from tests.given.traced import traced as traced

Call = Callable[..., ToolResult]


def newest(workspace: AuditedWorkspace) -> int:
    return workspace.timeline.calls()[0].seq or 0


def undone(workspace: AuditedWorkspace) -> dict[int, int]:
    """By number of what is taken back what did it, as rows say it."""
    return {c.seq: c.undone_by for c in workspace.timeline.calls() if c.seq and c.undone_by}


def test_a_second_rollback_that_finds_all_taken_back_is_not_carried_out(
    workspace: AuditedWorkspace, call: Call, root: Path
) -> None:
    point = workspace.log.head()
    call("write_file", path="b", content="b\n")
    number = newest(workspace)
    first = workspace.carry_out(workspace.plan_rollback(point)).call.seq
    plan = workspace.plan_rollback(point)
    assert not plan.changes and not plan.reverts and plan.already == ("b",)
    head = workspace.log.head()
    with pytest.raises(Conflict, match="nothing left to take back"):
        workspace.carry_out(plan)
    assert workspace.log.head() == head
    assert undone(workspace) == {number: first}
    workspace.carry_out(workspace.plan_undo())  # of the rollback, which stands
    assert (root / "b").read_text() == "b\n"


def test_a_rollback_after_an_undo_leaves_redo_what_it_needs(
    workspace: AuditedWorkspace, call: Call, root: Path
) -> None:
    point = workspace.log.head()
    call("write_file", path="b", content="b\n")
    workspace.carry_out(workspace.plan_undo())
    assert not workspace.plan_rollback(point).reverts
    workspace.carry_out(workspace.plan_redo())
    assert (root / "b").read_text() == "b\n"


def test_what_a_person_took_back_by_hand_is_taken_back_on_record(
    workspace: AuditedWorkspace, call: Call, root: Path
) -> None:
    """The call stands until a plan says that it does not, though nothing is left to write."""
    for verb in ("undo", "revert", "rollback"):
        point = workspace.log.head()
        call("write_file", path="b", content="b\n")
        number = newest(workspace)
        (root / "b").unlink()
        if verb == "undo":
            plan = workspace.plan_undo()
        elif verb == "revert":
            plan = workspace.plan_revert([number])
        else:
            plan = workspace.plan_rollback(point)
        assert not plan.changes and plan.reverts == (number,), verb
        done = workspace.carry_out(plan).call
        assert undone(workspace)[number] == done.seq
        if verb != "undo":  # a plan without changes can be taken back as any other
            assert workspace.plan_undo().calls == (done.seq,)


def test_undos_of_undos_count_by_which_of_them_stand(
    workspace: AuditedWorkspace, call: Call, root: Path
) -> None:
    call("write_file", path="b", content="b\n")
    chain = [newest(workspace)]
    for n in range(1, 7):
        chain.append(workspace.carry_out(workspace.plan_revert([chain[-1]])).call.seq or 0)
        assert (root / "b").exists() == (n % 2 == 0)
        assert undone(workspace) == {
            one: chain[i + 1] for i, one in enumerate(chain[:-1]) if (n - i) % 2
        }


def chain(*pairs: tuple[int, int]) -> TakenBack:
    return TakenBack(TakingBack(number, target) for number, target in pairs)


def test_the_chain_in_effect_says_what_is_taken_back() -> None:
    assert chain().whole == {}
    assert chain((3, 2), (2, 1)).whole == {2: 3}
    assert chain((4, 3), (3, 2), (2, 1)).whole == {3: 4, 1: 2}
    assert chain((9, 7), (9, 1), (7, 1)).whole == {7: 9, 1: 9}


def test_what_was_taken_back_in_part_is_in_effect_elsewhere() -> None:
    first, rest = TakingBack(2, 1, False, frozenset("a")), TakingBack(3, 1, True, frozenset("b"))
    assert TakenBack([first]).of(1, "ab") == UndoneBy(None, {"a": 2})
    assert TakenBack([first, rest]).of(1, "ab") == UndoneBy(3)
    again = TakenBack([first, rest, TakingBack(4, 2)])
    assert again.of(1, "ab") == UndoneBy(None, {"b": 3})
    assert again.by_path([1, 2]) == {1} and again.takers([1]) == {3} and again.takers([2]) == {4}
    assert again.concerning([2]).doings == [TakingBack(4, 2)] and again.below([4]) == {4, 2, 1}


def test_a_call_says_nothing_of_what_came_after_it() -> None:
    assert chain((1, 2), (2, 2)).doings == []


@pytest.mark.parametrize(
    ("numbers", "before", "difference"),
    [
        ([], [], False),
        ([1], [], True),
        ([1], [(2, 1)], False),
        ([1, 2], [(2, 1)], False),
        ([2], [(2, 1)], True),
        ([1, 2], [(2, 1), (2, 0)], True),
        ([2, 3], [(3, 2)], False),
        ([1, 2, 3], [(3, 2)], True),
    ],
)
def test_taking_back_makes_a_difference_or_not(
    numbers: list[int], before: list[tuple[int, int]], difference: bool
) -> None:
    more = [TakingBack(9, number) for number in numbers]
    assert takes_anything_back(chain(*before), more, lambda _: {}) is difference


def test_a_plan_after_many_rollbacks_asks_the_tables_no_more_often(
    traced: list[str], workspace: AuditedWorkspace, call: Call
) -> None:
    points = []
    for n in range(4):
        points.append(workspace.log.head())
        call("write_file", path=f"f{n}", content=str(n))

    def asked() -> int:
        traced.clear()
        workspace.plan_rollback(points[0])
        return sum("FROM revert " in one for one in traced)

    found = []
    for n in range(24):
        plan = workspace.plan_rollback(points[n % 4])
        if plan.changes:
            workspace.carry_out(plan)
        if n in (11, 23):
            found.append(asked())
    assert 0 < found[1] <= found[0] + 4
