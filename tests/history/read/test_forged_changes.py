"""The table of changes is altered, and recording goes on: what is recorded is right."""

import asyncio
import shutil
from contextlib import closing
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, open_store
from loom_audit.model.events import CallFinished, FilesChanged
from loom_audit.model.files import FileChange
from loom_audit.ports import CallFilter, EventFilter
from tests.history.record.test_continuity import impossible
from tests.integrity.test_verified_reads import again, forge
from tests.oracles.trees import tree_of
from tests.processes.ordinary_user import ordinary_session

NUMBER = "(SELECT number FROM path WHERE path = CAST('{}' AS BLOB))"
OTHER = f"(SELECT blob FROM tree_entry WHERE path = {NUMBER.format('d/other')})"
OURS = f"path = {NUMBER.format('a.txt')}"

FORGERIES = {
    "no changes": "DELETE FROM file_change",
    "no newest change": f"DELETE FROM file_change WHERE {OURS} AND seq = "
    f"(SELECT max(seq) FROM file_change WHERE {OURS})",
    "another content": f"UPDATE file_change SET new_blob = {OTHER}, new_size = 5, "
    f"old_blob = {OTHER}, old_size = 5 WHERE {OURS}",
    "another file": f"UPDATE file_change SET path = {NUMBER.format('d/other')} WHERE {OURS}",
}


def recorded_since(
    workspace: AuditedWorkspace, head: int
) -> list[tuple[str, FilesChanged, FileChange]]:
    return [
        (change.path, event.fact, change)
        for event in again(workspace).log.read(EventFilter(after=head))
        if isinstance(event.fact, FilesChanged)
        for change in event.fact.changes
    ]


def finishes(workspace: AuditedWorkspace) -> list[int]:
    wanted = EventFilter(kinds=(CallFinished.kind,))
    return [event.seq for event in workspace.log.read(wanted)]


@pytest.mark.few(2)
@pytest.mark.parametrize("how", FORGERIES)
def test_what_was_there_before_it_could_not_be_read_is_read_from_the_log(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ordinary_session({"a.txt": "one", "d/other": "other"}, monkeypatch) as session:
        workspace, root = session.workspace, Path(session.workspace.root)
        with session.recording("write"):
            (root / "a.txt").write_text("two")
        before = workspace.timeline.state("a.txt")
        with session.recording("write and close"):
            (root / "a.txt").write_text("three")
            (root / "a.txt").chmod(0)
        [closing_call, *_] = workspace.timeline.calls()
        head = workspace.log.head()
        forge(workspace, FORGERIES[how])
        (root / "a.txt").chmod(0o644)
        with closing(open_store()) as store, store.workspace(root).session("later") as later:
            with later.recording("look"):
                pass
            found = [c for p, fact, c in recorded_since(workspace, head) if p == "a.txt"]
            assert found[0].before == before
            assert impossible(workspace) == []
            later.workspace.carry_out(later.workspace.plan_revert([closing_call.seq or 0]))
        assert (root / "a.txt").read_text() == "two"


@pytest.mark.parametrize("how", ["another content", "no changes"])
def test_what_was_changed_while_it_could_not_be_read_does_not_come_back_as_it_was(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ordinary_session({"a.txt": "one", "d/other": "other"}, monkeypatch) as session:
        workspace, root = session.workspace, Path(session.workspace.root)
        (root / "a.txt").write_text("not seen")
        (root / "a.txt").chmod(0)
        with session.recording("look"):
            pass
        head = workspace.log.head()
        forge(workspace, FORGERIES[how])
        (root / "a.txt").chmod(0o644)
        (root / "a.txt").write_text("other")
        with closing(open_store()) as store, store.workspace(root).session("later") as later:
            with later.recording("look"):
                pass
            [(_, fact, _)] = recorded_since(workspace, head)
            assert fact.origin == "outside" and fact.arrived == ("a.txt",)
            plan = later.workspace.plan_rollback(head, outside=True)
            assert not plan.changes, "who does not know what it was deletes nothing"


@pytest.mark.parametrize(
    "sql", ["DELETE FROM file_change", "DELETE FROM candidate", "DELETE FROM change_set"]
)
def test_the_coverage_of_a_call_does_not_rest_on_the_table(
    sql: str, root: Path, workspace: AuditedWorkspace
) -> None:
    with workspace.session("one") as one, workspace.session("two") as two:
        with one.recording("outer"):
            with two.recording("inner"):
                (root / "new.txt").write_text("by either")
            forge(workspace, sql)
        calls = [again(workspace).timeline.call(n) for n in finishes(workspace)]
    assert [detail.call.coverage.level for detail in calls] == ["partial", "partial"]


@pytest.mark.few(2)
@pytest.mark.parametrize("how", FORGERIES)
@pytest.mark.parametrize("copied", [True, False], ids=["of a copy", "in place"])
def test_what_is_recorded_after_it_is_right_and_nothing_is_deleted(
    how: str, copied: bool, root: Path, workspace: AuditedWorkspace, home: Path
) -> None:
    """By tools, by a block and by hand, with and without the cache of what was seen."""
    (root / "d").mkdir()
    (root / "d" / "other").write_text("other")
    with workspace.session("before") as session, session.recording("write"):
        (root / "a.txt").write_text("two")
    head, was = workspace.log.head(), tree_of(root)
    forge(workspace, FORGERIES[how])
    if copied:  # as in another place, where nothing was seen yet
        shutil.rmtree(home / "index")
    with closing(open_store()) as store:
        found = store.workspace(root)
        with found.session("after") as session:
            with session.recording("run"):
                (root / "a.txt").write_text("three")
            arguments = {"path": "src/main.py", "content": "four"}
            assert asyncio.run(session.call("write_file", arguments)).success
            (root / "d" / "other").write_text("by hand")
        states = dict(again(workspace).timeline.tree(head))
        for path, _, change in recorded_since(workspace, head):
            assert change.before == states.get(path) and change.before is not None
            states[path] = change.after or states[path]
        assert impossible(workspace) == []
        for call in found.timeline.calls(CallFilter(limit=2)):
            shown = again(workspace).timeline.call(call.seq or 0)
            assert shown.call == call and len(shown.changes) == 1
        found.carry_out(found.plan_rollback(head, outside=True))
        assert tree_of(root) == was
        assert not found.verify().ok
        found.rebuild()
        assert found.differences() == []
    assert again(workspace).timeline.history("a.txt")
