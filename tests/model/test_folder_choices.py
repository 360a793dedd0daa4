"""A choice for a folder decides the conflicts below it, held against a plain list of past trees."""

from collections.abc import Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from loom_audit.model.plans.folder_choices import ROOT, idle_choices, with_folder_choices
from loom_audit.model.plans.planning import Plan, Verb
from loom_audit.model.plans.request import Choice, PlanRequest
from tests.given.examples import examples
from tests.model.test_planning import Story

PATHS = ["a", "d/a", "d/b", "d/e/a", "d/e/b", "dd/a"]
FOLDERS = [ROOT, "d", "d/e", "dd"]

Texts = Mapping[str, bytes]


def plan_with(
    story: Story, *taken: int, choices: Mapping[str, Choice], verb: Verb = "revert"
) -> Plan:
    """The plan with choices for folders, as a workspace makes it."""
    return with_folder_choices(
        PlanRequest(verb, choices=choices),
        lambda one: story.plan(*taken, verb=verb, choices=one.choices),
    )


def nearest(path: str, choices: Mapping[str, Choice]) -> Choice | None:
    """The choice that counts for a path in conflict, read off its name."""
    name = path
    while name not in choices:
        if not name:
            return None
        name = name.rpartition("/")[0]
    return choices[name]


def expected(
    trees: Sequence[Texts],
    writers: Mapping[str, list[int]],
    taken: set[int],
    choices: Mapping[str, Choice],
) -> tuple[dict[str, bytes], set[str]]:
    """What each file is after taking these calls back, and which paths are left in conflict.

    `trees[n]` are the texts after call n. Each text is written once, so that a kept write after a
    taken one is always a conflict.
    """
    result, undecided = dict(trees[-1]), set()
    for path in PATHS:
        gone = [call for call in writers.get(path, []) if call in taken]
        if not gone:
            continue
        old = trees[gone[0] - 1].get(path)
        conflict = any(call > gone[0] and call not in taken for call in writers[path])
        choice = nearest(path, choices) if conflict else choices.get(path, "old")
        if choice is None:
            undecided.add(path)
        elif choice == "old":
            result.pop(path)
            if old is not None:
                result[path] = old
    return result, undecided


@examples(30, 150)
@given(
    calls=st.lists(st.sets(st.sampled_from(PATHS), min_size=1, max_size=4), min_size=1, max_size=6),
    chosen=st.dictionaries(
        st.sampled_from([*PATHS, *FOLDERS]), st.sampled_from(["current", "old"]), max_size=5
    ),
    data=st.data(),
)
def test_choices_for_folders_do_what_the_nearest_of_them_says(
    calls: list[set[str]], chosen: dict[str, Choice], data: st.DataObject
) -> None:
    start = {"a": b"a\n", "d/a": b"da\n", "d/e/x": b"x\n", "dd/x": b"x\n"}
    story, trees, writers = Story(start), [dict(start)], dict[str, list[int]]()
    for number, written in enumerate(calls, 1):
        texts = {path: f"{path} by {number}\n".encode() for path in written}
        story.call(*(("put", path, text) for path, text in sorted(texts.items())))
        trees.append({**trees[-1], **texts})
        for path in written:
            writers.setdefault(path, []).append(number)
    taken = data.draw(st.sets(st.integers(1, len(calls)), min_size=1))
    plan = plan_with(story, *taken, choices=chosen)
    result, undecided = expected(trees, writers, taken, chosen)
    assert {note.path for note in plan.blocked} == undecided
    assert plan.request.choices == chosen
    assert not plan.decided.keys() & chosen.keys()
    after = story.after(plan)
    for path in set(PATHS) - undecided:
        assert story.text(after, path) == result.get(path), path


def conflicts() -> tuple[Story, int]:
    """Four files in conflict, one that merges, and one that nobody changed later; and the call."""
    long = b"".join(b"%d\n" % n for n in range(20))
    paths = ["d/a", "d/e/a", "d/e/b", "dd/a"]
    story = Story({**dict.fromkeys(paths, b"1\n"), "d/merged": long, "d/plain": b"1\n"})
    texts = [*(("put", path, b"2\n") for path in paths), ("put", "d/plain", b"2\n")]
    number = story.call(*texts, ("put", "d/merged", long.replace(b"3\n", b"three\n", 1)))
    story.call(*(("put", path, b"3\n") for path in paths))
    story.call(("put", "d/merged", story.blobs[story.tree["d/merged"].blob] + b"end\n"))
    return story, number


def test_a_folder_leaves_what_merges_and_what_is_in_no_conflict_as_it_would_be() -> None:
    story, number = conflicts()
    for choice in ("current", "old"):
        plan = plan_with(story, number, choices={"d": choice})
        assert [note.path for note in plan.blocked] == ["dd/a"]
        assert plan.decided == dict.fromkeys(["d/a", "d/e/a", "d/e/b"], choice)
        after = story.after(plan)
        assert story.text(after, "d/plain") == b"1\n"
        merged = story.text(after, "d/merged")
        assert merged and b"three" not in merged and merged.endswith(b"end\n")


def test_the_nearest_folder_and_then_the_path_itself_count() -> None:
    story, number = conflicts()
    choices: dict[str, Choice] = {ROOT: "old", "d/e": "current", "d/e/b": "merge"}
    plan = plan_with(story, number, choices=choices)
    after = story.after(plan)
    assert not plan.blocked
    assert story.text(after, "d/a") == story.text(after, "dd/a") == b"1\n"
    assert story.text(after, "d/e/a") == b"3\n"
    assert b"<<<<<<<" in (story.text(after, "d/e/b") or b"")


def test_a_choice_for_nothing_that_the_plan_names_is_found_out() -> None:
    story, number = conflicts()
    choices: dict[str, Choice] = dict.fromkeys([ROOT, "d", "d/e", "x", "d/ea"], "old")
    assert idle_choices(plan_with(story, number, choices=choices)) == ["d/ea", "x"]
    # all that is below this one is chosen for by itself
    choices = {"d/e": "old", "d/e/a": "current", "d/e/b": "current"}
    assert idle_choices(plan_with(story, number, choices=choices)) == []
