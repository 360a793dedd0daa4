"""Names of one file change together, and a name that comes to them changes none of them."""

from loom_audit.model.files import BlobId, FileChange, FileState
from loom_audit.model.plans.links import whole_groups

GROUP = 7


def state(text: str, group: int | None = None) -> FileState:
    return FileState("file", BlobId(text * 64), 0o644, 1, group)


def test_what_changes_one_name_changes_all() -> None:
    tree = {"a": state("1", GROUP), "b": state("1", GROUP)}
    change = FileChange("a", state("1", GROUP), state("2", GROUP))
    changes, divided = whole_groups([change], tree)
    assert {one.path: one.after for one in changes} == dict.fromkeys(tree, state("2", GROUP))
    assert not divided


def test_a_name_that_comes_back_to_a_file_that_changed_since_does_not_change_it() -> None:
    tree = {"a": state("2", GROUP), "c": state("2", GROUP)}
    changes, divided = whole_groups([FileChange("b", None, state("1", GROUP))], tree)
    assert [one.path for one in changes] == ["b"] and divided == {"a", "b", "c"}


def test_names_that_join_keep_their_contents() -> None:
    tree = {"a": state("1"), "b": state("2")}
    joined = [
        FileChange("a", state("1"), state("1", GROUP)),
        FileChange("b", state("2"), state("3", GROUP)),
    ]
    changes, divided = whole_groups(joined, tree)
    assert {one.path: one.after for one in changes} == {
        "a": state("1", GROUP),
        "b": state("3", GROUP),
    }
    assert divided == {"a", "b"}


def test_names_that_come_back_together_are_one_file() -> None:
    tree = {"a": state("1")}
    back = [
        FileChange("a", state("1"), state("2", GROUP)),
        FileChange("b", None, state("2", GROUP)),
    ]
    changes, divided = whole_groups(back, tree)
    assert [one.after for one in changes] == [state("2", GROUP)] * 2 and not divided
