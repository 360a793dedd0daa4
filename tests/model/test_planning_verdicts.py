"""Random plans against plain trees: one verdict per path, and what a plan says is what happens.

The oracle knows nothing of lineages or merges: it keeps the tree before every call.
"""

from collections import Counter
from random import Random

import pytest

from loom_audit.model.files import FileState, Move
from loom_audit.model.plans.planning import (
    Choice,
    Hold,
    Note,
    PathStep,
    Plan,
    Verb,
    plan_taking_back,
)
from loom_audit.model.plans.request import PlanRequest
from tests.model.test_planning import CONTENTS, PATHS, Act, Story, possible, settled, started
from tests.model.test_planning_round_trips import carried_out

SCRIPTS = 1_500
DEEP_SCRIPTS = 100_000
AT_ONCE = 2_000

CHOICES: tuple[Choice, ...] = ("current", "old", "merge")


def an_act(random: Random) -> Act:
    match random.randrange(9):
        case 0 | 1 | 2:
            mode = random.choice([None, 0o755])
            return ("put", random.choice(PATHS), random.choice(CONTENTS), mode)
        case 3:
            return ("link", random.choice(PATHS), random.choice([b"a", b"d/b"]))
        case 4:
            return ("folder", random.choice(PATHS), random.choice([0o755, 0o700]))
        case 5 | 6:
            return ("drop", random.choice(PATHS))
        case _:
            return ("rename", random.choice(PATHS), random.choice(PATHS))


def recorded(random: Random) -> tuple[Story, list[dict[str, FileState]]]:
    """A story of some calls, some of them from outside, and the trees before each of them."""
    story = started()
    trees: list[dict[str, FileState]] = []
    for _ in range(random.randint(1, 6)):
        probe = Story()
        probe.tree = dict(story.tree)
        doable = []
        for _ in range(random.choice([1, 1, 1, 2, 3])):
            act = an_act(random)
            if possible(probe.tree, act):
                getattr(probe, act[0])(*act[1:])
                doable.append(act)
        if probe.tree != story.tree:
            trees.append(dict(story.tree))
            story.call(*doable, outside=random.random() < 0.2)
    return story, trees


def a_plan(
    random: Random, story: Story, choices: dict[str, Choice], holds: dict[str, Hold]
) -> tuple[Plan, Verb, int, bool]:
    """A random plan, its verb, the event before the first one taken, and if outside goes too."""
    verb: Verb = random.choice(["undo", "revert", "revert", "rollback"])
    outside = verb == "rollback" and random.random() < 0.5
    since = random.randrange(story.seq)
    if verb == "undo":
        chosen = {story.seq}
    elif verb == "rollback":
        chosen = {*range(since + 1, story.seq + 1)}
    else:
        chosen = {seq for seq in range(since + 1, story.seq + 1) if random.random() < 0.6}
    first = min(chosen, default=story.seq)
    steps = [
        PathStep(step.seq, step.change, taken, step.call)
        for step in story.steps
        if step.seq >= first
        for taken in [step.seq in chosen and (step.call is not None or outside)]
    ]
    plan = plan_taking_back(
        request=PlanRequest(verb, choices=choices),
        head=story.seq,
        target="",
        reverts=tuple(sorted(chosen)),
        steps=steps,
        tree=story.tree,
        blobs=story.blobs,
        moves=story.moves,
        holds=holds,
    )
    return plan, verb, first - 1, outside


def check(seed: str) -> str:
    """Make one story and one plan of it, and look at both; what kind of a case it was."""
    random = Random(seed)
    story, trees = recorded(random)
    if not trees:
        return "nothing happened"
    choices: dict[str, Choice] = {}
    holds: dict[str, Hold] = {}
    if random.random() < 0.5:
        choices = {path: random.choice(CHOICES) for path in random.sample(PATHS, 2)}
    if random.random() < 0.2:
        holds = {random.choice(PATHS): Hold(random.choice(["blocked", "kept"]), "held")}
    erased = set()
    if random.random() < 0.2:
        erased = set(random.sample(sorted(story.blobs), 1))
        for blob in erased:
            del story.blobs[blob]
    plan, verb, since, outside = a_plan(random, story, choices, holds)
    after = story.after(plan)
    one_verdict_per_path(plan, story.tree)
    for path, choice in choices.items():
        if choice == "current":
            assert after.get(path) == story.tree.get(path), f"{path} was to stay"
    for path in holds:
        assert after.get(path) == story.tree.get(path), f"{path} was held"
    last = {step.change.path: step for step in story.steps}
    for number, found in story.moves.items():
        for move in found:
            step, kept = last[move.target], {*choices.values()} <= {"current"} and not outside
            if step.seq == number and step.call is None and kept:
                now = story.tree.get(move.target)
                assert after.get(move.target) == now, f"{move.target} came from outside"
    lost = {s.blob for s in story.tree.values() if s.blob} - {s.blob for s in after.values()}
    assert lost <= story.blobs.keys() or "old" in choices.values()
    if plan.changes and settled(plan) and not erased:
        is_redone(story, plan)
    if choices or holds or erased:
        return "with choices, holds or contents that are not kept"
    all_taken = outside or all(step.call is not None for step in story.steps)
    if verb == "revert" or not all_taken:
        return "free"
    assert settled(plan) and not plan.kept and not plan.merged
    assert after == trees[since], "not the tree that was there"
    return "exactly back"


