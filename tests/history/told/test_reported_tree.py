"""The files of an imported transcript, followed call by call."""

from loom_audit.clients.reports import FileTold
from loom_audit.history.told.reported_tree import ReportedChanges, ReportedTree
from loom_audit.model.files import FileState
from tests.doubles.log import MemoryBlobStore


def paths(changes: ReportedChanges) -> tuple[list[str], list[str]]:
    return [one.path for one in changes.before], [one.path for one in changes.made]


def test_each_change_of_a_file_in_the_place_of_a_folder_applies_to_the_one_before() -> None:
    tree = ReportedTree(MemoryBlobStore(), "/project", {})
    states: dict[str, FileState | None] = {}
    told = [
        ("a/b/c", FileTold("/project/a/b/c", after="1"), (["a", "a/b"], ["a/b/c"])),
        ("a", FileTold("a", after="2"), (["a/b/c", "a/b", "a"], ["a"])),
        ("a/d", FileTold("a/d", before="3", after="4"), (["a", "a/d"], ["a/d"])),
        ("a/d", FileTold("a/d", after=None), ([], ["a/d"])),
    ]
    for name, file, expected in told:
        changes = tree.follow([file], "/project")
        assert paths(changes) == expected, name
        for change in (*changes.before, *changes.made):
            assert states.get(change.path) == change.before, (name, change.path)
            states[change.path] = change.after
    assert {path for path, state in states.items() if state} == {"a"}
