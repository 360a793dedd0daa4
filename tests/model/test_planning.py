"""Taking back some calls and keeping the others, against independent oracles."""

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from loom_audit.model.files import BlobId, FileState, Move, apply, diff, parents
from loom_audit.model.plans.planning import Note, PathStep, Plan, Verb, plan_taking_back
from loom_audit.model.plans.request import PlanRequest

Act = tuple[Any, ...]
"""A method of `Story` by name, and its arguments."""

Script = list[list[Act]]
"""What each call does."""


class Kept(dict[BlobId, bytes]):
    """Contents by their hash, as a blob store answers for them."""

    def get(self, blob: BlobId) -> bytes:  # type: ignore[override] # as a blob store does
        return self[blob]

    def missing(self, blobs: Iterable[BlobId]) -> set[BlobId]:
        return {*blobs} - self.keys()


class Story:
    """A workspace in memory with the log of what calls did to it."""

    def __init__(self, files: dict[str, bytes] | None = None) -> None:
        self.blobs = Kept()
        self.start: dict[str, FileState] = {}
        self.tree: dict[str, FileState] = {}
        for path, content in (files or {}).items():
            self.put(path, content)
        self.start = dict(self.tree)
        self.steps: list[PathStep] = []
        self.moves: dict[int, Sequence[Move]] = {}
        self.seq = 0

    def file(self, content: bytes, mode: int = 0o644) -> FileState:
        blob = BlobId(sha256(content).hexdigest())
        self.blobs[blob] = content
        return FileState("file", blob, mode, len(content))

    # What a call does: changes of the tree alone.

    def put(self, path: str, content: bytes, mode: int | None = None) -> None:
        old = self.tree.get(path)
        for above in parents(path):
            self.tree.setdefault(above, FileState("directory", None, 0o755, 0))
        keep = old.mode if old and old.kind == "file" else 0o644
        self.tree[path] = self.file(content, keep if mode is None else mode)

    def link(self, path: str, target: bytes) -> None:
        self.put(path, target)
        self.tree[path] = FileState("symlink", self.tree[path].blob, 0o777, len(target))

    def folder(self, path: str, mode: int = 0o755) -> None:
        for above in parents(path):
            self.tree.setdefault(above, FileState("directory", None, 0o755, 0))
        self.tree[path] = FileState("directory", None, mode, 0)

    def drop(self, path: str) -> None:
        for other in [p for p in self.tree if p == path or p.startswith(path + "/")]:
            del self.tree[other]

    def rename(self, source: str, target: str) -> None:
        moved = {
            target + path.removeprefix(source): state
            for path, state in self.tree.items()
            if path == source or path.startswith(source + "/")
        }
        self.drop(source)
        for above in parents(target):
            self.tree.setdefault(above, FileState("directory", None, 0o755, 0))
        self.tree.update(moved)

    # The log.

    def call(self, *acts: Act, outside: bool = False, hints: Sequence[Move] | None = None) -> int:
        """Record what the acts do as one event of one call; its number."""
        before = dict(self.tree)
        was = {path: path for path in self.tree}
        for name, *arguments in acts:
            was = self._names_before(was, name, *arguments)
            getattr(self, name)(*arguments)
        self.seq += 1
        changes = diff(before, self.tree)
        number = None if outside else self.seq
        self.steps += [PathStep(self.seq, change, False, number) for change in changes]
        changed = {change.path for change in changes}
        moved = tuple(Move(old, new) for new, old in was.items() if old != new)
        proven = [m for m in moved if {m.source, m.target} <= changed]
        found = [m for m in proven if self._is_told(m.target)] if hints is None else hints
        if found:
            self.moves[self.seq] = found
        return self.seq

    def _is_told(self, target: str) -> bool:
        """Whether a move to this path is on record: a folder's is not, what is in it moved."""
        return (state := self.tree.get(target)) is not None and state.kind != "directory"

    def _names_before(self, was: dict[str, str], name: str, *arguments: Any) -> dict[str, str]:
        """By path, where the file that an act leaves there was before the call."""
        source = arguments[0]
        there = self.tree.get(source)
        if name == "folder" or (name == "put" and there and there.kind == "file"):
            return was
        below = {p for p in was if p == source or p.startswith(source + "/")}
        left = {path: old for path, old in was.items() if path not in below}
        if name == "rename":
            left |= {arguments[1] + path.removeprefix(source): was[path] for path in below}
        return left

    def plan(
        self,
        *taken: int,
        verb: Verb = "revert",
        choices: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Plan:
        first = min(taken, default=0)
        steps = [
            PathStep(step.seq, step.change, step.seq in taken, step.call)
            for step in self.steps
            if step.seq >= first or verb == "rollback"
        ]
        return plan_taking_back(
            request=PlanRequest(verb, choices=choices or {}),
            head=self.seq,
            target="",
            reverts=taken,
            steps=steps,
            tree=self.tree,
            blobs=self.blobs,
            moves=self.moves,
            **options,
        )

    def after(self, plan: Plan) -> dict[str, FileState]:
        """The tree once the plan is carried out; every change must fit what is there."""
        for change in plan.changes:
            assert self.tree.get(change.path) == change.before != change.after
            if change.after and change.after.blob:
                assert change.after.blob in self.blobs or change.after.blob in plan.contents
        self.blobs.update(plan.contents)
        tree = apply(self.tree, plan.changes)
        for path in tree:
            assert all(tree[above].kind == "directory" for above in parents(path)), path
        return tree

    def text(self, tree: dict[str, FileState], path: str) -> bytes | None:
        return self.blobs[tree[path].blob] if path in tree else None


# --- random stories -----------------------------------------------------------------------

PATHS = ["a", "b", "d", "d/a", "d/b", "d/e", "d/e/a"]
CONTENTS = [b"one\n", b"two\n", b"1\n2\n3\n4\n5\n", b"0\n2\n3\n4\n5\n", b"1\n2\n3\n4\n6\n", b"\0"]
paths = st.sampled_from(PATHS)
acts = st.one_of(
    st.tuples(st.just("put"), paths, st.sampled_from(CONTENTS), st.sampled_from([None, 0o755])),
    st.tuples(st.just("link"), paths, st.sampled_from([b"a", b"d/b"])),
    st.tuples(st.just("folder"), paths, st.sampled_from([0o755, 0o700])),
    st.tuples(st.just("drop"), paths),
    st.tuples(st.just("rename"), paths, paths),
)
calls = st.lists(st.lists(acts, min_size=1, max_size=3), min_size=1, max_size=6)


def possible(tree: dict[str, FileState], act: Act) -> bool:
    """Whether a filesystem would let this happen."""
    kinds = {path: state.kind for path, state in tree.items()}
    name, *arguments = act
    if name == "drop":
        return arguments[0] in tree
    target = arguments[1] if name == "rename" else arguments[0]
    if any(kinds.get(above, "directory") != "directory" for above in parents(target)):
        return False
    if name == "rename":
        source = arguments[0]
        inside = source == target or target.startswith(source + "/")
        return (
            source in tree
            and not inside
            and kinds.get(target) != "directory"
            and not (kinds[source] == "directory" and target in tree)
        )
    return kinds.get(target, "directory" if name == "folder" else "file") in (
        ("directory",) if name == "folder" else ("file", "symlink")
    )


def play(story: Story, script: Script) -> list[int]:
    """Record the possible ones of the acts; the numbers of the calls that changed something."""
    numbers = []
    for one in script:
        probe = Story()
        probe.tree = dict(story.tree)
        doable = []
        for act in one:
            if possible(probe.tree, act):
                getattr(probe, act[0])(*act[1:])
                doable.append(act)
        if probe.tree != story.tree:
            numbers.append(story.call(*doable))
    return numbers


def started() -> Story:
    return Story({"a": CONTENTS[2], "d/b": b"one\n", "d/e/a": b"\0"})


def settled(plan: Plan) -> bool:
    return not plan.blocked and not plan.irreversible


@settings(max_examples=100)
@given(calls)
def test_taking_back_every_call_gives_the_starting_tree(script: Script) -> None:
    story = started()
    numbers = play(story, script)
    verbs: tuple[Verb, ...] = ("revert", "rollback")
    for verb in verbs:
        plan = story.plan(*numbers, verb=verb)
        assert settled(plan) and plan.kept == ()
        assert story.after(plan) == story.start


@settings(max_examples=100)
@given(calls)
def test_taking_back_the_last_call_gives_the_tree_before_it(script: Script) -> None:
    story = started()
    play(story, script[:-1])
    before = dict(story.tree)
    numbers = play(story, script[-1:])
    plan = story.plan(*numbers, verb="undo")
    assert settled(plan)
    assert story.after(plan) == before
    assert plan.kept == ()
    assert plan.already == () or not numbers


@settings(max_examples=100)
@given(calls, st.sets(st.integers(0, 5)))
def test_taking_back_what_was_taken_back_gives_the_head_again(
    script: Script, chosen: set[int]
) -> None:
    story = started()
    numbers = play(story, script)
    plan = story.plan(*[n for i, n in enumerate(numbers) if i in chosen])
    head = dict(story.tree)
    changed = story.after(plan)
    story.seq += 1
    story.steps += [PathStep(story.seq, change, False, story.seq) for change in plan.changes]
    story.moves[story.seq] = plan.moves
    story.tree = changed
    redo = story.plan(story.seq, verb="redo")
    assert settled(redo) and redo.kept == ()
    assert story.after(redo) == head


@settings(max_examples=100)
@given(calls, st.sets(st.integers(0, 5)))
def test_only_paths_that_were_touched_and_their_parents_change(
    script: Script, chosen: set[int]
) -> None:
    story = started()
    numbers = play(story, script)
    taken = {n for i, n in enumerate(numbers) if i in chosen}
    plan = story.plan(*taken)
    touched = {step.change.path for step in story.steps if step.seq in taken}
    for step in story.steps:  # and where renames that are kept have taken these files
        for move in story.moves.get(step.seq, ()):
            if move.source in touched:
                touched.add(move.target)
    allowed = touched | {above for path in touched for above in parents(path)}
    assert {change.path for change in plan.changes} <= allowed
    noted = {note.path for note in (*plan.blocked, *plan.irreversible)}
    assert noted.isdisjoint(change.path for change in plan.changes)
    story.after(plan)


@settings(max_examples=100)
@given(st.data())
def test_calls_on_different_files_are_taken_back_as_if_they_had_never_been(
    data: st.DataObject,
) -> None:
    """Oracle: the kept calls alone, played on the starting tree."""
    story, alone = started(), started()
    taken = []
    for _ in range(data.draw(st.integers(1, 8))):
        mine = data.draw(st.booleans())
        name = data.draw(st.sampled_from(["a", "d/a", "d/n/a", "x"] if mine else ["b", "d/b", "y"]))
        content = data.draw(st.sampled_from(CONTENTS))
        act = data.draw(st.sampled_from([("put", name, content, None), ("drop", name)]))
        if not possible(story.tree, act):
            continue
        number = story.call(act, hints=())
        if mine:
            taken.append(number)
        else:
            alone.call(act)
    plan = story.plan(*taken)
    assert settled(plan)
    assert story.after(plan) == alone.tree


@settings(max_examples=100)
@given(st.data())
def test_edits_of_different_lines_are_taken_back_each_by_itself(data: st.DataObject) -> None:
    """Oracle: the kept edits alone, on the starting text."""
    text = [b"line %d\n" % n for n in range(12)]
    story = Story({"f": b"".join(text)})
    alone, taken = list(text), []
    lines = data.draw(st.lists(st.integers(0, 5).map(lambda n: 2 * n), unique=True, min_size=1))
    for at in lines:
        text[at] = b"changed %d\n" % at
        number = story.call(("put", "f", b"".join(text)))
        if data.draw(st.booleans()):
            taken.append(number)
        else:
            alone[at] = text[at]
    assume(taken)
    plan = story.plan(*taken)
    assert settled(plan)
    assert story.text(story.after(plan), "f") == b"".join(alone)


# --- what was edited later ----------------------------------------------------------------


def test_a_later_edit_of_other_lines_is_kept_and_named() -> None:
    story = Story({"f": b"1\n2\n3\n"})
    first = story.call(("put", "f", b"one\n2\n3\n"))
    later = story.call(("put", "f", b"one\n2\nthree\n"))
    plan = story.plan(first)
    assert story.text(story.after(plan), "f") == b"1\n2\nthree\n"
    assert plan.merged == (Note("f", "changed later, kept", (later,)),) and not plan.kept


def test_a_later_edit_of_the_same_line_blocks_and_is_named() -> None:
    story = Story({"f": b"1\n"})
    first = story.call(("put", "f", b"one\n"))
    story.call(("put", "g", b""))
    later = story.call(("put", "f", b"ONE\n"))
    plan = story.plan(first)
    assert plan.changes == ()
    assert plan.blocked == (Note("f", f"same lines changed later by call {later}", (later,)),)


def test_an_outside_edit_of_the_same_line_blocks_and_is_named() -> None:
    story = Story({"f": b"1\n"})
    first = story.call(("put", "f", b"one\n"))
    story.call(("put", "f", b"ONE\n"), outside=True)
    assert story.plan(first).blocked == (Note("f", "same lines changed later from outside"),)


@pytest.mark.parametrize(
    ("choice", "text"),
    [
        ("current", b"ONE\nx\n"),
        ("old", b"1\n"),
        ("merge", b"<<<<<<< taken back\n1\n=======\nONE\nx\n>>>>>>> call 2\n"),
    ],
)
def test_a_blocked_file_goes_as_chosen(choice: str, text: bytes) -> None:
    story = Story({"f": b"1\n"})
    first = story.call(("put", "f", b"one\n"))
    story.call(("put", "f", b"ONE\nx\n"))
    plan = story.plan(first, choices={"f": choice})
    assert settled(plan)
    assert story.text(story.after(plan), "f") == text
    assert (plan.kept == (Note("f", "kept by choice"),)) == (choice == "current")


def test_only_the_call_that_conflicts_is_named() -> None:
    story = Story({"f": b"1\n2\n3\n"})
    first = story.call(("put", "f", b"one\n2\n3\n"))
    story.call(("put", "f", b"one\n2\nthree\n"))
    guilty = story.call(("put", "f", b"ONE\n2\nthree\n"))
    story.call(("put", "f", b"ONE\n2\nthree\nfour\n"))
    assert [note.calls for note in story.plan(first).blocked] == [(guilty,)]


def test_later_edits_that_cancel_each_other_do_not_block() -> None:
    story = Story({"f": b"1\n"})
    first = story.call(("put", "f", b"one\n"))
    story.call(("put", "f", b"ONE\n"))
    story.call(("put", "f", b"one\n"))
    plan = story.plan(first)
    assert story.after(plan) == story.start and plan.kept == ()


def test_a_call_between_two_taken_back_is_kept() -> None:
    story = Story({"f": b"1\n2\n3\n4\n5\n"})
    one = story.call(("put", "f", b"A\n2\n3\n4\n5\n"))
    story.call(("put", "f", b"A\n2\nB\n4\n5\n"))
    three = story.call(("put", "f", b"A\n2\nB\n4\nC\n"))
    plan = story.plan(one, three)
    assert story.text(story.after(plan), "f") == b"1\n2\nB\n4\n5\n"


def test_what_was_already_taken_back_needs_nothing() -> None:
    story = Story({"f": b"1\n"})
    first = story.call(("put", "f", b"one\n"), ("put", "new", b"n"))
    story.call(("put", "f", b"1\n"), ("drop", "new"))
    plan = story.plan(first)
    assert plan.changes == () and plan.already == ("f", "new")


def test_a_created_file_that_was_edited_later_is_not_deleted() -> None:
    story = Story()
    first = story.call(("put", "f", b"made\n"))
    later = story.call(("put", "f", b"made\nmine\n"))
    plan = story.plan(first)
    assert plan.changes == ()
    reason = f"made by what is taken back, changed later by call {later}"
    assert plan.blocked == (Note("f", reason, (later,)),)
    assert story.after(story.plan(first, choices={"f": "old"})) == {}


def test_mode_and_content_are_taken_back_apart() -> None:
    story = Story({"f": b"1\n"})
    first = story.call(("put", "f", b"1\n", 0o755))
    story.call(("put", "f", b"2\n"))
    after = story.after(story.plan(first))
    assert after["f"].mode == 0o644 and story.text(after, "f") == b"2\n"


def test_a_mode_changed_later_too_blocks() -> None:
    story = Story({"f": b"1\n"})
    first = story.call(("put", "f", b"1\n", 0o755))
    later = story.call(("put", "f", b"1\n", 0o600))
    assert story.plan(first).blocked == (
        Note("f", f"mode changed later by call {later}", (later,)),
    )


def test_a_binary_file_changed_later_blocks_also_when_a_merge_is_chosen() -> None:
    story = Story({"f": b"\0one"})
    first = story.call(("put", "f", b"\0two"))
    later = story.call(("put", "f", b"\0three"))
    for choices in ({}, {"f": "merge"}):
        plan = story.plan(first, choices=choices)
        assert [note.calls for note in plan.blocked] == [(later,)]
        assert "not text" in plan.blocked[0].reason


def test_a_symlink_is_taken_back_as_a_symlink() -> None:
    story = Story()
    story.call(("link", "l", b"a"))
    before = dict(story.tree)
    second = story.call(("drop", "l"), ("put", "l", b"file now"))
    assert story.after(story.plan(second)) == before


def test_symlinks_changed_twice_are_never_merged() -> None:
    story = Story()
    story.call(("link", "l", b"a\n"))
    second = story.call(("link", "l", b"b\n"))
    later = story.call(("link", "l", b"a\nc\n"))
    assert story.plan(second).blocked == (
        Note("l", f"pointed elsewhere later by call {later}", (later,)),
    )


# --- what came from outside, in a rollback ------------------------------------------------


def test_rollback_keeps_and_lists_what_came_from_outside() -> None:
    story = Story({"f": b"1\n2\n3\n", "g": b"g"})
    story.call(("put", "g", b"mine"), outside=True)
    one = story.call(("put", "f", b"one\n2\n3\n"))
    story.call(("put", "f", b"one\n2\nthree\n"), outside=True)
    plan = story.plan(one, verb="rollback")
    after = story.after(plan)
    assert story.text(after, "f") == b"1\n2\nthree\n" and story.text(after, "g") == b"mine"
    assert plan.merged == (Note("f", "changed outside, kept"),)
    assert plan.kept == (Note("g", "changed outside, kept"),)
    assert plan.already == ()


def test_rollback_takes_back_an_outside_edit_that_was_chosen() -> None:
    story = Story({"f": b"1", "g": b"g"})
    story.call(("put", "g", b"mine"), outside=True)
    one = story.call(("put", "f", b"one"))
    story.call(("drop", "f"), outside=True)
    plan = story.plan(one, verb="rollback", choices={"g": "old", "f": "old"})
    assert story.after(plan) == story.start and plan.kept == ()


def test_revert_does_not_mention_outside_edits_of_other_files() -> None:
    story = Story({"f": b"1", "g": b"g"})
    one = story.call(("put", "f", b"one"))
    story.call(("put", "g", b"mine"), outside=True)
    assert story.plan(one).kept == ()


def test_a_file_the_tree_has_otherwise_than_the_log_counts_as_changed_outside() -> None:
    story = Story({"f": b"1\n2\n3\n"})
    one = story.call(("put", "f", b"one\n2\n3\n"))
    story.put("f", b"one\n2\nthree\n")
    plan = story.plan(one)
    assert story.text(story.after(plan), "f") == b"1\n2\nthree\n"
    assert plan.merged == (Note("f", "changed outside, kept"),) and not plan.kept


# --- folders and names in the way ---------------------------------------------------------


def test_a_created_folder_goes_when_empty() -> None:
    story = Story()
    one = story.call(("put", "d/e/f", b"x"))
    assert story.after(story.plan(one)) == {}


def test_a_created_folder_stays_when_a_later_call_put_something_in() -> None:
    story = Story()
    one = story.call(("put", "d/e/f", b"x"))
    later = story.call(("put", "d/e/g", b"y"))
    plan = story.plan(one)
    assert sorted(story.after(plan)) == ["d", "d/e", "d/e/g"]
    reason = f"not empty: holds d/e/g, by call {later}"
    assert Note("d/e", reason, (later,)) in plan.kept
    assert [note.path for note in plan.kept] == ["d", "d/e"]


def test_a_file_comes_back_with_the_folders_a_later_call_removed() -> None:
    story = Story()
    story.call(("folder", "d", 0o700), ("folder", "d/e"), ("put", "d/e/f", b"x"))
    two = story.call(("drop", "d/e/f"))
    story.call(("drop", "d"))
    after = story.after(story.plan(two))
    assert sorted(after) == ["d", "d/e", "d/e/f"] and after["d"].mode == 0o700


def test_a_file_is_blocked_where_its_folder_is_a_file_now() -> None:
    story = Story({"d/f": b"x"})
    one = story.call(("drop", "d/f"))
    story.call(("drop", "d"))
    later = story.call(("put", "d", b"file"))
    plan = story.plan(one)
    assert plan.changes == ()
    assert plan.blocked == (Note("d/f", f"d is in the way, put there by call {later}", (later,)),)


def test_a_file_is_blocked_where_a_folder_with_later_files_stands() -> None:
    story = Story({"d": b"file"})
    one = story.call(("drop", "d"), ("put", "d/f", b"x"))
    later = story.call(("put", "d/g", b"y"))
    plan = story.plan(one)
    assert plan.blocked == (Note("d", f"not empty: holds d/g, by call {later}", (later,)),)
    assert story.tree["d"] == story.after(plan)["d"]


def test_names_that_differ_by_case_are_blocked_where_they_are_one_file() -> None:
    story = Story({"Read.me": b"x"})
    one = story.call(("drop", "Read.me"))
    story.call(("put", "READ.ME", b"y"))
    assert settled(story.plan(one))
    plan = story.plan(one, folds_case=True)
    assert [note.path for note in plan.blocked] == ["Read.me"] and plan.changes == ()


def test_names_that_differ_by_normal_form_are_blocked_where_they_are_one_file() -> None:
    story = Story({"e\u0301": b"x"})
    one = story.call(("drop", "e\u0301"))
    story.call(("put", "\u00e9", b"y"))
    assert [n.path for n in story.plan(one, folds_case=True).blocked] == ["e\u0301"]


def test_a_rename_by_case_alone_can_be_taken_back() -> None:
    story = Story({"a": b"x"})
    one = story.call(("rename", "a", "A"))
    plan = story.plan(one, folds_case=True)
    assert settled(plan) and story.after(plan) == story.start


# --- content that is gone -----------------------------------------------------------------


def test_a_file_whose_old_content_is_not_kept_is_irreversible() -> None:
    story = Story({"f": b"1", "g": b"g"})
    one = story.call(("put", "f", b"2"), ("put", "g", b"G"))
    kept = story.start["f"].blob
    assert kept is not None
    del story.blobs[kept]
    plan = story.plan(one)
    assert plan.irreversible == (Note("f", "its content was not kept", (one,)),)
    assert [change.path for change in plan.changes] == ["g"]


def test_a_file_that_could_not_come_back_is_not_removed_unless_chosen() -> None:
    story = Story()
    one = story.call(("put", "f", b"huge"))
    story.blobs.clear()
    plan = story.plan(one)
    assert plan.changes == () and [note.path for note in plan.irreversible] == ["f"]
    assert story.after(story.plan(one, choices={"f": "old"})) == {}


def test_a_moved_file_whose_content_is_not_kept_stays_where_it_is() -> None:
    story = Story({"f": b"huge"})
    one = story.call(("rename", "f", "g"))
    story.blobs.clear()
    plan = story.plan(one)
    assert plan.changes == () and [note.path for note in plan.irreversible] == ["g"]


def test_a_merge_whose_texts_are_not_kept_is_irreversible() -> None:
    story = Story({"f": b"1\n2\n3\n"})
    one = story.call(("put", "f", b"one\n2\n3\n"))
    story.call(("put", "f", b"one\n2\nthree\n"))
    del story.blobs[BlobId(sha256(b"one\n2\n3\n").hexdigest())]
    plan = story.plan(one)
    assert [note.path for note in plan.irreversible] == ["f"] and plan.changes == ()


# --- renames ------------------------------------------------------------------------------


def test_a_rename_taken_back_is_shown_as_a_move() -> None:
    story = Story({"a": b"x"})
    one = story.call(("rename", "a", "b"))
    plan = story.plan(one)
    assert story.after(plan) == story.start
    assert plan.moves == (Move("b", "a"),)


def test_an_edit_of_the_new_name_follows_the_rename_back() -> None:
    story = Story({"a": b"1\n2\n3\n"})
    one = story.call(("rename", "a", "d/b"))
    later = story.call(("put", "d/b", b"1\n2\nthree\n"))
    plan = story.plan(one)
    after = story.after(plan)
    assert story.text(after, "a") == b"1\n2\nthree\n" and list(after) == ["a"]
    assert plan.moves == (Move("d/b", "a"),)
    assert plan.merged == (Note("a", "changed later, kept", (later,)),) and not plan.kept


def test_an_edit_before_and_one_after_a_rename_are_merged_when_the_rest_is_taken_back() -> None:
    story = Story({"a": b"1\n2\n3\n"})
    one = story.call(("put", "a", b"one\n2\n3\n"))
    two = story.call(("rename", "a", "b"))
    story.call(("put", "b", b"one\n2\nthree\n"))
    after = story.after(story.plan(one, two))
    assert story.text(after, "a") == b"1\n2\nthree\n" and "b" not in after


def test_an_edit_is_taken_back_where_a_later_rename_has_put_the_file() -> None:
    story = Story({"a": b"1\n2\n3\n"})
    one = story.call(("put", "a", b"one\n2\n3\n"))
    two = story.call(("rename", "a", "b"))
    after = story.after(story.plan(one))
    assert list(after) == ["b"] and story.text(after, "b") == b"1\n2\n3\n"
    assert story.after(story.plan(one, two)) == story.start


def test_the_first_of_two_renames_is_blocked_by_the_second() -> None:
    story = Story({"a": b"x"})
    one = story.call(("rename", "a", "b"))
    two = story.call(("rename", "b", "c"))
    plan = story.plan(one)
    assert plan.changes == ()
    assert plan.blocked == (Note("c", f"moved again later by call {two}", (two,)),)
    assert story.after(story.plan(two))["b"] == story.start["a"]
    assert story.after(story.plan(one, two)) == story.start


def test_a_rename_over_another_file_brings_both_back() -> None:
    story = Story({"a": b"1\n2\n3\n", "b": b"other"})
    one = story.call(("rename", "a", "b"), hints=(Move("a", "b"),))
    story.call(("put", "b", b"1\n2\nthree\n"))
    after = story.after(story.plan(one))
    assert story.text(after, "a") == b"1\n2\nthree\n" and story.text(after, "b") == b"other"


def test_a_rename_is_blocked_when_the_old_name_is_in_use_again() -> None:
    story = Story({"a": b"x"})
    one = story.call(("rename", "a", "b"))
    later = story.call(("put", "a", b"new"))
    plan = story.plan(one)
    assert plan.changes == ()
    assert plan.blocked == (Note("b", f"a is in the way, put there by call {later}", (later,)),)
    forced = story.after(story.plan(one, choices={"b": "old"}))
    assert forced == story.start


def test_files_that_changed_places_change_back() -> None:
    story = Story({"a": b"1", "b": b"2"})
    one = story.call(
        ("rename", "a", "t"),
        ("rename", "b", "a"),
        ("rename", "t", "b"),
        hints=(Move("a", "b"), Move("b", "a")),
    )
    story.call(("put", "b", b"1 and more"))
    after = story.after(story.plan(one))
    assert story.text(after, "a") == b"1 and more" and story.text(after, "b") == b"2"


def test_a_folder_renamed_back_takes_its_files_and_leaves_later_ones() -> None:
    story = Story({"d/a": b"1", "d/b": b"2"})
    one = story.call(("rename", "d", "n"))
    story.call(("put", "n/c", b"3"))
    plan = story.plan(one)
    assert sorted(story.after(plan)) == ["d", "d/a", "d/b", "n", "n/c"]
    assert [note.path for note in plan.kept] == ["n"]


def test_a_file_deleted_after_its_rename_stays_deleted() -> None:
    story = Story({"a": b"x"})
    one = story.call(("rename", "a", "b"))
    story.call(("drop", "b"))
    plan = story.plan(one)
    assert settled(plan) and story.after(plan) == {}


def test_two_files_that_were_at_one_path_cannot_both_go_back() -> None:
    story = Story({"a": b"1"})
    one = story.call(("rename", "a", "b"))
    story.call(("put", "a", b"2"))
    three = story.call(("rename", "a", "c"))
    plan = story.plan(one, three)
    assert [note.path for note in plan.blocked] == ["b", "c"] and plan.changes == ()
    chosen = story.after(story.plan(one, three, choices={"b": "current"}))
    assert {path: story.text(chosen, path) for path in chosen} == {"a": b"2", "b": b"1"}


def test_a_folder_comes_back_for_its_files_although_a_later_call_removed_its_place() -> None:
    story = Story({"d/f": b"x"})
    one = story.call(("drop", "d"), ("link", "d", b"elsewhere"))
    story.call(("drop", "d"))
    plan = story.plan(one)
    assert settled(plan) and story.after(plan) == story.start


def test_a_created_folder_whose_mode_was_changed_later_goes_when_empty() -> None:
    story = Story()
    one = story.call(("put", "d/f", b"x"))
    story.call(("folder", "d", 0o700))
    assert story.after(story.plan(one)) == {}


def test_of_many_calls_three_are_named_in_words_and_all_by_number() -> None:
    story = Story()
    one = story.call(("put", "d/f", b"x"))
    later = tuple(story.call(("put", f"d/{n}", b"y")) for n in range(5))
    (note,) = story.plan(one).kept
    assert note == Note("d", "not empty: holds d/0 and 4 more, by calls 2, 3, 4 and 2 more", later)
