"""Going back step by step and forth again, through renames, against the trees that were there."""

from collections.abc import Sequence
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from loom_audit.model.files import FileState
from loom_audit.model.plans.planning import PathStep, Plan, Verb
from tests.given.examples import examples
from tests.model.test_planning import Story, calls, play, settled, started


def carried_out(story: Story, plan: Plan) -> int:
    """Put the plan on record as one call; its number."""
    tree = story.after(plan)
    story.seq += 1
    story.steps += [PathStep(story.seq, change, False, story.seq) for change in plan.changes]
    if plan.moves:
        story.moves[story.seq] = plan.moves
    story.tree = tree
    return story.seq


def there_and_back(story: Story, numbers: list[int], trees: list[dict[str, FileState]]) -> None:
    """Take the calls back one by one, newest first, and then bring them back, newest undo first."""
    undone = []
    for number, tree in zip(reversed(numbers), reversed(trees), strict=True):
        now = dict(story.tree)
        plan = story.plan(number, verb="undo")
        assert settled(plan)
        undone.append((carried_out(story, plan), now))
        assert story.tree == tree
    for number, now in reversed(undone):
        plan = story.plan(number, verb="redo")
        assert settled(plan)
        carried_out(story, plan)
        assert story.tree == now


@examples(60, 300)
@example([[("rename", "a", "b")], [("put", "a", b"one\n", None)]], [])
@example(
    [[("put", "a", b"one\n", None)], [("rename", "a", "b")], [("rename", "d", "a")]], [(True, 0)]
)
@given(calls, st.lists(st.tuples(st.booleans(), st.integers(0, 9)), max_size=4))
def test_all_steps_back_and_forth_pass_through_every_tree_again(
    script: list[list[tuple[Any, ...]]], taken_back: list[tuple[bool, int]]
) -> None:
    pass_through(script, taken_back)


def test_an_undone_rollback_that_looks_like_a_rename_can_be_redone() -> None:
    put = ("put", "b", b"one\n", None)
    script: list[list[tuple[Any, ...]]] = [
        [("rename", "d/b", "d/a")],
        [put, ("link", "a", b"a"), ("rename", "a", "d/a")],
    ]
    pass_through(script, [(True, 0)])


def pass_through(
    script: list[list[tuple[Any, ...]]], taken_back: Sequence[tuple[bool, int]]
) -> None:
    """Carry out the script, take back what is asked, then go back and forth step by step."""
    story = started()
    numbers: list[int] = []
    trees: list[dict[str, FileState]] = []
    for one in script:
        before = dict(story.tree)
        for number in play(story, [one]):
            numbers.append(number)
            trees.append(before)
    for rollback, n in taken_back:
        if not numbers:
            return
        chosen = numbers[n % len(numbers)]
        verb: Verb = "rollback" if rollback else "revert"
        later = [number for number in numbers if number >= chosen]
        plan = story.plan(*(later if rollback else [chosen]), verb=verb)
        if settled(plan) and plan.changes:
            trees.append(dict(story.tree))
            numbers.append(carried_out(story, plan))
    there_and_back(story, numbers, trees)
    there_and_back(story, numbers[-2:], trees[-2:])
