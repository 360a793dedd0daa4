"""The tree that facts make, against plain dictionaries: what applies, and what cannot have been."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_audit.model.applicable import in_applicable_order
from loom_audit.model.continuity import TreeFold
from loom_audit.model.events import (
    Fact,
    FilesChanged,
    PathsUntracked,
    ScopeAccepted,
    TreeRelisted,
    Untracked,
)
from loom_audit.model.files import BlobId, FileChange, FileState, diff, parents

FOLDER = FileState("directory", None, 0o755, 0)
OPAQUE = FileState("opaque", None, 0, 0)
FILES = [FileState("file", BlobId(f"{n:064x}"), 0o644, n) for n in range(3)]

names = st.sampled_from("ab")
paths = st.lists(names, min_size=1, max_size=3).map("/".join)
states = st.sampled_from([FOLDER, FOLDER, OPAQUE, *FILES])


def whole(entries: dict[str, FileState]) -> dict[str, FileState]:
    """A tree that can be: what is in a file or in what is not there is left out."""
    tree: dict[str, FileState] = {}
    for path in sorted(entries):
        above = path.rpartition("/")[0]
        if not above or tree.get(above) == FOLDER:
            tree[path] = entries[path]
    return tree


trees = st.dictionaries(paths, states, max_size=8).map(whole)
Step = dict[str, FileState] | set[str]
"""Another tree, or paths that are untracked from there on."""

steps = st.lists(trees | st.sets(paths, min_size=1, max_size=2), max_size=6)


def fold(facts: Sequence[Fact]) -> TreeFold:
    tree = TreeFold()
    for fact in facts:
        tree.follow(fact)
    return tree


def without(tree: dict[str, FileState], gone: set[str]) -> dict[str, FileState]:
    return {path: s for path, s in tree.items() if not {path, *parents(path)} & gone}


@given(steps)
def test_what_leads_from_one_tree_to_another_applies(
    found: list[dict[str, FileState] | set[str]],
) -> None:
    fold, tree = TreeFold(), dict[str, FileState]()
    for step in found:
        if isinstance(step, set):
            fold.follow(PathsUntracked(tuple(Untracked(path, "why") for path in sorted(step))))
            tree = without(tree, step)
            assert step <= fold.untracked
        else:
            fold.follow(FilesChanged(diff(tree, step), "outside"))
            tree = step
            assert not fold.untracked & set(step)
        assert fold.broken is None
        assert fold.states == tree


@given(trees, trees, st.data())
def test_what_says_something_else_is_found(
    old: dict[str, FileState], new: dict[str, FileState], data: st.DataObject
) -> None:
    changes = list(diff(old, new))
    if not changes:
        return
    n = data.draw(st.integers(0, len(changes) - 1))
    change = changes[n]
    other = data.draw(st.sampled_from([s for s in (None, FOLDER, *FILES) if s != change.before]))
    changes[n] = FileChange(change.path, other, change.after)
    tree = TreeFold(old)
    tree.follow(FilesChanged(tuple(changes), "outside"))
    assert tree.broken is not None and tree.broken.path == change.path


@given(trees, paths, st.sampled_from([None, FOLDER, *FILES]))
def test_one_change_applies_exactly_where_the_tree_after_it_can_be(
    tree: dict[str, FileState], path: str, after: FileState | None
) -> None:
    fold = TreeFold(tree)
    fold.follow(FilesChanged((FileChange(path, tree.get(path), after),), "outside"))
    result = {**tree, path: after} if after else {p: s for p, s in tree.items() if p != path}
    assert (fold.broken is None) == (whole(result) == result)


@given(trees, trees, trees)
def test_what_is_attempted_and_fails_leaves_the_tree_as_it_was(
    old: dict[str, FileState], new: dict[str, FileState], listed: dict[str, FileState]
) -> None:
    tree = TreeFold(old, {"u"})
    relisted = TreeRelisted(tuple(FileChange(p, None, s) for p, s in listed.items()))
    facts: list[Fact] = [
        FilesChanged(diff(old, new), "outside", intention=7),
        PathsUntracked((Untracked("a", "why"),)),
        ScopeAccepted("", (), ("b",)),
        relisted,
        FilesChanged(diff(listed, old), "outside"),
    ]
    with pytest.raises(KeyError), tree.attempt():
        for fact in facts:
            tree.follow(fact)
        raise KeyError
    assert (tree.states, tree.untracked, tree.broken) == (old, {"u"}, None)
    tree.follow(facts[0])
    assert tree.broken is None and tree.states == new


def test_a_listing_in_parts_counts_when_it_is_whole() -> None:
    a, b = FileChange("a", None, FOLDER), FileChange("a/b", None, FILES[1])
    broken = FilesChanged((FileChange("x", FILES[0], None),), "outside")
    first, last = TreeRelisted((a,), 1, False), TreeRelisted((b,), 2, True)
    again = TreeRelisted((a, b), 1, True, (Untracked("u", "why"),))
    assert fold([broken, first]).broken is not None
    assert fold([broken, last]).broken is not None
    assert fold([broken, first, first, last]).broken is None
    assert fold([broken, first, last]).states == {"a": FOLDER, "a/b": FILES[1]}
    tree = fold([broken, first, again])
    assert (tree.states, tree.untracked) == ({"a": FOLDER, "a/b": FILES[1]}, {"u"})
    assert fold([TreeRelisted((b,))]).broken is not None


def test_what_was_recorded_twice_by_an_interruption_changes_nothing() -> None:
    made = FilesChanged((FileChange("a", None, FILES[0]),), "undo", "c", intention=3)
    assert fold([made, made]).broken is None
    assert fold([made, FilesChanged(made.changes, "undo", "c")]).broken is not None


def test_formats_before_kept_what_was_untracked() -> None:
    made = FilesChanged((FileChange("a", None, FILES[0]),), "outside")
    kept = PathsUntracked((Untracked("a", "unreadable"),), kept=True)
    assert fold([made, kept]).states == {"a": FILES[0]}


owners = st.lists(st.integers(0, 2), min_size=40, max_size=40)


@given(trees, trees, owners)
def test_changes_of_several_owners_apply_one_event_after_the_other(
    old: dict[str, FileState], new: dict[str, FileState], whose: list[int]
) -> None:
    parts: dict[int, list[FileChange]] = {}
    for owner, change in zip(whose, diff(old, new), strict=False):
        parts.setdefault(owner, []).append(change)
    tree = TreeFold(old)
    said = []
    for owner, part in in_applicable_order(parts):
        assert all(change in parts[owner] for change in part)
        tree.follow(FilesChanged(tuple(part), "command"))
        said += part
    assert tree.broken is None and tree.states == new
    assert sorted(change.path for change in said) == sorted(c.path for c in diff(old, new))