def is_redone(story: Story, plan: Plan) -> None:
    """Once the plan is carried out, taking that back gives the tree before it again."""
    before = dict(story.tree)
    redo = story.plan(carried_out(story, plan), verb="redo")
    assert settled(redo) and not redo.kept and not redo.merged
    assert story.after(redo) == before, "not brought back"


def one_verdict_per_path(plan: Plan, tree: dict[str, FileState]) -> None:
    changed = [change.path for change in plan.changes]
    notes = (*plan.kept, *plan.blocked, *plan.irreversible)
    listed = Counter([*changed, *plan.already, *(note.path for note in notes if note.path)])
    assert all(count == 1 for count in listed.values()), listed
    merged = [note.path for note in plan.merged]
    assert len({*merged}) == len(merged) and {*merged} <= {*changed}
    assert all(note.reason for note in (*notes, *plan.merged))
    for move in plan.moves:
        assert move.source in tree and {move.source, move.target} <= {*changed}


def test_what_replaced_a_deleted_file_goes_when_its_making_is_taken_back() -> None:
    """Nobody has to decide about the file that was there before: it stays deleted."""
    story = Story({"a": b"0"})
    one = story.call(("put", "a", b"A"))
    two = story.call(("put", "b", b"B"))
    three = story.call(("drop", "a"))
    story.call(("rename", "b", "a"))
    plan = story.plan(one, two)
    assert story.after(plan) == {} and settled(plan) and not plan.kept
    reason = "what was there before was deleted later, kept"
    assert plan.merged == (Note("a", reason, (three,)),)
    kept = story.plan(one, two, choices={"a": "current"})
    assert kept.changes == () and [note.path for note in kept.kept] == ["a"]
    old = story.plan(one, two, choices={"a": "old"})
    assert story.after(old) == story.start


def test_a_file_that_a_later_call_moved_to_a_path_is_not_merged_with_the_one_before() -> None:
    story = Story({"a": b"1\n2\n3\n", "b": b"1\n2\n3\n4\n"})
    one = story.call(("put", "a", b"one\n2\n3\n"))
    story.call(("rename", "b", "a"))
    plan = story.plan(one)
    assert plan.changes == () and settled(plan) and [note.path for note in plan.kept] == ["a"]
    assert story.after(story.plan(one, choices={"a": "old"})) == story.start


def test_a_file_that_a_later_call_moved_to_a_path_stays_when_its_first_file_is_taken_back() -> None:
    story = Story({"b": b"B"})
    one = story.call(("put", "a", b"A"))
    story.call(("drop", "a"))
    story.call(("rename", "b", "a"))
    plan = story.plan(one)
    assert plan.changes == () and settled(plan)


def test_a_folder_that_is_to_stay_away_is_not_made_for_what_was_in_it() -> None:
    story = Story({"d/f": b"x"})
    one = story.call(("drop", "d"))
    plan = story.plan(one, choices={"d": "current"})
    assert plan.changes == () and [note.path for note in plan.kept] == ["d"]
    assert plan.blocked == (Note("d/f", "d: kept by choice"),)
    assert settled(story.plan(one, choices={"d": "current", "d/f": "current"}))


def test_a_file_stays_where_it_took_the_place_of_one_that_cannot_come_back() -> None:
    story = Story({"a": b"huge", "b": b"B"})
    one = story.call(("drop", "a"), ("rename", "b", "a"), hints=(Move("b", "a"),))
    huge = story.start["a"].blob
    assert huge is not None
    del story.blobs[huge]
    plan = story.plan(one)
    assert plan.changes == ()
    assert plan.irreversible == (Note("a", "its content was not kept", (one,)),)
    chosen = story.plan(one, choices={"a": "old"})
    assert list(story.after(chosen)) == ["b"]
    assert chosen.irreversible == (Note("", "a: its content was not kept", (one,)),)


def test_a_file_that_a_person_moved_back_stays() -> None:
    story = Story({"d/b": b"B"})
    one = story.call(("put", "d/a", b"A"))
    two = story.call(("rename", "d/a", "a"))
    story.call(("rename", "a", "d/a"), outside=True)
    for taken in ((one,), (one, two)):
        plan = story.plan(*taken)
        assert plan.changes == () and settled(plan)
        assert plan.kept == (Note("d/a", "moved here from a outside, kept"),)
    assert "d/a" not in story.after(story.plan(one, two, choices={"d/a": "old"}))


def sweep(seed: str, scripts: range) -> Counter[str]:
    cases: Counter[str] = Counter()
    for number in scripts:
        one = f"{seed}/{number}"
        try:
            cases[check(one)] += 1
        except AssertionError as error:
            error.add_note(f"to see it again: check({one!r})")
            raise
    return cases


def test_every_plan_has_one_verdict_per_path_and_does_what_it_says(seed: str) -> None:
    cases = sweep(seed, range(SCRIPTS))
    assert cases["exactly back"] > SCRIPTS / 20
    assert cases["with choices, holds or contents that are not kept"] > SCRIPTS / 3


@pytest.mark.deep
@pytest.mark.parametrize("start", range(0, DEEP_SCRIPTS, AT_ONCE))
def test_each_of_a_hundred_thousand_plans_does_what_it_says(start: int, seed: str) -> None:
    sweep(seed, range(start, start + AT_ONCE))
